"""Bracketed trees in the Penn Treebank's format: `Tree`, and a reader for such files.

The reader accepts the layouts in use: several trees on a line or one tree over many lines, with the empty
outer bracket `( (S ...) )`, a named one (`ROOT`, `TOP`, `S1`) or none, comment lines between trees, any
line ending, a UTF-8 byte order mark. Anything else is an error that names the file, the line and the tree;
nothing is skipped silently.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from nbl.errors import UserError, shorten
from nbl.files import read_text
from nbl.sentence import MAX_DEPTH, MAX_LEAVES, MAX_TOKEN

OUTER_BRACKETS = {"", "ROOT", "TOP", "S1"}
COMMENT = re.compile(r"\s*(#|%%|;;|\*x\*)")
TOKEN = re.compile(r"[()]|[^\s()]+")


class TreebankError(UserError):
    """A file that is not a sequence of well-formed trees."""


@dataclass(slots=True, eq=False)
class Tree:
    """A constituent with `children`, or a preterminal with its `word`.

    `head` and `adverbial` are set in the copies that `nbl.corpus.heads` makes: the number of the head word,
    counted from 1, and whether the label was that of an adverbial noun phrase.
    """

    label: str
    children: list[Tree] = field(default_factory=list)
    word: str = ""
    head: int = 0
    adverbial: bool = False

    def subtrees(self) -> Iterator[Tree]:
        """The tree and all inside it in pre-order; the children of the tree just yielded may be changed."""
        stack = [self]
        while stack:
            tree = stack.pop()
            yield tree
            stack.extend(reversed(tree.children))

    def constituents(self) -> Iterator[Tree]:
        """The subtrees that have children."""
        return (tree for tree in self.subtrees() if tree.children)

    def preterminals(self) -> Iterator[Tree]:
        """The (tag word) leaves from left to right, traces and punctuation included."""
        return (tree for tree in self.subtrees() if not tree.children)

    def has(self, *labels: str) -> bool:
        """Whether a child has one of the labels."""
        return any(child.label in labels for child in self.children)

    def __str__(self) -> str:
        """The tree on one line, in brackets."""
        return f"({self.label} {self.word or ' '.join(map(str, self.children))})"


def read_trees(path: str | Path) -> Iterator[Tree]:
    """Yield the trees of a file in order, without their outer bracket."""
    yield from parse_trees(read_text(path), str(path))


def parse_trees(text: str, name: str = "text") -> Iterator[Tree]:
    """Yield the trees of a text; error messages call it `name`.

    >>> [str(tree) for tree in parse_trees("( (S (NP (PRP I)) (VP (VBP see))) ) (X (SYM a))")]
    ['(S (NP (PRP I)) (VP (VBP see)))', '(X (SYM a))']
    """
    path: list[Tree] = []  # from the outermost open bracket to the innermost
    expects_label = False  # the previous token was an opening bracket
    count = leaves = 0
    line_number = 0

    def error(message: str) -> TreebankError:
        return TreebankError(f"{name}, line {line_number}, tree {count + 1}: {message}")

    for line_number, line in enumerate(text.split("\n"), start=1):  # noqa: B007 (used by error())
        if not path and COMMENT.match(line):
            continue
        for match in TOKEN.finditer(line):
            token = match.group()
            if len(token) > MAX_TOKEN:
                raise error(f"{shorten(token)!r} has {len(token)} characters (at most {MAX_TOKEN}): not a tree")
            if token == "(":
                node = Tree("")
                if path and path[-1].word:
                    raise error(f"a bracket after the word {path[-1].word!r} inside one constituent")
                if len(path) == MAX_DEPTH:
                    raise error(f"more than {MAX_DEPTH} open brackets")
                if path:
                    path[-1].children.append(node)
                path.append(node)
                expects_label = True
                continue
            if not path:
                stray = f"stray text {shorten(token)!r} outside any bracket"
                raise error("a closing bracket that nothing opened" if token == ")" else stray)
            node = path[-1]
            if token == ")":
                path.pop()
                if not node.children and not node.word:
                    raise error(f"the constituent ({node.label}) is empty")
                if not node.label and path:
                    raise error("a bracket without a label inside the tree")
                if not path:
                    yield _without_outer_bracket(node)
                    count, leaves = count + 1, 0
            elif expects_label:
                node.label = token
            elif node.children or not node.label:
                raise error(f"the word {shorten(token)!r} has no tag of its own")
            elif node.word:
                raise error(f"two words under one tag: {node.word!r} and {shorten(token)!r}")
            elif leaves == MAX_LEAVES:
                raise error(f"more than {MAX_LEAVES} words: write one tree per sentence")
            else:
                node.word = token
                leaves += 1
            expects_label = False
    if path:
        raise error(f"the file ends inside the tree, {len(path)} brackets still open")


def _without_outer_bracket(tree: Tree) -> Tree:
    """`( (S ...) )` and `(ROOT (S ...))` are the tree `(S ...)`."""
    if tree.label in OUTER_BRACKETS and len(tree.children) == 1:
        return tree.children[0]
    return tree
