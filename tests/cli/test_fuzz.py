"""Files from strangers: whatever their bytes, a reader reads them or refuses them in a sentence, and soon.

`make fuzz` tries many more than the tests do.
"""

import json
import os
import random
import zipfile

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tiny_runs import call

from nbl.corpus.conllx import read_conllx
from nbl.corpus.folder import read_sentences
from nbl.corpus.own import own_source
from nbl.corpus.treebank import read_trees
from nbl.errors import UserError
from nbl.predictions import read_predictions
from nbl.sentence import Sentence

EXAMPLES = int(os.environ.get("NBL_FUZZ_EXAMPLES", "200"))
many = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

TREES = b"""( (S (NP-SBJ (DT The) (NN dog)) (VP (VBZ barks) (NP (-NONE- *T*-1))) (. .)) )
(ROOT (S (NP (PRP I)) (VP (VBP see) (NP (NNP AT&T) (POS 's) (CD 3,000) ($ $)))))
"""
CONLLX = b"""1\tThe\tthe\tDT\tDT\t_\t2\tdet\t_\t_
2\tdog\tdog\tNN\tNN\t_\t3\tnsubj\t_\t_
3\tbarks\tbark\tVB\tVBZ\t_\t0\troot\t_\t_

# a comment
1\tYes\tyes\tUH\tUH\t_\t0\troot\t_\t_
"""
SENTENCE = json.dumps({"id": "a", "words": ["x", "y"], "ids": [1, 2], "spans": [[0, 2, "S"]]}).encode() + b"\n"
PREDICTION = (
    b'{"id":"a","length":2,"spans":[[0,2,1]],"heads":[0,1],"log_prob":-3.0,"tree_log_prob":null}\n'  # what is expected
)
PIECES = [b"(", b")", b" ", b"\n", b"\r", b"\t", b"\0", b"#", b"_", b"0", b"-1", b"9" * 30, b"\xff", b"\xef\xbb\xbf"]
PIECES += ["\u2028 \u00a0\u0664".encode(), b"(" * 600, b"a" * 2000, b"[" * 20000, b"{", b'"', b"NaN", b"1e999", b"null"]


@st.composite
def damaged(draw, whole):
    """The bytes of a good file after some cuts, repetitions and insertions."""
    data = whole
    for _ in range(draw(st.integers(1, 6))):
        at, end = sorted(draw(st.tuples(st.integers(0, len(data)), st.integers(0, len(data)))))
        piece = draw(st.one_of(st.sampled_from(PIECES), st.binary(max_size=8), st.just(data[at:end])))
        data = data[:at] + piece + data[draw(st.sampled_from([at, end])) :]
    return data


def read_or_refuse(read, path, data):
    path.write_bytes(data)
    try:
        return read(path)
    except UserError as error:
        sentence = str(error)
    assert "\n" not in sentence
    assert len(sentence) < 1000
    return None


@many
@given(damaged(TREES))
@example(b"(S (NN a)" + b"(NN b)" * 2000 + b")")
@example(b"( (S (NP (NN a)))\n" * 3)
def test_brackets(tmp_path, data):
    path = tmp_path / "trees.mrg"
    trees = read_or_refuse(lambda path: list(read_trees(path)), path, data)
    if trees is not None:
        path.write_text("".join(f"{tree}\n" for tree in trees), encoding="utf-8")
        # an outer bracket without a name goes once more if it has one child
        assert [list(map(str, t.preterminals())) for t in read_trees(path)] == [
            list(map(str, t.preterminals())) for t in trees
        ]
    read_or_refuse(lambda path: own_source([str(path)], []), path, data)


@many
@given(damaged(CONLLX))
@example(b"".join(b"%d\tw\t_\tN\tN\t_\t%d\td\t_\t_\n" % (k + 1, k) for k in range(20000)))
def test_conllx(tmp_path, data):
    sentences = read_or_refuse(read_conllx, tmp_path / "heads.conllx", data)
    for tokens in sentences or []:
        assert [token.id for token in tokens] == list(range(1, len(tokens) + 1))
        assert sum(token.head == 0 for token in tokens) == 1


@many
@given(st.one_of(st.binary(max_size=200), damaged(b"The U.S. dog doesn't bark, 3,000 cats do.\n")))
def test_text(tmp_path, data):
    read_or_refuse(lambda path: own_source([], [str(path)]), tmp_path / "text.txt", data)


@many
@given(damaged(SENTENCE))
def test_sentences(tmp_path, data):
    for sentence in read_or_refuse(read_sentences, tmp_path / "train.jsonl", data) or []:
        assert len(sentence.ids) == len(sentence.words)


@many
@given(damaged(PREDICTION))
@example(PREDICTION.replace(b'"a"', b"1") * 2)
@example(PREDICTION.replace(b'"a"', b'["a"]'))
@example(PREDICTION.replace(b"-3.0", b"9" * 400))
def test_predictions(tmp_path, data):
    sentences = [Sentence("a", ["x", "y"])]
    for prediction in (
        read_or_refuse(lambda p: read_predictions(p, sentences), tmp_path / "predictions.jsonl", data) or []
    ):
        assert prediction.heads is None or all(0 <= head <= 2 for head in prediction.heads)


# --- large and nasty, by the command line


def refused(*arguments):
    code, _, err = call("prepare", *arguments)
    assert code == 2
    assert err.startswith("nbl: ")
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    ("option", "data", "message"),
    [
        ("--text", b"a" * 10_000_000 + b"\n", "10000000 characters"),
        ("--text", b"dog " * 1_000_000, "characters (at most"),
        ("--text", b"dog " * 300, "300 words in a sentence (at most 250)"),
        ("--trees", b"(S " + b"(NN dog) " * 1_000_000 + b")", "more than 2000 words"),
        ("--trees", b"(S (NN " + b"a" * 10_000_000 + b") (VB b))", "10000000 characters (at most 500)"),
        ("--trees", b"(" * 2_000_000, "more than 500 open brackets"),
        ("--trees", random.Random(0).randbytes(1_000_000), "is not UTF-8"),
        ("--text", random.Random(0).randbytes(1_000_000), "is not UTF-8"),
    ],
)
def test_what_is_no_sentence_is_refused(tmp_path, option, data, message):
    file, out = tmp_path / "file", tmp_path / "out"
    file.write_bytes(data)
    assert message in refused(option, file, "--out", out)
    assert not out.exists()


def test_an_endless_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("nbl.files.MAX_BYTES", 1_000_000)
    assert "more than 1,000,000 bytes" in refused("--text", "/dev/zero", "--out", tmp_path / "out")


def test_a_zip_bomb_is_refused(tmp_path):
    bomb = tmp_path / "bomb.zip"
    with (
        zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("treebank/combined/wsj_0001.mrg", "w") as file,
    ):
        for _ in range(200):
            file.write(b"(" * 1_000_000)
    assert bomb.stat().st_size < 1_000_000
    assert "unpacks to 200000000 bytes" in refused("--corpus", "sample", "--source", bomb, "--out", tmp_path / "out")


@pytest.mark.parametrize("name", ["my data", "Grüße ¡日本!", "-n", "a'b\"c", "$(touch x)", "train=x"])
def test_odd_paths(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / name
    folder.mkdir()
    text = folder / f"{name}.txt"
    text.write_text("the dog barks\n" * 20)
    code, _, err = call("prepare", "--text", f"train={text}", "--out", folder / "corpus")
    assert code == 0, err
    assert json.loads((folder / "corpus/stats.json").read_text())["splits"]["train"]["sentences"] == 20
    assert sorted(path.name for path in tmp_path.iterdir()) == [name]
