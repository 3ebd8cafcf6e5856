"""A run's settings: what makes it, how the command line gives it, how its folder records it."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
import yaml

from nbl import native
from nbl.corpus.folder import Corpus
from nbl.errors import UserError
from nbl.files import write_text
from nbl.settings import Training, parse

PLACE = frozenset({"device", "threads"})  # where a run is trained


@dataclass(frozen=True)
class Config:
    """All that decides a run's result. Two runs with equal ones end with the same bytes on one machine."""

    model: str
    vocab_size: int
    hyperparameters: dict[str, Any]
    training: Training
    seed: int
    threads: int
    device: str  # "cpu" or "cuda"
    corpus: dict[str, str]  # its identity


def make_config(
    model: str, assignments: Iterable[str], corpus: Corpus, *, seed: int, threads: int, device: str
) -> Config:
    """The settings of a run: the model's defaults, changed by assignments `KEY=VALUE`."""
    sizes, training = parse(model, assignments)
    return Config(
        model=model,
        vocab_size=len(corpus.vocabulary),
        hyperparameters=sizes,
        training=training,
        seed=seed,
        threads=threads,
        device=device,
        corpus=corpus.identity,
    )


def environment(device: torch.device) -> dict[str, str]:
    """Program versions and hardware: recorded, but a run may go on where they differ."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    return {
        "nbl": _version(),
        "commit": commit_of(Path(__file__).parent.parent),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "device": name,
        "kernels": native.description(device),
    }


def _processor() -> str:
    """Its model's name, if the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _version() -> str:
    try:
        return version("nbl")
    except PackageNotFoundError:
        return "not installed"


def commit_of(root: Path) -> str:
    """The commit of the code in a checkout, "-dirty" if changed since, "unknown" outside a repository."""
    if not (root / ".git").exists():
        return "unknown"
    command = ["git", "--no-optional-locks", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def write_config(path: Path, config: Config, environments: list[dict[str, str]]) -> None:
    """Write `config.yaml`: the settings, and each environment that worked on the run, in order."""
    document = asdict(config) | {"environments": environments}
    write_text(path, yaml.safe_dump(document, sort_keys=False, allow_unicode=True))


def read_config(path: Path) -> Config:
    """Read the settings of a `config.yaml`; a damaged one is named and refused."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        return config_from(document)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path} is damaged ({reason}): delete the folder {path.parent} and train again") from error


def config_from(document: dict[str, Any]) -> Config:
    """The settings in what `asdict` made of them; KeyError or TypeError where they are not."""
    values = {field.name: document[field.name] for field in fields(Config)}
    return Config(**values | {"training": Training(**values["training"])})


class OtherPlace(UserError):
    """A run's settings are the same, but not where it is trained."""


def refuse_other(config: Config, found: Config, path: Path) -> None:
    """Refuse to go on with a run that was made by other settings, and name them."""
    ours, theirs = _flat(asdict(config)), _flat(asdict(found))
    differing = [key for key in ours | theirs if ours.get(key) != theirs.get(key)]
    told = "; ".join(f"{key} is {theirs.get(key)!r} there, {ours.get(key)!r} here" for key in differing)
    if differing and PLACE.issuperset(differing):
        raise OtherPlace(f"{path} is of this run, but {told}: go on there, or delete the folder {path.parent}")
    if differing:
        raise UserError(
            f"{path} belongs to another run ({told}): "
            f"choose another --out, begin anew with --replace, or delete the folder {path.parent}"
        )


def _flat(document: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested keys joined by dots.

    >>> _flat({"seed": 0, "training": {"lr": 0.001}})
    {'seed': 0, 'training.lr': 0.001}
    """
    result: dict[str, Any] = {}
    for key, value in document.items():
        result |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return result
