"""Training: the same bytes from the same seed, whatever happens on the way."""

import errno
import io
import json
import math
import multiprocessing
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch
import typer
import yaml
from rich.console import Console
from torch import nn
from typer.testing import CliRunner

import nbl.files
import nbl.run
import nbl.train
from nbl import models
from nbl.commands.train import Bar
from nbl.commands.train import train as train_command
from nbl.config import make_config
from nbl.corpus.batches import shuffled_batches
from nbl.corpus.clean import Span
from nbl.corpus.folder import Raw, Source, read_corpus, write_corpus
from nbl.corpus.sentence import Sentence
from nbl.decode.parse import Parse
from nbl.device import device_type, first_free, use_device
from nbl.errors import UserError
from nbl.run import COLUMNS, Run, read_history
from nbl.signals import Interrupted
from nbl.train import Progress, clipped_step, train

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


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return made_up(tmp_path_factory.mktemp("corpus"))


def config_of(corpus, *assignments, model="nblpcfg", seed=0):
    return make_config(model, assignments, corpus, seed=seed, threads=1, device="cpu")


def trained(corpus, out, *assignments, model="nblpcfg", seed=0, **options):
    """Train; give the bytes of the checkpoint."""
    train(config_of(corpus, *assignments, model=model, seed=seed), corpus, out, device="cpu", **options)
    return (out / "checkpoint.pt").read_bytes()


class Unigram(nn.Module):
    """Words without a grammar: quick to train. Parses branch to the right."""

    def __init__(self, vocab_size):
        super().__init__()
        self.logits = nn.Parameter(torch.randn(vocab_size))
        self.seen = []  # the words of each batch in training

    def log_likelihood(self, words, lengths):
        if self.training:
            self.seen.append(words)
        return self.logits.log_softmax(0)[words].sum(1)

    def parse(self, words, lengths, decoder):
        assert decoder == "mbr"
        return [Parse([(i, n, None) for i in range(n - 1)], None, 0.0) for n in lengths.tolist()]


@pytest.fixture
def unigram(monkeypatch):
    """Every model is a unigram model; those built are listed."""
    built = []

    def build(name, vocab_size, **sizes):
        built.append(Unigram(vocab_size))
        return built[-1]

    monkeypatch.setattr(nbl.run, "build", build)
    return built


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


# --- stopped and taken up again


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("nblpcfg", TINY),
        ("cpcfg", ["NT=2", "dim=4", "z_dim=2", "h_dim=3", "w_dim=3", "epochs=2", "curriculum=5"]),
        ("nlpcfg", ["NT=1", "dim=4", "compound=true", "z_dim=2", "h_dim=3", "w_dim=3", "epochs=2"]),
    ],
)
def test_resumed_within_an_epoch_is_bit_identical(corpus, tmp_path, monkeypatch, model, settings):
    expected = trained(corpus, tmp_path / "whole", *settings, model=model)
    monkeypatch.setattr(nbl.train, "LOOK_STEPS", 2)
    stopped = tmp_path / "stopped"
    for number, looks in ((signal.SIGINT, 2), (signal.SIGTERM, 1), (signal.SIGINT, 6)):
        with pytest.raises(Interrupted) as stop:
            trained(corpus, stopped, *settings, model=model, progress=Signal(number, looks))
        assert stop.value.exit_code == 128 + number
    assert trained(corpus, stopped, *settings, model=model) == expected
    wholly, again = (read_history(tmp_path / name / "history.csv") for name in ("whole", "stopped"))
    timeless = set(COLUMNS) - {"seconds", "sentences_per_second", "peak_memory_mb"}
    for a, b in zip(wholly, again, strict=True):
        assert {name: a[name] for name in timeless} == {name: b[name] for name in timeless}


def test_signal_during_the_evaluation_is_heard(corpus, tmp_path, unigram):
    class DuringDev(Progress):
        def begin_dev(self, run):
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Interrupted):
        trained(corpus, tmp_path / "stopped", "epochs=2", progress=DuringDev())
    assert not read_history(tmp_path / "stopped" / "history.csv")
    trained(corpus, tmp_path / "stopped", "epochs=2")
    assert len(unigram[0].seen) * 2 == len(unigram[0].seen) + len(unigram[1].seen)  # no step twice


def test_killed_at_any_moment_it_ends_bit_identical(tmp_path):
    corpus = made_up(tmp_path / "corpus", train=20, dev=4, longest=5)
    settings = [*TINY, "batch_size=2"]
    expected = trained(corpus, tmp_path / "whole", *settings)
    context = multiprocessing.get_context("forkserver")  # a process from it need not import torch anew
    context.set_forkserver_preload(["nbl.train", "torch._dynamo"])
    out = tmp_path / "killed"
    delay = random.Random(0)
    done = []
    for saves in (1, 2, 4, 3, 2, 3):
        child = context.Process(
            target=train,
            args=(config_of(corpus, *settings), corpus, out),
            kwargs={"device": "cpu", "save_seconds": 0.0},  # save after each step
        )
        versions = {_version(out / "resume.pt")}
        child.start()
        while len(versions) <= saves and child.is_alive():
            time.sleep(0.001)
            versions.add(_version(out / "resume.pt"))
        time.sleep(delay.uniform(0, 0.03))  # into the next step, or into writing the next file
        child.kill()
        child.join()
        state = torch.load(out / "resume.pt", weights_only=True)
        done.append((len(state["history"]), state["step"]))
    assert done == sorted(done)
    assert len(set(done)) >= 4  # it did get on between the kills
    assert trained(corpus, out, *settings) == expected
    files = ["checkpoint.pt", "config.yaml", "history.csv", "vocab.txt"]
    assert sorted(path.name for path in out.iterdir()) == files


def _version(path):
    try:
        return path.stat().st_ino, path.stat().st_mtime_ns
    except FileNotFoundError:
        return None


def test_goes_on_where_a_workflow_removed_the_outputs(corpus, tmp_path, monkeypatch):
    expected = trained(corpus, tmp_path / "whole", *TINY)
    monkeypatch.setattr(nbl.train, "LOOK_STEPS", 3)
    out = tmp_path / "stopped"
    with pytest.raises(Interrupted):
        trained(corpus, out, *TINY, progress=Signal(signal.SIGTERM, 6))
    assert len(read_history(out / "history.csv")) == 1
    for name in ("config.yaml", "history.csv", "checkpoint.pt"):
        (out / name).unlink()
    with pytest.raises(UserError, match=r"resume\.pt belongs to another run \(seed is 0 there, 1 here\)"):
        trained(corpus, out, *TINY, seed=1)
    assert trained(corpus, out, *TINY) == expected


def test_a_finished_run_whose_files_a_workflow_removed_is_not_trained_again(corpus, tmp_path, unigram):
    out = tmp_path / "run"
    expected = trained(corpus, out, "epochs=2", keep_state=True)
    files = {path.name: path.read_bytes() for path in out.iterdir() if path.name != "finished.pt"}
    assert set(files) == {"config.yaml", "history.csv", "checkpoint.pt", "vocab.txt"}
    for name in files:
        (out / name).unlink()
    assert trained(corpus, out, "epochs=2", keep_state=True) == expected
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.name != "finished.pt"} == files
    assert not unigram[1].seen
    (out / "vocab.txt").unlink()
    trained(corpus, out, "epochs=2")
    assert (out / "vocab.txt").read_bytes() == files["vocab.txt"]
    for name in files:
        (out / name).unlink()
    with pytest.raises(UserError, match=r"belongs to another run \(seed is 0 there, 1 here\)"):
        trained(corpus, out, "epochs=2", seed=1)


def test_each_environment_of_a_run_is_recorded_once(corpus, tmp_path, monkeypatch, unigram):
    out = tmp_path / "run"
    monkeypatch.setattr(nbl.train, "LOOK_STEPS", 1)
    for commit in ("old", "old", "new"):
        monkeypatch.setattr("nbl.config._commit", lambda commit=commit: commit)
        with pytest.raises(Interrupted):
            trained(corpus, out, "epochs=2", progress=Signal(signal.SIGTERM, 1))
    environments = yaml.safe_load((out / "config.yaml").read_text())["environments"]
    assert [here["commit"] for here in environments] == ["old", "new"]


def test_finished_run_returns_at_once(corpus, tmp_path, unigram):
    first = trained(corpus, tmp_path, "epochs=2")
    progress = Notices()
    history = train(config_of(corpus, "epochs=2"), corpus, tmp_path, device="cpu", progress=progress)
    assert len(unigram) == 1
    assert progress.texts == [f"{tmp_path} holds this run, finished: nothing to do"]
    assert [row["epoch"] for row in history] == [1, 2]
    assert (tmp_path / "checkpoint.pt").read_bytes() == first


# --- refusals


def test_another_configuration_is_refused(corpus, tmp_path, unigram):
    trained(corpus, tmp_path, "epochs=1")
    with pytest.raises(UserError, match=r"training\.lr is 0\.001 there, 0\.01 here"):
        trained(corpus, tmp_path, "epochs=1", "lr=0.01")
    other = replace(corpus, stats=corpus.stats | {"files": {"train.jsonl": "other"}})
    with pytest.raises(UserError, match=r"config\.yaml belongs to another run \(corpus\.sha256"):
        trained(other, tmp_path, "epochs=1")


@pytest.mark.parametrize("damage", ["half", "flipped", "empty", "something else"])
def test_damaged_resume_is_named_and_refused(corpus, tmp_path, monkeypatch, unigram, damage):
    monkeypatch.setattr(nbl.train, "LOOK_STEPS", 1)
    with pytest.raises(Interrupted):
        trained(corpus, tmp_path, progress=Signal(signal.SIGTERM, 1))
    path = tmp_path / "resume.pt"
    whole = bytearray(path.read_bytes())
    if damage == "half":
        path.write_bytes(whole[: len(whole) // 2])
    elif damage == "flipped":
        at = whole.index(unigram[0].logits.detach().numpy().tobytes())
        whole[at] ^= 1
        path.write_bytes(whole)
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        torch.save({"model": {}}, path)
    with pytest.raises(UserError, match=rf"cannot go on from {path} .*delete the folder {tmp_path}"):
        trained(corpus, tmp_path)


def test_damaged_config_is_named_and_refused(corpus, tmp_path, unigram):
    trained(corpus, tmp_path, "epochs=1")
    (tmp_path / "config.yaml").write_text("model: [")
    with pytest.raises(UserError, match=r"config\.yaml is damaged"):
        trained(corpus, tmp_path, "epochs=1")


def test_nothing_to_train_on_is_refused(tmp_path):
    corpus = made_up(tmp_path / "corpus", train=3)
    corpus.train = [sentence for sentence in corpus.train if len(sentence) > 2]
    with pytest.raises(UserError, match="no training sentence has 2 to 2 words"):
        trained(corpus, tmp_path / "run", "max_length=2")
    assert not (tmp_path / "run").exists()


# --- trouble on the way


@pytest.mark.parametrize("what", ["loss is nan", "gradient's norm is nan"])
def test_a_loss_or_gradient_that_is_not_finite_names_its_sentences(corpus, tmp_path, monkeypatch, unigram, what):
    class Breaking(Unigram):
        def log_likelihood(self, words, lengths):
            log_p = super().log_likelihood(words, lengths)
            if self.training and len(self.seen) == 5 + steps:
                return log_p * math.nan if "loss" in what else log_p + (0 * self.logits).sum().sqrt()
            return log_p

    trained(corpus, tmp_path / "sound", "epochs=2")
    steps = len(unigram[0].seen) // 2
    breaking = Breaking(len(corpus.vocabulary))
    monkeypatch.setattr(nbl.run, "build", lambda name, vocab_size, **sizes: breaking)
    with pytest.raises(UserError) as stop:
        trained(corpus, tmp_path / "run", "epochs=2")
    message = str(stop.value)
    assert message.startswith(f"epoch 2, batch 5: the {what} (sentences train.")
    named = message.split("(sentences ")[1].split(")")[0].split(", ")
    ids = {sentence.id: sentence.ids for sentence in corpus.train}
    assert [ids[name] for name in named] == breaking.seen[steps + 5 - 1].tolist()

    # The last good state is that of the first epoch's end.
    monkeypatch.setattr(nbl.run, "build", lambda name, vocab_size, **sizes: Unigram(vocab_size))
    run = Run(config_of(corpus, "epochs=2"), tmp_path / "run", CPU)
    assert (run.epoch, run.step) == (2, 0)
    best = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["model"]["logits"]
    assert best.isfinite().all()
    assert torch.equal(run.model.logits, best)


def test_a_dev_sentence_without_probability_stops_the_run(corpus, tmp_path, unigram, monkeypatch):
    def log_likelihood(self, words, lengths):
        log_p = self.logits.log_softmax(0)[words].sum(1)
        return log_p if self.training else log_p - math.inf

    monkeypatch.setattr(Unigram, "log_likelihood", log_likelihood)
    with pytest.raises(UserError, match=r"epoch 1: a log p is not finite in dev sentences dev\."):
        trained(corpus, tmp_path)


def test_full_disk_is_one_sentence_and_loses_nothing(corpus, tmp_path, monkeypatch):
    expected = trained(corpus, tmp_path / "whole", *TINY)
    out = tmp_path / "run"
    writes = []

    def fsync(handle):
        writes.append(handle)
        if len(writes) > 6:  # the beginning and the first epoch's end: resume.pt, config, history, checkpoint
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(nbl.files.os, "fsync", fsync)
        with pytest.raises(UserError, match=r"^cannot write .*: No space left on device"):
            trained(corpus, out, *TINY)
    assert torch.load(out / "resume.pt", weights_only=True)["history"][0]["epoch"] == 1
    assert not list(out.glob(".*"))
    assert trained(corpus, out, *TINY) == expected


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

        def log_likelihood(self, words, lengths):
            if self.training:
                return super().log_likelihood(words, lengths)
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
    history = read_history(tmp_path / "history.csv")
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
    assert read_history(tmp_path / "run" / "history.csv")[-1]["dev_f1"] is None


def test_history(corpus, tmp_path, unigram):
    trained(corpus, tmp_path, "epochs=1", "lr=1e-9", "clip=1e-9")  # parameters that stay
    (row,) = read_history(tmp_path / "history.csv")
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
    assert row["sentences_per_second"] == pytest.approx(60 / row["seconds"], rel=0.2)
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
    assert read_history(tmp_path / "history.csv")[0]["left_branching"] == 100


def test_trees_of_the_test_part_where_dev_has_none(corpus, tmp_path, unigram):
    plain = [replace(sentence, spans=None) for sentence in corpus.dev]
    test = [corpus.dev[0], replace(corpus.dev[1], spans=None), *corpus.dev[2:]]
    train(config_of(corpus, "epochs=1", "max_length=6"), replace(corpus, dev=plain, test=test), tmp_path, device="cpu")
    (row,) = read_history(tmp_path / "history.csv")
    f1 = [1.0 if len(s) == 2 else 2 / (len(s) - 1) for s in test if s.spans and len(s) <= 6]
    assert row["test_f1"] == pytest.approx(100 * sum(f1) / len(f1), abs=1e-3)
    assert row["dev_f1"] is None
    assert row["right_branching"] == 100


def test_a_grammar_learns_and_can_be_loaded(corpus, tmp_path):
    trained(corpus, tmp_path, "NT=2", "d_H=8", "dim=16", "epochs=4", "lr=0.01")
    history = read_history(tmp_path / "history.csv")
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
        assert torch.equal(norm, expected)
        clipped.append(bool(norm > 3))
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)
    assert any(clipped)
    assert not all(clipped)


def test_devices():
    assert device_type("cpu") == "cpu"
    assert device_type("auto") == ("cuda" if torch.cuda.is_available() else "cpu")
    with use_device("cpu") as device:
        assert device == CPU
    for wrong in ("gpu", "cuda:", "cuda:x", "cpu:0", ""):
        with pytest.raises(UserError, match="unknown device"):
            device_type(wrong)
    with pytest.raises(UserError, match="there is no device 'cuda:99'"):
        device_type("cuda:99")


HOLD = """
import sys, time
from pathlib import Path
from nbl.device import first_free
with first_free(["one", "two"], Path(sys.argv[1]), poll_seconds=0.01) as position:
    print(position, flush=True)
    time.sleep(60)
"""


def test_processes_share_out_the_devices(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    holders = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        positions = [int(holder.stdout.readline()) for holder in holders]
        assert sorted(positions) == [0, 1]
        # A third one waits, until the second device's holder dies.
        told = []

        def kill_one(text):
            told.append(text)
            holders[positions.index(1)].kill()

        with first_free(["one", "two"], tmp_path, 0.01, notice=kill_one) as position:
            assert position == 1
        assert told == ["waiting for one of 2 GPUs, all in use by other runs"]
    finally:
        for holder in holders:
            holder.kill()
            holder.communicate()


TAKE_TURNS = """
import os, sys, time
from pathlib import Path
from nbl.device import first_free
folder = Path(sys.argv[1])
children = []
while len(children) < 6:
    children.append(os.fork())
    if children[-1] == 0:
        for _ in range(15):
            with first_free(["one", "two"], folder, poll_seconds=0.001) as position:
                taken = folder / f"taken{position}"
                taken.touch(exist_ok=False)
                time.sleep(0.003)
                taken.rename(folder / f"done.{position}.{os.getpid()}.{time.monotonic_ns()}")
        os._exit(0)
sys.exit(any([os.waitpid(child, 0)[1] for child in children]))
"""


def test_no_two_processes_have_one_device(tmp_path):
    """More processes than devices, each taking and releasing one again and again."""
    subprocess.run([sys.executable, "-c", TAKE_TURNS, str(tmp_path)], check=True)
    positions = [path.name.split(".")[1] for path in tmp_path.glob("done.*")]
    assert len(positions) == 6 * 15
    assert set(positions) == {"0", "1"}


def test_signals_are_let_through_after_training(corpus, tmp_path, unigram):
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    trained(corpus, tmp_path, "epochs=1")
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


# --- the command


def command_line(corpus_folder, out, *settings):
    options = ["--corpus-dir", str(corpus_folder), "--model", "nblpcfg", "--out", str(out), "--device", "cpu"]
    return [*options, *(word for setting in settings for word in ("--set", setting))]


def app():
    app = typer.Typer()
    app.command()(train_command)
    return app


def test_command_tells_each_epoch_and_the_best(corpus, tmp_path):
    made_up(tmp_path / "corpus")
    command = command_line(tmp_path / "corpus", tmp_path / "run", *TINY)
    result = CliRunner().invoke(app(), command)
    assert result.exit_code == 0, result.output
    assert [line.split(":")[0] for line in result.stderr.splitlines()] == ["epoch 1", "epoch 2"]
    assert result.stdout.startswith(f"{tmp_path / 'run'}: 2 epochs, kept epoch ")
    assert "dev perplexity" in result.stdout

    again = CliRunner().invoke(app(), [*command, "--json"])
    assert again.stderr == ""
    told = json.loads(again.stdout)
    history = read_history(tmp_path / "run" / "history.csv")
    assert (told["run"], told["epochs"]) == (str(tmp_path / "run"), 2)
    assert told["best"] == min(history, key=lambda row: row["dev_perplexity"])


def test_lines_come_at_most_every_few_seconds(corpus, tmp_path, monkeypatch):
    made_up(tmp_path / "corpus")
    monkeypatch.setattr(nbl.train, "LOOK_STEPS", 1)
    counts = []
    for seconds in (0.0, 1000.0):
        monkeypatch.setattr("nbl.commands.train.LINE_SECONDS", seconds)
        command = command_line(tmp_path / "corpus", tmp_path / str(seconds), *TINY)
        counts.append(len(CliRunner().invoke(app(), command).stderr.splitlines()))
    steps = len(shuffled_batches([len(s) for s in corpus.train], 8, 40, torch.Generator()))
    assert counts == [2 * steps + 2, 2]


def test_bar_on_a_terminal(corpus, tmp_path, unigram):
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    bar = Bar(console)
    with bar.bar:
        trained(corpus, tmp_path, "epochs=2", progress=bar)
        (task,) = bar.bar.tasks
        assert task.completed == task.total == 2 * bar.steps
        assert task.description == "epoch 2 of 2"
    assert "epoch 1: train perplexity" in console.file.getvalue()


RUN = """
import typer
from nbl.commands.train import train
app = typer.Typer()
app.command()(train)
app()
"""


def test_sigterm_ends_the_command_with_143(tmp_path):
    made_up(tmp_path / "corpus")
    out = tmp_path / "run"
    command = command_line(tmp_path / "corpus", out, *TINY[:-1], "epochs=1000", "patience=1000")
    process = subprocess.Popen([sys.executable, "-c", RUN, *command], stderr=subprocess.PIPE, text=True)
    try:
        while not (out / "checkpoint.pt").exists() and process.poll() is None:
            time.sleep(0.01)
        process.terminate()
        _, told = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 143
    assert told.splitlines()[-1] == (f"nbl: interrupted by SIGTERM; the same command goes on with {out}")
    assert (out / "resume.pt").exists()
