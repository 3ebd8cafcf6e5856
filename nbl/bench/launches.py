"""How many operators the inside algorithms launch: on a GPU each costs microseconds, however small it is.

What counts is any operator but views and allocations, in the forward and the backward pass together. Counts
depend on the length of the sentences, hardly on sizes, and no GPU is needed.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from nbl.families import inside
from nbl.inside import Implementation, log_Z
from nbl.inside.bilexical import gpu as bilexical_gpu
from nbl.inside.rank import gpu as rank_gpu
from nbl.settings import BINDINGS
from nbl.testing import detached, random_rules, single

LENGTHS = (20, 40)
# beside views, operators that launch nothing
FREE = ("_unsafe_view", "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
Inside = Callable[[Any, Tensor], Tensor]


_torch = partial(inside, allow_native=False)


def with_kernels(kernels: Any) -> Implementation:
    """The NBL-PCFG's chart for a GPU with these kernels, whatever the device is."""
    return SimpleNamespace(tables=bilexical_gpu.tables, solve=partial(bilexical_gpu.solve, kernels=kernels))


def _bilexical() -> dict[str, Inside]:
    """By torch's operators, and with Triton, where that is installed."""
    ways: dict[str, Inside] = {"torch": _torch, "GPU, torch": partial(log_Z, with_kernels(bilexical_gpu.TorchKernels))}
    if find_spec("triton") is not None:
        ways["GPU, Triton"] = partial(log_Z, with_kernels(bilexical_gpu.kernels_for(torch.device("cuda"))))
    return ways


# grammar -> the kind of random rules, and its inside algorithm by way of computing
GRAMMARS: dict[str, tuple[str, dict[str, Inside]]] = {
    "N-PCFG": ("pcfg", {"torch": _torch}),
    "C-PCFG": ("compound-pcfg", {"torch": _torch}),
    "TN-PCFG": ("rank", {"torch": _torch, "GPU, torch": partial(log_Z, rank_gpu)}),
    "NL-PCFG": ("lexical", {"torch": _torch}),
    "NBL-PCFG": ("D-C", _bilexical()),
}
# The released code's classes, counted in the same way at 20 and 40 words: the one its configurations train with, and
# the fast variant beside it.
RELEASE = {
    "N-PCFG": ((1784, 3744), (3679, 7739)),
    "TN-PCFG": ((1251, 2551), (1676, 3396)),
    "NL-PCFG": ((6236, 20616), (None, None)),
    "NBL-PCFG": ((1931, 3951), (6824, 23304)),
}


class Launches(TorchDispatchMode):
    """Counts operators, by name, within a `with` statement."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        packet = func.overloadpacket.__name__
        if not func.is_view and packet not in FREE:
            self.counts[packet] += 1
        return func(*args, **(kwargs or {}))

    @property
    def total(self) -> int:
        """All launches so far."""
        return self.counts.total()

    def __enter__(self) -> Launches:
        self.modules = {m: m.run for name, m in sys.modules.items() if name.startswith("nbl.") and hasattr(m, "triton")}
        for module, run in self.modules.items():
            module.run = partial(self._triton, run)  # type: ignore[attr-defined]
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        for module, run in self.modules.items():
            module.run = run  # type: ignore[attr-defined]
        super().__exit__(*error)

    def _triton(self, run: Callable[..., None], kernel: Any, grid: Any, arguments: Any, sizes: Any) -> None:
        """Torch does not see Triton's kernels. Those for the CPU's memory are counted, but not run."""
        self.counts[kernel.fn.__name__] += 1
        if arguments[0].is_cuda:
            run(kernel, grid, arguments, sizes)


def launches(algorithm: Inside, kind: str, l: int, b: int = 2) -> Launches:
    """The operators of one forward and backward pass over b sentences of l words."""
    NT = 15 if kind in BINDINGS else 10
    rules = detached(single(random_rules(kind, b, l, NT=NT, PT=2 * NT, H=8, seed=0)))
    lengths = torch.full((b,), l)
    for _ in range(2):  # tables of indices are made once for each length: only the second pass counts
        with Launches() as counter:
            torch.autograd.grad(algorithm(rules, lengths).sum(), rules)
    return counter


def compare(grammars: Sequence[str], lengths: Sequence[int] = LENGTHS) -> list[dict[str, Any]]:
    """One row per grammar, way of computing and length, with the released code's figures beside."""
    rows = []
    for grammar in grammars:
        kind, ways = GRAMMARS[grammar]
        for way, algorithm in ways.items():
            for l in lengths:
                total = launches(algorithm, kind, l).total
                row = {"model": grammar, "path": way, "l": l, "launches": total, "per_width": round(total / (l - 1), 1)}
                rows.append(row | _release(grammar, l))
    return rows


def _release(grammar: str, l: int) -> dict[str, int | None]:
    known = RELEASE.get(grammar, ((None, None), (None, None)))
    of_length = [dict(zip(LENGTHS, figures, strict=True)).get(l) for figures in known]
    return dict(zip(("release", "release_fast"), of_length, strict=True))
