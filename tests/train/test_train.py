"""Training: the same bytes from the same seed, what is trained on, what is kept, what is told."""

import io
import itertools
import json
import math
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console
from tiny_runs import call
from tiny_training import CPU, TINY, Notices, Unigram, config_of, made_up, trained
from torch import nn

import nbl.files
import nbl.run
import nbl.train
from nbl import models
from nbl.commands.common import Progress
from nbl.commands.training import Epochs
from nbl.corpus.batches import shuffled_batches
from nbl.decode import Parse
from nbl.optimiser import clipped_step
from nbl.run import Run
from nbl.run_folder import RunFolder
from nbl.train import train

# --- the same bytes


def test_same_seed_same_bytes_other_seed_other_model(corpus, tmp_path):
    first = trained(corpus, tmp_path / "a", *TINY)
    torch.manual_seed(77)  # the state of the global generator is nobody's business
    assert trained(corpus, tmp_path / "b", *TINY) == first
    assert trained(corpus, tmp_path / "c", *TINY, seed=1) != first


def test_seed_reaches_initialisation_order_and_samples(corpus, tmp_path):
    settings = ("NT=1", "dim=2", "z_dim=2", "h_dim=2", "w_dim=2")
    runs = [
        Run(config_of(corpus, *settings, model="cpcfg", seed=seed), tmp_path / str(k), CPU)
        for k, seed in enumerate((0, 0, 1))
    ]
    words, lengths = torch.tensor([[1, 2, 3]]), torch.tensor([3])
    starts = [torch.cat([p.flatten() for p in run.model.parameters()]) for run in runs]
    samples = [run.model.train().infer(words, lengths)[0] for run in runs]
    assert torch.equal(starts[0], starts[1])
    assert not torch.equal(starts[0], starts[2])
    assert torch.equal(samples[0], samples[1])
    assert not torch.equal(runs[0].z.get_state(), runs[2].z.get_state())
    assert not torch.equal(samples[0], runs[0].model.infer(words, lengths)[0])


def test_order_differs_between_epochs_and_seeds(corpus, tmp_path, unigram):
    for seed in (0, 1):
        trained(corpus, tmp_path / str(seed), "epochs=2", seed=seed)
    steps = len(unigram[0].seen) // 2
    epochs = [model.seen[k : k + steps] for model in unigram for k in (0, steps)]
    orders = [[words.tolist() for words in epoch] for epoch in epochs]
    assert all(a != b for k, a in enumerate(orders) for b in orders[:k])
    # Each epoch has every sentence once.
    expected = sorted(sentence.ids for sentence in corpus.train)
    assert all(sorted(ids for batch in order for ids in batch) == expected for order in orders)


# --- what is trained on, what is kept


def test_curriculum_and_longest_sentence(corpus, tmp_path, unigram):
    trained(corpus, tmp_path, "epochs=3", "curriculum=4", "max_length=5")
    lengths = [words.shape[1] for words in unigram[0].seen]
    for epoch, longest in ((1, 4), (2, 5), (3, 5)):
        here = sum(2 <= len(sentence) <= longest for sentence in corpus.train)
        taken = 0
        while taken < here:
            assert 2 <= lengths[0] <= longest
            taken += len(unigram[0].seen[0])
            del lengths[0], unigram[0].seen[0]
        assert taken == here, epoch
    assert not lengths


def test_batch_size(corpus, tmp_path, unigram):
    trained(corpus, tmp_path, "epochs=1", "batch_size=3")
    assert max(len(words) for words in unigram[0].seen) == 3


def scripted(monkeypatch, perplexities):
    """A model whose dev perplexity after each epoch is given; its parameter counts the epochs."""

    class Scripted(Unigram):
        epoch = 0

        def train(self, mode=True):
            if self.training and not mode:
                self.epoch += 1
                with torch.no_grad():
                    self.logits[0] = self.epoch
            return super().train(mode)

        def objective(self, words, lengths):
            if self.training:
                return super().objective(words, lengths)
            return -math.log(perplexities[self.epoch - 1]) * (lengths + 1)

    monkeypatch.setattr(nbl.run, "build", lambda name, vocab_size, **sizes: Scripted(vocab_size))


@pytest.mark.parametrize(
    ("perplexities", "patience", "epochs", "best"),
    [
        ([9, 8, 7, 6], 2, 4, 4),
        ([9, 7, 8, 7, 6], 2, 4, 2),  # as good as the best is not better
        ([9, 7, 8, 6, 7, 8, 5], 2, 6, 4),
        ([9, 10, 8, 11], 1, 2, 1),
    ],
)
def test_patience_and_the_best_model(corpus, tmp_path, monkeypatch, perplexities, patience, epochs, best):
    scripted(monkeypatch, perplexities)
    trained(corpus, tmp_path, f"epochs={len(perplexities)}", f"patience={patience}")
    history = RunFolder(tmp_path).history
    assert [row["dev_perplexity"] for row in history] == pytest.approx(perplexities[:epochs], rel=1e-6)
    checkpoint = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert (checkpoint["epoch"], checkpoint["model"]["logits"][0].item()) == (best, best)
    assert checkpoint["dev_perplexity"] == pytest.approx(perplexities[best - 1], rel=1e-6)


def test_without_dev_the_last_epoch_is_kept(tmp_path, unigram):
    corpus = made_up(tmp_path / "corpus", dev=0)
    progress = Notices()
    trained(corpus, tmp_path / "run", "epochs=3", "patience=1", progress=progress)
    assert "no dev sentences" in progress.texts[0]
    checkpoint = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)
    assert (checkpoint["epoch"], checkpoint["dev_perplexity"]) == (3, None)
    assert torch.equal(checkpoint["model"]["logits"], unigram[0].logits)
    assert RunFolder(tmp_path / "run").history[-1]["dev_f1"] is None


def test_history(corpus, tmp_path, unigram, monkeypatch):
    monkeypatch.setattr(nbl.train, "time", SimpleNamespace(monotonic=itertools.count().__next__))
    trained(corpus, tmp_path, "epochs=1", "lr=1e-9", "clip=1e-9")  # parameters that stay
    (row,) = RunFolder(tmp_path).history
    header = (tmp_path / "history.csv").read_text().split("\n")[0]
    assert header == (
        "epoch,train_loss,train_perplexity,dev_perplexity,dev_f1,test_f1,left_branching,right_branching,"
        "seconds,sentences_per_second,peak_memory_mb"
    )
    log_p = unigram[0].logits.detach().log_softmax(0).tolist()
    nats = [[-sum(log_p[k] for k in s.ids) for s in part] for part in (corpus.train, corpus.dev)]
    ends = [sum(len(s) + 1 for s in part) for part in (corpus.train, corpus.dev)]
    assert row["train_loss"] == pytest.approx(sum(nats[0]) / len(corpus.train), rel=1e-5)
    assert row["train_perplexity"] == pytest.approx(math.exp(sum(nats[0]) / ends[0]), rel=1e-5)
    assert row["dev_perplexity"] == pytest.approx(math.exp(sum(nats[1]) / ends[1]), rel=1e-5)
    # Right-branching trees; the gold ones have (1, l), one of l - 2 predicted spans.
    f1 = [1.0 if len(s) == 2 else 2 / (len(s) - 1) for s in corpus.dev]
    assert row["dev_f1"] == pytest.approx(100 * sum(f1) / len(f1), abs=1e-3)
    assert (row["left_branching"], row["right_branching"]) == (0, 100)
    assert row["seconds"] >= len(corpus.train) / 8  # each step looked at the clock
    assert row["sentences_per_second"] == pytest.approx(60 / row["seconds"], abs=1e-3)
    assert row["peak_memory_mb"] > 10


def test_trees_only_of_the_first_dev_sentences_that_have_any(corpus, tmp_path, unigram, monkeypatch):
    monkeypatch.setattr(nbl.train, "WATCHED_TREES", 3)
    parsed = []

    def parse(self, words, lengths, decoder):
        parsed.extend(words.tolist())
        return [Parse([(0, j, None) for j in range(2, n + 1)], None, 0.0) for n in lengths.tolist()]

    monkeypatch.setattr(Unigram, "parse", parse)
    dev = [replace(corpus.dev[0], spans=None), *corpus.dev[1:]]
    train(config_of(corpus, "epochs=1"), replace(corpus, dev=dev), tmp_path, device="cpu")
    assert sorted(parsed) == sorted(sentence.ids for sentence in dev[1:4])
    assert RunFolder(tmp_path).history[0]["left_branching"] == 100


def test_trees_of_the_test_part_where_dev_has_none(corpus, tmp_path, unigram):
    plain = [replace(sentence, spans=None) for sentence in corpus.dev]
    test = [corpus.dev[0], replace(corpus.dev[1], spans=None), *corpus.dev[2:]]
    train(config_of(corpus, "epochs=1", "max_length=6"), replace(corpus, dev=plain, test=test), tmp_path, device="cpu")
    (row,) = RunFolder(tmp_path).history
    f1 = [1.0 if len(s) == 2 else 2 / (len(s) - 1) for s in test if s.spans and len(s) <= 6]
    assert row["test_f1"] == pytest.approx(100 * sum(f1) / len(f1), abs=1e-3)
    assert row["dev_f1"] is None
    assert row["right_branching"] == 100


def test_a_grammar_learns_and_can_be_loaded(corpus, tmp_path):
    trained(corpus, tmp_path, "NT=2", "d_H=8", "dim=16", "epochs=4", "lr=0.01")
    history = RunFolder(tmp_path).history
    assert history[-1]["train_perplexity"] < 0.9 * history[0]["train_perplexity"]
    model = models.load(tmp_path)
    best = min(row["dev_perplexity"] for row in history)
    log_p = [model.log_likelihood(torch.tensor([s.ids]), torch.tensor([len(s)])).item() for s in corpus.dev]
    assert math.exp(-sum(log_p) / sum(len(s) + 1 for s in corpus.dev)) == pytest.approx(best, rel=1e-5)


# --- parts


def test_clipped_step_is_clipping_and_adam():
    generator = torch.Generator().manual_seed(0)
    start = [torch.randn(5, 3, generator=generator), torch.randn(4, generator=generator)]
    ours, theirs = ([nn.Parameter(p.clone()) for p in start] for _ in range(2))
    options = {"lr": 0.01, "betas": (0.75, 0.999)}
    fused = torch.optim.Adam(ours, **options, fused=True)
    plain = torch.optim.Adam(theirs, **options, fused=False, foreach=False)
    clipped = []
    for step in range(20):
        gradients = [(0.3 if step % 2 else 3) * torch.randn(p.shape, generator=generator) for p in start]
        for parameters in (ours, theirs):
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient.clone()
        expected = torch.nn.utils.clip_grad_norm_(theirs, 3.0)
        plain.step()
        norm = clipped_step(fused, 3.0)
        torch.testing.assert_close(norm, expected)
        clipped.append(bool(norm > 3))
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)
    assert any(clipped)
    assert not all(clipped)


# --- the command


def command_line(corpus_folder, out, *settings):
    options = ["--corpus-dir", str(corpus_folder), "--model", "nblpcfg", "--out", str(out), "--device", "cpu"]
    return ["train", *options, *(word for setting in settings for word in ("--set", setting))]


def test_command_tells_each_epoch_and_the_best(corpus, tmp_path):
    made_up(tmp_path / "corpus")
    command = command_line(tmp_path / "corpus", tmp_path / "run", *TINY)
    code, out, err = call(*command)
    assert code == 0, err
    assert [line.split(":")[0] for line in err.splitlines()] == ["epoch 1", "epoch 2"]
    assert out.startswith(f"{tmp_path / 'run'}: 2 epochs, kept epoch ")
    assert "dev perplexity" in out

    _, out, err = call(*command, "--json")
    assert err == ""
    told = json.loads(out)
    history = RunFolder(tmp_path / "run").history
    assert (told["run"], told["epochs"]) == (str(tmp_path / "run"), 2)
    assert told["best"] == min(history, key=lambda row: row["dev_perplexity"])


def test_lines_come_at_most_every_few_seconds(corpus, tmp_path, monkeypatch):
    made_up(tmp_path / "corpus")
    monkeypatch.setattr(nbl.train, "LOOK_STEPS", 1)
    counts = []
    for seconds in (0.0, 1000.0):
        monkeypatch.setattr("nbl.commands.common.LINE_SECONDS", seconds)
        command = command_line(tmp_path / "corpus", tmp_path / str(seconds), *TINY)
        counts.append(len(call(*command)[2].splitlines()))
    steps = len(shuffled_batches([len(s) for s in corpus.train], 8, 40, torch.Generator()))
    assert counts == [2 * steps + 2, 2]


def test_bar_on_a_terminal(corpus, tmp_path, unigram):
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    shown = Epochs(Progress(console=console))
    with shown.progress.bar as bar:
        trained(corpus, tmp_path, "epochs=2", progress=shown)
        (task,) = bar.tasks
        assert task.completed == task.total == 2 * shown.steps
        assert task.description == "epoch 2 of 2"
    assert "epoch 1: train perplexity" in console.file.getvalue()


def test_sigterm_ends_the_command_with_143(tmp_path):
    made_up(tmp_path / "corpus")
    out = tmp_path / "run"
    command = command_line(tmp_path / "corpus", out, *TINY[:-1], "epochs=1000", "patience=1000")
    process = subprocess.Popen(
        [sys.executable, "-c", "from nbl.cli import main; main()", *command], stderr=subprocess.PIPE, text=True
    )
    try:
        while not (out / "checkpoint.pt").exists() and process.poll() is None:
            time.sleep(0.01)
        process.terminate()
        _, told = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 143
    assert told.splitlines()[-1] == (f"nbl: interrupted by SIGTERM; the same command resumes {out}")
    assert (out / "resume.pt").exists()
