"""NL-PCFG (Zhu et al. 2020): a lexicalised PCFG whose child word depends on its own symbol only."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nbl.models.base import CompoundGrammar, InferenceNetwork
from nbl.models.layers import JoinedLinear, Network, Softmax, table
from nbl.rules import LexicalRules


class NLPCFG(CompoundGrammar):
    """p(A|S), p(w|X), p(B, D|A, w_p) and p(C|A, B, D, w_p) (Eq. factor_zhu).

    Networks are those of the NBL-PCFG authors' re-implementation. `compound` adds Zhu et al.'s z to the
    input of each of them; z_dim, h_dim and w_dim are the inference network's sizes.
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        NT: int,
        PT: int,
        dim: int,
        compound: bool,
        z_dim: int,
        h_dim: int,
        w_dim: int,
    ):
        super().__init__(InferenceNetwork(vocab_size, z_dim, h_dim, w_dim) if compound else None)
        self.S = S = NT + PT
        self.u_S, self.u_X, self.u_A = table(1, dim), table(S, dim), table(NT, dim)
        self.w_w = table(vocab_size, dim)
        self.p_A_S = Softmax(Network(dim, self.z_dim, dim=dim), nn.Linear(dim, NT))
        self.p_w_X = Softmax(Network(dim, self.z_dim, dim=dim), nn.Linear(dim, vocab_size))
        self.p_BD_Aw = Softmax(Network(dim, dim, self.z_dim, dim=dim, blocks=1), nn.Linear(dim, 2 * S))
        self.C_left = JoinedLinear((dim, dim, self.z_dim), S * S)  # the head child is the left child
        self.C_right = JoinedLinear((dim, dim, self.z_dim), S * S)
        self.initialise()

    def rules_given(self, words: Tensor, z: Tensor) -> LexicalRules:
        z = z[:, None]
        # On a CPU the factors of a word are computed once, unless each sentence has a z of its own. Elsewhere they are
        # at every position: finding the distinct words would make the host wait for the device.
        distinct, position = words, None
        if words.device.type == "cpu" and self.inference is None:
            distinct, position = words.unique(return_inverse=True)
            distinct = distinct[None]
        w = F.embedding(distinct, self.w_w)
        word_C, parent_C = self.logits_C(w, z)
        logp_BD_Aw = self.p_BD_Aw(w[:, :, None], self.u_A, z[:, None]).unflatten(-1, (2, self.S))
        if position is not None:
            logp_BD_Aw, word_C = (
                factor.squeeze(0).index_select(0, position.flatten()).unflatten(0, words.shape)
                for factor in (logp_BD_Aw, word_C)
            )
        return LexicalRules(
            logp_A_S=self.p_A_S(self.u_S, z).squeeze(1),
            logp_w_X=self.p_w_X.at(words, self.u_X, z),
            logp_BD_Aw=logp_BD_Aw,
            parent_C=parent_C,
            word_C=word_C,
        )

    def logits_C(self, w: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        """The logits of p(C | A, B, D, w_p) are word_C [b, p, D, B, C] + parent_C [1|b, A, D, B, C]."""
        word, parent = [], []
        for layer in (self.C_left, self.C_right):
            of_w, of_A, of_z = layer.terms(w, self.u_A, z)
            word.append(of_w)
            parent.append(of_A + of_z + layer.bias)
        word_C, parent_C = (torch.stack(logits, 2).unflatten(3, (self.S, self.S)) for logits in (word, parent))
        return word_C, parent_C
