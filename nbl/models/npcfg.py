"""N-PCFG (Kim et al. 2019)."""

from __future__ import annotations

from nbl.models.pcfg import NeuralPCFG


class NPCFG(NeuralPCFG):
    """p(A|S), p(B, C|A) and p(w|T)."""

    def __init__(self, vocab_size: int, *, NT: int, PT: int, dim: int):
        super().__init__(vocab_size, None, NT, PT, dim)
