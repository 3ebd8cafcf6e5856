"""`nbl tables`, `check` and `page`: from results to the paper."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import nbl.paper.page
from nbl.commands.common import note, print_table
from nbl.drawing import svg
from nbl.errors import UserError
from nbl.files import read_text, write_text
from nbl.matrix import read_params
from nbl.paper.claims import Check
from nbl.paper.document import compile_document, write_check, write_report
from nbl.paper.published import PUBLISHED, comparability, read_published
from nbl.paper.results import Results, read_curves, read_results, watched
from nbl.settings import CORPORA


def tables(corpus: str, results: Path, out: Path | None, params: Path, published: Path | None) -> None:
    folder = out or Path("paper_tables") / corpus
    verdicts = write_report(_read_runs(results, corpus, params), read_published(published or PUBLISHED), folder)
    reason = compile_document(folder)
    if reason:
        (folder / "paper.pdf").unlink(missing_ok=True)  # its numbers would be others
        note(f"{folder / 'paper.pdf'} is not written: {reason}")
    _print_summary(verdicts)
    print(f"written to {folder}: start with {'paper.tex' if reason else 'paper.pdf'}")


def check(corpus: str, results: Path, out: Path | None, params: Path, published: Path | None) -> None:
    folder = out or Path("paper_tables") / corpus
    verdicts = write_check(_read_runs(results, corpus, params), read_published(published or PUBLISHED), folder)
    _print_cells(verdicts)
    claims = [(claim.statement, claim.evidence, claim.test, claim.verdict) for claim in verdicts.claims]
    print_table(("claim", "our numbers", "test", "verdict"), claims, title="claims of the paper")
    _print_summary(verdicts)
    print(f"written to {folder / 'check.tex'} and {folder / 'check.json'}")


def page(reference: Path, docs: Path, readme: Path, params: Path, published: Path | None) -> None:
    from nbl.paper.figures import draw_training  # matplotlib takes a second to import

    corpora = [corpus for corpus in CORPORA if (reference / corpus).is_dir()]
    if not corpora:
        raise UserError(f"there are no runs in {reference}: copy some with `nbl export`")
    found = [read_results(reference, corpus, read_params(params)) for corpus in corpora]
    paper = read_published(published or PUBLISHED)
    section = nbl.paper.page.section(found, paper)
    new_readme = nbl.paper.page.replace_section(read_text(readme), section)
    write_text(docs / "results.md", nbl.paper.page.page(found, paper))
    for results in found:
        draw_training(read_curves(results), watched(results), docs / f"results-{results.corpus}.png")
        for name, picture in nbl.paper.page.draw_trees(results).items():
            write_text(docs / f"results-{results.corpus}-{name}.svg", svg(picture))
    write_text(readme, new_readme)
    print(f"written to {docs / 'results.md'} and {readme}: {', '.join(corpora)}")


def _read_runs(results: Path, corpus: str, params: Path) -> Results:
    """The results of a corpus; without any, everything written would be empty."""
    found = read_results(results, corpus, read_params(params))
    if not found.scores:
        raise UserError(
            f"{results / corpus} holds no finished run of those in {params}: make them with `snakemake --cores 4 all`, "
            "or fetch them with `dvc pull`; nothing was written"
        )
    return found


def _print_summary(verdicts: Check) -> None:
    """How often each verdict was reached."""
    for name, entries in (("numbers", verdicts.cells), ("claims", verdicts.claims)):
        counts = Counter(entry.verdict for entry in entries)
        print(f"{name} of the paper: {', '.join(f'{count} {verdict}' for verdict, count in counts.most_common())}")


def _print_cells(verdicts: Check) -> None:
    rows = []
    for entry in verdicts.cells:
        cell, ours = entry.cell, entry.ours
        row = [cell.table, cell.run, cell.decoder or "", cell.metric, f"{ours.mean:.1f}" if ours.n else "--"]
        row += [f"{ours.n}/{ours.expected}", f"{cell.value:.1f}" + (" q" if cell.quoted else "")]
        row += ["" if entry.difference is None else f"{entry.difference:+.1f}"]
        rows.append([*row, "" if entry.band is None else f"{entry.band:.1f}", entry.verdict])
    columns = ("table", "run", "decoder", "metric", ">ours", ">n", ">paper", ">difference", ">band", "verdict")
    print_table(columns, rows, title=f"numbers of the paper, {comparability(verdicts.corpus)} on {verdicts.corpus}")
    print("q: quoted by the paper from other work\n")
