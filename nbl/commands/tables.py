"""`nbl tables`: from results to the paper's tables and figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nbl.commands.check import ParamsPath, PublishedPath, ResultsDir, print_summary, read_runs
from nbl.commands.common import note
from nbl.paper.document import compile_document, write_report
from nbl.paper.published import PUBLISHED, read_published


def tables(
    corpus: Annotated[str, typer.Option(help="The corpus whose results are to be told.", show_default=False)],
    results: ResultsDir = Path("results"),
    out: Annotated[
        Path | None, typer.Option(help="The folder to write.  [default: paper_tables/CORPUS]", show_default=False)
    ] = None,
    params: ParamsPath = Path("params.yaml"),
    published: PublishedPath = PUBLISHED,
) -> None:
    """Write every table and figure of the paper with a corpus' results, as LaTeX, PDF and PNG.

    What is missing is marked in its cell with the number of seeds there are. paper.tex holds everything in one
    document; it is compiled where pdflatex is installed.
    """
    folder = out or Path("paper_tables") / corpus
    verdicts = write_report(read_runs(results, corpus, params), read_published(published), folder)
    reason = compile_document(folder)
    if reason:
        (folder / "paper.pdf").unlink(missing_ok=True)  # it would have other numbers
        note(f"{folder / 'paper.pdf'} is not made: {reason}")
    print_summary(verdicts)
    print(f"written to {folder}: start with {'paper.tex' if reason else 'paper.pdf'}")
