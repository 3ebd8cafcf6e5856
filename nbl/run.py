"""The state of a run in training: everything it needs to be resumed after a stop as if there had been none.

`resume.pt` holds all of it while the run is unfinished; the files for others, `config.yaml`, `history.csv` and
`checkpoint.pt` (the best model), are written from it. So they may go missing, as under a workflow that removes the
outputs of an interrupted job, and the run still resumes. A workflow that was itself interrupted removes those of a job
that has ended since: for it, the state may be kept as `finished.pt`.
"""

from __future__ import annotations

import io
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from nbl.errors import UserError
from nbl.files import replacing
from nbl.models import build, read_checkpoint
from nbl.optimiser import Adam, halvings
from nbl.process import environment
from nbl.run_folder import COLUMNS, Config, OtherPlace, Row, RunFolder, write_config, write_csv
from nbl.seed import generator, stream

RESULTS = ("config.yaml", "history.csv", "checkpoint.pt")
_PLAIN = ("history", "best", "step", "log_p", "seconds", "environments")


class Run:
    """A run, new or resumed from its folder."""

    def __init__(self, config: Config, out: Path, device: torch.device):
        self.config, self.out, self.device = config, out, device
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(stream(config.seed, "initialisation"))
            model = build(config.model, config.vocab_size, **config.hyperparameters)
        self.model = model.to(device)
        self.z = self.model.generator = generator(config.seed, "z", device)
        self.optimiser = Adam(self.model, config.training.lr)
        self.history: list[Row] = []
        self.best: dict[str, Any] | None = None  # the contents of checkpoint.pt
        # of the epoch under way: batches done, the sum of their sentences' log p, time they took
        self.step, self.log_p, self.seconds = 0, 0.0, 0.0
        self.environments: list[dict[str, str]] = []
        self._open(environment(device))

    def _open(self, here: dict[str, str]) -> None:
        """Resume what the folder holds, or begin."""
        refuse_other_run(self.config, self.out)
        for name in (*RESULTS, "vocab.txt", "resume.pt"):  # what a killed process was writing
            for half_written in self.out.glob(f".{name}.*"):
                half_written.unlink()
        resume = self.out / "resume.pt"
        if resume.exists():
            try:
                self._restore(read_checkpoint(resume))
            except (UserError, KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
                raise UserError(
                    f"cannot resume from {resume} ({error}): delete the folder {self.out} and train again"
                ) from error
        if here not in self.environments[-1:]:
            self.environments.append(here)
        self.save()
        self.publish()

    @property
    def epoch(self) -> int:
        """The epoch under way, from 1."""
        return len(self.history) + 1

    @property
    def over(self) -> bool:
        """Whether all epochs are done, or patience is at its end."""
        training, done = self.config.training, len(self.history)
        impatient = self.best is not None and done - self.best["epoch"] >= training.patience
        return done >= training.epochs or impatient

    def begin(self, sentences: list[list[int]]) -> None:
        """Show the training text to the model of a new run."""
        if not self.history and not self.step:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(stream(self.config.seed, "text"))
                self.model.read_text(sentences)

    def begin_epoch(self) -> None:
        """Prepare the model and the learning rate for the epoch under way."""
        if self.model.begin_epoch(self.epoch):
            self.best = None
        if self.model.halved_after:
            perplexities = [row["dev_perplexity"] for row in self.history]
            lr = self.config.training.lr * 0.5 ** halvings(perplexities, self.model.halved_after)
            for group in self.optimiser.param_groups:
                group["lr"] = lr

    def end_epoch(self, row: Row) -> None:
        """Record an epoch; keep its model if it is the best so far (the last one where there is no dev)."""
        perplexity = row["dev_perplexity"]
        if self.best is None or perplexity is None or perplexity < self.best["dev_perplexity"]:
            parameters = {name: value.cpu().clone() for name, value in self.model.state_dict().items()}
            self.best = {"model": parameters, "epoch": self.epoch, "dev_perplexity": perplexity}
        self.history.append(row)
        self.step, self.log_p, self.seconds = 0, 0.0, 0.0
        self.save()
        self.publish()

    def save(self) -> None:
        """Write `resume.pt`."""
        state = {name: getattr(self, name) for name in _PLAIN}
        state |= {"config": asdict(self.config), "z": self.z.get_state()}
        state |= {"model": self.model.state_dict(), "optimiser": self.optimiser.state_dict()}
        _write_tensors(self.out / "resume.pt", state)

    def _restore(self, state: dict[str, Any]) -> None:
        self.config.refuse_other(Config.of(state["config"]), self.out / "resume.pt")
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.z.set_state(state["z"])
        for name in _PLAIN:
            setattr(self, name, state[name])

    def publish(self) -> None:
        """Write the files for others."""
        write_config(self.out / "config.yaml", self.config, self.environments)
        write_csv(self.out / "history.csv", COLUMNS, self.history)
        if self.best is not None:
            _write_tensors(self.out / "checkpoint.pt", self.best)

    def finish(self, keep_state: bool = False) -> None:
        """The folder without a `resume.pt` is a finished run."""
        if keep_state:
            (self.out / "resume.pt").replace(self.out / "finished.pt")
        else:
            (self.out / "resume.pt").unlink()


def reopen(out: Path) -> None:
    """Re-open a finished run whose output files were deleted, so that it writes them again."""
    finished = out / "finished.pt"
    if finished.exists() and not (out / "resume.pt").exists() and not all((out / name).exists() for name in RESULTS):
        finished.replace(out / "resume.pt")


def refuse_other_run(config: Config, out: Path) -> None:
    """Refuse a folder whose `config.yaml` is damaged or differs."""
    if (out / "config.yaml").exists():
        config.refuse_other(RunFolder(out).config, out / "config.yaml")


def remove_other_run(config: Config, out: Path) -> bool:
    """Remove the run in the folder if other settings made it, or if it is damaged; returns whether it did.

    One that differs only in where it was trained is refused: more likely a GPU is missing today than hours of
    training are to be thrown away.
    """
    resume = out / "resume.pt"
    reopen(out)
    try:
        refuse_other_run(config, out)
        if resume.exists():
            config.refuse_other(Config.of(read_checkpoint(resume)["config"]), resume)
    except OtherPlace:
        raise
    except (UserError, LookupError, TypeError, AttributeError):
        for path in (*map(out.joinpath, RESULTS), resume, out / "finished.pt"):
            path.unlink(missing_ok=True)
        return True
    return False


def is_finished(config: Config, out: Path) -> bool:
    """Whether the folder holds this run, finished; another run's folder is refused."""
    refuse_other_run(config, out)
    return all((out / name).exists() for name in RESULTS) and not (out / "resume.pt").exists()


def _write_tensors(path: Path, contents: dict[str, Any]) -> None:
    """`torch.save`, all or nothing, the same bytes for the same contents.

    By way of memory: torch would write the file's name into it, and hide why it cannot write.
    """
    buffer = io.BytesIO()
    torch.save(contents, buffer)
    with replacing(path) as temporary:
        temporary.write_bytes(buffer.getbuffer())
