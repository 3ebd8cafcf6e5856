"""Both decoders, one sentence at a time, at the paper's sizes, on random rules."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from nbl.bench.measure import interleaved, peak_memory
from nbl.bench.random_rules import random_rules
from nbl.decode import DECODERS, decode

GRAMMARS: dict[str, dict[str, Any]] = {
    "N-PCFG 30/60": {"grammar": "pcfg", "NT": 30, "PT": 60, "H": 1},
    "TN-PCFG 250/500": {"grammar": "rank", "NT": 250, "PT": 500, "H": 500},
    "NL-PCFG 10/20": {"grammar": "lexical", "NT": 10, "PT": 20, "H": 1},
    "NL-PCFG 30/60": {"grammar": "lexical", "NT": 30, "PT": 60, "H": 1},
    "NBL-PCFG 15/30": {"grammar": "D-C", "NT": 15, "PT": 30, "H": 300},
}


def task(name: str, decoder: str, l: int) -> Callable[[], object]:
    """Decode one random sentence, ready to be timed."""
    rules = random_rules(b=1, l=l, seed=0, scale=1.0, **GRAMMARS[name])
    rules = type(rules)(*(factor.float() for factor in rules))
    lengths = torch.tensor([l])
    return lambda: decode(rules, lengths, decoder=decoder)


def compare(names: Sequence[str], l: int, rounds: int) -> list[dict[str, Any]]:
    """Rows of processor seconds a sentence of l words, and peak memory."""
    rows = []
    tasks = {(name, decoder): task(name, decoder, l) for name in names for decoder in DECODERS}
    times = interleaved(tasks, rounds, clock=time.process_time)
    for (name, decoder), seconds in times.items():
        row = {"model": name, "decoder": decoder, "l": l, **seconds._asdict()}
        rows.append(row | {"peak_mb": peak_memory(tasks[name, decoder])})
    return rows
