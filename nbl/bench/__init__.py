"""Benchmarks of the inside algorithms, of whole training steps and of the decoders."""

from __future__ import annotations

from typing import Any

from nbl.settings import MODELS, hyperparameters

_SMALL_NL = {"NT": MODELS["nlpcfg"].released_NT_compound}
_RELEASED: tuple[tuple[str, dict[str, Any]], ...] = (
    *(("npcfg", {}), ("cpcfg", {}), ("tnpcfg", {})),
    *(("nlpcfg", _SMALL_NL), ("nlpcfg", _SMALL_NL | {"compound": True}), ("nlpcfg", {})),
    ("nblpcfg", {}),
)


def _name(model: str, settings: dict[str, Any]) -> str:
    sizes = hyperparameters(model, settings)
    return f"{MODELS[model].title} {sizes['NT']}/{sizes['PT']}" + ", compound" * ("compound" in settings)


# The models at the paper's sizes: name in the benchmark -> model and the settings that are not its defaults.
RELEASED = {_name(model, settings): (model, settings) for model, settings in _RELEASED}
