"""The grammars by name: what the pipeline and the reports must know of each without importing torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Kind:
    """`model` is its class, in the module of `nbl.models` that has the grammar's name. `lexicalised`: its trees have
    heads. `compound`: its log p is approximate, whatever its settings.
    """

    title: str
    model: str
    lexicalised: bool = False
    compound: bool = False


GRAMMARS = {
    "npcfg": Kind("N-PCFG", "NPCFG"),
    "cpcfg": Kind("C-PCFG", "CPCFG", compound=True),
    "tnpcfg": Kind("TN-PCFG", "TNPCFG"),
    "nlpcfg": Kind("NL-PCFG", "NLPCFG", lexicalised=True),
    "nblpcfg": Kind("NBL-PCFG", "NBLPCFG", lexicalised=True),
}
BINDINGS = ("D-C", "D-alone", "D-wq", "D-B")  # of NBL-PCFG: what the head direction D is bound to
# The values of the hyper-parameters that are no sizes; a size is any whole number from 1.
CHOICES: dict[str, tuple[Any, ...]] = {
    "binding": BINDINGS,
    "compound": (False, True),
    "parameterisation": ("released", "paper"),
}
