"""What there is to choose: the models and their settings, training, decoders and corpora, each described once.

The command line, the check of `params.yaml`, `build`, the workflow and the reports read it. Nothing here needs torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from nbl.errors import UserError

CORPORA = ("toy", "sample", "open", "wsj")
LEGACY = "-legacy"  # ends the names of decoders that repeat the errors of the released NL-PCFG decoders
DECODERS = ("cyk", "mbr", f"cyk{LEGACY}", f"mbr{LEGACY}")
BINDINGS = ("D-C", "D-alone", "D-wq", "D-B")  # of NBL-PCFG: what the head direction D is bound to


@dataclass(frozen=True)
class Training:
    """How a model is trained. The defaults are those of most models of the paper."""

    lr: float = 0.001
    epochs: int = 10
    batch_size: int = 4
    max_length: int = 40  # longer sentences are left out of training
    patience: int = 5  # epochs without a better dev perplexity before training ends
    clip: float = 3.0  # largest global norm of the gradient
    curriculum: int = 0  # longest sentence of the first epoch, one word more each epoch; 0: no curriculum

    def longest(self, epoch: int) -> int:
        """The longest sentence of an epoch, counted from 1.

        >>> [Training(curriculum=30, max_length=32).longest(epoch) for epoch in (1, 2, 3, 4)]
        [30, 31, 32, 32]
        """
        return min(self.max_length, self.curriculum + epoch - 1) if self.curriculum else self.max_length


TRAINING = tuple(setting.name for setting in fields(Training))


@dataclass(frozen=True)
class Model:
    """A model: `name` is its class in `nbl.models.<module>`, `settings` are its hyper-parameters with their defaults.

    PT is not among them: it is 2 NT unless given. `training` has what differs from `Training()`. `lexicalised` means
    that its trees have heads, `compound` that its log p is always approximate. `released_NT` is the number of
    nonterminals in the release, with compound=true `released_NT_compound`; the paper itself gives NBL-PCFG's only.
    """

    title: str
    module: str
    name: str
    settings: dict[str, Any]
    lexicalised: bool = False
    compound: bool = False
    legacy: bool = False  # has the decoders of that name
    grammar: bool = True  # else it has no rules, one way to parse, and pseudo-perplexities
    released_NT: int = 0
    released_NT_compound: int = 0
    training: dict[str, Any] = field(default_factory=dict)


_Z = {"z_dim": 64, "h_dim": 512, "w_dim": 512}
MODELS = {
    "npcfg": Model("N-PCFG", "pcfg", "NPCFG", {"NT": 30, "dim": 256}, released_NT=30),
    "cpcfg": Model(
        *("C-PCFG", "pcfg", "CPCFG", {"NT": 30, "dim": 256} | _Z),
        compound=True,
        released_NT=30,
        training={"curriculum": 30},
    ),
    "tnpcfg": Model("TN-PCFG", "tnpcfg", "TNPCFG", {"NT": 250, "rank": 500, "dim": 256}, released_NT=250),
    "nlpcfg": Model(
        *("NL-PCFG", "nlpcfg", "NLPCFG", {"NT": 30, "dim": 256, "compound": False} | _Z),
        lexicalised=True,
        legacy=True,
        released_NT=30,
        released_NT_compound=10,
    ),
    "nblpcfg": Model(
        *("NBL-PCFG", "nblpcfg", "NBLPCFG"),
        {"NT": 15, "d_H": 300, "dim": 256, "binding": "D-C", "parameterisation": "released"},
        lexicalised=True,
        released_NT=15,
        training={"batch_size": 8},
    ),
    "structformer": Model(
        *("StructFormer", "structformer", "StructFormer", {"dim": 512, "layers": 8, "heads": 8, "convolutions": 3}),
        lexicalised=True,
        grammar=False,
        training={"lr": 0.0003, "epochs": 100, "batch_size": 64, "patience": 10, "clip": 5.0},
    ),
    "sdiora": Model(
        *("S-DIORA, WSJ text only", "diora", "SDIORA", {"dim": 400, "beam": 3, "soft_epochs": 6}),
        grammar=False,
        training={"lr": 0.002, "batch_size": 24, "max_length": 30, "patience": 10, "clip": 100.0},
    ),
}


@dataclass(frozen=True)
class Values:
    """The values a setting may have: one of `choices`, or a number of type `kind` from `least`, if real above it."""

    kind: type[int] | type[float] = int
    least: int = 1
    choices: tuple[Any, ...] = ()
    never: int | None = None
    text: str = ""

    def __str__(self) -> str:
        if self.choices:
            return f"one of {', '.join(map(str, self.choices))}"
        number = "a number above" if self.kind is float else "a whole number from"
        return self.text or f"{number} {self.least}"

    def __contains__(self, value: object) -> bool:
        if self.choices:
            return any(value == choice and type(value) is type(choice) for choice in self.choices)  # 1 == True
        if not isinstance(value, int | float) or type(value) is not self.kind or value == self.never:
            return False
        return self.least < value < math.inf if self.kind is float else value >= self.least

    def parse(self, text: str) -> Any:
        """The value that a text stands for; ValueError if there is none."""
        named = {str(choice).lower(): choice for choice in self.choices}
        value = named.get(text.lower()) if self.choices else self.kind(text)
        if value not in self:
            raise ValueError
        return value

    @property
    def schema(self) -> dict[str, Any]:
        """The same as JSON Schema."""
        if self.choices:
            return {"enum": list(self.choices)}
        if self.kind is float:
            return {"type": "number", "exclusiveMinimum": self.least}
        return {"type": "integer", "minimum": self.least} | ({"not": {"const": self.never}} if self.never else {})


SIZE = Values()
SIZES = ("NT", "PT", "d_H", "rank", "dim", "z_dim", "h_dim", "w_dim", "layers", "heads", "convolutions", "beam")
SETTINGS = dict.fromkeys(SIZES, SIZE) | {
    "soft_epochs": Values(least=0),
    "binding": Values(choices=BINDINGS),
    "compound": Values(choices=(False, True)),
    "parameterisation": Values(choices=("released", "paper")),
    "lr": Values(float, least=0),
    "epochs": SIZE,
    "batch_size": SIZE,
    "max_length": Values(least=2),
    "patience": SIZE,
    "clip": Values(float, least=0),
    "curriculum": Values(least=0, never=1, text="0 (no curriculum) or the longest sentence of the first epoch, from 2"),
}


def described(model: str) -> Model:
    """The description of a model; an unknown name is refused."""
    if model not in MODELS:
        raise UserError(f"unknown model {model!r}: choose one of {', '.join(MODELS)}")
    return MODELS[model]


def with_PT(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with PT, which is 2 NT unless given.

    >>> with_PT({"NT": 2, "dim": 8})
    {'NT': 2, 'PT': 4, 'dim': 8}
    """
    return ({"NT": settings["NT"], "PT": 2 * settings["NT"]} if "NT" in settings else {}) | dict(settings)


def is_compound(model: str, settings: Mapping[str, Any]) -> bool:
    """Whether the log p of a model with these settings is not exact: that of the words given z, less KL, or that of
    each word given the others."""
    return MODELS[model].compound or not MODELS[model].grammar or bool(settings.get("compound"))


def hyperparameters(model: str, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """All hyper-parameters of a model: those given, and the defaults of the others."""
    return with_PT(described(model).settings | dict(given or {}))


def checked(model: str, vocab_size: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The same, but unknown names and wrong values are refused, all together."""
    known = {"vocab_size", *hyperparameters(model)}
    errors = []
    for key, value in {"vocab_size": vocab_size, **given}.items():
        if key not in known:
            errors.append(f"{key} (given as {value!r}) is unknown")
        elif value not in (values := SETTINGS.get(key, SIZE)):
            errors.append(f"{key} is {value!r}, not {values}")
    if errors:
        raise UserError(f"cannot build {model}, which has {', '.join(hyperparameters(model))}: {'; '.join(errors)}")
    return hyperparameters(model, given)


def parse(model: str, assignments: Iterable[str]) -> tuple[dict[str, Any], Training]:
    """Hyper-parameters and training settings of a model from `KEY=VALUE`. All errors are reported together.

    >>> parse("nblpcfg", ["NT=2", "lr=0.01"])[0]["PT"]
    4
    """
    known = {*hyperparameters(model), *TRAINING}
    given: dict[str, Any] = {}
    errors = []
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals:
            errors.append(f"{assignment!r} is not KEY=VALUE")
        elif key in given:
            errors.append(f"{key} is given twice")
        elif key not in known:
            errors.append(f"{key}={text}: {model} has no {key}, but {', '.join(sorted(known))}")
        else:
            given[key] = None
            try:
                given[key] = SETTINGS[key].parse(text)
            except ValueError:
                errors.append(f"{key}={text}: must be {SETTINGS[key]}")
    if errors:
        raise UserError(f"wrong settings: {'; '.join(errors)}")
    of_training = {key: given.pop(key) for key in TRAINING if key in given}
    return hyperparameters(model, given), Training(**asdict(Training()) | MODELS[model].training | of_training)
