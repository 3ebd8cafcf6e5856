"""The bracket reader: what it accepts, and what it says of what it does not."""

from dataclasses import asdict

import nltk
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbl.corpus.treebank import Tree, TreebankError, parse_trees, read_trees
from nbl.errors import UserError

SIMPLE = "(S (NP (PRP we)) (VP (VBP see) (NP (PRP it))))"


@pytest.mark.parametrize(
    "text",
    [
        SIMPLE,
        f"( {SIMPLE} )",
        f"(\n\n {SIMPLE}\n)\n",
        f"(ROOT {SIMPLE})",
        f"(TOP {SIMPLE})",
        SIMPLE.replace(" ", "\r\n  "),
        f"# a comment\n%% another\n;; a third\n*x*x*x*\n{SIMPLE}\n",
    ],
)
def test_every_layout_gives_the_same_tree(text):
    assert [str(tree) for tree in parse_trees(text)] == [SIMPLE]


def test_several_trees_on_a_line():
    assert [str(tree) for tree in parse_trees(f"{SIMPLE} ({SIMPLE}){SIMPLE}\n")] == [SIMPLE] * 3


def test_a_comment_sign_inside_a_tree_is_a_token():
    text = "(NP\n# not a comment\n(CD 3))"
    with pytest.raises(TreebankError, match=r"two words under one tag: '#' and 'not'"):
        list(parse_trees(text))
    assert [leaf.word for leaf in next(parse_trees("(NP (# #)\n(CD 3))")).preterminals()] == ["#", "3"]


def test_an_outer_bracket_over_two_trees_is_kept():
    (tree,) = parse_trees("( (S (UH yes)) (. .) )")
    assert tree.label == ""
    assert [leaf.word for leaf in tree.preterminals()] == ["yes", "."]


def test_byte_order_mark_and_crlf(tmp_path):
    path = tmp_path / "a tree é.mrg"
    path.write_bytes(b"\xef\xbb\xbf" + SIMPLE.replace(" (", "\r\n(").encode() + b"\r\n")
    assert [str(tree) for tree in read_trees(path)] == [SIMPLE]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{SIMPLE}\n(S (NP (PRP we))", r"x.mrg, line 2, tree 2: the file ends inside the tree, 1 brackets"),
        (f"{SIMPLE}\n\n)", r"x.mrg, line 3, tree 2: a closing bracket that nothing opened"),
        ("()", r"line 1, tree 1: the constituent \(\) is empty"),
        ("(S\n (NP )\n)", r"line 2, tree 1: the constituent \(NP\) is empty"),
        (f"{SIMPLE} junk {SIMPLE}", r"line 1, tree 2: stray text 'junk'"),
        ("(S (NN big dog))", r"two words under one tag: 'big' and 'dog'"),
        ("(S (NP (NN dog)) barks)", r"the word 'barks' has no tag of its own"),
        ("(S (NN dog (NN cat)))", r"a bracket after the word 'dog'"),
        ("(S ((NN dog)))", r"a bracket without a label inside the tree"),
        ("(" * 501, r"more than 500 open brackets"),
        ("x" * 100, r"stray text 'x{40}\.\.\.'"),
    ],
)
def test_malformed_trees_are_named(text, message):
    with pytest.raises(TreebankError, match=message):
        list(parse_trees(text, "x.mrg"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"(S (NN caf\xe9))\n", r"line 1: byte 0xe9 is not UTF-8"),
        (b"\n\n(S (NN a\0b))\n", r"line 3: a NUL byte"),
    ],
)
def test_files_that_are_not_text(tmp_path, data, message):
    path = tmp_path / "x.mrg"
    path.write_bytes(data)
    with pytest.raises(UserError, match=message):
        list(read_trees(path))


def test_a_missing_file(tmp_path):
    with pytest.raises(UserError, match=r"cannot read .*nowhere\.mrg: No such file"):
        list(read_trees(tmp_path / "nowhere.mrg"))


LABELS = st.text("ABCNPSV-=|$*1", min_size=1, max_size=6)
WORDS = st.text(st.characters(exclude_characters="()", exclude_categories=["Z", "C"]), min_size=1, max_size=6)
TREES = st.recursive(
    st.builds(lambda label, word: Tree(label, word=word), LABELS, WORDS),
    lambda trees: st.builds(Tree, LABELS, st.lists(trees, min_size=1, max_size=3)),
    max_leaves=12,
).filter(lambda tree: tree.children)


@given(st.lists(TREES, max_size=3))
def test_printed_trees_are_read_back(trees):
    text = "\n".join(f"( {tree} )" for tree in trees)
    assert list(map(asdict, parse_trees(text))) == list(map(asdict, trees))


@given(TREES.filter(lambda tree: "\\" not in str(tree)))  # NLTK takes a backslash for an escape
def test_the_reader_agrees_with_nltk(tree):
    (ours,) = parse_trees(str(tree))
    theirs = nltk.Tree.fromstring(str(tree))
    assert [(leaf.word, leaf.label) for leaf in ours.preterminals()] == theirs.pos()


@given(st.text("()ab \n#", max_size=40))
def test_any_text_is_read_or_refused(text):
    try:
        trees = list(parse_trees(text))
    except TreebankError:
        return
    assert all(list(tree.preterminals()) for tree in trees)
