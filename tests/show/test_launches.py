"""How many operators the inside algorithms launch."""

import torch

from nbl.bench.launches import GRAMMARS, Launches, compare


def test_views_and_allocations_do_not_count():
    x = torch.ones(3, 4)
    with Launches() as counter:
        y = torch.empty(4, 3).copy_(x.t()).view(-1)[2:]
        y.add_(1).exp()
    assert counter.counts == {"copy_": 1, "add_": 1, "exp": 1}


def test_rows_quote_the_release():
    rows = compare(["NBL-PCFG"], [20])
    assert {row["path"] for row in rows} == set(GRAMMARS["NBL-PCFG"][1])
    assert all((row["release"], row["release_fast"]) == (1931, 6824) for row in rows)
    assert compare(["N-PCFG"], [5])[0]["release"] is None
