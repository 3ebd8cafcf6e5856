"""Bracketed trees in the Penn Treebank's format: `Tree`, and the reader for any such file.

The reader takes what is found in the wild: several trees on a line or one tree over many lines,
with the empty outer bracket `( (S ...) )`, a named one (`ROOT`, `TOP`, `S1`) or none, comment
lines between trees, any line ending, a UTF-8 byte order mark. Anything else is an error that
names the file, the line and the tree; nothing is skipped silently.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from nbl.errors import UserError, shorten
from nbl.files import read_text

OUTER_BRACKETS = {"", "ROOT", "TOP", "S1"}
COMMENT = re.compile(r"\s*(#|%%|;;|\*x\*)")
TOKEN = re.compile(r"[()]|[^\s()]+")
MAX_DEPTH = 500  # the deepest tree of the Wall Street Journal has about 40 levels
MAX_LEAVES = 2000  # the largest one has about 250
MAX_TOKEN = 500  # characters


class TreebankError(UserError):
    """A file that is not a sequence of well-formed trees."""


@dataclass(slots=True)
class Tree:
    """A constituent with `children`, or a preterminal with its `word` (and no children)."""

    label: str
    children: list[Tree] = field(default_factory=list)
    word: str | None = None

    @property
    def is_preterminal(self) -> bool:
        return self.word is not None

    def preterminals(self) -> Iterator[Tree]:
        """The (tag word) leaves from left to right, traces and punctuation included."""
        if self.is_preterminal:
            yield self
        for child in self.children:
            yield from child.preterminals()

    def __str__(self) -> str:
        """The tree on one line, in brackets."""
        inside = self.word if self.is_preterminal else " ".join(map(str, self.children))
        return f"({self.label} {inside})"


def read_trees(path: str | Path) -> Iterator[Tree]:
    """Yield the trees of a file in order, without their outer bracket."""
    yield from parse_trees(read_text(path), str(path))


def parse_trees(text: str, name: str = "<text>") -> Iterator[Tree]:
    """Yield the trees of a text; `name` stands for the file in error messages.

    >>> [str(tree) for tree in parse_trees("( (S (NP (PRP I)) (VP (VBP see))) ) (X (SYM a))")]
    ['(S (NP (PRP I)) (VP (VBP see)))', '(X (SYM a))']
    """
    open_nodes: list[Tree] = []  # the path from the outermost open bracket to the innermost
    expects_label = False  # the previous token was an opening bracket
    count = leaves = 0
    line_number = 0

    def error(message: str) -> TreebankError:
        return TreebankError(f"{name}, line {line_number}, tree {count + 1}: {message}")

    for line_number, line in enumerate(text.split("\n"), start=1):  # noqa: B007 (used by error())
        if not open_nodes and COMMENT.match(line):
            continue
        for match in TOKEN.finditer(line):
            token = match.group()
            if len(token) > MAX_TOKEN:
                raise error(f"{shorten(token)!r} has {len(token)} characters (at most {MAX_TOKEN}): not a tree")
            if token == "(":
                if open_nodes and open_nodes[-1].is_preterminal:
                    raise error(f"a bracket after the word {open_nodes[-1].word!r} inside one constituent")
                if len(open_nodes) == MAX_DEPTH:
                    raise error(f"more than {MAX_DEPTH} open brackets")
                node = Tree("")
                if open_nodes:
                    open_nodes[-1].children.append(node)
                open_nodes.append(node)
                expects_label = True
                continue
            if token == ")":
                if not open_nodes:
                    raise error("a closing bracket that nothing opened")
                node = open_nodes.pop()
                if not node.children and node.word is None:
                    raise error(f"the constituent ({node.label}) is empty")
                if not node.label and open_nodes:
                    raise error("a bracket without a label inside the tree")
                if not open_nodes:
                    yield _without_outer_bracket(node)
                    count, leaves = count + 1, 0
            elif not open_nodes:
                raise error(f"stray text {shorten(token)!r} outside any bracket")
            elif expects_label:
                open_nodes[-1].label = token
            elif open_nodes[-1].children or not open_nodes[-1].label:
                raise error(f"the word {shorten(token)!r} has no tag of its own")
            elif open_nodes[-1].is_preterminal:
                raise error(f"two words under one tag: {open_nodes[-1].word!r} and {shorten(token)!r}")
            else:
                open_nodes[-1].word = token
                leaves += 1
                if leaves > MAX_LEAVES:
                    raise error(f"more than {MAX_LEAVES} words: a tree is expected for each sentence")
            expects_label = False
    if open_nodes:
        raise error(f"the file ends inside the tree, {len(open_nodes)} brackets still open")


def _without_outer_bracket(tree: Tree) -> Tree:
    """`( (S ...) )` and `(ROOT (S ...))` are the tree `(S ...)`."""
    if tree.label in OUTER_BRACKETS and len(tree.children) == 1:
        return tree.children[0]
    return tree
