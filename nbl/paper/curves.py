"""Training curves: how each run went, which fell into left branching, and whether the good seeds can be told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations

from nbl.matrix import Experiment
from nbl.paper.frame import Results
from nbl.paper.markdown import decimal, table
from nbl.paper.statistics import concordance_test
from nbl.run_folder import RunFolder

Group = tuple[list[float], list[float]]  # of the seeds of a grammar: what is to tell, and the F1 to be told
LEFT_BRANCHING = 50.0  # per cent of the constituents, from which on a grammar counts as fallen into left branching


@dataclass(frozen=True)
class Curve:
    """One run's training: a row of its history.csv for each epoch, and of its config.yaml the settings, the number of
    threads, and the machines and versions of the code it ran on."""

    experiment: Experiment
    seed: int
    rows: list[dict[str, float]]
    training: dict[str, float]
    threads: int
    environments: list[dict[str, str]]

    @property
    def best(self) -> dict[str, float]:
        """The epoch whose model was kept: that of the lowest dev perplexity, without dev the last one."""
        return min(self.rows, key=lambda row: row.get("dev_perplexity", -row["epoch"]))

    @property
    def hours(self) -> float:
        return sum(row["seconds"] for row in self.rows) / 3600

    @property
    def name(self) -> str:
        return f"`{self.experiment.name}` {self.seed}"


def watched_f1(row: dict[str, float]) -> float | None:
    """F1 of the trees that were looked at after the epoch: those of dev, or where it has none, of test."""
    return row.get("dev_f1", row.get("test_f1"))


def watched(results: Results) -> str:
    """The part those trees are from."""
    return "dev" if results.stats["splits"]["dev"].get("trees") else "test"


def read_curves(results: Results) -> list[Curve]:
    """The training of every run that has results, in the plan's order."""
    curves = []
    for experiment in results.plan.experiments.values():
        for seed in sorted(results.values(experiment, "mbr", "perplexity")):
            run = RunFolder(results.folder / "runs" / experiment.name / f"seed{seed}")
            rows = [{key: value for key, value in row.items() if value is not None} for row in run.history]
            settings = (asdict(run.config.training), run.config.threads, run.environments)
            curves.append(Curve(experiment, seed, rows, *settings))
    return curves


def training_table(results: Results, curves: Sequence[Curve]) -> str:
    """How each run went: selection, trees, branching, time, and what came of it."""
    part = watched(results)
    head = ["run", "seed", "epochs", "best epoch", "its dev perplexity", f"{part} F1 after epoch 1", "after the best"]
    head += ["after the last", "left / right branching %", "hours", "threads", "code", "sentences/s", "peak MB"]
    head += ["test: perplexity", "F1, MBR"]
    rows = []
    for curve in curves:
        best, last = curve.best, curve.rows[-1]
        rows.append(
            [
                *(f"`{curve.experiment.name}`", curve.seed, len(curve.rows), int(best["epoch"])),
                decimal(best.get("dev_perplexity")),
                *(decimal(watched_f1(row)) for row in (curve.rows[0], best, last)),
                f"{decimal(best.get('left_branching'))} / {decimal(best.get('right_branching'))}",
                *(f"{curve.hours:.2f}", curve.threads, len(curve.environments)),
                f"{max(row['sentences_per_second'] for row in curve.rows):.0f}",
                f"{last['peak_memory_mb']:.0f}",
                *(
                    decimal(results.values(curve.experiment, "mbr", metric).get(curve.seed))
                    for metric in ("perplexity", "f1")
                ),
            ]
        )
    total = sum(curve.hours for curve in curves)
    machines = sorted({environment["device"] for curve in curves for environment in curve.environments})
    chosen = "" if part == "dev" else " Nothing is chosen by it."
    note = (
        f"{total:.1f} hours of training in all, on {', '.join(machines)}, by the clock: the time in which a run had to "
        f"wait for others is in it. The {part} F1 after an epoch is that of some hundred {part} trees, no longer than "
        f"the training sentences; that of the last column is of all test trees.{chosen} Branching: of the predicted "
        "constituents of three or more words in those trees, after the best epoch. Code: how many versions of it, or "
        "machines, an interrupted run went through; config.yaml names them. Sentences/s: of the fastest epoch."
    )
    if unfinished := _shares(curves, lambda curve: curve.best is curve.rows[-1]):
        note += f" The last epoch was the best, so that more might have helped, for: {unfinished}."
    if dirty := [c.name for c in curves if any("-dirty" in e.get("commit", "") for e in c.environments)]:
        note += f" Part of it was run by code that is in no commit: {', '.join(dirty)}."
    return f"{table(head, rows)}\n\n{note}"


def collapse(curves: Sequence[Curve]) -> str:
    """Which share of the seeds fell into left branching."""
    rows = []
    for name, own in _by_run(curves).items():
        shares = [[row["left_branching"] for row in curve.rows if "left_branching" in row] for curve in own]
        if not any(shares):
            continue
        fell = sum(any(share > LEFT_BRANCHING for share in of_run) for of_run in shares)
        best = sum(curve.best.get("left_branching", 0) > LEFT_BRANCHING for curve in own)
        last = sum(curve.rows[-1].get("left_branching", 0) > LEFT_BRANCHING for curve in own)
        shown = [f"{curve.seed}: {of[0]:.1f} → {of[-1]:.1f}" for curve, of in zip(own, shares, strict=True) if of]
        rows.append([f"`{name}`", len(own), fell, best, last, ", ".join(shown)])
    head = ["run", "seeds", "ever left-branching", "at its best epoch", "after its last epoch"]
    head.append("seed: % after the first → the last epoch")
    note = f"Left-branching: more than {LEFT_BRANCHING:.0f} % of the constituents branch to the left."
    fallen = [curve for curve in curves if any(row.get("left_branching", 0) > LEFT_BRANCHING for row in curve.rows)]
    if fallen:
        back = [curve.name for curve in fallen if curve.rows[-1].get("left_branching", 0) <= LEFT_BRANCHING]
        highest = [f"{c.name} ({max(row.get('left_branching', 0) for row in c.rows):.0f} %)" for c in fallen]
        note += (
            f" Of {len(curves)} runs, {len(fallen)} ever were, here with the highest share: {', '.join(highest)}. "
            f"No longer so after the last epoch: {', '.join(back) or 'none'}."
        )
    return f"{table(head, rows)}\n\n{note}"


def _shares(curves: Sequence[Curve], what: Callable[[Curve], bool]) -> str:
    """How many seeds of each run something holds for."""
    found = {name: (sum(map(what, own)), len(own)) for name, own in _by_run(curves).items()}
    return ", ".join(f"`{name}` {n} of {seeds}" for name, (n, seeds) in found.items() if n)


def selection(results: Results, curves: Sequence[Curve], agreements: Mapping[str, Mapping[int, float]]) -> str:
    """Whether something that needs no gold trees tells the good seeds of a grammar from the bad: its perplexity, or
    how far its trees agree with those of the other seeds. Empty where no grammar has two seeds."""
    rows = []
    right, pairs = [0, 0], [0, 0]
    groups: tuple[list[Group], list[Group]] = ([], [])
    for name, own in _by_run(curves).items():
        f1 = results.values(own[0].experiment, "mbr", "f1")
        perplexity = {c.seed: -c.best["dev_perplexity"] for c in own if "dev_perplexity" in c.best}
        cells = []
        for number, score in enumerate((perplexity, agreements.get(name, {}))):
            order = sorted(f1.keys() & score.keys(), key=score.__getitem__, reverse=True)
            told = [(f1[a], f1[b]) for a, b in combinations(order, 2) if score[a] != score[b] and f1[a] != f1[b]]
            right[number] += sum(better > worse for better, worse in told)
            pairs[number] += len(told)
            if told:
                groups[number].append(([score[seed] for seed in order], [f1[seed] for seed in order]))
            cells.append(", ".join(decimal(f1[seed]) for seed in order) if told else "")
        if any(cells):
            rows.append([f"`{name}`", *cells])
    if not rows:
        return ""
    head = ["run", "test F1, lowest dev perplexity first", "test F1, highest self-F1 first"]
    p = [concordance_test(of) for of in groups]
    note = (
        f"Of {pairs[0]} pairs of seeds of one grammar, the one of the lower dev perplexity, by which epochs are "
        f"chosen, has the higher test F1 in {right[0]} (p={p[0]:.3f})."
    )
    if pairs[1]:
        note += (
            f" Of {pairs[1]}, the one whose trees agree more with those of the other seeds (self-F1) has it in "
            f"{right[1]} (p={p[1]:.3f})."
        )
    note += (
        " Neither needs gold trees. p: the share of all ways to deal each grammar's F1 to its seeds that give as many "
        "pairs more right than wrong."
    )
    return f"{table(head, rows)}\n\n{note}"


def _by_run(curves: Iterable[Curve]) -> dict[str, list[Curve]]:
    groups: dict[str, list[Curve]] = {}
    for curve in curves:
        groups.setdefault(curve.experiment.name, []).append(curve)
    return groups
