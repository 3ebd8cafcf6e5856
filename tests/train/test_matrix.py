"""The experiment matrix: what runs there are, what they are called, what is refused."""

import copy
import csv
import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from dvc.utils.hydra import apply_overrides

from nbl import models
from nbl.closure import code_of
from nbl.collect import _sweep
from nbl.corpus.sources import SOURCES
from nbl.errors import UserError
from nbl.files import set_aside
from nbl.matrix import errors, experiment_name, experiments, read_params, source_files
from nbl.rules import BilexicalRules, LexicalRules
from nbl.run_folder import Config, RunFolder, write_config, write_csv
from nbl.settings import CORPORA, MODELS, SETTINGS, TRAINING, Model, Training, hyperparameters, parse

PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def committed():
    return read_params(PROJECT / "params.yaml")


@pytest.fixture
def params(committed):
    return copy.deepcopy(committed)


def names(params, **changes):
    return [experiment.name for experiment in experiments(params | changes)]


@pytest.mark.parametrize(("corpus", "count"), [("toy", 17), ("sample", 25), ("open", 25), ("wsj", 25)])
def test_shared_experiments_are_run_once(params, corpus, count):
    found = names(params, corpus=corpus)
    listed = [name for table in params["corpora"][corpus]["tables"].values() for name in table]
    assert len(found) == len(set(found)) == count < len(listed)
    assert set(found) == set(listed)


def test_the_paper_s_matrix(params):
    found = {experiment.name: experiment for experiment in experiments(params | {"corpus": "wsj"})}
    assert {e.model for e in found.values()} == {"npcfg", "cpcfg", "tnpcfg", "nlpcfg", "nblpcfg"}
    nbl = found["nblpcfg"]
    assert nbl.tables == ("main", "bindings", "nonterminals")
    assert (nbl.settings["NT"], nbl.settings["d_H"], nbl.settings["batch_size"]) == (15, 300, 8)
    assert found["nblpcfg-NT=10"].tables == ("d_H", "nonterminals")
    assert found["nblpcfg-NT=10-d_H=50"].decoders == ("mbr",)
    assert found["nlpcfg"].decoders == ("cyk", "mbr", "cyk-legacy", "mbr-legacy")
    assert "compound=true" in found["nlpcfg-NT=10-compound=true"].assignments
    for experiment in found.values():
        assert experiment.name == "-".join([experiment.model, *changed(params, experiment)])


def changed(params, experiment):
    """The settings of its own in which an experiment differs from its model."""
    defaults = params["corpora"]["wsj"]["models"][experiment.model]
    own = sorted(key for key in experiment.settings if key not in TRAINING)
    return [
        f"{key}={str(experiment.settings[key]).replace('True', 'true')}"
        for key in own
        if experiment.settings[key] != defaults[key]
    ]


def test_a_new_model_needs_its_description_only(params, monkeypatch):
    toy = params["corpora"]["toy"]
    toy["models"]["mine"] = {"NT": 5}
    toy["experiments"]["mine"] = {"model": "mine"}
    toy["tables"]["main"].append("mine")
    assert errors(params) == [
        "corpora.toy.models.mine: 'mine' is not one of npcfg, cpcfg, tnpcfg, nlpcfg, nblpcfg, structformer, sdiora",
    ]
    monkeypatch.setitem(MODELS, "mine", Model("Mine", "mine", "Mine", {"NT": 30}))
    assert errors(params) == []
    assert names(params)[-1] == "mine"


def test_every_model_is_as_described():
    """Its class takes the settings; it is lexicalised if its rules are."""
    for name, kind in MODELS.items():
        model = models.build(name, 9, **({"NT": 2} if kind.grammar else {}), dim=8)
        words = torch.tensor([[1, 2, 3]])
        assert kind.lexicalised == (model.parse(words, torch.tensor([3]))[0].heads is not None)
        assert kind.grammar == model.is_log_probability
        if kind.grammar:
            assert kind.lexicalised == isinstance(model.rules(words), BilexicalRules | LexicalRules)
        else:
            with pytest.raises(UserError, match="is not a grammar"):
                model.rules(words)
        assert kind.compound == (name == "cpcfg")
        parameters = inspect.signature(type(model)).parameters.values()
        taken = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
        assert [p.name for p in taken] == list(hyperparameters(name))
        assert {p.default for p in taken} == {inspect.Parameter.empty}
        assert {*hyperparameters(name), *TRAINING} <= set(SETTINGS)
        assert all(value in SETTINGS[key] for key, value in hyperparameters(name).items())


def test_names_tell_the_model_s_settings_not_those_of_its_training():
    assert experiment_name({"model": "nblpcfg"}) == "nblpcfg"
    assert experiment_name({"model": "nblpcfg", "d_H": 50, "lr": 0.1, "NT": 10}) == "nblpcfg-NT=10-d_H=50"
    assert experiment_name({"model": "nlpcfg", "compound": True}) == "nlpcfg-compound=true"


def test_an_experiment_s_settings_come_before_its_model_s_and_those_before_the_training_s(params):
    toy = params["corpora"]["toy"]
    toy["training"]["lr"] = 0.5
    assert {e.settings["lr"] for e in experiments(params)} == {0.5}
    toy["models"]["nblpcfg"]["lr"] = 0.25
    assert {e.settings["lr"] for e in experiments(params) if e.model == "nblpcfg"} == {0.25}
    toy["experiments"]["nblpcfg-binding=D-B"]["lr"] = 0.125
    assert errors(params) == []  # the name stays
    assert [e.name for e in experiments(params) if e.settings["lr"] == 0.125] == ["nblpcfg-binding=D-B"]


def test_narrowing(params):
    everything = names(params)
    bindings = [name for name in everything if name == "nblpcfg" or "binding" in name]
    assert names(params, tables=["bindings"]) == bindings
    assert names(params, experiments=["npcfg"]) == ["npcfg"]
    assert names(params, tables=["bindings"], experiments=["npcfg"]) == []
    [found] = experiments(params | {"tables": ["nonterminals"], "experiments": ["nlpcfg"]})
    assert found.decoders == ("mbr",)


def test_all_that_is_wrong_is_told_at_once_with_its_path(params):
    params["corpora"]["sample"] = copy.deepcopy(params["corpora"]["sample"])  # which the others share
    toy, sample = params["corpora"]["toy"], params["corpora"]["sample"]
    toy["models"]["nblpcfg"]["lr"] = "1e-3"
    toy["experiments"]["nblpcfg"]["d_H"] = 0
    toy["experiments"]["nblpcfg-binding=D-B"]["binding"] = "D-X"
    sample["experiments"]["nblpcfg"]["d_H"] = 7
    sample["experiments"]["npcfg"]["rank"] = 3
    sample["tables"]["main"].append("npcfg-NT=1")
    sample["tables"]["bindings"].remove("nblpcfg-binding=D-wq")
    sample["tables"]["decoders"].append("nblpcfg")
    params |= {"seeds": [0, 0], "corpus": "sample", "tables": ["mian"], "seed": 1}
    del params["max_words"]
    found = errors(params)
    assert [message for message in found if ": " not in message] == []
    expected = [
        r"^params.yaml: .*'seed' was unexpected",
        r"^params.yaml: 'max_words' is a required property",
        r"^corpora.toy.models.nblpcfg.lr: '1e-3' is not of type 'number'",
        r"^corpora.toy.experiments.nblpcfg.d_H: 0 is less than",
        r"^corpora.toy.experiments.nblpcfg-binding=D-B.binding: 'D-X' is not one of",
        r"^seeds: \[0, 0\] has non-unique elements",
        r"^corpora.sample.experiments.nblpcfg: by its settings its name is 'nblpcfg-d_H=7'",
        r"^corpora.sample.experiments.npcfg.rank: npcfg has no rank",
        r"^corpora.sample.experiments.npcfg: by its settings its name is 'npcfg-rank=3'",
        r"^corpora.sample.experiments.nblpcfg-binding=D-wq: no table needs it",
        r"^corpora.sample.tables.main: 'npcfg-NT=1' is not among the experiments",
        r"^corpora.sample.tables.decoders: 'nblpcfg' has no legacy decoders",
        r"^tables: 'mian' is not one of those of sample",
    ]
    for pattern in expected:
        assert any(re.search(pattern, message) for message in found), pattern
    assert len(found) == len(expected)


@pytest.mark.parametrize("text", ["", "- 1", "corpus: toy", "corpora: 3", "a: ["])
def test_what_is_no_params_file_is_refused(tmp_path, text):
    path = tmp_path / "params.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=re.escape(str(path))):
        read_params(path)


def test_the_known_corpora_are_those_of_prepare():
    assert tuple(SOURCES) == CORPORA


def test_own_corpora(tmp_path):
    """The example in a comment of params.yaml, made real, and what is wrong with others."""
    text = (PROJECT / "params.yaml").read_text()
    example = re.findall(r"^    # (mine:|  .*)$", text, flags=re.MULTILINE)
    (tmp_path / "params.yaml").write_text(text + "".join(f"  {line}\n" for line in example))
    mine = read_params(tmp_path / "params.yaml", {"corpus": "mine"})
    assert source_files(mine["corpora"]["mine"]) == ["gold.mrg", "news.txt"]
    assert names(mine, corpus="mine") == names(mine, corpus="wsj")
    mine["corpora"]["mine"] |= {"source": "here"}
    mine["corpora"]["toy"] |= {"text": ["a.txt"]}
    mine["corpora"]["another"] = dict(mine["corpora"]["wsj"])
    assert [message.partition(": ")[0] for message in errors(mine)] == [
        "corpora.toy.text",
        "corpora.mine.source",
        "corpora.another.text",
    ]


def test_dvc_changes_one_line_of_the_file(tmp_path):
    before = (PROJECT / "params.yaml").read_text()
    (tmp_path / "params.yaml").write_text(before)
    apply_overrides(tmp_path / "params.yaml", ["corpora.toy.training.lr=0.25"])  # as `dvc exp run -S` does it
    after = (tmp_path / "params.yaml").read_text()
    changed = [line for line in after.splitlines() if line not in before.splitlines()]
    assert changed == ["      lr: 0.25"]
    assert len(after.splitlines()) == len(before.splitlines())


def test_every_experiment_is_one_nbl_train_accepts(params):
    for corpus in params["corpora"]:
        for experiment in experiments(params | {"corpus": corpus}):
            own, training = parse(experiment.model, experiment.assignments)
            for key, value in experiment.settings.items():
                assert own.get(key, getattr(training, key, None)) == value


STEPS = {  # a step's modules, as its rule names them, and what it imports when it runs
    "train": (["nbl.train"], "nbl.train"),
    "evaluate": (["nbl.predict", "nbl.evaluate"], "nbl.predict, nbl.evaluate"),
    "corpus": (["nbl.corpus.*"], "nbl.corpus.sources, nbl.corpus.own"),
    "collect": (["nbl.collect"], "nbl.collect"),
    "report": (["nbl.paper.document"], "nbl.paper.document"),
    "benchmark": (["nbl.bench.*", "nbl.models.*"], "nbl.bench.inside, nbl.bench.step, nbl.bench.decode"),
}


@pytest.mark.parametrize("step", STEPS)
def test_the_rules_know_all_the_code_they_depend_on(step):
    """Every module of the package that a step has loaded is in the import closure its rule names."""
    entries, imported = STEPS[step]
    rules = "".join(path.read_text() for path in (PROJECT / "workflow/rules").glob("*.smk"))
    named = [re.findall(r'"([^"]+)"', call) for call in re.findall(r"code_?o?f?\(([^)]*?)(?:without|\))", rules)]
    assert entries in named
    code = f"import sys, {imported}\nfor m in list(sys.modules.values()): print(getattr(m, '__file__', None))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = {path for path in printed.splitlines() if path.startswith(str(PROJECT / "nbl"))}
    assert len(loaded) > 5
    assert loaded <= set(code_of(*entries, package=PROJECT / "nbl"))


@pytest.fixture
def package(tmp_path):
    """A copy of the package's source."""
    shutil.copytree(PROJECT / "nbl", tmp_path / "nbl", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "nbl"


def run_code(package, model, *modules):
    """What a run of a model depends on, as in common.smk, below the package's folder."""
    found = code_of(
        *modules, f"nbl.models.{MODELS[model].module}", without=["nbl.settings", "nbl.errors"], package=package
    )
    return {str(Path(path).relative_to(package)) for path in found}


@pytest.mark.parametrize("modules", [["nbl.train"], ["nbl.predict", "nbl.evaluate"]])
def test_a_run_depends_on_its_own_grammar_only(package, modules):
    before = {model: run_code(package, model, *modules) for model in MODELS}
    own = {f"models/{model.module}.py" for model in MODELS.values()}
    for model, code in before.items():
        assert code & own == {f"models/{MODELS[model].module}.py"}
        assert {"metrics.py", "rules.py", "inside/lexical/torch.py", "decode/mbr.py", "corpus/folder.py"} <= code
        assert {f"native/{path.name}" for path in (PROJECT / "nbl/native").glob("*.[ch]*")} <= code
        assert not code & {"settings.py", "errors.py", "matrix.py", "collect.py"}
        assert not any(path.startswith(("commands/", "report/", "bench/")) for path in code)
    (package / "models" / "mine.py").write_text("import nbl.models.base\n")
    assert before == {model: run_code(package, model, *modules) for model in MODELS}


def test_code_follows_imports_within_functions_but_not_within_those_of_packages_around(tmp_path):
    files = {
        "__init__": "def f():\n    import nbl.lazy\n",
        "lazy": "",
        "a": "def f():\n    from nbl.b import c\n",
        "b/__init__": "import nbl.d\nimport nbl.without.e",
        "b/c": "import os",
        "d": "",
        "without/__init__": "",
        "without/e": "",
    }
    package = tmp_path / "nbl"
    for name, text in files.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / f"{name}.py").write_text(text)
    (package / "b/data.txt").touch()
    found = code_of("nbl.a", without=["nbl.without"], package=package)
    names = ["__init__.py", "a.py", "b/__init__.py", "b/c.py", "b/data.txt", "d.py"]
    assert [str(Path(path).relative_to(package)) for path in found] == names
    with pytest.raises(FileNotFoundError, match=r"has no module nbl\.none"):
        code_of("nbl.none", package=package)


@pytest.fixture
def finished(tmp_path, params):
    """A run's folder as the pipeline leaves it, and its experiment."""
    [experiment] = experiments(params | {"experiments": ["nblpcfg"]})
    training = {key: experiment.settings[key] for key in TRAINING if key in experiment.settings}
    own = {key: value for key, value in experiment.settings.items() if key not in training} | {"PT": 12}
    config = Config("nblpcfg", 9, own, Training(**training), 3, 1, "cpu", {})
    write_config(tmp_path / "config.yaml", config, [])
    (tmp_path / "metrics.json").write_text("{}")
    for step, name in (("train", "config.yaml"), ("evaluate", "metrics.json")):
        sums = subprocess.run(["sha256sum", name], cwd=tmp_path, capture_output=True, check=True).stdout
        (tmp_path / f"{step}.sha256").write_bytes(sums)
    return tmp_path, experiment


def test_status(finished):
    folder, experiment = finished
    assert RunFolder(folder).status(experiment, 3) == "done"
    assert RunFolder(folder / "elsewhere").status(experiment, 3) == "missing"
    assert RunFolder(folder).status(experiment, 4) == "made by other settings: seed 3 instead of 4"
    lr, experiment.settings["lr"] = experiment.settings["lr"], 0.125
    assert RunFolder(folder).status(experiment, 3) == f"made by other settings: lr {lr} instead of 0.125"
    experiment.settings["lr"] = lr
    (folder / "evaluate.sha256").rename(folder / "aside")
    assert RunFolder(folder).status(experiment, 3) == "not evaluated"
    (folder / "aside").rename(folder / "evaluate.sha256")
    (folder / "metrics.json").write_text("{")
    assert RunFolder(folder).status(experiment, 3) == "damaged: metrics.json"
    (folder / "resume.pt").touch()
    assert RunFolder(folder).status(experiment, 3) == "unfinished"


def test_damaged_files_are_set_aside_with_their_step(finished):
    folder, _ = finished
    assert set_aside(folder) == []
    (folder / "metrics.json").write_text("{")
    [told] = set_aside(folder)
    assert told.startswith(f"{folder}/metrics.json is damaged")
    assert not (folder / "metrics.json").exists()
    assert (folder / "metrics.json.damaged").read_text() == "{"
    assert sorted(path.name for path in folder.glob("*.sha256")) == ["train.sha256"]
    (folder / "config.yaml").unlink()
    assert set_aside(folder) == [f"{folder}/config.yaml is missing: it will be made again"]
    assert list(folder.glob("*.sha256")) == []


def test_the_csv_of_a_sweep(params, tmp_path):
    chosen = [e for e in experiments(params) if "nonterminals" in e.tables]
    means = {"nblpcfg": {"mbr": {"n": 4, "f1": 60.0, "perplexity": 9.5}}, "nlpcfg-NT=2": {"mbr": {"n": 1, "f1": 7.0}}}
    write_csv(tmp_path / "sweep.csv", *_sweep("NT", chosen, means))
    rows = {row["NT"]: row for row in csv.DictReader((tmp_path / "sweep.csv").read_text().splitlines())}
    assert list(rows) == ["2", "4", "6", "8"]
    assert (rows["6"]["f1_nblpcfg"], rows["6"]["perplexity_nblpcfg"], rows["6"]["f1_nlpcfg"]) == ("60.0", "9.5", "")
    assert (rows["2"]["f1_nlpcfg"], rows["2"]["f1_nblpcfg"]) == ("7.0", "")
