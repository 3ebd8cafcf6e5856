"""The public interface: `nbl.build`, `nbl.load` and `nbl.read_corpus`."""

import inspect
import json
import subprocess
import sys
from xml.etree import ElementTree

import pytest
import torch
from tiny_runs import SIZES, call, made_up, tiny_run

import nbl
from nbl.errors import UserError
from nbl.formats import Tree
from nbl.sentence import MAX_LENGTH


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("api")


@pytest.fixture(scope="module")
def corpus(folder):
    return made_up(folder / "corpus")


@pytest.fixture(scope="module", params=["npcfg", "nblpcfg"])
def grammar(request, folder, corpus):
    return nbl.load(tiny_run(corpus, folder / request.param, request.param))


def lexicalised(grammar):
    return grammar.run.config.model == "nblpcfg"


def test_importing_nbl_imports_neither_torch_nor_anything_else_of_it():
    code = "import sys, nbl; print(*(m for m in sys.modules if m == 'torch' or m.startswith('nbl.')))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.split() == []


@pytest.mark.parametrize("name", nbl.__all__)
def test_every_argument_is_documented(name):
    function = getattr(nbl, name)
    text = inspect.getdoc(function)
    for heading in ("Arguments:", "Returns:", "Raises:", "Example:"):
        assert heading in text
    for argument in inspect.signature(function).parameters:
        assert f"    {argument}: " in text


@pytest.mark.parametrize("decoder", ["mbr", "cyk"])
def test_text_in_tree_out(grammar, decoder):
    tree = grammar.parse("The dog, they say, sees a Dog.", decoder=decoder)
    assert isinstance(tree, Tree)
    assert tree.words == ["The", "dog", "they", "say", "sees", "a", "Dog"]
    words = torch.tensor([grammar.vocabulary.ids(["the", "dog", "they", "say", "sees", "a", "dog"])])
    [parse] = grammar.model.parse(words, torch.tensor([7]), decoder=decoder)
    assert tree.spans == [(i, j, None if decoder == "mbr" else f"NT{label}") for i, j, label in parse.spans]
    assert tree.heads == parse.heads
    assert (tree.heads is not None) == lexicalised(grammar)
    with torch.no_grad():
        expected = grammar.model.log_likelihood(words, torch.tensor([7])).item()
    assert tree.log_prob == grammar.log_prob("the dog they say sees a dog") == pytest.approx(expected, abs=1e-4)


def test_one_sentence_is_one_tree_and_several_are_a_list(grammar):
    tree = grammar.parse("a dog sees the cat")
    assert grammar.parse("a dog sees the cat\n") == tree
    assert grammar.parse(["a dog sees the cat"]) == [tree]
    assert grammar.parse("a dog sees the cat\n\na dog sees the cat") == [tree, grammar.parse(""), tree]
    assert grammar.parse(iter(["a dog sees the cat"] * 2)) == [tree] * 2
    assert grammar.parse([]) == grammar.log_prob([]) == []
    log_prob = grammar.log_prob("a dog sees the cat")
    assert grammar.log_prob("a dog sees the cat\nHm!\n") == [log_prob, None]


def test_trees_are_those_of_the_verbs(grammar, tmp_path):
    text = "The dog sees a cat\nHm!\n\nUnicorns (if any) bark\n"
    (tmp_path / "text").write_text(text)
    trees = grammar.parse(text, decoder="cyk")
    _, out, _ = call("parse", grammar.run.path, tmp_path / "text", "--decoder", "cyk")
    assert out == "".join(tree.brackets + "\n" for tree in trees)
    _, out, _ = call("parse", grammar.run.path, tmp_path / "text", "--decoder", "cyk", "--json")
    assert out == "".join(tree.json + "\n" for tree in trees)
    found = json.loads(call("score", grammar.run.path, tmp_path / "text", "--json")[1])
    assert [sentence["log_prob"] for sentence in found["sentences"]] == grammar.log_prob(text)
    assert call("sample", grammar.run.path, "-n", 3, "--max-length", 8)[1].splitlines() == [
        tree.brackets for tree in grammar.sample(3, max_length=8)
    ]


@pytest.mark.parametrize("text", ["", " \t", "...", "?! ( ) -- ''"])
def test_text_without_words(grammar, text):
    tree = grammar.parse(text)
    assert tree == Tree([], [], [] if lexicalised(grammar) else None)
    assert (tree.brackets, tree.log_prob, grammar.log_prob(text)) == ("", None, None)
    assert repr(tree) == "<Tree without words>"
    assert ElementTree.fromstring(tree._repr_svg_()).tag.endswith("svg")


@pytest.mark.parametrize("text", ["Hm!", "dog", "Unicorns."])
def test_one_word(grammar, text):
    tree = grammar.parse(text)
    [word] = tree.words
    assert tree == Tree([word], [], [0] if lexicalised(grammar) else None)
    assert tree.brackets == f"(T {word})"
    assert grammar.log_prob(text) is None
    assert word in tree._repr_svg_()


def test_unknown_words_are_kept_as_written_and_parsed_alike(grammar):
    tree, other = grammar.parse(["Ünïcörns 我们 b.c.", "xx yy zz"], decoder="cyk")
    assert tree.words == ["Ünïcörns", "我们", "b.c."]
    assert (tree.spans, tree.heads, tree.log_prob) == (other.spans, other.heads, other.log_prob)


def test_too_long_a_sentence_is_refused(grammar):
    assert len(grammar.parse("dog " * MAX_LENGTH).words) == MAX_LENGTH
    with pytest.raises(UserError, match="the text, line 2: 251 words"):
        grammar.parse(["a dog", "dog " * (MAX_LENGTH + 1)])


def test_unknown_decoder_is_refused(grammar):
    with pytest.raises(UserError, match="unknown decoder 'best'"):
        grammar.parse("a dog sees", decoder="best")


def test_grammars_and_trees_introduce_themselves(grammar):
    title = "NBL-PCFG" if lexicalised(grammar) else "N-PCFG"
    assert repr(grammar).startswith(f"<{title} trained on made-up: {grammar.run.path}, ")
    tree = grammar.parse("a dog sees")
    assert str(tree) == tree.brackets
    assert repr(tree) == f"<Tree {tree.brackets}, log p = {tree.log_prob:.3f}>"
    drawn = [element.text for element in ElementTree.fromstring(tree._repr_svg_()).iter()]
    assert {"a", "dog", "sees"} <= set(drawn)


def test_a_run_without_vocabulary_needs_its_corpus(corpus, folder, tmp_path):
    run = tiny_run(corpus, tmp_path / "run", "npcfg")
    expected = nbl.load(run).parse("a dog sees")
    (run / "vocab.txt").unlink()
    with pytest.raises(UserError, match=r"there is no .*vocab.txt: .*corpus_dir="):
        nbl.load(run)
    assert nbl.load(run, corpus_dir=folder / "corpus").parse("a dog sees") == expected
    other = made_up(tmp_path / "other")
    other.vocabulary.words.append("more")
    other.vocabulary.write(tmp_path / "other" / "vocab.txt")
    with pytest.raises(UserError, match="is not the vocabulary of the run"):
        nbl.load(run, corpus_dir=tmp_path / "other")


def test_what_is_not_a_run_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"no config\.yaml"):
        nbl.load(str(tmp_path))


def test_unknown_device_is_refused(grammar):
    with pytest.raises(UserError, match="unknown device 'tpu'"):
        nbl.load(grammar.run.path, device="tpu")


def test_build_refuses_unknown_names_and_settings():
    sizes = {key: int(value) for key, value in (size.split("=") for size in SIZES["nblpcfg"])}
    grammar = nbl.build("nblpcfg", 10, **sizes)
    assert sum(p.numel() for p in grammar.parameters()) > 0
    with pytest.raises(UserError, match="unknown model 'pcfg'"):
        nbl.build("pcfg", 10)
    with pytest.raises(UserError, match="NT is 0"):
        nbl.build("npcfg", 10, NT=0)


def test_read_corpus(corpus, folder, tmp_path):
    found = nbl.read_corpus(folder / "corpus")
    assert found.test == corpus.test
    assert found.vocabulary.words == corpus.vocabulary.words
    with pytest.raises(UserError, match="holds no prepared corpus"):
        nbl.read_corpus(tmp_path)
