"""Everything a corpus' report consists of, and the one document that holds it all."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from nbl.files import read_text, replacing, write_text
from nbl.paper import extras, tables
from nbl.paper.agreement import self_f1
from nbl.paper.check import Check, as_json, as_latex, check
from nbl.paper.figures import draw_figures
from nbl.paper.frame import Results
from nbl.paper.numbers import numbers
from nbl.paper.published import Published

STATIC = ("bayesnet.tex", "paper.tex")  # the same for every corpus
LATEX_RUNS = 3  # until references and the widths of long tables are settled


def write_check(results: Results, paper: Published, out: Path) -> Check:
    """Write the verdicts as `check.tex` and `check.json`."""
    verdicts = check(results, paper)
    write_text(out / "check.tex", as_latex(verdicts))
    write_text(out / "check.json", as_json(verdicts))
    return verdicts


def write_report(results: Results, paper: Published, out: Path) -> Check:
    """Write all tables, figures, numbers and the document, without compiling it."""
    verdicts = write_check(results, paper, out)
    texts = {
        "main_result": tables.main_result(results, paper),
        "label_recall": tables.label_recall(results, paper),
        "bindings": tables.bindings(results, paper),
        "seeds": tables.seeds(results, self_f1(results)),
        "corpus": extras.corpus(results),
        "complexity": extras.complexity(results, paper),
        "decoders": extras.decoders(results),
        "qualitative": extras.qualitative(results),
        "numbers": numbers(results, paper, verdicts),
    }
    for name, text in texts.items():
        write_text(out / f"{name}.tex", text)
    for name in STATIC:
        write_text(out / name, read_text(Path(__file__).with_name(name)))
    draw_figures(results, out)
    return verdicts


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
