"""The command line: help with an example for every verb, one sentence and exit code 2 for a mistake."""

import json
import sys

import pytest

from nbl import cli
from nbl.corpus.folder import read_corpus

TREE = "( (S (NP-SBJ (DT the) (NN dog)) (VP (VBZ sleeps))) )\n"


@pytest.fixture
def run(monkeypatch, capsys):
    """Call `nbl` with arguments; give exit code, standard output, standard error."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["nbl", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    return call


@pytest.mark.parametrize("verb", list(cli.VERBS))
def test_every_verb_has_help_with_an_example(run, verb):
    code, out, _ = run(verb, "--help")
    assert code == 0
    assert f"nbl {verb}" in " ".join(out.split()).partition("Example:")[2]


def test_help_lists_the_verbs(run):
    for arguments in ((), ("--help",)):
        code, out, _ = run(*arguments)
        assert code == 0
        assert all(verb in out for verb in cli.VERBS)


def test_prepare_for_people_and_for_machines(run, tmp_path):
    trees = tmp_path / "my trees.mrg"
    trees.write_text(TREE * 20)
    code, out, _ = run("prepare", "--trees", trees, "--out", tmp_path / "a")
    assert code == 0
    assert "train" in out
    assert "written to" in out
    code, out, _ = run("prepare", "--trees", trees, "--out", tmp_path / "b", "--json")
    assert code == 0
    assert json.loads(out) == read_corpus(tmp_path / "b").stats


def test_several_files_after_one_option(run, tmp_path):
    for name in ("train.mrg", "more.mrg", "test.mrg"):
        (tmp_path / name).write_text(TREE * 2)
    files = [f"train={tmp_path}/train.mrg", f"train={tmp_path}/more.mrg", f"test={tmp_path}/test.mrg"]
    code, _, _ = run("prepare", "--trees", *files, "--out", tmp_path / "out")
    assert code == 0
    corpus = read_corpus(tmp_path / "out")
    assert (len(corpus.train), len(corpus.dev), len(corpus.test)) == (4, 0, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prepare", "--out", "OUT"], "name a corpus with --corpus toy|sample|open|wsj"),
        (["prepare", "--corpus", "ptb", "--out", "OUT"], "'ptb' is not one of 'toy', 'sample', 'open', 'wsj'"),
        (["prepare", "--corpus", "toy"], "Missing option '--out'"),
        (["prepare", "--corpus", "toy", "--source", "x", "--out", "OUT"], "takes no --source (got x)"),
        (["prepare", "--corpus", "toy", "--trees", "x", "--out", "OUT"], "exclude each other"),
        (["prepare", "--corpus", "wsj", "--out", "OUT"], "needs --source FOLDER"),
        (["prepare", "--trees", "nowhere.mrg", "--out", "OUT"], "cannot read nowhere.mrg: No such file"),
        (["prepare", "--text", "x", "--source", "y", "--out", "OUT"], "--source y goes with --corpus"),
        (["prepare", "--corpus", "toy", "--max-words", "0", "--out", "OUT"], "greater than or equal to 1"),
        (["train", "--model", "nblpcfg", "--corpus-dir", "OUT", "--out", "OUT"], "OUT holds no prepared corpus"),
        (["bake"], "No such command 'bake'"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(run, tmp_path, arguments, message):
    out = tmp_path / "out"
    code, stdout, stderr = run(*(str(out) if argument == "OUT" else argument for argument in arguments))
    assert code == 2
    assert stdout == ""
    assert message.replace("OUT", str(out)) in stderr
    assert stderr.startswith("nbl: ")
    assert stderr.count("\n") == 1
    assert not out.exists()


def test_sizes_beyond_the_memory_are_one_sentence(run, tmp_path):
    trees = tmp_path / "a.mrg"
    trees.write_text(TREE * 3)
    assert run("prepare", "--trees", trees, "--out", tmp_path / "corpus")[0] == 0
    options = ("--corpus-dir", tmp_path / "corpus", "--model", "nblpcfg", "--set", "NT=10000000000")
    code, _, err = run("train", *options, "--out", tmp_path / "run")
    assert code == 2
    assert err.splitlines()[-1].startswith("nbl: not enough memory (")


def test_other_errors_of_torch_are_not_called_so(monkeypatch):
    def fails(_):
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(cli, "build_app", fails)
    monkeypatch.setattr(sys, "argv", ["nbl"])
    with pytest.raises(RuntimeError, match="shapes differ"):
        cli.main()


def test_interruption(run, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("nbl.commands.prepare.write_corpus", interrupt)
    trees = tmp_path / "x.mrg"
    trees.write_text(TREE)
    code, _, stderr = run("prepare", "--trees", trees, "--out", tmp_path / "out")
    assert (code, stderr) == (130, "")
