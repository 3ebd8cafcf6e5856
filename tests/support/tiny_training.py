"""Training on random sentences, of small grammars or of no grammar at all."""

import random
import signal

import torch
from torch import nn

from nbl.corpus.folder import Raw, Source, read_corpus, write_corpus
from nbl.decode import Parse
from nbl.models.base import System
from nbl.run_folder import make_config
from nbl.sentence import Sentence, Span
from nbl.train import Progress, train

CPU = torch.device("cpu")
TINY = ["NT=2", "d_H=4", "dim=6", "epochs=2"]


def made_up(folder, train=60, dev=12, longest=7):
    """A corpus of random sentences of 2 to `longest` words with flat trees over a right branch."""
    random_ = random.Random(0)

    def raw(split, k):
        l = random_.randint(2, longest)
        spans = [Span(0, l, "S"), Span(1, l, "VP")] if l > 2 else [Span(0, l, "S")]
        words = random_.choices("abcdefgh", weights=range(1, 9), k=l)
        return Raw(Sentence(f"{split}.{k}", words, spans=spans), [])

    counts = {"train": train, "dev": dev, "test": 0}
    splits = {split: [raw(split, k) for k in range(n)] for split, n in counts.items()}
    write_corpus(Source("made-up", splits, "0"), folder)
    return read_corpus(folder)


def config_of(corpus, *assignments, model="nblpcfg", seed=0):
    return make_config(model, assignments, corpus, seed=seed, threads=1, device="cpu")


def trained(corpus, out, *assignments, model="nblpcfg", seed=0, **options):
    """Train; give the bytes of the checkpoint."""
    train(config_of(corpus, *assignments, model=model, seed=seed), corpus, out, device="cpu", **options)
    return (out / "checkpoint.pt").read_bytes()


class Unigram(System):
    """Words without a grammar: quick to train. Parses branch to the right."""

    def __init__(self, vocab_size):
        super().__init__()
        self.logits = nn.Parameter(torch.randn(vocab_size))
        self.seen = []  # the words of each batch in training

    def objective(self, words, lengths):
        if self.training:
            self.seen.append(words)
        return self.logits.log_softmax(0)[words].sum(1)

    def parse(self, words, lengths, decoder):
        assert decoder == "mbr"
        return [Parse([(i, n, None) for i in range(n - 1)], None, 0.0) for n in lengths.tolist()]


class Signal(Progress):
    """Sends this process a signal after some looks."""

    def __init__(self, number, looks):
        self.number, self.looks = number, looks

    def advance(self, run, loss, sentences_per_second):
        self.looks -= 1
        if self.looks == 0:
            signal.raise_signal(self.number)


class Notices(Progress):
    def __init__(self):
        self.texts = []

    def notice(self, text):
        self.texts.append(text)
