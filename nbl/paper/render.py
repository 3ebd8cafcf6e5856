"""Two writers for the same tables: LaTeX with booktabs, and Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from nbl.paper.published import Cell
from nbl.paper.statistics import Summary

MISSING = "--"
RULE, SPACE = r"\midrule", r"\addlinespace"
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


@dataclass(frozen=True)
class Group:
    """Columns under a common title; a row fills them with a tuple."""

    title: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Section:
    """A row with a title for those that follow."""

    title: str


Cells = str | tuple[str, ...]
Row = Sequence[Cells] | Section | str  # a text is a line for LaTeX


@dataclass(frozen=True)
class Table:
    """Titles and rows of cells, as a writer wrote them; all else is for LaTeX.

    `wide` sets it smaller and its columns closer, to fit the page; `ruled` draws a rule below the title of each group;
    a `long` one may run over several pages.
    """

    name: str
    caption: str
    alignment: str
    columns: Sequence[str | Group]
    rows: Sequence[Row]
    wide: bool = True
    ruled: bool = True
    long: bool = False


class Markdown:
    """Writes cells and tables for pages on GitHub; the columns of a group become one. `Latex` has other signs.

    >>> write = Markdown()
    >>> write.mean(Summary((59.0, 61.0), 2), bold=True), write.mean(Summary((), 4)), write.signed(-2.24)
    ('**60.0** ± 1.4', '-- (0/4)', '-2.2')
    >>> columns = ["Model", Group("F1", ("ours", "paper"))]
    >>> print(write.table(Table("", "", "lrr", columns, [["A", ("1.0", "")], ["B", ("", "2.0")]])), end="")
    | Model | F1: ours / paper |
    | --- | --- |
    | A | 1.0 |
    | B | -- / 2.0 |
    """

    minus, plus, delta, quoted = "-", "+", "Δ", " q"
    decoders: Mapping[str, str] = {"cyk": "⋆", "mbr": "†"}  # the signs that mark them

    def text(self, text: str) -> str:
        """Plain text."""
        return text.replace("|", r"\|")

    def code(self, text: str) -> str:
        return f"`{text}`"

    def bold(self, text: str) -> str:
        return f"**{text}**"

    def approximate(self, text: str) -> str:
        return f"≈ {text}"

    def spread(self, text: str) -> str:
        return f" ± {text}"

    def binding(self, name: str) -> str:
        return name

    def number(self, value: float, digits: int = 1) -> str:
        """A number; never minus zero."""
        return f"{value:z.{digits}f}".replace("-", self.minus)

    def signed(self, value: float, digits: int = 1) -> str:
        """A number with its sign, a plus too; 0 has none."""
        text = f"{value:+z.{digits}f}"
        if float(text) == 0:
            return text[1:]
        return text.replace("-", self.minus).replace("+", self.plus)

    def mean(self, summary: Summary, bold: bool = False, approximate: bool = False) -> str:
        """Mean and standard deviation; a cell with fewer seeds than expected says how many.

        Empty where none is expected.
        """
        if summary.n == 0:
            return f"{MISSING} (0/{summary.expected})" if summary.expected else ""
        text = self.number(summary.mean)
        text = self.bold(text) if bold else self.approximate(text) if approximate else text
        if summary.n > 1:
            text += self.spread(f"{summary.std:.1f}")
        return text if summary.n >= summary.expected else f"{text} ({summary.n}/{summary.expected})"

    def published(self, cell: Cell | None) -> str:
        """A number of the paper; with a q where the paper quotes it, empty where it has none."""
        if cell is None:
            return ""
        text = self.number(cell.value) + (self.spread(f"{cell.std:.1f}") if cell.std is not None else "")
        return text + (self.quoted if cell.quoted else "")

    def table(self, table: Table) -> str:
        head = [c if isinstance(c, str) else f"{c.title}: {' / '.join(c.columns)}" for c in table.columns]
        lines = [head, ["---"] * len(head)]
        for row in table.rows:
            if isinstance(row, Section):
                lines.append([self.bold(row.title)])
            elif not isinstance(row, str):
                lines.append([cell if isinstance(cell, str) else self._joined(cell) for cell in row])
        return "".join(f"| {' | '.join(line + [''] * (len(head) - len(line)))} |\n" for line in lines)

    def _joined(self, cells: tuple[str, ...]) -> str:
        while cells and not cells[-1]:
            cells = cells[:-1]
        return " / ".join(cell or MISSING for cell in cells)


class Latex(Markdown):
    r"""Plain booktabs, nothing that needs a package of one's own.

    >>> write = Latex()
    >>> write.text("d_H > 300: 60.4 ± 1.6 %")
    '$d_H$ $>$ 300: 60.4 $\\pm$ 1.6 \\%'
    >>> write.number(-0.04), write.number(-1.25, 2), write.signed(2.2), write.signed(0.0), write.signed(-2.2)
    ('0.0', '$-$1.25', '$+$2.2', '0.0', '$-$2.2')
    >>> write.mean(Summary((59.0, 61.0), 2), bold=True), write.mean(Summary((), 4)), write.mean(Summary((1.0,), 4))
    ('\\textbf{60.0}$_{\\pm 1.4}$', '-- (0/4)', '1.0 (1/4)')
    """

    minus, plus, delta, quoted = "$-$", "$+$", r"$\Delta$", r"$^{\mathrm{q}}$"
    decoders: Mapping[str, str] = {"cyk": r"$^\star$", "mbr": r"$^\dagger$"}

    def text(self, text: str) -> str:
        """Plain text; a few signs become mathematics."""
        parts = re.split(f"({'|'.join(LETTERS)})", text)
        return "".join(LETTERS.get(part) or "".join(SPECIAL.get(sign, sign) for sign in part) for part in parts)

    def code(self, text: str) -> str:
        return r"\texttt{" + text.replace("_", r"\_") + "}"

    def bold(self, text: str) -> str:
        return rf"\textbf{{{text}}}"

    def approximate(self, text: str) -> str:
        return rf"{text}$^{{\approx}}$"

    def spread(self, text: str) -> str:
        return rf"$_{{\pm {text}}}$"

    def binding(self, name: str) -> str:
        first, _, second = name.partition("-")
        return f"${first}$-" + {"alone": "alone", "wq": "$w_q$"}.get(second, f"${second}$")

    def table(self, table: Table) -> str:
        """A float with its caption below, or a long table with its caption above."""
        caption = rf"\caption{{\label{{tab:{table.name}}}{table.caption}}}"
        head, body = [r"\toprule", *_head(table), RULE], list(_body(table))
        if table.long:
            lines = [r"{\footnotesize\setlength{\tabcolsep}{4pt}", rf"\begin{{longtable}}{{{table.alignment}}}"]
            lines += [caption + r"\\", *head, r"\endfirsthead", *head, r"\endhead", r"\bottomrule", r"\endlastfoot"]
            lines += [*body, r"\end{longtable}}"]
            return "\n".join(lines) + "\n"
        size = r"\footnotesize\setlength{\tabcolsep}{2.5pt}" if table.wide else r"\small"
        lines = [r"\begin{table}[htbp]", rf"\centering{size}", *[FITTED] * table.wide]
        lines += [rf"\begin{{tabular}}{{{table.alignment}}}", *head, *body, r"\bottomrule"]
        lines += [r"\end{tabular}" + "}" * table.wide, caption, r"\end{table}"]
        return "\n".join(lines) + "\n"


def _head(table: Table) -> Iterable[str]:
    """One line of titles, or two where there are groups."""
    columns = [c if isinstance(c, Group) else Group("", (c,)) for c in table.columns]
    if any(column.title for column in columns):
        yield _line([_spanning(len(column.columns), column.title) for column in columns])
        if table.ruled:
            ends = accumulate(len(column.columns) for column in columns)
            ranges = [(end - len(c.columns) + 1, end) for c, end in zip(columns, ends, strict=True) if c.title]
            yield "".join(rf"\cmidrule(lr){{{first}-{last}}}" for first, last in ranges)
    yield _line([title for column in columns for title in column.columns])


def _body(table: Table) -> Iterable[str]:
    for number, row in enumerate(table.rows):
        if isinstance(row, str):
            yield row
        elif isinstance(row, Section):
            yield from [RULE] * (number > 0)
            yield _line([_spanning(len(table.alignment), row.title)])
            yield RULE
        else:
            yield _line([cell for cells in row for cell in ([cells] if isinstance(cells, str) else cells)])


def _spanning(columns: int, text: str) -> str:
    return text if columns == 1 else rf"\multicolumn{{{columns}}}{{c}}{{{text}}}"


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells).rstrip() + r" \\"


LATEX, MARKDOWN = Latex(), Markdown()
