"""`numbers.tex`: one macro a number, so that a text never holds a typed one."""

from __future__ import annotations

import re

from nbl.paper.check import Check
from nbl.paper.frame import Results
from nbl.paper.latex import MISSING, escape, number
from nbl.paper.plan import MODELS
from nbl.paper.published import Published, comparability
from nbl.paper.statistics import Summary

DIGITS = ("Zero", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")
METRICS = ("f1", "udas", "uuas", "perplexity")


def macro(*parts: str) -> str:
    r"""A name LaTeX accepts: letters only.

    >>> macro("nblpcfg-NT=10-d_H=50", "mbr", "f1")
    '\\NblpcfgNTOneZeroDHFiveZeroMbrFOne'
    """
    words = re.findall(r"[A-Za-z]+|[0-9]", "-".join(parts))
    return "\\" + "".join(DIGITS[int(w)] if w.isdigit() else w[0].upper() + w[1:] for w in words)


def numbers(results: Results, paper: Published, check: Check) -> str:
    """Means, standard deviations and seeds of all runs, the paper's numbers, the verdicts on its claims."""
    lines = [
        "% One macro a number: mean, Std, N (seeds) of each run, decoder and metric; Paper...: the paper's;",
        "% Claim...: the verdict on a claim.",
        _define(macro("corpus"), escape(results.corpus)),
        _define(macro("seeds"), str(results.plan.seeds)),
        _define(macro("paper-is"), comparability(results.corpus)),
    ]
    roles = {role: results.plan.find(role) for role in paper.runs}
    named = {experiment.name for experiment in roles.values() if experiment}
    bindings = [role for role in paper.runs if role.startswith("nblpcfg-")]
    experiments = {role: results.plan.find(role) for role in (*MODELS, *bindings)}
    experiments |= {run: e for run, e in results.plan.experiments.items() if run not in named}
    for name, experiment in experiments.items():
        legacy = ("cyk-legacy", "mbr-legacy") if name == "nlpcfg" else ()
        for decoder in ("cyk", "mbr", *legacy):
            for metric in METRICS:
                lines += _summary(macro(name, decoder, metric), results.summary(experiment, decoder, metric))
    f1 = results.stats.get("splits", {}).get("test", {}).get("trees", {}).get("sentence_f1", {})
    for kind in ("left", "right", "random", "oracle"):
        lines.append(_define(macro("trees", kind), number(f1[kind]) if kind in f1 else MISSING))
    for cell in paper.cells:
        table = "" if cell.table == "main_result" else cell.table
        name = macro("paper", table, cell.run, cell.decoder or "", cell.metric)
        lines.append(_define(name, number(cell.value)))
    lines += [_define(macro("claim", claim.key), escape(claim.verdict)) for claim in check.claims]
    return "\n".join(lines) + "\n"


def _summary(name: str, summary: Summary) -> list[str]:
    known = summary.n > 0
    return [
        _define(name, number(summary.mean) if known else MISSING),
        _define(name + "Std", f"{summary.std:.1f}" if summary.n > 1 else MISSING),
        _define(name + "N", str(summary.n)),
    ]


def _define(name: str, value: str) -> str:
    return rf"\newcommand{{{name}}}{{{value}}}"
