"""The paper's own numbers, from `published.yaml`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from nbl.errors import UserError
from nbl.files import read_text

PUBLISHED = Path(__file__).with_name("published.yaml")
# How far the paper's numbers, which are for section 23 of the WSJ, can be held against those of a corpus.
INDICATIVE = {"open"}
COMPARABLE = {"wsj"}
CAVEATS = {
    "toy": "The settings for toy were chosen among several as those under which NBL-PCFG has a lower perplexity than "
    "NL-PCFG (docs/log.md): its verdicts show how the pipeline works, they are no evidence for or against the paper.",
}


@dataclass(frozen=True)
class Cell:
    """One result of the paper. `std` where it prints one; `quoted` names where the paper has it from."""

    table: str
    line: int
    run: str
    metric: str
    value: float
    decoder: str | None = None
    std: float | None = None
    quoted: str | None = None


@dataclass(frozen=True)
class Published:
    """The paper's results, times and complexities."""

    seeds: int
    runs: dict[str, str]
    cells: list[Cell]
    times: list[dict[str, Any]]
    complexities: list[dict[str, Any]]

    def find(self, table: str, run: str, decoder: str | None, metric: str) -> Cell | None:
        """The cell of a table, or None where the paper has none."""
        for cell in self.cells:
            if (cell.table, cell.run, cell.decoder, cell.metric) == (table, run, decoder, metric):
                return cell
        return None


def read_published(path: Path) -> Published:
    """Read `published.yaml`; a damaged one is named and refused."""
    try:
        document = yaml.load(read_text(path), yaml.CSafeLoader)
        return Published(
            seeds=document["seeds"],
            runs=document["runs"],
            cells=[Cell(**cell) for cell in document["cells"]],
            times=document["times"],
            complexities=document["complexities"],
        )
    except (yaml.YAMLError, KeyError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path} is damaged ({reason}): take it from the repository again") from error


def comparability(corpus: str, metric: str = "f1") -> str:
    """Whether the paper's numbers are "comparable", "indicative" or "not comparable" on a corpus.

    The text of `open` writes numbers in another way and has its own unknown words, so its perplexities are others.
    """
    if corpus in COMPARABLE:
        return "comparable"
    return "indicative" if corpus in INDICATIVE and metric != "perplexity" else "not comparable"


def caveat(corpus: str) -> str:
    """What a reader of the verdicts on a corpus must know."""
    return CAVEATS.get(corpus, "")
