"""Best lexicalised trees of NBL-PCFG: the rules with H summed out, and the chart.

    s[i, j, p, A] = max_k,B s[i, k, p, B] + hook[k, j, p, A, B]                  (and its mirror image)
    hook[k, j, p, A, B] = max_q,C s[k, j, q, C] + log p(B, C, D, w_q | A, w_p)

H is summed inside each rule: p(B, C, D, w_q | A, w_p) = sum_H p(H | A, w_p) p(B | H) p(C | H) p(w_q | H), by
matrix products, before anything is maximised. The factorised recursion of the inside algorithm with max
in place of the sum would maximise over H too, and H is not part of a tree.

On the CPU a native kernel (nbl/native/cyk_bilexical.cpp) does the same.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import torch
from torch import Tensor

from nbl import native
from nbl.decode.maxplus import maxplus_
from nbl.inside.spans import finite
from nbl.rules import LEFT, RIGHT, BilexicalRules

_Block = native.structure("cyk_bilexical", "Block", ("D", "B_T", "C_T", "B", "C"), ("p_BC_H", "logp_H"))
_Head = native.structure(
    *("cyk_bilexical", "Head"),
    numbers=("p", "l", "A", "H", "D_w", "row", "blocks"),
    pointers=("block", "H_Aw", "w_H", "R", "scratch"),
)
_Sentence = native.structure("cyk_bilexical", "Sentence", ("l", "A", "row"), ("R", "s", "scratch"))
PAIRS = 32  # pairs of words whose rules are contracted at a time: bounds memory


class Block:
    """p(B | H) p(C | H) for D and one class of B and of C: nonterminals (0) or preterminals (1).

    The largest value for each H is kept apart, so that a class which is improbable as a whole does not
    leave the range of float32.
    """

    def __init__(self, rules: BilexicalRules, D: int, B_T: int, C_T: int) -> None:
        NT, S = rules.logp_A_S.shape[-1], rules.logp_B_H.shape[-1]
        symbols = slice(0, NT), slice(NT, S)
        chart = slice(0, NT), slice(NT, NT + 1)
        self.D, self.B, self.C, self.B_T, self.C_T = D, chart[B_T], chart[C_T], B_T, C_T
        B, C = rules.logp_B_H, rules.logp_C_H
        logp_B, logp_C = B[D % len(B), :, symbols[B_T]], C[D % len(C), :, symbols[C_T]]
        most_B, most_C = finite(logp_B.amax(1)), finite(logp_C.amax(1))
        self.p_BC_H = ((logp_C.t() - most_C)[:, None] + (logp_B.t() - most_B)).exp().contiguous()  # [C, B, H]
        self.logp_H = most_B + most_C  # [H]

    def structure(self) -> ctypes.Structure:
        """The same for the native kernel."""
        C, B, _ = self.p_BC_H.shape
        tensors = native.pointers({"p_BC_H": self.p_BC_H, "logp_H": self.logp_H})
        return _Block(D=self.D, B_T=self.B_T, C_T=self.C_T, B=B, C=C, **tensors)

    def pairs(self, l: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        """The p and q that a rule of this kind can join, some at a time."""
        p, q = torch.triu_indices(l, l, 1, device=device)
        if self.B_T and self.C_T:  # both children are words, so they are neighbours
            p, q = p[q == p + 1], q[q == p + 1]
        if self.D == RIGHT:
            p, q = q, p
        return zip(p.split(PAIRS), q.split(PAIRS), strict=True)

    def contract(self, logp_H: Tensor) -> Tensor:
        """From log p(H, w_q | A, w_p), [pq, A, H]: log p(B, C, D, w_q | A, w_p), [pq, C, B, A].

        Of the preterminals only the best is kept.
        """
        logp = logp_H + self.logp_H
        scale = finite(logp.amax(-1))
        p = (logp - scale[..., None]).exp()
        p = torch.tensordot(self.p_BC_H, p, dims=([2], [2]))  # C B pq A
        if self.C_T:
            p = p.amax(0, keepdim=True)
        if self.B_T:
            p = p.amax(1, keepdim=True)
        return (p.log() + scale).permute(2, 0, 1, 3)


def contracted_blocks(rules: BilexicalRules) -> list[Block]:
    """What all sentences share."""
    return [Block(rules, D, B_T, C_T) for D in (LEFT, RIGHT) for B_T in (0, 1) for C_T in (0, 1)]


class BilexicalSentence:
    """Sentence b of the batch, of l words; see `nbl.decode.cyk.Sentence`."""

    def __init__(self, rules: BilexicalRules, blocks: list[Block], b: int, l: int) -> None:
        self.root = rules.logp_A_S + rules.logp_w_A[b, :l]
        self.kernel = native.load("cyk_bilexical", self.root.dtype) if self.root.device.type == "cpu" else None
        # R[p, q, C, B, A] = log p(B, C, D, w_q | A, w_p), where D follows from p and q
        self.R = _rules_torch(rules, blocks, b, l) if self.kernel is None else _rules_native(rules, blocks, b, l)

    def rule(self, A: int, p: int, k: int, j: int) -> Tensor:
        return self.R[p, k:j, :, :, A]

    def chart(self) -> list[Tensor]:
        if self.kernel is not None:
            return _chart_native(self.R)
        l, NT = self.root.shape
        R = self.R.flatten(3)
        s = [R.new_full((j, j, NT + 1), -torch.inf) for j in range(l + 1)]
        # hooks[k][p - k, i, B * A]: [i, k) as the child of a head p to its right
        hooks = [R.new_full((l - k, k, R.shape[-1]), -torch.inf) for k in range(l + 1)]
        for j in range(1, l + 1):
            column = s[j]
            column[j - 1, j - 1, NT] = 0.0
            for k in range(j - 1, -1, -1):
                # all that [k, j) is made of has been seen: pass it on to wider spans that end in j
                # D = RIGHT: it is the head child and [i, k) the child
                hook = hooks[k][: j - k].unflatten(-1, (NT + 1, NT)).transpose(0, 1)
                maxplus_(column[:k, k:, :NT], column[k, None, k:], hook)
                # D = LEFT: it is the child and [i, k) the head child
                child = column[k, k:].flatten()[None, None]
                hook = R.new_full((k, 1, R.shape[-1]), -torch.inf)
                maxplus_(hook, child, R[:k, None, k:j].flatten(2, 3))
                maxplus_(column[:k, :k, :NT], s[k], hook.unflatten(-1, (NT + 1, NT)).transpose(0, 1))
            maxplus_(hooks[j], column.flatten(1)[None], R[j:, None, :j].flatten(2, 3))
        return s


def _rules_torch(rules: BilexicalRules, blocks: list[Block], b: int, l: int) -> Tensor:
    NT = rules.logp_w_A.shape[-1]
    R = rules.logp_w_A.new_full((l, l, NT + 1, NT + 1, NT), -torch.inf)
    for block in blocks:
        logp_w_H = rules.logp_w_H[b, :l, block.D % rules.logp_w_H.shape[2], None].contiguous()
        for p, q in block.pairs(l, R.device):
            R[p, q, block.C, block.B] = block.contract(rules.logp_H_Aw[b, p] + logp_w_H[q])
    return R


def _rules_native(rules: BilexicalRules, blocks: list[Block], b: int, l: int) -> Tensor:
    kernel = native.kernel("cyk_bilexical", rules.logp_w_A.dtype)
    H_Aw, w_H = rules.logp_H_Aw[b, :l].contiguous(), rules.logp_w_H[b, :l].contiguous()
    (_, NT, H), D_w = H_Aw.shape, w_H.shape[1]
    line = 64 // H_Aw.element_size()  # rows of the kernel are whole cache lines
    row = -(-(NT + 1) * NT // line) * line
    R = H_Aw.new_empty(l, l, NT + 1, row)
    given = (_Block * len(blocks))(*(block.structure() for block in blocks))
    sizes = {"l": l, "A": NT, "H": H, "D_w": D_w, "row": row, "blocks": len(blocks), "block": ctypes.addressof(given)}
    heads = [_Head(p=p, **sizes, **native.pointers({"H_Aw": H_Aw[p], "w_H": w_H, "R": R[p]})) for p in range(l)]
    native.run_all(kernel.rules, heads, native.count(kernel.rules_bytes, heads[0]))
    return R[..., : (NT + 1) * NT].unflatten(-1, (NT + 1, NT))


def _chart_native(R: Tensor) -> list[Tensor]:
    kernel = native.kernel("cyk_bilexical", R.dtype)
    l, NT = len(R), R.shape[-1]
    sizes = [j * j * (NT + 1) for j in range(l + 1)]
    s = R.new_full((sum(sizes),), -torch.inf)
    sentence = _Sentence(l=l, A=NT, row=R.stride(2), **native.pointers({"R": R, "s": s}))
    native.run_all(kernel.chart, [sentence], native.count(kernel.chart_bytes, sentence))
    return [part.view(j, j, NT + 1) for j, part in enumerate(s.split(sizes))]
