"""Training steps and decoders of this checkout and of another one, in turns.

Each checkout works in a process of its own (`nbl.bench.worker`), which stays. A round asks both for
each piece of work, one after the other, so that a disturbance of the machine affects both. Requests
say what to compute, whatever models and sentences the other checkout's own benchmark has.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from nbl.bench import decode, step
from nbl.bench.measure import in_turns
from nbl.errors import UserError
from nbl.process import commit_of

HERE = Path(__file__).resolve().parents[2]
WORDS = 30  # of the sentence that is decoded
Work = dict[tuple[str, str, int], list[Any]]  # kind of work, model, threads -> requests


class Worker:
    """A process that works with the code of a checkout; a context manager that ends it."""

    def __init__(self, checkout: Path):
        self.checkout = checkout.resolve()
        if not (self.checkout / "nbl/bench/step.py").is_file():
            raise UserError(f"{checkout} is not a checkout of this project: it has no file nbl/bench/step.py")
        self.commit = commit_of(self.checkout)
        path = os.pathsep.join([str(self.checkout), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name("worker.py"))],
            env=os.environ | {"PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C reaches only this process, which ends the other
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def start(self) -> None:
        """Wait until it can work."""
        code = self._answer()
        if not Path(code).is_relative_to(self.checkout):
            raise UserError(f"the code of {self.checkout} cannot be imported: {code} is in its place")

    def seconds(self, *request: Any) -> float:
        """The time that the work took."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # then there is no answer either
            print(json.dumps(request), file=self.process.stdin, flush=True)
        return float(self._answer())

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        answer = json.loads(line) if line else {"error": f"its process ended with exit code {self.process.wait()}"}
        if isinstance(answer, dict):
            raise UserError(f"the code of {self.checkout} cannot be timed: {answer['error']}")
        return answer


class Pair:
    """This checkout and another one at work."""

    def __init__(self, here: Worker, there: Worker):
        self.workers = {"here": here, "there": there}
        self.commits = {side: worker.commit for side, worker in self.workers.items()}
        for worker in self.workers.values():
            worker.start()

    def measure(self, work: Mapping[tuple[str, str, int], Sequence[Any]], rounds: int) -> list[dict[str, Any]]:
        """Rows of milliseconds here and there: means over the requests of the medians over the rounds."""
        tasks = {
            (key, number, side): partial(worker.seconds, *request)
            for key, requests in work.items()
            for number, request in enumerate(requests)
            for side, worker in self.workers.items()
        }
        times = in_turns(tasks, rounds)
        rows = []
        for key, requests in work.items():
            here, there = (
                1000 * fmean(times[key, number, side].median for number in range(len(requests)))
                for side in self.workers
            )
            row = dict(zip(("work", "model", "threads"), key, strict=True))
            row |= {"ms_here": here, "ms_there": there, "ratio": here / there}
            rows.append(row | {"commit_there": self.commits["there"]})
        return rows


@contextmanager
def both(other: Path) -> Iterator[Pair]:
    """This checkout and the other one."""
    with ExitStack() as stack:
        yield Pair(*[stack.enter_context(Worker(checkout)) for checkout in (HERE, other)])


def steps(threads: int, every: int = 1) -> Work:
    """A training step of every model, on the sentences of `nbl.bench.step.measure_steps`."""
    batches = [step.sentences(l, seed).tolist() for seed, l in enumerate(step.LENGTHS[::every])]
    return {
        ("step", name, threads): [
            (threads, "step", (words, kind, step.VOCABULARY, json.dumps(settings))) for words in batches
        ]
        for name, (kind, settings) in step.MODELS.items()
    }


def decoders() -> Work:
    """Both decoders of every grammar on one sentence, as in `nbl.bench.decode`."""
    return {
        (decoder, name, 1): [(1, "decode", (name, json.dumps(grammar), decoder, WORDS))]
        for name, grammar in decode.GRAMMARS.items()
        for decoder in decode.DECODERS
    }
