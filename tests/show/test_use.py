"""Trained grammars at work: parse, score, show, sample and compare."""

import json
import math
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from tiny_runs import call, made_up, tiny_run

from nbl.commands import VERBS
from nbl.compare import bootstrap_interval, compare_predictions
from nbl.corpus.conllx import read_conllx
from nbl.corpus.treebank import parse_trees
from nbl.drawing import draw, png, svg
from nbl.formats import Tree
from nbl.models import load
from nbl.predictions import Prediction
from nbl.sentence import Sentence, Span
from nbl.show import usage

TEXT = 'The dog, they say, sees a Dog.\n\nHm!\nThe unicorn likes 12 "cats".\n'
WORDS = [
    ["The", "dog", "they", "say", "sees", "a", "Dog"],
    [],
    ["Hm"],
    ["The", "unicorn", "likes", "12", "cats"],
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder whose name is awkward."""
    return tmp_path_factory.mktemp("two words é")


@pytest.fixture(scope="module")
def corpus(folder):
    return made_up(folder / "corpus")


@pytest.fixture(scope="module")
def run(folder, corpus):
    return tiny_run(corpus, folder / "nblpcfg", "nblpcfg")


@pytest.fixture(scope="module")
def text(folder):
    path = folder / "my text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def lines_of(*arguments, **options):
    code, out, err = call(*arguments, **options)
    assert code == 0, err
    return out.splitlines()


def leaves(line):
    return [leaf.word for tree in parse_trees(line) for leaf in tree.preterminals()]


# --- parse


@pytest.mark.parametrize("decoder", ["mbr", "cyk"])
def test_parse_has_a_line_for_each_line_with_the_words_as_written(run, text, decoder):
    lines = lines_of("parse", run, text, "--decoder", decoder)
    assert [leaves(line) for line in lines] == WORDS
    assert lines[2] == "(T Hm)"
    [tree] = parse_trees(lines[3])
    assert tree.label.startswith("X" if decoder == "mbr" else "NT")
    if decoder == "cyk":
        assert tree.label.partition("[")[2].rstrip("]") in WORDS[3]


@pytest.mark.parametrize("decoder", ["mbr", "cyk"])
def test_parse_is_the_models_with_normalised_words_and_unknown_ones(run, corpus, text, decoder):
    found = [json.loads(line) for line in lines_of("parse", run, text, "--json", "--decoder", decoder)]
    ids = corpus.vocabulary.ids(["the", "dog", "they", "say", "sees", "a", "dog"])
    assert ids.count(0) == 2
    model, words, lengths = load(run), torch.tensor([ids]), torch.tensor([7])
    [parse] = model.parse(words, lengths, decoder=decoder)
    names = [(i, j, "X" if label is None else f"NT{label}") for i, j, label in parse.spans]
    assert [tuple(span) for span in found[0]["spans"]] == names
    assert found[0]["heads"] == parse.heads
    with torch.no_grad():
        assert found[0]["log_prob"] == pytest.approx(model.log_likelihood(words, lengths).item(), abs=1e-4)
    assert found[1] == {"words": [], "spans": [], "heads": [], "log_prob": None}
    assert found[2] == {"words": ["Hm"], "spans": [], "heads": [0], "log_prob": None}


def test_parse_tells_of_lines_without_a_parse(run, text):
    _, _, err = call("parse", run, text)
    assert err == "nbl: 1 line without words (2)\nnbl: 1 line of one word (3), a tree by itself\n"


def test_parse_writes_conllx_that_our_reader_reads(run, text, tmp_path):
    out = tmp_path / "heads é.conllx"
    assert call("parse", run, text, "--format", "conllx", "--out", out)[:2] == (0, "")
    sentences = read_conllx(out)  # which also checks that heads make a tree
    assert [[token.form for token in sentence] for sentence in sentences] == [words for words in WORDS if words]


def test_parse_reads_standard_input(run, text):
    expected = lines_of("parse", run, text)
    assert lines_of("parse", run, "-", stdin=TEXT.encode()) == expected
    assert lines_of("parse", run, stdin=b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode()) == expected
    assert lines_of("parse", run, stdin=TEXT.encode().rstrip(b"\n")) == expected
    code, out, err = call("parse", run, stdin=b"")
    assert (code, out) == (2, "")
    assert err == "nbl: standard input is empty: one sentence per line is expected\n"


def test_grammar_without_heads(folder, corpus, text):
    run = tiny_run(corpus, folder / "npcfg", "npcfg")
    lines = lines_of("parse", run, text)
    assert [leaves(line) for line in lines] == WORDS
    assert "[" not in "".join(lines)
    assert json.loads(lines_of("parse", run, text, "--json")[2])["heads"] is None
    code, _, err = call("parse", run, text, "--format", "conllx")
    assert code == 2
    assert "conllx is for heads, which npcfg does not have" in err


def test_structformer_parses_but_has_no_rules(folder, corpus, text):
    system = tiny_run(corpus, folder / "structformer", "structformer")
    lines = len(text.read_text().splitlines())
    assert len(call("parse", system, text)[1].splitlines()) == lines
    for format in ("conllx", "json", "svg"):
        code, out, _ = call("parse", system, text, "--format", format)
        assert (code, bool(out)) == (0, True)
    code, _, err = call("parse", system, text, "--decoder", "cyk")
    assert (code, err.splitlines()[-1]) == (2, "nbl: StructFormer cannot parse with cyk: its only decoder is mbr")
    for verb in ("show", "sample"):
        code, out, err = call(verb, system)
        assert (code, out) == (2, "")
        assert err == "nbl: StructFormer is not a grammar: it has no rules to show or to sample from\n"


def test_vocabulary_comes_from_the_run_or_its_corpus(run, folder, text, tmp_path):
    expected = lines_of("parse", run, text)
    moved = (run / "vocab.txt").rename(tmp_path / "vocab.txt")
    try:
        code, _, err = call("parse", run, text)
        assert code == 2
        assert "--corpus-dir" in err
        assert lines_of("parse", run, text, "--corpus-dir", folder / "corpus") == expected
        (run / "vocab.txt").write_text("<unk>\nother\n")
        code, _, err = call("parse", run, text)
        assert code == 2
        assert "corpus.vocabulary_sha256" in err
    finally:
        moved.rename(run / "vocab.txt")


@pytest.mark.parametrize("verb", ["parse", "score"])
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"a dog\n" + b"x" * 10_000_000, "line 2: a line of 10000000 characters"),
        (b"a dog " * 1000, "line 1: 2000 words (at most 250)"),
        (b"\x7fELF\x02\x01\x00", "a NUL byte"),
        (b"a dog\n\xff\xfe", "not UTF-8"),
    ],
)
def test_what_is_no_text_is_refused_in_one_sentence(run, tmp_path, verb, data, reason):
    path = tmp_path / "input"
    path.write_bytes(data)
    for code, out, err in (call(verb, run, path), call(verb, run, "-", stdin=data)):
        assert code == 2
        assert out == ""
        assert reason in err
        assert err.count("\n") == 1


def test_missing_files_are_refused(run, tmp_path):
    assert call("parse", run, tmp_path / "no.txt")[0] == 2
    assert "no config.yaml" in call("parse", tmp_path, "-")[2]
    assert "cannot write" in call("parse", run, "-", "--out", run / "config.yaml" / "x", stdin=b"a dog")[2]


# --- pictures


def test_svg_is_well_formed_and_has_all_words(run, text, tmp_path):
    code, out, _ = call("parse", run, "-", "--format", "svg", stdin=b"The <unk> & dog's cat\na dog sees\n")
    assert code == 0
    found = [element.text for element in ElementTree.fromstring(out).iter() if element.tag.endswith("text")]
    assert [word for word in found if word not in ("root", "1", "2")] == [
        *("The", "<unk>", "&", "dog", "'s", "cat"),
        *("a", "dog", "sees"),
    ]
    assert lines_of("parse", run, text, "--format", "svg") == lines_of("parse", run, text, "--format", "svg")
    assert ElementTree.fromstring(svg(draw([]))).tag.endswith("svg")


def test_png_has_twice_the_size_and_the_same_bytes_again(run, text, tmp_path):
    for name in ("a.png", "b.png"):
        assert call("parse", run, text, "--format", "png", "--out", tmp_path / name)[0] == 0
    data = (tmp_path / "a.png").read_bytes()
    assert (tmp_path / "b.png").read_bytes() == data
    picture = draw([Tree(["我们", "$x$"], [(0, 2, None)], None)])
    width, height = (int.from_bytes(png(picture)[k : k + 4], "big") for k in (16, 20))
    assert abs(width - 2 * picture.width) <= 1
    assert abs(height - 2 * picture.height) <= 1


def test_png_too_large_is_refused(run):
    code, _, err = call("parse", run, "-", "--format", "png", stdin=b"a dog sees\n" * 300)
    assert code == 2
    assert "too large for PNG" in err


# --- score


def test_score_is_log_p_and_perplexity(run, corpus, text):
    found = json.loads(call("score", run, text, "--json")[1])
    model, expected = load(run), []
    for words in (
        ["the", "dog", "they", "say", "sees", "a", "dog"],
        ["the", "unicorn", "likes", "N", "cats"],
    ):
        ids = torch.tensor([corpus.vocabulary.ids(words)])
        with torch.no_grad():
            expected.append(model.log_likelihood(ids, torch.tensor([len(words)])).item())
    log_probs = [sentence["log_prob"] for sentence in found["sentences"]]
    assert log_probs[1] is log_probs[2] is None
    assert [log_probs[0], log_probs[3]] == pytest.approx(expected, abs=1e-4)
    assert found["perplexity"] == pytest.approx(math.exp(-sum(expected) / (8 + 6)), rel=1e-5)
    assert (found["words"], found["unknown"]) == (12, 5)
    code, out, err = call("score", run, text)
    assert code == 0
    assert f"{expected[0]:.3f}  The dog they say" in out
    assert f"perplexity {found['perplexity']:.2f}" in out
    assert "1 line of one word (3), not scored" in err


def test_nothing_to_score(run):
    code, _, err = call("score", run, "-", stdin=b"Hm!\n")
    assert code == 2
    assert err == "nbl: standard input has no sentence of two or more words to score\n"


# --- sample and show


def test_sample_prints_trees_of_known_words(run, corpus):
    lines = lines_of("sample", run, "-n", 5, "--max-length", 8)
    assert len(lines) == 5
    for line in lines:
        assert 2 <= len(leaves(line)) <= 8
        assert set(leaves(line)) <= set(corpus.vocabulary.words)
    assert lines_of("sample", run, "-n", 5, "--max-length", 8) == lines
    assert lines_of("sample", run, "-n", 5, "--max-length", 8, "--seed", 1) != lines
    found = [json.loads(line)["words"] for line in lines_of("sample", run, "-n", 5, "--max-length", 8, "--json")]
    assert found == [leaves(line) for line in lines]


def test_show_is_for_people_and_machines(run, folder):
    found = json.loads(call("show", run, "--corpus-dir", folder / "corpus", "--top", 2, "--json")[1])
    assert set(found["symbols"]) == {"NT0", "NT1"}
    assert all(len(symbol["rules"]) == 2 for symbol in found["symbols"].values())
    assert sum(symbol["share"] for symbol in found["usage"].values()) == pytest.approx(1, abs=1e-5)
    code, out, _ = call("show", run, "--corpus-dir", folder / "corpus", "--top", 2)
    assert code == 0
    assert f"{found['symbols']['NT0']['rules'][0]['p']:.3f}" in out
    assert "gold constituents" in out
    assert "gold constituents" not in call("show", run)[1]


def test_show_counts_the_predictions_that_are_there(run, folder, corpus):
    fresh = json.loads(call("show", run, "--corpus-dir", folder / "corpus", "--json")[1])["usage"]
    assert call("evaluate", run, "--corpus-dir", folder / "corpus", "--decoder", "cyk")[0] == 0
    path = run / "predictions.cyk.jsonl"
    assert json.loads(call("show", run, "--corpus-dir", folder / "corpus", "--json")[1])["usage"] == fresh
    path.write_text(path.read_text().replace(f'"length":{len(corpus.test[0])}', '"length":4', 1))
    code, _, err = call("show", run, "--corpus-dir", folder / "corpus")
    path.unlink()
    assert code == 2
    assert str(path) in err


def test_usage_by_hand():
    sentences = [
        Sentence("a", list("wxyz"), spans=[Span(0, 4, "S"), Span(0, 4, "VP"), Span(1, 4, "NP-1")]),
        Sentence("b", ["x", "y"]),
    ]
    predictions = [
        Prediction("a", 4, [(0, 4, 1), (1, 4, 0), (2, 4, 0)], None, -1.0, None),
        Prediction("b", 2, [(0, 2, 0)], None, -1.0, None),
    ]
    assert usage(sentences, predictions) == {
        "NT0": {"spans": 3, "share": 0.75, "mean_width": 2.333, "gold": {"-": 0.5, "NP": 0.5}},
        "NT1": {"spans": 1, "share": 0.25, "mean_width": 4.0, "gold": {"S": 1.0}},
    }


# --- compare


def test_compare_by_hand():
    gold = [Span(0, 4, "S"), Span(1, 4, "VP"), Span(2, 4, "NP")]
    sentences = [Sentence(id, list("wxyz"), spans=gold) for id in "abc"] + [Sentence("d", list("wxy"))]
    right, half, other = (
        [(0, 4, 0), (1, 4, 0), (2, 4, 0)],
        [(0, 4, 0), (1, 4, 0), (1, 3, 0)],
        [(0, 4, 0), (0, 2, 0)],
    )
    last = Prediction("d", 3, [(0, 3, 0), (1, 3, 0)], None, -1.0, None)

    def predicted(*spans):
        return [Prediction(id, 4, s, None, -1.0, None) for id, s in zip("abc", spans, strict=True)] + [last]

    runs = {"one": predicted(right, half, right), "two": predicted(right, right, other)}
    found = compare_predictions(sentences, runs, top=1)
    assert found["f1"] == {"one": pytest.approx(250 / 3, abs=1e-5), "two": pytest.approx(200 / 3, abs=1e-5)}
    [pair] = found["pairs"]
    assert pair["runs"] == ["one", "two"]
    assert pair["self_f1"] == pytest.approx(100 * (1 + 0.5 + 0 + 1) / 4)
    assert pair["f1_difference"] == pytest.approx(-50 / 3, abs=1e-5)
    assert pair["sentences_that_differ"] == 2
    assert pair["sentences"] == [{"id": "c", "f1": [100.0, 0.0]}]
    assert pair["interval"] == [-100.0, 50.0]
    assert compare_predictions(sentences, runs, top=1) == found
    bare = [Sentence(sentence.id, sentence.words) for sentence in sentences]
    assert compare_predictions(bare, runs)["pairs"] == [{"runs": ["one", "two"], "self_f1": pair["self_f1"]}]


def test_bootstrap_interval_is_about_that_of_the_normal_distribution():
    values = np.random.default_rng(5).normal(0.3, 2.0, size=400)
    low, high = bootstrap_interval(values, seed=0)
    error = 1.96 * values.std() / 20
    assert low == pytest.approx(values.mean() - error, abs=0.02)
    assert high == pytest.approx(values.mean() + error, abs=0.02)
    assert bootstrap_interval(values, seed=0) == (low, high)
    assert bootstrap_interval(values, seed=1) != (low, high)


def test_compare_runs(run, folder, corpus, tmp_path):
    other = tiny_run(corpus, folder / "nblpcfg 1", "nblpcfg", seed=1)
    code, _, err = call("compare", run, other, "--corpus-dir", folder / "corpus", "--decoder", "cyk")
    assert code == 2
    assert "run `nbl evaluate` first" in err
    for each in (run, other):
        assert call("evaluate", each, "--corpus-dir", folder / "corpus")[0] == 0
    found = json.loads(call("compare", run, other, "--corpus-dir", folder / "corpus", "--json")[1])
    metrics = json.loads((run / "metrics.json").read_text())
    assert found["f1"][str(run)] == metrics["decoders"]["mbr"]["trees"]["kim"]["sentence_f1"]
    code, out, _ = call("compare", run, other, "--corpus-dir", folder / "corpus")
    assert code == 0
    assert f"{found['pairs'][0]['self_f1']:.2f}" in out
    code, _, err = call("compare", run, run, "--corpus-dir", folder / "corpus")
    assert code == 2
    assert "two or more different runs" in err


# --- the command line


@pytest.mark.parametrize("verb", ["evaluate", "parse", "score", "show", "sample", "compare"])
def test_help_has_an_example(verb):
    code, out, _ = call(verb, "--help")
    assert code == 0
    assert " ".join(VERBS[verb].example.split()[:3]) in out


def test_reader_that_leaves_is_no_error(run):
    program = "from nbl.cli import main; main()"
    command = [sys.executable, "-c", program, "sample", str(run), "-n", "2000", "--max-length", "6"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline().startswith(b"(NT")
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 1
