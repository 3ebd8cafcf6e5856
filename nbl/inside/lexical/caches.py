"""The paper's two ways to compute NL-PCFG's inside values, for the comparison of their speed.

`C11` takes each split point through the rules by itself, O(l^4 m^3): the paper's re-impl-1. `C12` keeps
term C1-2, sum_C p(B, C, LEFT | A, w_p) closed[k, j, C], for every child and every head outside it,
O(l^4 m^2 + l^3 m^3) and O(l^3 m^2) memory: the paper's re-impl-2. Both are implementations in the sense
of `nbl.inside`, like the modules `torch` and `native`.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

from nbl.inside.lexical.torch import Chart, Outside, solve_by, tables


class _ChartC11(Chart):
    def groups(self, splits: int) -> tuple[int, int]:
        return splits, 1


class _ChartC12(Chart):
    def _close(self, width: int) -> None:
        super()._close(width)
        term = self.closed[width] @ self.tables.R.view(self.l, self.N, -1, self.NT).mT
        self.term_C12[width] = term.view(*term.shape[:3], self.NT, self.NT)

    def attached(self, width: int) -> range:
        return range(2, width)

    def split_sums(self, width: int) -> list[range]:
        return []


class _OutsideC12(Outside):
    def _close(self, width: int) -> None:
        chart = self.chart
        d_term = self.d_term_C12.pop(width).flatten(3)
        self.d_closed[width] += (d_term @ chart.tables.R.view(chart.l, chart.N, -1, chart.NT)).sum(0)
        self.d_R += (d_term.mT @ chart.closed[width]).view_as(self.d_R)
        super()._close(width)


C11 = SimpleNamespace(tables=tables, solve=partial(solve_by, _ChartC11, Outside))
C12 = SimpleNamespace(tables=tables, solve=partial(solve_by, _ChartC12, _OutsideC12))
