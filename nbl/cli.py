"""The command line: `nbl VERB --help`."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import NoReturn

import typer

from nbl.errors import UserError

VERBS = {  # verb -> an example for its help
    "prepare": "nbl prepare --corpus toy --out results/toy/corpus",
    "train": "nbl train --corpus-dir results/toy/corpus --model nblpcfg --seed 0 --out runs/nblpcfg/seed0",
}
MANY_VALUES = {"--trees", "--text", "--heads", "--set"}  # options that take all values up to the next option


def build_app(verbs: list[str]) -> typer.Typer:
    """The verbs given, each the function of its name in the module `nbl.commands` of its name."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.callback(help="Grammar induction with neural lexicalised PCFGs: corpora, training, parsing, tables.")(
        lambda: None
    )
    for verb in verbs:
        command = getattr(import_module(f"nbl.commands.{verb}"), verb)
        app.command(verb, epilog=f"Example: {VERBS[verb]}")(command)
    return app


def spread(arguments: list[str]) -> list[str]:
    """Repeat an option that is followed by several values, as the parser wants it.

    >>> spread(["prepare", "--trees", "a", "b", "--out", "c"])
    ['prepare', '--trees', 'a', '--trees', 'b', '--out', 'c']
    """
    result: list[str] = []
    option = None
    for position, argument in enumerate(arguments):
        if argument.startswith("--"):
            option = argument if argument in MANY_VALUES else None
        elif option is not None and arguments[position - 1] != option:
            result.append(option)
        result.append(argument)
    return result


def main() -> None:
    """The entry point: a user's mistake is one sentence and exit code 2, Ctrl-C is exit code 130."""
    arguments = spread(sys.argv[1:])
    # The verb's own module is all that is imported: torch takes seconds to start, and few verbs need it.
    verbs = [verb for verb in arguments[:1] if verb in VERBS] or list(VERBS)
    try:
        sys.exit(build_app(verbs)(args=arguments or ["--help"], prog_name="nbl", standalone_mode=False))
    except typer.TyperException as error:
        _fail(f"{error.format_message()} (see nbl --help)", error.exit_code)
    except UserError as error:
        _fail(str(error), 2)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)


def _fail(message: str, exit_code: int) -> NoReturn:
    print(f"nbl: {message}", file=sys.stderr)
    sys.exit(exit_code)
