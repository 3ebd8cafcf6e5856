"""What the Triton kernels need on real GPUs, found by compiling them: no GPU is needed for that.

python -m nbl.bench.compiled        # a table in Markdown, as in docs/gpu.md
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

SIZES = {"H": 300, "A": 15, "D_B": 1, "D_C": 2, "D_w": 1, "D_K": 2, "D": 3}  # the paper's NBL-PCFG, D bound to C
SIZES |= {"WORDS": 64, "ROWS": 64, "SYMBOLS": 16, "ALL": 512}  # 40 words
NUMBERS = ("l", "w", "cells", "places")
WARPS = 4  # of a block, Triton's default


class Limits(NamedTuple):
    """Of a streaming multiprocessor."""

    name: str
    warps: int
    blocks: int
    shared: int  # bytes, of one block at most


TARGETS = {
    75: Limits("T4", 32, 16, 64 * 2**10),
    80: Limits("A100", 64, 32, 163 * 2**10),
    90: Limits("H100", 64, 32, 227 * 2**10),
}
REGISTERS = 64 * 2**10


def kernels() -> dict[str, Any]:
    """The Triton kernels by name."""
    from nbl.inside.bilexical import triton as bilexical_triton

    found = vars(bilexical_triton).items()
    return {name.removesuffix("_kernel"): kernel for name, kernel in found if name.endswith("_kernel")}


def compile_all(capabilities: list[int] | None = None) -> list[dict[str, Any]]:
    """One row per kernel and GPU: registers of a thread, bytes spilled, shared memory of a block, occupancy."""
    return [
        {"kernel": name, "gpu": f"{TARGETS[capability].name} (sm_{capability})", **_compiled(kernel, capability)}
        for capability in capabilities or list(TARGETS)
        for name, kernel in kernels().items()
    ]


def _compiled(kernel: Any, capability: int) -> dict[str, Any]:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from nbl.inside.bilexical import triton as bilexical_triton

    sizes = SIZES | {"BLOCK": bilexical_triton.BLOCK, "TILE": bilexical_triton.TILE} | bilexical_triton.SCALES
    names = kernel.arg_names
    types = {"lengths": "*i64"} | dict.fromkeys(NUMBERS, "i32") | dict.fromkeys(sizes, "constexpr")
    signature = {name: types.get(name, "*fp32") for name in names}
    constants = {(names.index(name),): value for name, value in sizes.items() if name in names}
    aligned = {(k,): [["tt.divisibility", 16]] for k, name in enumerate(names) if signature[name].startswith("*")}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": WARPS})
    registers, stack, local = _resources(compiled.asm["cubin"])
    shared = compiled.metadata.shared
    return {
        "registers": registers,
        "spilled": stack + local,
        "shared": shared,
        "occupancy": occupancy(TARGETS[capability], registers, shared),
    }


def _resources(cubin: bytes) -> tuple[int, ...]:
    """Registers of a thread, bytes of its stack and of its local memory: the last two are spills."""
    import triton

    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(tool), "--dump-resource-usage", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+) .*?LOCAL:(\d+)", text)
    assert found is not None, text
    return tuple(map(int, found.groups()))


def occupancy(limits: Limits, registers: int, shared: int) -> float:
    """The share of a multiprocessor's warps that can be resident, as far as registers and shared memory go.

    >>> occupancy(TARGETS[80], registers=64, shared=0)
    0.5
    """
    of_warp = -(-registers // 8) * 8 * 32
    blocks = min(limits.blocks, limits.warps // WARPS, REGISTERS // (of_warp * WARPS))
    if shared:
        blocks = min(blocks, limits.shared // shared)
    return blocks * WARPS / limits.warps


def main() -> None:
    print("| kernel | GPU | registers | spilled | shared | occupancy |\n|---|---|---|---|---|---|")
    for row in compile_all():
        cells = [str(value) for value in list(row.values())[:-1]] + [f"{100 * row['occupancy']:.0f} %"]
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
