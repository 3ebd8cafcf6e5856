"""The command line: `nbl VERB --help`."""

from __future__ import annotations

import ast
import os
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import typer

from nbl.errors import UserError
from nbl.process import keep_freed_memory, share_cores

VERBS = {  # verb -> an example for its help
    "prepare": "nbl prepare --corpus toy --out results/toy/corpus",
    "train": "nbl train --corpus-dir results/toy/corpus --model nblpcfg --seed 0 --out runs/nblpcfg/seed0",
    "evaluate": "nbl evaluate runs/nblpcfg/seed0 --corpus-dir results/toy/corpus --decoder cyk mbr",
    "parse": "echo 'The dog barks.' | nbl parse runs/nblpcfg/seed0 --decoder cyk --format svg --out dog.svg",
    "score": "nbl score runs/nblpcfg/seed0 story.txt",
    "show": "nbl show runs/nblpcfg/seed0 --corpus-dir results/toy/corpus --top 5",
    "sample": "nbl sample runs/nblpcfg/seed0 -n 10 --seed 0 --max-length 20",
    "compare": "nbl compare runs/nblpcfg/seed0 runs/nblpcfg/seed1 --corpus-dir results/toy/corpus",
    "bench": "nbl bench --quick --part inside",
    "runs": "nbl runs --config corpus=sample tables=[main] seeds=[0]",
    "collect": "nbl collect --config corpus=toy",
    "export": "nbl export --config corpus=sample",
    "page": "nbl page --reference results/reference",
    "tables": "nbl tables --corpus toy",
    "check": "nbl check --corpus toy",
}
MANY_VALUES = {  # verb -> its options that take all values up to the next option
    "prepare": {"--trees", "--text", "--heads"},
    "train": {"--set"},
    "evaluate": {"--decoder"},
    "runs": {"--config"},
    "collect": {"--config"},
    "export": {"--config"},
}


def build_app(chosen: str | None) -> typer.Typer:
    """All verbs; only the chosen one's module is imported: torch takes seconds to start, and few verbs need it."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown")
    app.callback(help="Grammar induction with neural lexicalised PCFGs: corpora, training, parsing, tables.")(
        lambda: None
    )
    for verb, example in VERBS.items():
        if verb == chosen:
            command = getattr(import_module(f"nbl.commands.{verb}"), verb)
            app.command(verb, epilog=f"Example: {example}")(command)
        else:
            app.command(verb, help=_summary(verb))(lambda: None)
    return app


def _summary(verb: str) -> str:
    """The first line of a verb's help, read without running its module."""
    module = ast.parse(Path(__file__).with_name("commands").joinpath(f"{verb}.py").read_text(encoding="utf-8"))
    function = next(node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == verb)
    return (ast.get_docstring(function) or "").partition("\n")[0]


def spread(arguments: list[str]) -> list[str]:
    """Repeat an option that is followed by several values, as the parser wants it.

    >>> spread(["prepare", "--trees", "a", "b", "--out", "c"])
    ['prepare', '--trees', 'a', '--trees', 'b', '--out', 'c']
    """
    result: list[str] = []
    option = None
    many_values = MANY_VALUES.get(arguments[0], set()) if arguments else set()
    for position, argument in enumerate(arguments):
        if argument.startswith("--"):
            option = argument if argument in many_values else None
        elif option is not None and arguments[position - 1] != option:
            result.append(option)
        result.append(argument)
    return result


def main() -> None:
    """The entry point: a user's mistake is one sentence and exit code 2, Ctrl-C is exit code 130."""
    share_cores()
    keep_freed_memory()
    arguments = spread(sys.argv[1:])
    try:
        exit_code = build_app(arguments[0] if arguments else None)(
            args=arguments or ["--help"], prog_name="nbl", standalone_mode=False
        )
        sys.stdout.flush()
        sys.exit(exit_code)
    except typer.TyperException as error:
        verb = f"{arguments[0]} " if arguments and arguments[0] in VERBS else ""
        _fail(f"{error.format_message()} (see nbl {verb}--help)", error.exit_code)
    except UserError as error:
        _fail(str(error), 2)
    except (MemoryError, RuntimeError) as error:  # torch's are of the second kind
        reason = str(error).partition("\n")[0]
        if not isinstance(error, MemoryError) and not re.search("allocate|out of memory", reason):
            raise
        _fail(f"not enough memory ({reason or 'no more is known'}): choose smaller sizes or shorter sentences", 2)
    except BrokenPipeError:  # whoever read the output has gone, as `head` does: what is left goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)


def _fail(message: str, exit_code: int) -> NoReturn:
    print(f"nbl: {message}", file=sys.stderr)
    sys.exit(exit_code)
