"""NBL-PCFG, the paper's grammar: a lexicalised PCFG with bilexical dependencies through a latent H."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nbl.models.base import Grammar
from nbl.models.layers import JoinedLinear, Network, Residual, Softmax, table, tied
from nbl.rules import BilexicalRules


class NBLPCFG(Grammar):
    """p(A|S), p(w|A), p(H|A, w_p), p(B|H), p(C|H) and p(w_q|H), with D bound to one of the last three
    or, in D-alone, given H by p(D|H).

    "released" is the parameterisation of the released code: the networks see what is conditioned
    on, and each distribution given H has embeddings of H of its own. "paper" is that of the
    appendix: the networks see what is generated, and there is one u_H and one w_w for all.
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        NT: int,
        PT: int,
        d_H: int,
        dim: int,
        binding: str,
        parameterisation: str,
    ):
        super().__init__()
        self.vocab_size, self.S, self.binding = vocab_size, NT + PT, binding
        self.D_B, self.D_C, self.D_w = (2 if binding == bound else 1 for bound in ("D-B", "D-C", "D-wq"))
        self.u_S, self.u_A, self.w_w = table(1, dim), table(NT, dim), table(vocab_size, dim)
        if parameterisation == "released":
            self._released(NT, d_H, dim)
        else:
            self._paper(NT, d_H, dim)
        self.initialise()

    def _released(self, NT: int, d_H: int, dim: int) -> None:
        self.w_A = self.u_A
        self.u_HB, self.u_HC, self.u_Hw = (table(d_H, dim) for _ in range(3))
        self.p_A_S = Softmax(Network(dim, dim=dim), nn.Linear(dim, NT))
        self.p_w_A = Softmax(Network(dim, dim=dim), nn.Linear(dim, self.vocab_size))
        self.p_H_Aw = Softmax(HeadNetwork(dim, Residual(dim)), nn.Linear(dim, d_H))
        self.p_B_H = Softmax(nn.Identity(), nn.Linear(dim, self.D_B * self.S))
        self.p_C_H = Softmax(nn.Identity(), nn.Linear(dim, self.D_C * self.S))
        self.p_w_H = Softmax(Network(dim, dim=dim), nn.Linear(dim, self.D_w * self.vocab_size))
        if self.binding == "D-alone":
            self.u_HD = table(d_H, dim)
            self.p_D_H = Softmax(nn.Identity(), nn.Linear(dim, 2))

    def _paper(self, NT: int, d_H: int, dim: int) -> None:
        self.w_A = table(NT, dim)
        self.u_HB = self.u_HC = self.u_Hw = self.u_HD = table(d_H, dim)
        w_wD = self.w_w if self.D_w == 1 else table(2 * self.vocab_size, dim)
        self.p_A_S = Softmax(nn.Identity(), tied(self.w_A), key=Network(dim, dim=dim))
        self.p_w_A = Softmax(nn.Identity(), tied(self.w_w), key=Network(dim, dim=dim))
        self.p_H_Aw = Softmax(HeadNetwork(dim, Network(dim, dim=dim)), tied(self.u_HB))
        self.p_B_H = Softmax(nn.Identity(), nn.Linear(dim, self.D_B * self.S, bias=False))
        self.p_C_H = Softmax(nn.Identity(), nn.Linear(dim, self.D_C * self.S, bias=False))
        self.p_w_H = Softmax(nn.Identity(), tied(w_wD), key=Network(dim, dim=dim))
        if self.binding == "D-alone":
            self.p_D_H = Softmax(nn.Identity(), nn.Linear(dim, 2, bias=False))

    def rules(self, words: Tensor, lengths: Tensor | None = None) -> BilexicalRules:
        D = torch.arange(self.D_w, device=words.device)
        logp_C_H = self.p_C_H(self.u_HC).unflatten(1, (self.D_C, self.S)).transpose(0, 1)
        if self.binding == "D-alone":
            logp_C_H = logp_C_H + self.p_D_H(self.u_HD).T[..., None]
        return BilexicalRules(
            logp_A_S=self.p_A_S(self.u_S).squeeze(0),
            logp_w_A=self.p_w_A.at(words, self.u_A),
            logp_H_Aw=self.logp_H_Aw(words),
            logp_B_H=self.p_B_H(self.u_HB).unflatten(1, (self.D_B, self.S)).transpose(0, 1),
            logp_C_H=logp_C_H,
            logp_w_H=self.p_w_H.at(words[..., None] + self.vocab_size * D, self.u_Hw),
        )

    def logp_H_Aw(self, words: Tensor) -> Tensor:
        """log p(H|A, w) for each position, [b, p, A, H].

        On a CPU each distinct word is computed once. Elsewhere every position is: finding the distinct
        words would make the host wait for the device.
        """
        if words.device.type != "cpu":
            return self.p_H_Aw(self.w_A, F.embedding(words, self.w_w)[:, :, None])
        distinct, position = words.unique(return_inverse=True)
        logp = self.p_H_Aw(self.w_A, F.embedding(distinct, self.w_w)[:, None])
        return logp.index_select(0, position.flatten()).view(*words.shape, *logp.shape[1:])


class HeadNetwork(nn.Module):
    """f([A; w]) = h(ReLU(W [A; w]) + w)."""

    def __init__(self, dim: int, h: nn.Module):
        super().__init__()
        self.W, self.h = JoinedLinear((dim, dim), dim), h

    def forward(self, A: Tensor, w: Tensor) -> Tensor:
        return self.h(self.W(A, w).relu_() + w)
