"""LaTeX by hand: cells, tables of plain booktabs, nothing that needs a package of one's own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from nbl.paper.published import Cell
from nbl.paper.statistics import Summary

MISSING = "--"
RULE = r"\midrule"
FITTED = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"  # no wider than the text
SPECIAL = {
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "^": r"\^{}",
    "~": r"\~{}",
    "±": r"$\pm$",
    "≤": r"$\le$",
    "<": r"$<$",
    ">": r"$>$",
}

LETTERS = {"d_H": "$d_H$", "D-wq": "$D$-$w_q$"}  # the paper's, as it prints them

Row = Sequence[str] | str  # cells, or a line as it is


def escape(text: str) -> str:
    r"""Plain text for LaTeX; a few signs become mathematics.

    >>> escape("d_H > 300: 60.4 ± 1.6 %")
    '$d_H$ $>$ 300: 60.4 $\\pm$ 1.6 \\%'
    """
    parts = re.split(f"({'|'.join(LETTERS)})", text)
    return "".join(LETTERS.get(part) or "".join(SPECIAL.get(sign, sign) for sign in part) for part in parts)


def number(value: float, digits: int = 1) -> str:
    """A number with its sign as mathematics; never minus zero.

    >>> number(-0.04), number(-1.25, 2), number(1234.5)
    ('0.0', '$-$1.25', '1234.5')
    """
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.lstrip("-")
    return text.replace("-", "$-$")


def signed(value: float, digits: int = 1) -> str:
    """The same with a plus.

    >>> signed(2.2), signed(0.0), signed(-2.2)
    ('$+$2.2', '0.0', '$-$2.2')
    """
    text = number(value, digits)
    return text if text.startswith("$") or float(text) == 0 else f"$+${text}"


def mean_std(summary: Summary, bold: bool = False, mark: str = "", digits: int = 1) -> str:
    r"""Mean and standard deviation in the paper's form; a cell with fewer seeds than expected tells how many.

    Empty where none is expected.

    >>> mean_std(Summary((59.0, 61.0), 2), bold=True), mean_std(Summary((), 4)), mean_std(Summary((1.0,), 4))
    ('\\textbf{60.0}$_{\\pm 1.4}$', '-- (0/4)', '1.0 (1/4)')
    """
    if summary.n == 0:
        return f"{MISSING} (0/{summary.expected})" if summary.expected else ""
    text = number(summary.mean, digits)
    text = (rf"\textbf{{{text}}}" if bold else text) + mark
    if summary.n > 1:
        text += rf"$_{{\pm {summary.std:.{digits}f}}}$"
    return text if summary.n >= summary.expected else f"{text} ({summary.n}/{summary.expected})"


def published(cell: Cell | None) -> str:
    """A number of the paper; with a q where the paper quotes it, empty where it has none."""
    if cell is None:
        return ""
    text = number(cell.value)
    if cell.std is not None:
        text += rf"$_{{\pm {cell.std:.1f}}}$"
    return text + (r"$^{\mathrm{q}}$" if cell.quoted else "")


def best(summaries: Iterable[Summary], lowest: bool = False, digits: int = 1) -> str | None:
    """The best mean as it is printed: every cell that prints it is bold. None if there is nothing to compare."""
    means = [round(summary.mean, digits) for summary in summaries if summary.n]
    return number(min(means) if lowest else max(means), digits) if len(means) > 1 else None


def is_best(summary: Summary, printed: str | None, digits: int = 1) -> bool:
    return summary.n > 0 and number(round(summary.mean, digits), digits) == printed


def table(name: str, caption: str, alignment: str, head: Sequence[Row], rows: Sequence[Row], wide: bool = True) -> str:
    """A float with a caption below; `wide` sets it smaller and its columns closer, to fit the page if need be."""
    size = r"\footnotesize\setlength{\tabcolsep}{2.5pt}" if wide else r"\small"
    lines = [r"\begin{table}[htbp]", rf"\centering{size}", *[FITTED] * wide]
    lines += [rf"\begin{{tabular}}{{{alignment}}}", r"\toprule"]
    lines += [*map(_line, head), RULE, *map(_line, rows), r"\bottomrule", r"\end{tabular}" + "}" * wide]
    lines += [rf"\caption{{\label{{tab:{name}}}{caption}}}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def long_table(name: str, caption: str, alignment: str, head: Sequence[Row], rows: Sequence[Row]) -> str:
    """A table that may go over several pages."""
    lines = [r"{\footnotesize\setlength{\tabcolsep}{4pt}", rf"\begin{{longtable}}{{{alignment}}}"]
    lines += [rf"\caption{{\label{{tab:{name}}}{caption}}}\\", r"\toprule", *map(_line, head), RULE, r"\endfirsthead"]
    lines += [r"\toprule", *map(_line, head), RULE, r"\endhead", r"\bottomrule", r"\endlastfoot"]
    lines += [*map(_line, rows), r"\end{longtable}}"]
    return "\n".join(lines) + "\n"


def spanning(columns: int, text: str, alignment: str = "c") -> str:
    return rf"\multicolumn{{{columns}}}{{{alignment}}}{{{text}}}"


def _line(row: Row) -> str:
    return row if isinstance(row, str) else " & ".join(row).rstrip() + r" \\"
