"""What every model can do: score sentences and parse them. A grammar does both by its rules for a sentence."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nbl.decode import Parse
from nbl.errors import UserError
from nbl.families import decode, inside
from nbl.models.layers import LSTM, table
from nbl.rules import Rules


class System(nn.Module):
    """A model that can be trained on sentences and parses them, grammar or not.

    `words` is a LongTensor [b, l] of vocabulary numbers, right-padded with any of them; `lengths` a
    LongTensor [b], 2 <= length <= l. `generator` draws what is random in training (torch's global
    generator if None); it lives on the device of the words.
    """

    generator: torch.Generator | None = None
    betas = (0.75, 0.999)  # of Adam
    # The learning rate is halved after more epochs than this without a better dev perplexity; 0: never.
    halved_after = 0
    # In evaluation, whether the objective is the log-probability of the sentence (or a bound). Else it is the sum of
    # those of its words, each given the others, and its perplexity a pseudo-perplexity.
    is_log_probability = True

    def objective(self, words: Tensor, lengths: Tensor) -> Tensor:
        """What training maximises, for each sentence, [b], differentiable."""
        raise NotImplementedError

    def parse(self, words: Tensor, lengths: Tensor, decoder: str = "mbr") -> list[Parse]:
        """One tree for each sentence."""
        raise NotImplementedError

    def rules(self, words: Tensor, lengths: Tensor | None = None) -> Rules:
        """Log-probabilities of the rules for these sentences; without lengths, all have l words."""
        raise UserError(f"{type(self).__name__} is not a grammar: it has no rules to show or to sample from")

    def read_text(self, sentences: Iterable[list[int]]) -> None:
        """Called once, before training, with the word numbers of the training text."""

    def begin_epoch(self, epoch: int) -> bool:
        """Called before each epoch of training, which count from 1. True if models of earlier epochs do not count."""
        return False


def by_length(lengths: Tensor) -> list[tuple[Tensor, int]]:
    """The rows of a batch that have the same length, for each length: within them there is no padding."""
    return [((lengths == l).nonzero().squeeze(1), l) for l in lengths.unique().tolist()]


class Grammar(System):
    """Words in, rules out."""

    def rules(self, words: Tensor, lengths: Tensor | None = None) -> Rules:
        raise NotImplementedError

    def objective(self, words: Tensor, lengths: Tensor) -> Tensor:
        return self.log_likelihood(words, lengths)

    def log_likelihood(self, words: Tensor, lengths: Tensor) -> Tensor:
        """log p(w) of each sentence, [b], differentiable."""
        return inside(self.rules(words, lengths), lengths)

    def parse(self, words: Tensor, lengths: Tensor, decoder: str = "mbr") -> list[Parse]:
        """One tree for each sentence; `decoder` as in `nbl.families.decode`."""
        with torch.no_grad():
            rules = self.rules(words, lengths)
        return decode(rules, lengths, decoder)

    def initialise(self) -> None:
        """Xavier-uniform on every matrix, embedding tables included; biases keep torch's default."""
        for parameter in self.parameters():
            if parameter.dim() >= 2:
                nn.init.xavier_uniform_(parameter)


class CompoundGrammar(Grammar):
    """A grammar whose rules depend on an embedding z of the sentence, with prior N(0, I).

    Without an inference network z is empty: [1, 0] instead of [b, z_dim], the same code for all
    sentences at once. In training z is one sample of q(z|w), in evaluation the mean of q(z|w), as in
    the released code.
    """

    def __init__(self, inference: InferenceNetwork | None):
        super().__init__()
        self.inference = inference
        self.z_dim = inference.z_dim if inference else 0

    def rules_given(self, words: Tensor, z: Tensor) -> Rules:
        """The rules for these sentences given z [1|b, z_dim]."""
        raise NotImplementedError

    def rules(self, words: Tensor, lengths: Tensor | None = None) -> Rules:
        z, _ = self.infer(words, lengths)
        return self.rules_given(words, z)

    def log_likelihood(self, words: Tensor, lengths: Tensor) -> Tensor:
        """log p(w|z) - KL(q(z|w) || p(z)) of each sentence, [b], differentiable.

        In training it is an unbiased estimate of the evidence lower bound of log p(w). In
        evaluation, where z is the mean, it is what the released code reports, but no bound.
        """
        z, KL = self.infer(words, lengths)
        return inside(self.rules_given(words, z), lengths) - KL

    def infer(self, words: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        """z [1|b, z_dim] and KL(q(z|w) || p(z)) [1|b]."""
        if self.inference is None:
            like = next(self.parameters())
            return like.new_zeros(1, 0), like.new_zeros(1)
        mean, log_variance = self.inference(words, lengths)
        KL = 0.5 * (mean.square() + log_variance.exp() - log_variance - 1).sum(1)
        if not self.training:
            return mean, KL
        noise = torch.randn(mean.shape, generator=self.generator, dtype=mean.dtype, device=mean.device)
        return mean + (0.5 * log_variance).exp() * noise, KL


class InferenceNetwork(nn.Module):
    """q(z|w), a diagonal Gaussian: word embeddings, one LSTM in each direction, maximum over time, linear."""

    def __init__(self, vocab_size: int, z_dim: int, h_dim: int, w_dim: int):
        super().__init__()
        self.z_dim = z_dim
        self.w_w = table(vocab_size, w_dim)
        self.forwards, self.backwards = LSTM(w_dim, h_dim), LSTM(w_dim, h_dim)
        self.output = nn.Linear(2 * h_dim, 2 * z_dim)

    def forward(self, words: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of z, each [b, z_dim]; all sentences have l words if lengths is None.

        Each sentence is turned round in place of packing it, which needs the lengths on the host.
        """
        i = torch.arange(words.shape[1], device=words.device)
        last = i[-1:] if lengths is None else lengths[:, None] - 1
        turned = (last - i).clamp(min=0).expand_as(words)
        padding = (i > last)[..., None]
        w = F.embedding(words, self.w_w)
        states = []
        for lstm, order in ((self.forwards, w), (self.backwards, w.take_along_dim(turned[..., None], 1))):
            states.append(lstm(order).masked_fill(padding, -torch.inf).amax(1))
        mean, log_variance = self.output(torch.cat(states, 1)).chunk(2, 1)
        return mean, log_variance
