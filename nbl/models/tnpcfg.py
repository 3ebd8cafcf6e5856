"""TN-PCFG (Yang et al. 2021b): a PCFG whose rule tensor is a sum over ranks R."""

from __future__ import annotations

from torch import Tensor, nn

from nbl.models.base import Grammar
from nbl.models.layers import Linear, Network, Softmax, table
from nbl.rules import RankRules


class TNPCFG(Grammar):
    """p(A|S), p(B, C|A) = sum_R p(R|A) p(B|R) p(C|R) and p(w|T).

    One table of symbols serves the three factors of the rules. As released, parameters keep torch's
    default initialisation and embeddings are N(0, 1).
    """

    def __init__(self, vocab_size: int, *, NT: int, PT: int, rank: int, dim: int):
        super().__init__()
        self.NT = NT
        self.u_S, self.u_X, self.u_T = table(1, dim), table(NT + PT, dim), table(PT, dim)
        self.p_A_S = Softmax(Network(dim, dim=dim), nn.Linear(dim, NT))
        self.p_R_A, self.p_B_R, self.p_C_R = (
            nn.Sequential(Linear(dim, dim), nn.ReLU(), Linear(dim, rank)) for _ in range(3)
        )
        self.p_w_T = Softmax(Network(dim, dim=dim), nn.Linear(dim, vocab_size))

    def rules(self, words: Tensor, lengths: Tensor | None = None) -> RankRules:
        return RankRules(
            logp_A_S=self.p_A_S(self.u_S),
            logp_R_A=self.p_R_A(self.u_X[: self.NT]).log_softmax(1),
            logp_B_R=self.p_B_R(self.u_X).T.log_softmax(1),
            logp_C_R=self.p_C_R(self.u_X).T.log_softmax(1),
            logp_w_T=self.p_w_T.at(words, self.u_T),
        )
