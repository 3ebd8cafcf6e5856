"""Training that is stopped, killed, refused or in trouble: nothing is lost, and it ends with the same bytes."""

import errno
import math
import multiprocessing
import random
import signal
import time
from dataclasses import replace

import pytest
import torch
import yaml
from tiny_training import CPU, TINY, Notices, Signal, Unigram, config_of, made_up, trained

import nbl.files
import nbl.run
import nbl.train
from nbl.errors import UserError
from nbl.process import Interrupted
from nbl.run import Run, remove_other_run
from nbl.run_folder import COLUMNS, RunFolder
from nbl.train import Progress, train

# --- stopped and taken up again


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("nblpcfg", TINY),
        ("cpcfg", ["NT=2", "dim=4", "z_dim=2", "h_dim=3", "w_dim=3", "epochs=2", "curriculum=5"]),
        ("nlpcfg", ["NT=1", "dim=4", "compound=true", "z_dim=2", "h_dim=3", "w_dim=3", "epochs=2"]),
        ("structformer", ["dim=4", "layers=2", "heads=2", "convolutions=1", "epochs=2", "batch_size=4"]),
        ("sdiora", ["dim=4", "soft_epochs=1", "epochs=2", "batch_size=4"]),
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
    wholly, again = (RunFolder(tmp_path / name).history for name in ("whole", "stopped"))
    timeless = set(COLUMNS) - {"seconds", "sentences_per_second", "peak_memory_mb"}
    for a, b in zip(wholly, again, strict=True):
        assert {name: a[name] for name in timeless} == {name: b[name] for name in timeless}


def test_signal_during_the_evaluation_is_heard(corpus, tmp_path, unigram):
    class DuringDev(Progress):
        def begin_dev(self, run):
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Interrupted):
        trained(corpus, tmp_path / "stopped", "epochs=2", progress=DuringDev())
    assert not RunFolder(tmp_path / "stopped").history
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
    assert len(RunFolder(out).history) == 1
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
        monkeypatch.setattr("nbl.process.commit_of", lambda root, commit=commit: commit)
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


def test_a_run_is_never_thrown_away_for_the_place_it_was_trained_at(corpus, tmp_path, monkeypatch, unigram):
    """A GPU that is missing today, or other threads: even with --replace the state stays."""
    monkeypatch.setattr(nbl.train, "LOOK_STEPS", 1)
    with pytest.raises(Interrupted):
        trained(corpus, tmp_path, progress=Signal(signal.SIGTERM, 1))
    config = config_of(corpus)
    for moved, told in (
        (replace(config, device="cuda"), "device is 'cpu' there"),
        (replace(config, threads=2), "threads"),
    ):
        with pytest.raises(UserError, match=told):
            remove_other_run(moved, tmp_path)
    assert (tmp_path / "resume.pt").exists()
    assert remove_other_run(replace(config, seed=7), tmp_path)
    assert not (tmp_path / "resume.pt").exists()


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
    with pytest.raises(UserError, match=rf"cannot resume from {path} .*delete the folder {tmp_path}"):
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
        def objective(self, words, lengths):
            log_p = super().objective(words, lengths)
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
    def objective(self, words, lengths):
        log_p = self.logits.log_softmax(0)[words].sum(1)
        return log_p if self.training else log_p - math.inf

    monkeypatch.setattr(Unigram, "objective", objective)
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


def test_signals_are_let_through_after_training(corpus, tmp_path, unigram):
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    trained(corpus, tmp_path, "epochs=1")
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
