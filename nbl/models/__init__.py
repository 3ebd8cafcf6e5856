"""The models: neural grammars, and two systems that are not grammars.

`build` makes one from its name and hyper-parameters, `load` brings back a trained one.
"""

from __future__ import annotations

import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from nbl.errors import UserError
from nbl.models.base import System
from nbl.run_folder import RunFolder
from nbl.settings import MODELS, checked


def build(name: str, vocab_size: int, **given: Any) -> System:
    """A new model with random parameters, drawn from torch's global generator.

    Args:
        name: one of `nbl.settings.MODELS`.
        vocab_size: number of words in the vocabulary.
        given: hyper-parameters that differ from the model's defaults, `nbl.settings.hyperparameters(name)`.
    """
    settings = checked(name, vocab_size, given)
    model = MODELS[name]
    found: type[System] = getattr(import_module(f"nbl.models.{model.module}"), model.name)
    return found(vocab_size, **settings)


def load(run_directory: str | Path) -> System:
    """The trained model of a run, on the CPU and in evaluation mode.

    Args:
        run_directory: the run's folder; its `config.yaml` and `checkpoint.pt` are read.
    """
    run = RunFolder(run_directory)
    config_path, checkpoint_path = (run.path / name for name in ("config.yaml", "checkpoint.pt"))
    try:
        with torch.random.fork_rng(devices=[]):  # the initial values are thrown away
            model = build(run.config.model, run.config.vocab_size, **run.config.hyperparameters)
    except UserError as error:
        raise UserError(f"{config_path} does not describe a model ({error}): train again") from error
    try:
        model.load_state_dict(read_checkpoint(checkpoint_path)["model"])
    except (KeyError, TypeError, RuntimeError) as error:
        raise UserError(f"{checkpoint_path} does not fit the model in {config_path}: train again") from error
    return model.eval()


def read_checkpoint(path: str | Path) -> Any:
    """What `torch.save` wrote to `path`, on the CPU; a damaged file is named and refused."""
    try:
        with zipfile.ZipFile(path) as archive:  # torch itself does not compare the checksums
            if damaged := archive.testzip():
                raise zipfile.BadZipFile(f"wrong checksum of {damaged}")
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle can raise anything
        raise UserError(f"cannot read the checkpoint {path} ({_first_line(error)}): train again") from error


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]
