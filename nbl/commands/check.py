"""`nbl check`: which numbers and claims of the paper the results reproduce."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from nbl.errors import UserError
from nbl.matrix import read_params
from nbl.paper.check import Check
from nbl.paper.document import write_check
from nbl.paper.frame import Results, read_results
from nbl.paper.published import PUBLISHED, comparability, read_published

ResultsDir = Annotated[Path, typer.Option(help="The folder with all results.", file_okay=False)]
ParamsPath = Annotated[Path, typer.Option(help="The planned experiments.", dir_okay=False)]
PublishedPath = Annotated[
    Path, typer.Option(help="The paper's own numbers.", show_default="those of the package", dir_okay=False)
]


def check(
    corpus: Annotated[str, typer.Option(help="The corpus whose results are judged.", show_default=False)],
    results: ResultsDir = Path("results"),
    out: Annotated[
        Path | None, typer.Option(help="The folder to write.  [default: paper_tables/CORPUS]", show_default=False)
    ] = None,
    params: ParamsPath = Path("params.yaml"),
    published: PublishedPath = PUBLISHED,
) -> None:
    """Judge every number and every claim of the paper by a corpus' results.

    Writes check.tex and check.json. A number is reproduced if chance explains its difference, and not reproduced
    otherwise; one cannot tell where our seeds differ too much. A claim is reproduced if the means show it and an exact
    test over the seeds gives p of at most 1/16, and not reproduced if they show the opposite as clearly; one cannot
    tell where a rival has fewer nonterminals than in its release, which makes a claim easier. Not run: runs are
    missing.
    """
    found = read_runs(results, corpus, params)
    folder = out or Path("paper_tables") / corpus
    verdicts = write_check(found, read_published(published), folder)
    console = Console(highlight=False)
    _print_cells(console, verdicts)
    _print_claims(console, verdicts)
    print_summary(verdicts)
    print(f"written to {folder / 'check.tex'} and {folder / 'check.json'}")


def read_runs(results: Path, corpus: str, params: Path) -> Results:
    """The results of a corpus; refused where there are none, since all that is written would be empty."""
    found = read_results(results, corpus, read_params(params))
    if found.scores.empty:
        raise UserError(
            f"{results / corpus} holds no finished run of those in {params}: make them with `snakemake --cores 4 all`, "
            "or fetch them with `dvc pull`; nothing was written"
        )
    return found


def print_summary(verdicts: Check) -> None:
    """How many there are of each verdict."""
    for name, entries in (("numbers", verdicts.cells), ("claims", verdicts.claims)):
        counts = Counter(entry.verdict for entry in entries)
        print(f"{name} of the paper: {', '.join(f'{count} {verdict}' for verdict, count in counts.most_common())}")


def _print_cells(console: Console, verdicts: Check) -> None:
    title = f"numbers of the paper, {comparability(verdicts.corpus)} on {verdicts.corpus}"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("table", "run", "decoder", "metric"):
        table.add_column(column, overflow="fold")
    for column in ("ours", "n", "paper", "difference", "band"):
        table.add_column(column, justify="right")
    table.add_column("verdict")
    for entry in verdicts.cells:
        cell, ours = entry.cell, entry.ours
        table.add_row(
            cell.table,
            cell.run,
            cell.decoder or "",
            cell.metric,
            f"{ours.mean:.1f}" if ours.n else "--",
            f"{ours.n}/{ours.expected}",
            f"{cell.value:.1f}" + (" q" if cell.quoted else ""),
            "" if entry.difference is None else f"{entry.difference:+.1f}",
            "" if entry.band is None else f"{entry.band:.1f}",
            entry.verdict,
        )
    console.print(table)
    console.print("q: quoted by the paper from other work\n")


def _print_claims(console: Console, verdicts: Check) -> None:
    table = Table(title="claims of the paper", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("claim", ratio=3)
    table.add_column("our numbers", ratio=4)
    table.add_column("test", ratio=2)
    table.add_column("verdict", min_width=14)
    for entry in verdicts.claims:
        table.add_row(entry.statement, entry.evidence, entry.test, entry.verdict)
    console.print(table)
