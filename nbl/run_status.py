"""How far a run of the matrix is, as its folder tells."""

from __future__ import annotations

from pathlib import Path

import yaml

from nbl import checksums
from nbl.matrix import Experiment

DONE = "done"


def run_folder(results: Path, corpus: str, experiment: Experiment, seed: int) -> Path:
    """Where a run's files are."""
    return results / corpus / "runs" / experiment.name / f"seed{seed}"


def status(folder: Path, experiment: Experiment, seed: int) -> str:
    """ "done", or what is wrong: missing, unfinished, damaged, not evaluated, or made by other settings."""
    if (folder / "resume.pt").exists():
        return "unfinished"
    if not (folder / "config.yaml").exists():
        return "missing"
    if found := checksums.damaged(folder):
        return f"damaged: {', '.join(name for names in found.values() for name in names)}"
    if differences := _differences(folder / "config.yaml", experiment, seed):
        return f"made by other settings: {', '.join(differences)}"
    if not all((folder / f"{step}.sha256").exists() for step in ("train", "evaluate")):
        return "not evaluated" if (folder / "train.sha256").exists() else "unfinished"
    return DONE


def _differences(path: Path, experiment: Experiment, seed: int) -> list[str]:
    """The settings in which a run's `config.yaml` differs from its experiment."""
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        found = experiment.differences(config)
        if config["seed"] != seed:
            found["seed"] = config["seed"], seed
    except (yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError):
        return ["config.yaml cannot be read"]
    return [f"{key} {recorded} instead of {planned}" for key, (recorded, planned) in found.items()]
