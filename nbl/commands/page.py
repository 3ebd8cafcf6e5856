"""`nbl page`: the published runs as docs/results.md and a section of the README."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nbl.commands.check import ParamsPath, PublishedPath
from nbl.drawing import svg
from nbl.errors import UserError
from nbl.files import read_text, write_text
from nbl.matrix import read_params
from nbl.paper.curves import read_curves, watched
from nbl.paper.figures import draw_training
from nbl.paper.frame import read_results
from nbl.paper.page import draw_trees, replace_section, section
from nbl.paper.page import page as write_page
from nbl.paper.published import PUBLISHED, read_published
from nbl.settings import CORPORA


def page(
    reference: Annotated[Path, typer.Option(help="Runs that `nbl export` copied.", file_okay=False)] = Path(
        "results/reference"
    ),
    docs: Annotated[Path, typer.Option(help="The folder to write.", file_okay=False)] = Path("docs"),
    readme: Annotated[Path, typer.Option(help="The file whose section is written anew.", dir_okay=False)] = Path(
        "README.md"
    ),
    params: ParamsPath = Path("params.yaml"),
    published: PublishedPath = PUBLISHED,
) -> None:
    """Write results.md, a figure of the training curves of each corpus, and the README's section of results."""
    corpora = [corpus for corpus in CORPORA if (reference / corpus).is_dir()]
    if not corpora:
        raise UserError(f"there are no runs in {reference}: copy some with `nbl export`")
    found = [read_results(reference, corpus, read_params(params)) for corpus in corpora]
    paper = read_published(published)
    new_readme = replace_section(read_text(readme), section(found, paper))
    write_text(docs / "results.md", write_page(found, paper))
    for results in found:
        draw_training(read_curves(results), watched(results), docs / f"results-{results.corpus}.png")
        for name, picture in draw_trees(results).items():
            write_text(docs / f"results-{results.corpus}-{name}.svg", svg(picture))
    write_text(readme, new_readme)
    print(f"written to {docs / 'results.md'} and {readme}: {', '.join(corpora)}")
