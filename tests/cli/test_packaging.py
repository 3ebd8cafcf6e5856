"""The distribution: what it requires is what it imports, and the wheel works elsewhere and without the extras."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml

PROJECT = Path(__file__).parents[2]
TOOLS = {"snakemake", "dvc"}  # are run, not imported
# The parts that need the extra `pipeline`, and the one function of nbl/drawing.py that draws PNG.
PIPELINE = ("commands/matrix.py", "commands/paper.py", "matrix.py", "paper/", "drawing.py")


@pytest.fixture(scope="module")
def declared():
    """Names of the requirements of each extra; those without are `core`."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    groups = {"core": project["dependencies"]} | project["optional-dependencies"]
    return {group: {_name(requirement) for requirement in requirements} for group, requirements in groups.items()}


def _name(requirement):
    return re.match(r"[\w.-]+", requirement)[0].lower()


def imported(path):
    """The distributions that a module imports, wherever in its code."""
    modules = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(node.module.partition(".")[0])
    found = packages_distributions()
    return {found[module][0].lower() for module in modules - {"nbl"} if module in found}


def test_what_is_required_is_what_is_imported(declared):
    core, pipeline = set(), set()
    for path in (PROJECT / "nbl").rglob("*.py"):
        of_pipeline = path.relative_to(PROJECT / "nbl").as_posix().startswith(PIPELINE)
        (pipeline if of_pipeline else core).update(imported(path))
    assert core == declared["core"]
    assert pipeline - core == declared["pipeline"] - TOOLS


def test_the_lock_holds_all_requirements_and_the_tested_torch(declared):
    lock = (PROJECT / "requirements.lock").read_text().splitlines()
    assert {name for group, names in declared.items() if group != "open" for name in names} <= set(map(_name, lock[1:]))
    assert "torch==2.13.0" in lock
    assert all("==" in line for line in lock[1:])


def test_the_hooks_check_what_make_lint_checks():
    hooks = yaml.safe_load((PROJECT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    (commands,) = re.findall(r"^lint:.*\n((?:\t.*\n)+)", (PROJECT / "Makefile").read_text(), re.MULTILINE)
    checks = {line.removeprefix("\t$(BIN)/").removesuffix(" .") for line in commands.splitlines()}
    assert {hook["entry"] for hook in hooks} == checks


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder where the wheel is installed."""
    source, wheels, site = (tmp_path_factory.mktemp(name) for name in ("source", "wheels", "site"))
    shutil.copytree(PROJECT / "nbl", source / "nbl", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, source)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]
    build = ["wheel", "--no-deps", "--no-index", "--no-build-isolation", "-w", wheels, source]
    subprocess.run([*pip, *build], check=True, capture_output=True)
    (wheel,) = wheels.iterdir()
    subprocess.run([*pip, "install", "--no-deps", "--no-index", "--target", site, wheel], check=True)
    return site


# No module of the extra `pipeline` can be imported.
PROGRAM = """
import sys
sys.modules.update(dict.fromkeys({missing!r}))
from nbl.cli import main
main()
"""


@pytest.fixture
def nbl(site, tmp_path, declared):
    """Call nbl from the wheel in an empty folder."""

    def call(*arguments, text=""):
        program = PROGRAM.format(missing=declared["pipeline"])
        environment = os.environ | {"PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", program, *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, input=text, capture_output=True, text=True)

    return call


def test_the_wheel_holds_everything_but_bytecode(site):
    def files(folder):
        return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}

    assert files(site / "nbl") == files(PROJECT / "nbl")


def test_the_wheel_works_without_the_pipeline(nbl):
    for command in (
        "prepare --corpus toy --out corpus",
        "train --corpus-dir corpus --model nblpcfg --out run --set NT=2 d_H=3 dim=4 epochs=1 max_length=4",
        "evaluate run --corpus-dir corpus --split dev",
    ):
        done = nbl(*command.split())
        assert done.returncode == 0, done.stderr
    done = nbl("parse", "run", "--format", "svg", text="The dog sees the cat.\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("<svg ")


@pytest.mark.parametrize("verb", ["runs", "collect", "tables --corpus toy", "check --corpus toy"])
def test_a_verb_that_needs_an_extra_names_it(nbl, verb):
    done = nbl(*verb.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(
        r"nbl: (jsonschema|pandas), which this needs, is not installed: pip install 'nbl\[pipeline\]'\n",
        done.stderr,
    )


def test_a_verb_that_needs_parameters_says_so(site, tmp_path):
    program = [sys.executable, "-c", "from nbl.cli import main; main()", "runs"]
    environment = os.environ | {"PYTHONPATH": str(site)}
    done = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("nbl: cannot read params.yaml: No such file")
