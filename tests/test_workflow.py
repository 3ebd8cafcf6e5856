"""The pipeline from end to end, in a copy of the project: run, rerun, change, break."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent
PARTS = ("nbl", "workflow", "params.yaml", "dvc.yaml", ".dvc/config", ".dvcignore", ".gitignore")


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the project in a folder with a space in its name, as a git repository."""
    folder = tmp_path_factory.mktemp("my project")
    for part in PARTS:
        target = folder / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if (PROJECT / part).is_dir():
            shutil.copytree(PROJECT / part, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(PROJECT / part, target)
    for command in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


def call(folder, *command):
    """Run a tool of this environment; give its exit code and all it printed."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    environment |= {"DVC_NO_ANALYTICS": "1", "PYTHONPATH": str(folder), "PYTHONWARNINGS": "default"}
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return result.returncode, result.stdout + result.stderr


def snakemake(folder, *arguments):
    return call(folder, "snakemake", "--cores", "1", *arguments, "--", "all")


def test_run_then_nothing_to_do_then_only_what_changed(copy):
    code, log = snakemake(copy)
    assert code == 0, log
    stats = copy / "results/toy/corpus/stats.json"
    assert '"corpus": "toy"' in stats.read_text()

    code, log = snakemake(copy, "--dry-run")
    assert code == 0, log
    assert "Nothing to be done" in log

    code, log = snakemake(copy, "--dry-run", "--config", "max_words=100")
    assert code == 0, log
    assert "rule corpus:" in log

    # DVC takes over what Snakemake made: no second run
    before = stats.stat().st_mtime_ns
    code, log = call(copy, "dvc", "repro")
    assert code == 0, log
    assert stats.stat().st_mtime_ns == before
    assert "results/toy/corpus" in (copy / "dvc.lock").read_text()
    code, log = call(copy, "dvc", "status")
    assert "up to date" in log, log


@pytest.mark.parametrize(
    ("setting", "message"),
    [("corpus=ptb", "'ptb' is not one of"), ("max_words=0", "0 is less than the minimum"), ("seed=1", "seed")],
)
def test_wrong_parameters_are_refused_before_anything_runs(copy, setting, message):
    code, log = snakemake(copy, "--config", setting)
    assert code != 0
    assert message in log
