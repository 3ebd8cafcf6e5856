"""A process that works with the code of one checkout, started by `nbl.bench.against`.

It reads requests and writes answers, one line of JSON each. Of the checkout it needs only `Step`,
`build` and, for the decoders, `task`, so that it works with older ones.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from typing import Any, cast


def main() -> None:
    """Answer until the requests end or one fails; the answer is then {"error": reason}."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the checkout's code prints is not an answer
    try:
        for answer in _answers():
            print(json.dumps(answer), file=answers)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        print(json.dumps({"error": reason}), file=answers)


def _answers() -> Iterator[Any]:
    """First where the code is, then the seconds of each request."""
    with suppress(ImportError):  # as the checkout's command line does, before torch is imported
        from nbl.process import keep_freed_memory, share_cores

        share_cores()
        keep_freed_memory()
    from nbl.bench import step

    yield step.__file__
    import torch

    from nbl.models import build

    @cache
    def model(kind: str, vocabulary: int, settings: str) -> Callable[..., object]:
        torch.manual_seed(0)
        return step.Step(cast(Any, build(kind, vocabulary, **json.loads(settings))))

    def training(words: list[list[int]], *made_of: Any) -> Callable[[], object]:
        return partial(model(*made_of), torch.tensor(words))

    @cache
    def decoding(name: str, grammar: str, decoder: str, l: int) -> Callable[[], object]:
        from nbl.bench import decode

        decode.GRAMMARS[name] = json.loads(grammar)
        return decode.task(name, decoder, l)

    for line in sys.stdin:
        threads, work, arguments = json.loads(line)
        task = training(*arguments) if work == "step" else decoding(*arguments)
        torch.set_num_threads(threads)
        clock = time.process_time if threads == 1 else time.perf_counter
        start = clock()
        task()
        yield clock() - start


if __name__ == "__main__":
    main()
