"""All files of a corpus's report: tables, figures, numbers, verdicts, and the document that holds them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nbl.files import read_text, replacing, write_text
from nbl.paper import tables
from nbl.paper.claims import Check, check
from nbl.paper.published import Published, caveat, comparability
from nbl.paper.render import LATEX, MISSING
from nbl.paper.results import METRICS, Results, self_f1
from nbl.paper.roles import MODELS
from nbl.paper.statistics import Summary

STATIC = ("bayesnet.tex", "paper.tex")  # the same for every corpus
LATEX_RUNS = 3  # until references and the widths of long tables are settled
DIGITS = ("Zero", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")


def write_check(results: Results, paper: Published, out: Path) -> Check:
    """Write the verdicts as `check.tex` and `check.json`."""
    verdicts = check(results, paper)
    write_text(out / "check.tex", tables.claims(verdicts, LATEX) + "\n" + tables.cells(verdicts))
    write_text(out / "check.json", as_json(verdicts))
    return verdicts


def write_report(results: Results, paper: Published, out: Path) -> Check:
    """Write all tables, figures, numbers and the document, without compiling it."""
    from nbl.paper.figures import draw_figures  # matplotlib takes a second to import

    verdicts = write_check(results, paper, out)
    texts = {
        "main_result": tables.main_result(results, paper, LATEX),
        "label_recall": tables.label_recall(results, paper, LATEX),
        "bindings": tables.bindings(results, paper, LATEX),
        "seeds": tables.seeds(results, self_f1(results)),
        "corpus": tables.corpus(results),
        "complexity": tables.complexity(results, paper),
        "decoders": tables.decoders(results, LATEX),
        "qualitative": tables.qualitative(results),
        "numbers": numbers(results, paper, verdicts),
    }
    for name, text in texts.items():
        write_text(out / f"{name}.tex", text)
    for name in STATIC:
        write_text(out / name, read_text(Path(__file__).with_name(name)))
    draw_figures(results, out)
    return verdicts


def as_json(verdicts: Check) -> str:
    """The contents of `check.json`."""
    document: dict[str, Any] = {
        "corpus": verdicts.corpus,
        "paper": comparability(verdicts.corpus),
        "caveat": caveat(verdicts.corpus),
        "claims": [asdict(claim) for claim in verdicts.claims],
        "cells": [
            asdict(entry.cell)
            | {
                "ours": round(entry.ours.mean, 4) if entry.ours.n else None,
                "ours_std": round(entry.ours.std, 4) if entry.ours.n > 1 else None,
                "n": entry.ours.n,
                "band": None if entry.band is None else round(entry.band, 4),
                "verdict": entry.verdict,
            }
            for entry in verdicts.cells
        ],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def compile_document(out: Path) -> str:
    """Make `paper.pdf`; returns why not, or "" if it is made. Its bytes are the same every day."""
    if shutil.which("pdflatex") is None:
        return "pdflatex is not installed"
    with tempfile.TemporaryDirectory() as folder:
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", f"-output-directory={folder}", "paper.tex"]
        environment = os.environ | {"SOURCE_DATE_EPOCH": "0", "FORCE_SOURCE_DATE": "1"}
        for _ in range(LATEX_RUNS):
            done = subprocess.run(command, cwd=out, env=environment, capture_output=True, text=True, errors="replace")
            if done.returncode:
                errors = [line for line in done.stdout.splitlines() if line.startswith("!")]
                return f"pdflatex failed ({errors[0] if errors else 'no message'})"
        with replacing(out / "paper.pdf") as temporary:
            shutil.copyfile(Path(folder) / "paper.pdf", temporary)
    return ""


def macro(*parts: str) -> str:
    r"""A name LaTeX accepts: letters only.

    >>> macro("nblpcfg-NT=10-d_H=50", "mbr", "f1")
    '\\NblpcfgNTOneZeroDHFiveZeroMbrFOne'
    """
    words = re.findall(r"[A-Za-z]+|[0-9]", "-".join(parts))
    return "\\" + "".join(DIGITS[int(w)] if w.isdigit() else w[0].upper() + w[1:] for w in words)


def numbers(results: Results, paper: Published, verdicts: Check) -> str:
    """Means, standard deviations and seeds of all runs, the paper's numbers, the verdicts on its claims."""
    lines = [
        "% One macro a number: mean, Std, N (seeds) of each run, decoder and metric; Paper...: the paper's;",
        "% Claim...: the verdict on a claim.",
        _define(macro("corpus"), LATEX.text(results.corpus)),
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
    for kind in ("left", "right", "random", "oracle"):
        lines.append(_define(macro("trees", kind), _mean(results.trivial_f1(kind))))
    for cell in paper.cells:
        table = "" if cell.table == "main_result" else cell.table
        name = macro("paper", table, cell.run, cell.decoder or "", cell.metric)
        lines.append(_define(name, LATEX.number(cell.value)))
    lines += [_define(macro("claim", claim.key), LATEX.text(claim.verdict)) for claim in verdicts.claims]
    return "\n".join(lines) + "\n"


def _summary(name: str, summary: Summary) -> list[str]:
    return [
        _define(name, _mean(summary)),
        _define(name + "Std", f"{summary.std:.1f}" if summary.n > 1 else MISSING),
        _define(name + "N", str(summary.n)),
    ]


def _mean(summary: Summary) -> str:
    return LATEX.number(summary.mean) if summary.n else MISSING


def _define(name: str, value: str) -> str:
    return rf"\newcommand{{{name}}}{{{value}}}"
