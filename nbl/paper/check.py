"""The verdict on every number and every claim of the paper."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nbl.paper import claims as trained
from nbl.paper.frame import Results
from nbl.paper.judgement import (
    CANNOT_TELL,
    NOT_REPRODUCED,
    NOT_RUN,
    REPRODUCED,
    RULE,
    SIGN_FLIP,
    Claim,
    Side,
    claim,
    compare_pairs,
    counts,
)
from nbl.paper.latex import escape, long_table, number, signed
from nbl.paper.plan import MODELS, RELEASED_NT
from nbl.paper.published import Cell, Published, caveat, comparability
from nbl.paper.speed import speed
from nbl.paper.statistics import Summary, welch_half_width

ROUNDING = 0.05  # the paper prints one decimal
WIDEST = 0.1  # of the paper's number: a wider band tells nothing
NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True)
class Verdict:
    """One number of the paper beside ours. `band` is the largest difference that chance explains. Within it, a number
    is reproduced, unless the band is so wide that nearly anything would be.
    """

    cell: Cell
    ours: Summary
    band: float | None
    verdict: str

    @property
    def difference(self) -> float | None:
        return self.ours.mean - self.cell.value if self.ours.n else None


@dataclass(frozen=True)
class Check:
    """All verdicts on one corpus."""

    corpus: str
    cells: list[Verdict]
    claims: list[Claim]


def check(results: Results, paper: Published) -> Check:
    """Judge every cell and every claim. Works quoted by the paper that are no grammars of ours have no verdict."""
    cells = [
        _verdict(cell, _ours(results, cell), paper.seeds, results.corpus)
        for cell in paper.cells
        if cell.run not in {"s-diora", "structformer"}
    ]
    claims = [
        *trained.main(results),
        *trained.d_H(results),
        *trained.nonterminals(results),
        *trained.bindings(results),
        *trained.recalls(results),
        *_qualitative(results),
        *speed(results),
    ]
    return Check(results.corpus, cells, claims)


def _ours(results: Results, cell: Cell) -> Summary:
    if cell.run == "oracle":
        f1 = results.stats.get("splits", {}).get("test", {}).get("trees", {}).get("sentence_f1", {})
        return Summary((f1["oracle"],) if "oracle" in f1 else (), 1)
    return results.summary(results.plan.find(cell.run), cell.decoder or "mbr", cell.metric)


def band(ours: Summary, theirs: Cell, seeds: int) -> float | None:
    """The half width of the 95 % interval of the difference of two means, and the paper's rounding.

    Where the paper prints no standard deviation, ours stands in for it. None where ours is unknown too.

    >>> cell = Cell("t", 1, "nblpcfg", "f1", 60.4, std=1.6)
    >>> round(band(Summary((58.0, 60.0, 62.0, 60.0), 4), cell, 4), 3)
    2.989
    """
    if theirs.run == "oracle":
        return ROUNDING
    if ours.n < 2:
        return None
    std = ours.std if theirs.std is None else theirs.std
    return welch_half_width(ours.std, ours.n, std, seeds) + ROUNDING


def _verdict(cell: Cell, ours: Summary, seeds: int, corpus: str) -> Verdict:
    width = band(ours, cell, seeds)
    if ours.n == 0 or width is None:
        return Verdict(cell, ours, width, CANNOT_TELL if ours.n else NOT_RUN)
    within = abs(ours.mean - cell.value) <= width
    kind = comparability(corpus, cell.metric)
    if kind == "comparable":
        told = width <= WIDEST * cell.value
        return Verdict(cell, ours, width, NOT_REPRODUCED if not within else REPRODUCED if told else CANNOT_TELL)
    if kind == "indicative":
        return Verdict(cell, ours, width, f"{NOT_COMPARABLE} ({'within' if within else 'outside'} the band)")
    return Verdict(cell, ours, width, NOT_COMPARABLE)


def _qualitative(results: Results) -> list[Claim]:
    """Section "Qualitative analysis": preferences of NBL-PCFG, seed by seed."""
    nbl = results.plan.find("nblpcfg")
    left = results.values(nbl, "cyk", "left_headed")
    others = [role for role in RELEASED_NT if role != "nblpcfg"]
    leaning = {role: _left_less_right(results, role) for role in ("nblpcfg", *others)}
    return [
        _more_often(
            "left-headed",
            "NBL-PCFG prefers left-headed constituents",
            [Side("left-headed (%)", tuple(left.values()))],
            [2 * share - 100 for share in left.values()],
        ),
        _more_often(
            "rough-market",
            "NBL-PCFG predicts ((a rough) market) rather than (a (rough market))",
            [
                Side("((a rough) market) less (a (rough market)) (%)", leaning["nblpcfg"]),
                *(Side(f"the same of {MODELS[role]}", leaning[role]) for role in others if leaning[role]),
            ],
            leaning["nblpcfg"],
        ),
    ]


def _left_less_right(results: Results, role: str) -> tuple[float, ...]:
    """By how much a grammar's seeds prefer ((a rough) market), in per cent of the phrases."""
    left, right = (
        results.values(results.plan.find(role), "mbr", f"adjective_noun:{shape}") for shape in ("left", "right")
    )
    return tuple(left[seed] - right[seed] for seed in left)


def _more_often(key: str, statement: str, shown: Sequence[Side], differences: Sequence[float]) -> Claim:
    return claim(key, 434, statement, shown, [compare_pairs(differences)], SIGN_FLIP)


def as_json(result: Check) -> str:
    """For machines: `check.json`."""
    document: dict[str, Any] = {
        "corpus": result.corpus,
        "paper": comparability(result.corpus),
        "caveat": caveat(result.corpus),
        "claims": [asdict(claim) for claim in result.claims],
        "cells": [
            asdict(entry.cell)
            | {
                "ours": round(entry.ours.mean, 4) if entry.ours.n else None,
                "ours_std": round(entry.ours.std, 4) if entry.ours.n > 1 else None,
                "n": entry.ours.n,
                "band": None if entry.band is None else round(entry.band, 4),
                "verdict": entry.verdict,
            }
            for entry in result.cells
        ],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def as_latex(result: Check) -> str:
    """Two long tables: claims, then cells: `check.tex`."""
    return _claims_table(result) + "\n" + _cells_table(result)


def _claims_table(result: Check) -> str:
    rows = []
    for entry in result.claims:
        row = [escape(entry.statement), escape(entry.evidence), escape(entry.test), _emphasised(entry.verdict)]
        rows += [row, r"\addlinespace"]
    caption = (
        rf"The paper's claims on \texttt{{{result.corpus}}}: {counts(entry.verdict for entry in result.claims)}. "
        f"{RULE} {caveat(result.corpus)}"
    ).rstrip()
    widths = (0.24, 0.39, 0.17, 0.13)  # of the line
    columns = "".join(rf">{{\raggedright\arraybackslash}}p{{{width}\linewidth}}" for width in widths)
    return long_table("claims", caption, columns, [["Claim", "Our numbers", "Test", "Verdict"]], rows[:-1])


def _cells_table(result: Check) -> str:
    rows = []
    for entry in result.cells:
        cell, ours = entry.cell, entry.ours
        difference = "" if entry.difference is None else signed(entry.difference)
        rows.append(
            [
                escape(cell.table),
                escape(cell.run),
                escape(cell.decoder or ""),
                escape(cell.metric.replace("recall_", "recall ")),
                f"{number(ours.mean)} ({ours.n})" if ours.n else f"-- (0/{ours.expected})",
                number(cell.value) + (r"$^{\mathrm{q}}$" if cell.quoted else ""),
                difference,
                "" if entry.band is None else number(entry.band),
                _emphasised(entry.verdict),
            ]
        )
    caption = (
        rf"Every number of the paper's tables beside ours on \texttt{{{result.corpus}}}, with the number of seeds. "
        r"Band: half of Welch's 95\,\% interval of the difference, plus the paper's rounding, 0.05; where the paper "
        r"prints no standard deviation, ours stands in for it. One cannot tell within a band wider than a tenth of the "
        r"paper's number. $^{\mathrm{q}}$: quoted by the paper from other work."
    )
    head = [["Table", "Run", "Decoder", "Metric", "ours ($n$)", "paper", r"$\Delta$", "band", "Verdict"]]
    return long_table("check_cells", caption, "llllrrrrl", head, rows)


def _emphasised(verdict: str) -> str:
    return rf"\textbf{{{verdict}}}" if verdict in {REPRODUCED, NOT_REPRODUCED} else verdict
