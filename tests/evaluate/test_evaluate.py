"""From a trained run to predictions, from predictions to metrics."""

import json
import math
import subprocess
import sys

import pytest
import torch
from tiny_runs import call, made_up, tiny_run

import nbl.models.base
import nbl.predict
from nbl.corpus.folder import read_corpus
from nbl.errors import UserError
from nbl.evaluate import scores
from nbl.models import load
from nbl.predictions import Prediction, read_predictions, write_predictions
from nbl.sentence import Sentence, Span


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


def evaluated(run, corpus_dir, *options):
    code, out, err = call("evaluate", run, "--corpus-dir", corpus_dir, "--json", *options)
    assert code == 0, err
    return json.loads(out)


# --- scores


def by_hand():
    """Three sentences with gold trees, one without, and predictions for them."""
    sentences = [
        Sentence(
            "a",
            list("vwxyz"),
            spans=[Span(0, 5, "S"), Span(0, 2, "NP-SBJ"), Span(2, 5, "VP"), Span(3, 5, "NP")],
            heads={"content": [2, 3, 0, 5, 3]},
        ),
        Sentence("b", ["x", "y"], spans=[Span(0, 2, "NP")], heads={"content": [2, 0]}),
        # a chain at the root: by Kim's convention the VP cannot be found
        Sentence("c", ["x"] * 11, spans=[Span(0, 11, "S"), Span(0, 11, "VP"), Span(4, 11, "NP")]),
        Sentence("d", ["x", "y"]),
    ]
    predictions = [
        Prediction("a", 5, [(0, 5, 1), (0, 2, 0), (2, 5, 1), (2, 4, 0)], [2, 3, 0, 3, 4], -8.0, None),
        Prediction("b", 2, [(0, 2, 0)], [0, 1], -2.0, None),
        Prediction("c", 11, [(0, 11, 0), *((i, 11, 0) for i in range(1, 10))], [0, *range(1, 11)], -30.0, None),
        Prediction("d", 2, [(0, 2, 0)], [0, 1], -5.0, None),
    ]
    return sentences, predictions


def test_scores_by_hand():
    found = scores(*by_hand())
    assert found["sentences"] == 4
    assert found["words"] == 20
    assert found["perplexity"] == pytest.approx(math.exp(45 / 24), abs=1e-6)
    f1_a = 2 / 3  # 2 of 3 predicted, 2 of 3 gold
    kim, release = found["trees"]["kim"], found["trees"]["release"]
    assert kim["sentences"] == release["sentences"] == 3
    assert kim["sentence_f1"] == pytest.approx(100 * (f1_a + 1 + 2 / 11) / 3, abs=1e-5)  # c: 1 of 9, 1 of 2
    assert release["sentence_f1"] == pytest.approx(100 * (f1_a + 1 + 2 / 10) / 3, abs=1e-5)  # c: 1 of 9, 1 of 1
    assert kim["corpus_recall"] == pytest.approx(100 * 3 / 5, abs=1e-5)
    assert release["corpus_recall"] == pytest.approx(100 * 3 / 4, abs=1e-5)
    assert kim["corpus_precision"] == pytest.approx(100 * 3 / 12, abs=1e-5)
    assert kim["label_recall"] == {
        "NP": {"recall": pytest.approx(200 / 3, abs=1e-5), "constituents": 3},
        "VP": {"recall": 50.0, "constituents": 2},
    }
    content = found["heads"]["content"]
    assert content["words"] == 7
    assert content["udas"] == pytest.approx(100 * 3 / 7, abs=1e-5)  # a: words 1, 2, 3
    # a: also the arc between words 4 and 5; b: the arc between both words
    assert content["uuas"] == pytest.approx(100 * 5 / 7, abs=1e-5)
    assert content["udas_without_root"] == pytest.approx(100 * 2 / 5, abs=1e-5)


def test_scores_by_length_are_those_of_the_sentences_of_that_length():
    sentences, predictions = by_hand()
    found = scores(sentences, predictions)["by_length"]
    assert list(found) == ["2-10", "11-20"]
    short = [0, 1, 3]
    expected = scores([sentences[k] for k in short], [predictions[k] for k in short])
    assert found["2-10"]["perplexity"] == expected["perplexity"]
    assert found["2-10"]["heads"] == expected["heads"]
    assert found["2-10"]["trees"]["kim"]["sentence_f1"] == expected["trees"]["kim"]["sentence_f1"]
    assert found["11-20"]["sentences"] == 1
    assert "heads" not in found["11-20"]


def test_without_gold_there_is_perplexity():
    sentences, predictions = by_hand()
    bare = [Sentence(sentence.id, sentence.words) for sentence in sentences]
    found = scores(bare, predictions)
    assert "trees" not in found
    assert "heads" not in found
    assert found["perplexity"] == scores(sentences, predictions)["perplexity"]


# --- predictions


def test_predictions_survive_writing_and_come_in_the_order_asked_for(tmp_path):
    sentences, predictions = by_hand()
    write_predictions(tmp_path / "p.jsonl", predictions)
    assert read_predictions(tmp_path / "p.jsonl", sentences[::-1]) == predictions[::-1]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda lines: lines[:-1], "no prediction for sentence d"),
        (lambda lines: [*lines, lines[0].replace('"a"', '"e"')], "5 predictions for 4 sentences"),
        (lambda lines: [*lines, lines[0]], "line 5: a second prediction for a"),
        (lambda lines: [lines[0][:-9], *lines[1:]], "line 1 is damaged"),
        (lambda lines: [lines[0].replace("[2,4,0]", "[2,9,0]"), *lines[1:]], "line 1 is damaged"),
        (lambda lines: [lines[0].replace("[2,4,0]", "[2,4]"), *lines[1:]], "line 1 is damaged"),
        (lambda lines: [lines[0].replace("[2,3,0,3,4]", "[2,3,0]"), *lines[1:]], "line 1 is damaged"),
        (lambda lines: [lines[0].replace("-8.0", "NaN"), *lines[1:]], "line 1 is damaged"),
        (lambda lines: [lines[0].replace('"length":5', '"length":6'), *lines[1:]], "line 1 is damaged"),
        (lambda lines: [*lines[:3], "[]"], "line 4 is damaged"),
    ],
)
def test_damaged_predictions_are_named_and_refused(tmp_path, damage, reason):
    sentences, predictions = by_hand()
    path = tmp_path / "p.jsonl"
    write_predictions(path, predictions)
    lines = path.read_text().splitlines()
    path.write_text("".join(line + "\n" for line in damage(lines)))
    with pytest.raises(UserError, match=reason) as error:
        read_predictions(path, sentences)
    assert str(path) in str(error.value)


def test_predictions_cut_short_are_refused(tmp_path):
    sentences, predictions = by_hand()
    path = tmp_path / "p.jsonl"
    write_predictions(path, predictions)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match="ends in the middle of line 4"):
        read_predictions(path, sentences)


# --- the verb


def test_predictions_are_the_models_parses(run, corpus, folder):
    evaluated(run, folder / "corpus", "--decoder", "cyk", "mbr")
    model = load(run)
    for decoder in ("cyk", "mbr"):
        found = read_predictions(run / f"predictions.{decoder}.jsonl", corpus.test)
        for sentence, prediction in zip(corpus.test, found, strict=True):
            words, lengths = torch.tensor([sentence.ids]), torch.tensor([len(sentence)])
            [parse] = model.parse(words, lengths, decoder=decoder)
            assert prediction.spans == parse.spans
            assert prediction.heads == parse.heads
            assert prediction.log_prob == pytest.approx(model.log_likelihood(words, lengths).item(), abs=1e-4)
            if decoder == "cyk":
                assert prediction.tree_log_prob == pytest.approx(parse.log_prob, abs=1e-4)
                assert prediction.tree_log_prob < prediction.log_prob
            else:
                assert prediction.tree_log_prob is None
    lines = (run / "predictions.cyk.jsonl").read_text()
    assert [json.loads(line)["id"] for line in lines.splitlines()] == [s.id for s in corpus.test]
    assert not any(word in lines for word in corpus.vocabulary.words[1:] if len(word) > 2)


def test_same_bytes_again_and_from_predictions_alone(run, folder):
    evaluated(run, folder / "corpus", "--decoder", "mbr", "--decoder", "cyk")
    files = [run / name for name in ("predictions.cyk.jsonl", "predictions.mbr.jsonl", "metrics.json")]
    first = [path.read_bytes() for path in files]
    for path in files:
        path.unlink()
    evaluated(run, folder / "corpus", "--decoder", "mbr", "cyk")
    assert [path.read_bytes() for path in files] == first
    files[2].unlink()
    checkpoint = (run / "checkpoint.pt").rename(run / "elsewhere")
    found = evaluated(run, folder / "corpus", "--from-predictions")
    checkpoint.rename(run / "checkpoint.pt")
    assert files[2].read_bytes() == first[2]
    assert found == json.loads(first[2])
    assert list(found["decoders"]) == ["cyk", "mbr"]
    assert set(found["decoders"]["mbr"]["heads"]) == {"content", "first"}


def test_scoring_needs_no_torch(run, folder):
    evaluated(run, folder / "corpus")
    program = (
        "import sys; from nbl.cli import main\ntry: main()\nfinally: print('torch' in sys.modules, file=sys.stderr)"
    )
    arguments = ["evaluate", str(run), "--corpus-dir", str(folder / "corpus"), "--from-predictions"]
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stderr == "False\n"


def test_other_splits_have_files_of_their_own(run, corpus, folder):
    evaluated(run, folder / "corpus")
    before = (run / "metrics.json").read_bytes()
    found = evaluated(run, folder / "corpus", "--split", "dev")
    assert found["sentences"] == len(corpus.dev)
    assert json.loads((run / "metrics.dev.json").read_text()) == found
    assert (run / "predictions.mbr.dev.jsonl").exists()
    assert (run / "metrics.json").read_bytes() == before


def test_legacy_has_names_of_its_own_and_is_for_nlpcfg_only(run, corpus, folder):
    nl = tiny_run(corpus, folder / "nlpcfg", "nlpcfg")
    found = evaluated(nl, folder / "corpus", "--decoder", "cyk-legacy", "mbr-legacy")
    assert list(found["decoders"]) == ["cyk-legacy", "mbr-legacy"]
    found = evaluated(nl, folder / "corpus", "--decoder", "mbr")
    assert list(found["decoders"]) == ["mbr", "cyk-legacy", "mbr-legacy"]
    code, _, err = call("evaluate", run, "--corpus-dir", folder / "corpus", "--decoder", "mbr-legacy")
    assert code == 2
    assert err == "nbl: mbr-legacy is for nlpcfg, not for nblpcfg: leave it out\n"


def test_compound_perplexity_is_marked_and_unlexicalised_grammars_have_no_heads(run, corpus, folder):
    compound = tiny_run(corpus, folder / "cpcfg", "cpcfg")
    scored = evaluated(compound, folder / "corpus")["decoders"]["mbr"]
    assert scored["perplexity_is_exact"] is False
    assert "heads" not in scored
    assert "trees" in scored
    assert evaluated(run, folder / "corpus")["decoders"]["mbr"]["perplexity_is_exact"] is True


def test_structformer_has_one_way_to_parse(corpus, folder):
    system = tiny_run(corpus, folder / "structformer", "structformer")
    found = evaluated(system, folder / "corpus")["decoders"]
    assert list(found) == ["mbr"]
    assert found["mbr"]["perplexity_is_exact"] is False
    assert {"trees", "heads"} <= set(found["mbr"])
    for decoders in (["cyk"], ["mbr", "cyk"]):
        code, _, err = call("evaluate", system, "--corpus-dir", folder / "corpus", "--decoder", *decoders)
        assert (code, err) == (2, "nbl: structformer has one way to parse, stored as mbr: leave out --decoder\n")


def test_corpus_without_trees(folder):
    plain = made_up(folder / "plain", gold=False)
    run = tiny_run(plain, folder / "plain run", "npcfg")
    found = evaluated(run, folder / "plain")["decoders"]["mbr"]
    assert found["perplexity"] > 1
    assert "trees" not in found
    code, out, _ = call("evaluate", run, "--corpus-dir", folder / "plain", "--from-predictions")
    assert code == 0
    assert f"{found['perplexity']:.2f}" in out


def test_another_corpus_is_refused_by_key(run, folder, tmp_path):
    made_up(tmp_path / "other", name="other")
    code, _, err = call("evaluate", run, "--corpus-dir", tmp_path / "other")
    assert code == 2
    assert "corpus.name is 'made-up'" in err
    assert "'other'" in err
    assert "corpus.sha256" not in err  # the same sentences
    (tmp_path / "other" / "vocab.txt").write_text("<unk>\nx\n")
    code, _, err = call("evaluate", run, "--corpus-dir", tmp_path / "other")
    assert code == 2
    assert "vocab.txt is missing or not what `nbl prepare` wrote" in err


def test_another_vocabulary_is_refused_by_key(run, folder, tmp_path):
    config = (run / "config.yaml").read_text()
    digest = read_corpus(folder / "corpus").vocabulary.digest
    other = tmp_path / "run"
    other.mkdir()
    (other / "config.yaml").write_text(config.replace(digest, "f" * 64))
    code, _, err = call("evaluate", other, "--corpus-dir", folder / "corpus")
    assert code == 2
    assert "corpus.vocabulary_sha256 is 'ffff" in err


def test_failure_on_the_way_leaves_the_old_files(run, folder, monkeypatch):
    evaluated(run, folder / "corpus")
    before = {path.name: path.read_bytes() for path in run.iterdir()}

    def fail(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(nbl.predict, "predict", fail)
    code, _, _ = call("evaluate", run, "--corpus-dir", folder / "corpus")
    assert code == 130
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


def test_log_p_that_is_not_finite_is_refused_by_sentence(run, corpus, folder, monkeypatch):
    monkeypatch.setattr(
        nbl.models.base.Grammar,
        "log_likelihood",
        lambda model, words, lengths: torch.full((len(words),), torch.nan),
    )
    code, _, err = call("evaluate", run, "--corpus-dir", folder / "corpus")
    assert code == 2
    assert "log p of sentence test." in err


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--from-predictions", "--decoder", "mbr"], "leave out --decoder"),
        (["--from-predictions", "--split", "train"], "has no predictions for train"),
        (["--decoder", "viterbi"], "viterbi"),
        (["--device", "tpu"], "unknown device 'tpu'"),
    ],
)
def test_wrong_calls_are_one_sentence(run, folder, options, reason):
    code, out, err = call("evaluate", run, "--corpus-dir", folder / "corpus", *options)
    assert code == 2
    assert out == ""
    assert reason in err
    assert err.count("\n") == 1


def test_unfinished_missing_and_damaged_runs_are_refused(run, folder, tmp_path):
    (run / "resume.pt").touch()
    code, _, err = call("evaluate", run, "--corpus-dir", folder / "corpus")
    (run / "resume.pt").unlink()
    assert code == 2
    assert "is not finished" in err
    assert "no config.yaml" in call("evaluate", tmp_path, "--corpus-dir", folder / "corpus")[2]
    (tmp_path / "config.yaml").write_text("model: [")
    assert "config.yaml is damaged" in call("evaluate", tmp_path, "--corpus-dir", folder / "corpus")[2]
