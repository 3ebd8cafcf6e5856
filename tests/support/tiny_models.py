"""Small neural grammars for the tests: every model, binding and parameterisation."""

from __future__ import annotations

import itertools

import torch

from nbl import models
from nbl.settings import BINDINGS, SETTINGS

TINY = {"NT": 2, "PT": 3, "dim": 8}
LATENT = {"z_dim": 3, "h_dim": 5, "w_dim": 4}
BILEXICAL = list(itertools.product(BINDINGS, SETTINGS["parameterisation"].choices))
COMPOUND = [("cpcfg", LATENT), ("nlpcfg", {"compound": True, **LATENT})]
SIMPLE = [
    ("npcfg", {}),
    ("tnpcfg", {"rank": 4}),
    ("nlpcfg", {}),
    *(("nblpcfg", {"d_H": 3, "binding": binding, "parameterisation": side}) for binding, side in BILEXICAL),
]


def tiny(name: str, settings: dict, vocab_size: int = 6, seed: int = 0, spread: float = 1.0):
    """A small model in float64; `spread` multiplies its matrices, to make its distributions uneven."""
    torch.manual_seed(seed)
    model = models.build(name, vocab_size, **TINY | settings).double()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(spread)
    return model
