"""The neural grammars: from words to rules.

`build` makes one from its name and hyper-parameters, `load` brings back a trained one.
"""

from __future__ import annotations

import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import yaml

from nbl.errors import UserError
from nbl.grammars import CHOICES, GRAMMARS
from nbl.models.base import Grammar


def model_class(name: str) -> type[Grammar]:
    """The class of a model; an unknown name is refused."""
    if name not in GRAMMARS:
        raise UserError(f"unknown model {name!r}: choose one of {', '.join(GRAMMARS)}")
    found: type[Grammar] = getattr(import_module(f"nbl.models.{name}"), GRAMMARS[name].model)
    return found


def hyperparameters(name: str) -> dict[str, Any]:
    """All hyper-parameters of a model with their defaults."""
    return dict(model_class(name).__init__.__kwdefaults__ or {})


def build(name: str, vocab_size: int, **given: Any) -> Grammar:
    """A new model with random parameters, drawn from torch's global generator.

    `given` are hyper-parameters that differ from `hyperparameters(name)`; PT is 2 NT if only NT is given.
    """
    defaults = hyperparameters(name)
    errors = [_error("vocab_size", vocab_size)]
    for key, value in given.items():
        errors.append(_error(key, value) if key in defaults else f"{key} (given as {value!r}) is unknown")
    if errors := [error for error in errors if error]:
        raise UserError(f"cannot build {name}, which has {', '.join(defaults)}: {'; '.join(errors)}")
    if "NT" in given:
        defaults["PT"] = 2 * given["NT"]
    return model_class(name)(vocab_size, **(defaults | given))


def _error(key: str, value: Any) -> str:
    """What is wrong with the value of a hyper-parameter, or ""."""
    if key in CHOICES:
        # By type too: 1 == True.
        if not any(value == choice and type(value) is type(choice) for choice in CHOICES[key]):
            return f"{key} is {value!r}, not one of {', '.join(map(str, CHOICES[key]))}"
    elif type(value) is not int or value < 1:
        return f"{key} is {value!r}, not a whole number from 1"
    return ""


def load(run_directory: str | Path) -> Grammar:
    """The trained model of a run, on the CPU and in evaluation mode.

    Reads `config.yaml` (model, vocab_size, hyperparameters) and `checkpoint.pt` (the parameters).
    """
    config_path, checkpoint_path = (Path(run_directory) / name for name in ("config.yaml", "checkpoint.pt"))
    try:
        config = yaml.safe_load(config_path.read_text(encoding="utf-8"))
        given = {str(key): value for key, value in config["hyperparameters"].items()}
        with torch.random.fork_rng(devices=[]):  # the initial values are thrown away
            model = build(str(config["model"]), config["vocab_size"], **given)
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError, AttributeError, UserError) as error:
        raise UserError(f"{config_path} does not describe a model ({_first_line(error)}): train again") from error
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
