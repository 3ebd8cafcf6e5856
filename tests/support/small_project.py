"""A copy of the project with a small matrix, two experiments of two seeds, for tests of the whole pipeline."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

PROJECT = Path(__file__).parents[2]
PARTS = ("nbl", "workflow", "dvc.yaml", ".dvc/config", ".dvcignore", ".gitignore")
TABLES = {
    "main": ["nblpcfg"],
    "bindings": ["nblpcfg", "nblpcfg-binding=D-B"],
}
RUNS = [f"results/toy/runs/{name}/seed{seed}" for name in TABLES["bindings"] for seed in (0, 1)]
CHANGED = RUNS[2:]  # those of D-B
# Measuring takes minutes; what is to be seen here is when it happens.
BENCH = """
from nbl.files import write_text

def bench(out, **others):
    row = "NBL-PCFG,1,10,10,0.1,0.1,0.1,1,10,10"
    write_text(out / "inside.csv", f"implementation,b,l,m,median,low,high,rounds,peak_mb,sgemm_gflops\\n{row}\\n")
    write_text(out / "summary.json", "{}")
"""


def small(params):
    """The parameters with two experiments of two seeds, as small as can be."""
    toy = params["corpora"]["toy"]
    toy["training"] |= {"epochs": 2, "max_length": 4}
    toy["models"]["nblpcfg"] |= {"NT": 2, "d_H": 3, "dim": 4}
    toy["experiments"] = {name: toy["experiments"][name] for name in TABLES["bindings"]}
    toy["tables"] = TABLES
    decoders = {"main": ["mbr", "cyk"], "bindings": ["mbr"]}
    return params | {"seeds": [0, 1], "decoders": decoders, "corpora": {"toy": toy}}


def change(folder, change_toy, whole=False):
    """Change the parameters of toy in a copy, or all parameters."""
    path = folder / "params.yaml"
    params = yaml.safe_load(path.read_text())
    change_toy(params if whole else params["corpora"]["toy"])
    path.write_text(yaml.safe_dump(params, sort_keys=False))


def copy_project(folder):
    """Copy what the pipeline needs of the project to a folder, with the small matrix."""
    for part in PARTS:
        target = folder / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if (PROJECT / part).is_dir():
            shutil.copytree(PROJECT / part, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(PROJECT / part, target)
    params = yaml.safe_load((PROJECT / "params.yaml").read_text())
    (folder / "params.yaml").write_text(yaml.safe_dump(small(params), sort_keys=False))
    (folder / "nbl/commands/bench.py").write_text(BENCH)


def environment(folder):
    paths = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(folder)}
    return os.environ | paths | {"DVC_NO_ANALYTICS": "1", "OMP_NUM_THREADS": "1"}


def git(folder, *arguments):
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)


def commit(folder):
    git(folder, "add", "-A")
    git(folder, "-c", "user.name=nbl", "-c", "user.email=nbl@example.org", "commit", "-q", "-m", "state")


def call(folder, *command, fails=False):
    """Run a tool of this environment; give all it printed."""
    result = subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False)
    log = result.stdout + result.stderr
    assert (result.returncode != 0) == fails, log
    return log


def snakemake(folder, *arguments, target="all", fails=False):
    return call(folder, "snakemake", "--cores", "2", *arguments, "--", target, fails=fails)
