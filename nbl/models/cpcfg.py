"""C-PCFG (Kim et al. 2019): the N-PCFG, with rules that depend on an embedding z of the sentence."""

from __future__ import annotations

from nbl.models.base import InferenceNetwork
from nbl.models.pcfg import NeuralPCFG


class CPCFG(NeuralPCFG):
    """p(A|S, z), p(B, C|A, z) and p(w|T, z)."""

    def __init__(
        self,
        vocab_size: int,
        *,
        NT: int,
        PT: int,
        dim: int,
        z_dim: int,
        h_dim: int,
        w_dim: int,
    ):
        inference = InferenceNetwork(vocab_size, z_dim, h_dim, w_dim)
        super().__init__(vocab_size, inference, NT, PT, dim)
