"""The command line: help with an example for every verb, one sentence and exit code 2 for a mistake."""

import inspect
import json
import subprocess
import sys
from importlib import import_module, metadata

import pytest
from tiny_runs import call

from nbl import cli
from nbl.commands import VERBS
from nbl.corpus.folder import read_corpus

TREE = "( (S (NP-SBJ (DT the) (NN dog)) (VP (VBZ sleeps))) )\n"


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example(verb):
    code, out, err = call(verb, "--help")
    assert (code, err) == (0, "")
    assert f"nbl {verb}" in " ".join(out.split()).partition("Example:")[2]
    assert "\n".join(line for line in out.splitlines() if len(line) > 80) == ""
    assert call(verb, "-h") == (code, out, err)


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_takes_the_arguments_it_declares(verb):
    """The name of an argument is a parameter of the function, and the example is accepted."""
    function = getattr(import_module(f"nbl.commands.{VERBS[verb].module}"), verb)
    example = VERBS[verb].example.rpartition("| ")[2].split()
    options = vars(cli.Parser(verb).parse_intermixed_args(example[2:]))
    assert set(options) == set(inspect.signature(function).parameters)


def test_help_lists_the_verbs():
    for arguments in ((), ("--help",), ("-h",)):
        code, out, _ = call(*arguments)
        assert code == 0
        assert all(f"\n  {verb} " in out for verb in VERBS)
        assert max(map(len, out.splitlines())) <= 80


def test_help_and_refusals_need_no_torch():
    code = "import sys; from nbl.cli import main\ntry: main()\nfinally: print('torch' in sys.modules, file=sys.stderr)"
    for arguments in (["--help"], ["train", "--help"], ["parse", "--format", "tikz"]):
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
        assert done.stderr.splitlines()[-1] == "False"


def test_verbs_of_corpora_results_and_tables_start_without_torch():
    modules = ", ".join(f"nbl.commands.{name}" for name in ("corpus", "evaluation", "matrix", "paper"))
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_version():
    assert call("--version") == (0, f"nbl {metadata.version('nbl')}\n", "")


def test_prepare_for_people_and_for_machines(tmp_path):
    trees = tmp_path / "my trees.mrg"
    trees.write_text(TREE * 20)
    code, out, _ = call("prepare", "--trees", trees, "--out", tmp_path / "a")
    assert code == 0
    assert "train" in out
    assert "written to" in out
    code, out, _ = call("prepare", "--trees", trees, "--out", tmp_path / "b", "--json")
    assert code == 0
    assert json.loads(out) == read_corpus(tmp_path / "b").stats


@pytest.mark.parametrize("repeated", [False, True])
def test_an_option_takes_several_values(tmp_path, repeated):
    for name in ("train.mrg", "more.mrg", "test.mrg"):
        (tmp_path / name).write_text(TREE * 2)
    files = [f"train={tmp_path}/train.mrg", f"train={tmp_path}/more.mrg", f"test={tmp_path}/test.mrg"]
    options = [word for file in files for word in ("--trees", file)] if repeated else ["--trees", *files]
    code, _, _ = call("prepare", *options, "--out", tmp_path / "out")
    assert code == 0
    corpus = read_corpus(tmp_path / "out")
    assert (len(corpus.train), len(corpus.dev), len(corpus.test)) == (4, 0, 2)


def test_positional_arguments_may_stand_between_options():
    options = cli.Parser("parse").parse_intermixed_args(["run", "--decoder", "cyk", "text.txt", "--json"])
    assert (str(options.run), str(options.text), options.format) == ("run", "text.txt", "json")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prepare", "--out", "OUT"], "name a corpus with --corpus toy|sample|open|wsj"),
        (["prepare", "--corpus", "ptb", "--out", "OUT"], "--corpus: 'ptb' is not one of toy, sample, open, wsj (see"),
        (["prepare", "--corpus", "sampel", "--out", "OUT"], "did you mean sample? (see nbl prepare --help)"),
        (["prepare", "--corpus", "toy"], "the following arguments are required: --out"),
        (["prepare", "--corpus", "toy", "--source", "x", "--out", "OUT"], "takes no --source (got x)"),
        (["prepare", "--corpus", "toy", "--trees", "x", "--out", "OUT"], "excludes your own files"),
        (["prepare", "--corpus", "wsj", "--out", "OUT"], "needs --source FOLDER"),
        (["prepare", "--trees", "nowhere.mrg", "--out", "OUT"], "cannot read nowhere.mrg: No such file"),
        (["prepare", "--text", "x", "--source", "y", "--out", "OUT"], "--source y needs --corpus"),
        (["prepare", "--corpus", "toy", "--max-words", "0", "--out", "OUT"], "'0' is not a whole number of at least 1"),
        (["train", "--model", "nblpcfg", "--corpus-dir", "OUT", "--out", "OUT"], "OUT holds no prepared corpus"),
        (["train", "--model", "nblpcgf", "--corpus-dir", "OUT", "--out", "OUT"], "did you mean nblpcfg?"),
        (["train", "--corpus-dir", __file__], f"--corpus-dir: {__file__} is a file; name a folder"),
        (["runs", "--params", "/"], "--params: / is a folder; name a file"),
        (["parse", "OUT", "--dekoder", "cyk"], "no argument '--dekoder'; did you mean --decoder? (see nbl parse"),
        (["parse", "OUT", "--deco", "cyk"], "there is no argument '--deco'; did you mean --decoder?"),
        (["sample", "OUT", "--seed", "-1"], "--seed: '-1' is not a whole number of at least 0"),
        (["compare", "--corpus-dir", "OUT"], "the following arguments are required: RUN"),
        (["bake"], "there is no verb 'bake' (see nbl --help)"),
        (["pars"], "there is no verb 'pars'; did you mean parse?"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(tmp_path, arguments, message):
    out = tmp_path / "out"
    code, stdout, stderr = call(*(out if argument == "OUT" else argument for argument in arguments))
    assert code == 2
    assert stdout == ""
    assert message.replace("OUT", str(out)) in stderr
    assert stderr.startswith("nbl: ")
    assert stderr.count("\n") == 1
    assert not out.exists()


def test_sizes_beyond_the_memory_are_one_sentence(tmp_path):
    trees = tmp_path / "a.mrg"
    trees.write_text(TREE * 3)
    assert call("prepare", "--trees", trees, "--out", tmp_path / "corpus")[0] == 0
    options = ("--corpus-dir", tmp_path / "corpus", "--model", "nblpcfg", "--set", "NT=10000000000")
    code, _, err = call("train", *options, "--out", tmp_path / "run")
    assert code == 2
    assert err.splitlines()[-1].startswith("nbl: not enough memory (")


def test_other_errors_of_torch_are_not_called_so(monkeypatch):
    def fails(_):
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(cli, "run", fails)
    with pytest.raises(RuntimeError, match="shapes differ"):
        call("train")


def test_interruption(tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("nbl.commands.corpus.write_corpus", interrupt)
    trees = tmp_path / "x.mrg"
    trees.write_text(TREE)
    code, _, stderr = call("prepare", "--trees", trees, "--out", tmp_path / "out")
    assert (code, stderr) == (130, "")
