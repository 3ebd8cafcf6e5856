"""The golden record: hashes of what nbl computes, so that a change of its code can be shown to change no byte.

    python tools/golden.py record      # before the change
    python tools/golden.py compare     # after it: names what differs, exit code 1 if anything does

Covered: the toy corpus; a short training of every grammar and binding, by the native kernels and by torch, with its
checkpoint (names, order and values), curve, predictions of all decoders and metrics; what every verb prints as JSON;
the tables and figures of `sample` and `open` from the results in git. Toy's are covered by `make reproduce`, which
leaves a clean `git status`. Not covered: clocks, memory, versions. The record is one machine's and stays out of git.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import yaml

ROOT = Path(__file__).parent.parent
RECORD = ROOT / "tools" / "golden.json"
SIZES = ["dim=16", "epochs=2", "max_length=7", "lr=0.01"]
RUNS = {
    "npcfg": ["NT=4"],
    "cpcfg": ["NT=4", "z_dim=6", "h_dim=10", "w_dim=12", "curriculum=5"],
    "tnpcfg": ["NT=8", "rank=10"],
    "nlpcfg": ["NT=4"],
    "nlpcfg-compound": ["NT=3", "compound=true", "z_dim=6", "h_dim=10", "w_dim=12"],
    "nblpcfg": ["NT=4", "d_H=9"],
    "nblpcfg-D-alone": ["NT=4", "d_H=9", "binding=D-alone"],
    "nblpcfg-D-wq": ["NT=4", "d_H=9", "binding=D-wq"],
    "nblpcfg-D-B": ["NT=4", "d_H=9", "binding=D-B"],
    "nblpcfg-paper": ["NT=3", "d_H=9", "parameterisation=paper"],
}
TEXT = "The old farmer sold the house near the river.\nShe slept.\nQuickly, the girl who saw the dog ran.\n"
CLOCKED = {"seconds", "sentences_per_second", "peak_memory_mb"}


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def nbl(*arguments: str, cwd: Path, native: bool = True, text: str | None = None) -> bytes:
    """Call nbl and return what it prints; its failure ends this program."""
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": paths, "NBL_NATIVE": str(int(native)), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", "from nbl.cli import main; main()", *arguments]
    done = subprocess.run(command, cwd=cwd, env=environment, input=(text or "").encode(), capture_output=True)
    if done.returncode:
        raise SystemExit(f"nbl {' '.join(arguments)}:\n{done.stderr.decode()}")
    return done.stdout


def corpus(folder: Path) -> dict[str, str]:
    nbl("prepare", "--corpus", "toy", "--out", "corpus", cwd=folder)
    return {f"corpus/{path.name}": sha(path.read_bytes()) for path in sorted((folder / "corpus").iterdir())}


def run(folder: Path, name: str, native: bool) -> dict[str, str]:
    """Train, evaluate; hashes of what its folder holds."""
    out = f"{'native' if native else 'torch'}/{name}/seed1"
    model = name.partition("-")[0]
    settings = [*SIZES, *RUNS[name]]
    nbl("train", "--corpus-dir", "corpus", "--model", model, "--seed", "1", "--out", out, "--device", "cpu",
        "--set", *settings, cwd=folder, native=native)  # fmt: skip
    decoders = ["mbr", "cyk", *(["mbr-legacy", "cyk-legacy"] if model == "nlpcfg" else [])]
    printed = nbl("evaluate", out, "--corpus-dir", "corpus", "--device", "cpu", "--json", "--decoder", *decoders,
                  cwd=folder, native=native)  # fmt: skip
    found = {"evaluate --json": sha(printed)}
    state = torch.load(folder / out / "checkpoint.pt", weights_only=True)
    tensors = b"".join(name.encode() + value.numpy().tobytes() for name, value in state["model"].items())
    found["checkpoint"] = sha(repr(list(state["model"])).encode() + tensors + repr(state["epoch"]).encode())
    rows = csv.DictReader(io.StringIO((folder / out / "history.csv").read_text()))
    found["history"] = sha(repr([[v for k, v in row.items() if k not in CLOCKED] for row in rows]).encode())
    config = yaml.safe_load((folder / out / "config.yaml").read_text())
    config.pop("environments", None)
    found["config"] = sha(json.dumps(config).encode())
    for path in [*sorted((folder / out).glob("predictions.*")), folder / out / "metrics.json"]:
        found[path.name] = sha(path.read_bytes())
    return {f"{out}: {key}": value for key, value in found.items()}


def verbs(folder: Path) -> dict[str, str]:
    """What the verbs that use a grammar print."""
    text = folder / "text.txt"
    text.write_text(TEXT)
    calls = []
    for name in RUNS:
        out = f"native/{name}/seed1"
        calls += [("score", out, "text.txt", "--json"), ("show", out, "--json"), ("sample", out, "--json", "-n", "5")]
        calls += [("parse", out, "text.txt", "--decoder", decoder, "--json") for decoder in ("mbr", "cyk")]
    calls += [("parse", "native/nblpcfg/seed1", "text.txt", "--format", kind) for kind in ("brackets", "conllx", "svg")]
    calls += [("compare", "native/nblpcfg/seed1", "native/nlpcfg/seed1", "--corpus-dir", "corpus", "--json")]
    return {" ".join(call): sha(nbl(*call, cwd=folder)) for call in calls}


def tables(folder: Path, name: str) -> dict[str, str]:
    out = folder / "tables" / name
    nbl("tables", "--corpus", name, "--results", "results/reference", "--out", str(out), cwd=ROOT)
    files = sorted(path for path in out.iterdir() if path.name != "paper.pdf")
    return {f"tables/{name}/{path.name}": sha(path.read_bytes()) for path in files}


def record() -> dict[str, str]:
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(2) as pool:
        folder = Path(temporary)
        found = corpus(folder)
        jobs = [pool.submit(run, folder, name, native) for name in RUNS for native in (True, False)]
        for job in jobs:
            found |= job.result()
        found |= verbs(folder)
        for job in [pool.submit(tables, folder, name) for name in ("sample", "open")]:
            found |= job.result()
        found["runs --json"] = sha(nbl("runs", "--json", cwd=ROOT))
    return found


def main(command: str) -> None:
    found = record()
    if command == "record":
        RECORD.write_text(json.dumps(found, indent=1) + "\n")
        return
    golden = json.loads(RECORD.read_text())
    differing = [key for key in golden | found if golden.get(key) != found.get(key)]
    print("\n".join(f"differs: {key}" for key in differing) or f"all {len(found)} are equal")
    sys.exit(bool(differing))


if __name__ == "__main__":
    main(*sys.argv[1:])
