"""A PCFG whose rules come from embeddings and networks: what N-PCFG and C-PCFG (Kim et al. 2019) share."""

from __future__ import annotations

from torch import Tensor, nn

from nbl.models.base import CompoundGrammar, InferenceNetwork
from nbl.models.layers import JoinedLinear, Network, Softmax, table
from nbl.rules import PCFGRules


class NeuralPCFG(CompoundGrammar):
    """p(A|S), p(B, C|A) and p(w|T); with an inference network, z is concatenated to the input of every network."""

    def __init__(self, vocab_size: int, inference: InferenceNetwork | None, NT: int, PT: int, dim: int):
        super().__init__(inference)
        self.S = NT + PT
        self.u_S, self.u_A, self.u_T = table(1, dim), table(NT, dim), table(PT, dim)
        self.p_A_S = Softmax(Network(dim, self.z_dim, dim=dim), nn.Linear(dim, NT))
        self.p_BC_A = JoinedLinear((dim, self.z_dim), self.S**2)
        self.p_w_T = Softmax(Network(dim, self.z_dim, dim=dim), nn.Linear(dim, vocab_size))
        self.initialise()

    def rules_given(self, words: Tensor, z: Tensor) -> PCFGRules:
        z = z[:, None]
        return PCFGRules(
            logp_A_S=self.p_A_S(self.u_S, z).squeeze(1),
            logp_BC_A=self.p_BC_A(self.u_A, z).log_softmax(-1).unflatten(-1, (self.S, self.S)),
            logp_w_T=self.p_w_T.at(words, self.u_T, z),
        )


class NPCFG(NeuralPCFG):
    """N-PCFG: p(A|S), p(B, C|A) and p(w|T)."""

    def __init__(self, vocab_size: int, *, NT: int, PT: int, dim: int):
        super().__init__(vocab_size, None, NT, PT, dim)


class CPCFG(NeuralPCFG):
    """C-PCFG: p(A|S, z), p(B, C|A, z) and p(w|T, z)."""

    def __init__(self, vocab_size: int, *, NT: int, PT: int, dim: int, z_dim: int, h_dim: int, w_dim: int):
        super().__init__(vocab_size, InferenceNetwork(vocab_size, z_dim, h_dim, w_dim), NT, PT, dim)
