"""Best lexicalised trees of NL-PCFG: the rules, and the chart.

    t[k, j, C] = max_q s[k, j, q, C] + log p(w_q | C)
    s[i, j, p, A] = max_B,C (max_k s[i, k, p, B] + t[k, j, C]) + log p(B, C, D | A, w_p)   (and mirrored)

The word of the child depends on C alone, so it is chosen once per span. The splits are maximised
before the rules are applied: O(l^4 NT^2 + l^3 NT^3).
"""

from __future__ import annotations

import torch
from torch import Tensor

from nbl.decode.maxplus import maxplus_
from nbl.rules import LEFT, RIGHT, LexicalRules, logsum_of_pairs


class LexicalSentence:
    """Sentence b of the batch, of l words; see `nbl.decode.cyk.Sentence`."""

    def __init__(self, rules: LexicalRules, b: int, l: int) -> None:
        root, parent_C = (factor[b % len(factor)] for factor in (rules.logp_A_S, rules.parent_C))
        NT = len(root)
        self.logp_w, logp_w_T = rules.logp_w_X[b, :l, :NT], rules.logp_w_X[b, :l, NT:]
        self.root = root + self.logp_w
        # R[D, p, C, B, A] = log p(B, C, D | A, w_p) for a nonterminal C, and for preterminals
        # R_word[p, q, B, A] = max_C log p(B, C, D, w_q | A, w_p), where D follows from p and q
        self.R = root.new_empty(2, l, NT, NT + 1, NT)
        self.R_word = root.new_full((l, l, NT + 1, NT), -torch.inf)
        logsum_C = logsum_of_pairs(rules.word_C[b : b + 1, :l], parent_C[None])[0]
        parent_C = parent_C.permute(1, 3, 2, 0).contiguous()  # D C B A
        for p in range(l):
            rest = (rules.logp_BD_Aw[b, p] - logsum_C[p]).permute(1, 2, 0)  # D B A
            rule = parent_C + rules.word_C[b, p].transpose(1, 2)[..., None] + rest[:, None]
            rule = torch.cat([rule[:, :, :NT], rule[:, :, NT:].amax(2, keepdim=True)], dim=2)
            self.R[:, p] = rule[:, :NT]
            for D, children in ((LEFT, slice(p + 1, l)), (RIGHT, slice(0, p))):
                best = self.R_word[p, children, None].flatten(2)
                maxplus_(best, logp_w_T[children, None], rule[None, None, D, NT:].flatten(3))

    def rule(self, A: int, p: int, k: int, j: int) -> Tensor:
        phrase = self.R[LEFT if p < k else RIGHT, p, :, :, A] + self.logp_w[k:j, :, None]
        return torch.cat([phrase, self.R_word[p, k:j, None, :, A]], dim=1)

    def chart(self) -> list[Tensor]:
        l, NT = self.root.shape
        R = self.R.flatten(2, 3)[:, :, None]
        # all splits of a span are two slices: ending[j][i, p, X] = starting[i][j - i, p - i, X]
        ending = [R.new_full((j, j, NT + 1), -torch.inf) for j in range(l + 1)]
        starting = [R.new_full((l - i + 1, l - i, NT + 1), -torch.inf) for i in range(l)]
        t = R.new_full((l + 1, l + 1, NT), -torch.inf)
        for j in range(1, l + 1):
            ending[j][j - 1, j - 1, NT] = starting[j - 1][1, 0, NT] = 0.0
            for i in range(j - 2, -1, -1):
                cell = ending[j][i, i:j, None, :NT]
                heads = starting[i][1 : j - i, : j - i]
                _extend(cell, heads[:-1], t[i + 1 : j - 1, j], R[LEFT, i:j])
                maxplus_(cell, heads[-1, :, None], self.R_word[i:j, None, j - 1])
                heads = ending[j][i + 1 :, i:]
                _extend(cell, heads[1:], t[i, i + 2 : j], R[RIGHT, i:j])
                maxplus_(cell, heads[0, :, None], self.R_word[i:j, None, i])
                starting[i][j - i, : j - i, :NT] = cell[:, 0]
                t[i, j] = (cell[:, 0] + self.logp_w[i:j]).amax(0)
        return ending


def _extend(cell: Tensor, heads: Tensor, t: Tensor, R: Tensor) -> None:
    """Into the cell [p, 1, A]: head children [k, p, B], other children [k, C], rules [p, 1, C * B, A]."""
    best = heads.new_full((len(cell), t.shape[-1], heads.shape[-1]), -torch.inf)
    maxplus_(best, t.t()[None], heads.transpose(0, 1)[:, None])
    maxplus_(cell, best.flatten(1)[:, None], R)
