"""Which run plays which part in the paper, decided by the settings each run records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from nbl import matrix, settings
from nbl.errors import UserError
from nbl.matrix import Experiment, Params
from nbl.run_folder import RunFolder
from nbl.settings import BINDINGS

COMPOUND = "nlpcfg-compound"


def _titles() -> Iterator[tuple[str, str]]:
    for name, model in settings.MODELS.items():
        if not model.grammar:
            continue
        yield name, model.title
        if name == "nlpcfg":
            yield COMPOUND, f"{model.title}, compound"


MODELS = dict(_titles())  # role -> title, in the paper's order
LEXICALISED = tuple(role for role in MODELS if settings.MODELS[role.removesuffix("-compound")].lexicalised)
RELEASED_NT = {name: model.released_NT for name, model in settings.MODELS.items() if model.released_NT}
RELEASED_NT[COMPOUND] = settings.MODELS["nlpcfg"].released_NT_compound
SIZES = ("NT", "PT", "d_H")
MAX_NAMED = 10  # runs with other settings that an error names


@dataclass(frozen=True)
class Part:
    """A role in the paper and an experiment that plays it; None where the plan has none."""

    role: str
    experiment: Experiment | None
    of_paper: bool = True  # it is the role's own experiment, whose size the paper's numbers are for

    @property
    def sizes(self) -> str:
        """Nonterminals and preterminals, e.g. 15/30."""
        return "{NT}/{PT}".format(**self.experiment.hyperparameters) if self.experiment else ""

    @property
    def name(self) -> str:
        """The grammar's title, with its sizes where they are not the role's own."""
        return MODELS[self.role] if self.of_paper else f"{MODELS[self.role]} {self.sizes}"


@dataclass(frozen=True)
class Plan:
    """All experiments of a corpus, under the names of their folders."""

    experiments: dict[str, Experiment]

    @classmethod
    def of_params(cls, params: Params, corpus: str, found: Sequence[RunFolder]) -> Plan:
        """The experiments `params.yaml` asks for on a corpus; results with other settings are refused."""
        everything = {**params, "corpus": corpus, "tables": None, "experiments": None}
        planned = {experiment.name: experiment for experiment in matrix.experiments(everything)}
        others = []
        for run in found:
            if run.experiment in planned and (differences := planned[run.experiment].differences(run.config)):
                each = [
                    f"{key} is {there!r} there, {here!r} in params.yaml" for key, (there, here) in differences.items()
                ]
                others.append(f"{run.path}: {'; '.join(each)}")
        if others:
            more = [f"and {len(others) - MAX_NAMED} more"] if len(others) > MAX_NAMED else []
            raise UserError(
                "results were made with other settings than params.yaml has; run the pipeline again, or restore the "
                "settings:\n  " + "\n  ".join(others[:MAX_NAMED] + more)
            )
        return cls(planned)

    @classmethod
    def of_results(cls, found: Sequence[RunFolder]) -> Plan:
        """The experiments that have results; each is expected to have all seeds that any has."""
        first: dict[str, RunFolder] = {}
        for run in found:
            other = first.setdefault(run.experiment, run)
            for key in ("model", "hyperparameters", "training", "corpus"):
                here, there = (getattr(folder.config, key) for folder in (run, other))
                if here != there:
                    raise UserError(
                        f"{run.path} and {other.path} differ in more than the seed ({key} is {here!r} "
                        f"and {there!r}): delete the older one and run the pipeline again"
                    )
        seeds = tuple(sorted({run.config.seed for run in found}))
        experiments = [
            Experiment(name, run.config.model, run.config.hyperparameters, seeds, tuple(run.metrics["decoders"]))
            for name, run in first.items()
        ]
        return cls({experiment.name: experiment for experiment in sorted(experiments, key=_order)})

    @property
    def seeds(self) -> int:
        """How many seeds an experiment has at most."""
        return max((len(experiment.seeds) for experiment in self.experiments.values()), default=0)

    def find(self, role: str) -> Experiment | None:
        """The experiment behind a name of `published.yaml`, e.g. nblpcfg, nlpcfg-compound or nblpcfg-D-B."""
        if role == COMPOUND:
            return self._first(lambda e: e.model == "nlpcfg" and bool(e.hyperparameters.get("compound")))
        model, _, binding = role.partition("-")
        default = self.experiments.get(model)
        if default is None or not binding or binding == default.hyperparameters.get("binding"):
            return default
        wanted = default.hyperparameters | {"binding": binding}
        return self._first(lambda e: e.model == model and e.hyperparameters == wanted)

    def by_d_H(self) -> list[Experiment]:
        """NBL-PCFG with growing d_H, all else equal: the longest such series there is."""
        series: dict[int, list[Experiment]] = {}
        for experiment in self._plain("nblpcfg"):
            series.setdefault(experiment.NT, []).append(experiment)
        longest = max(series.values(), key=len, default=[])
        return sorted(longest, key=lambda e: e.hyperparameters["d_H"])

    def by_NT(self, model: str) -> list[Experiment]:
        """NL-PCFG or NBL-PCFG with a growing number of nonterminals, all else as by default."""
        default = self.experiments.get(model)
        d_H = default.hyperparameters.get("d_H") if default else None
        return sorted((e for e in self._plain(model) if e.hyperparameters.get("d_H") == d_H), key=lambda e: e.NT)

    def parts(self, *roles: str) -> Iterator[Part]:
        """The rows of a table of some roles, by default of all.

        A grammar that may be too large for a machine has a second row: its experiment of another size that is decoded
        with CYK, too.
        """
        for role in roles or MODELS:
            default = self.find(role)
            yield Part(role, default)
            if default is not None:
                others = (e for e in self.by_NT(role) if e is not default and "cyk" in e.decoders)
                yield from (Part(role, experiment, of_paper=False) for experiment in others)

    def bindings(self) -> dict[str, Part]:
        """NBL-PCFG with each binding, the rest as by default; D-C is the default, and bears the model's name."""
        roles = {binding: "nblpcfg" if binding == "D-C" else f"nblpcfg-{binding}" for binding in BINDINGS}
        return {binding: Part(role, self.find(role)) for binding, role in roles.items()}

    def other_sizes(self) -> str:
        """Which grammars do not have the nonterminals of their release, as a sentence; empty if all have."""
        found = {role: experiment.NT for role in MODELS if (experiment := self.find(role)) is not None}
        others = [f"{MODELS[r]} {NT} ({RELEASED_NT[r]})" for r, NT in found.items() if RELEASED_NT.get(r, NT) != NT]
        return f"Nonterminals here, and in the release: {', '.join(others)}." if others else ""

    def _plain(self, model: str) -> list[Experiment]:
        """The experiments of a model that differ from its default in sizes only."""
        default = self.experiments.get(model)
        if default is None:
            return []
        return [e for e in self.experiments.values() if e.model == model and _but_sizes(e) == _but_sizes(default)]

    def _first(self, wanted: Callable[[Experiment], bool]) -> Experiment | None:
        return next(filter(wanted, self.experiments.values()), None)


def _but_sizes(experiment: Experiment) -> dict[str, Any]:
    return {key: value for key, value in experiment.hyperparameters.items() if key not in SIZES}


def _order(experiment: Experiment) -> tuple[int, bool, list[int], str]:
    """The models in the paper's order, each with its default first, then by size."""
    names = list(MODELS)
    known = experiment.model in names
    sizes = [experiment.hyperparameters.get(key, 0) for key in ("NT", "d_H")]
    return (
        names.index(experiment.model) if known else len(names),
        experiment.name != experiment.model,
        sizes,
        experiment.name,
    )
