"""The command line: `nbl VERB --help`."""

from __future__ import annotations

import argparse
import os
import re
import sys
import textwrap
from importlib import import_module
from typing import NoReturn

from nbl.commands import VERBS, suggestion
from nbl.errors import UserError
from nbl.process import keep_freed_memory, share_cores

ABOUT = "Grammar induction with neural lexicalised PCFGs: corpora, training, parsing, tables."


class Parser(argparse.ArgumentParser):
    """Mistakes are user errors; help is formatted as it is written."""

    def __init__(self, verb: str):
        summary, details, example = VERBS[verb].summary, VERBS[verb].details, VERBS[verb].example
        glued = re.sub(r"(?<= )(-\S+) (?!-)", "\\1\0", example)  # an option and its value stay on one line
        lines = textwrap.wrap(glued, 74, break_on_hyphens=False, initial_indent="  ", subsequent_indent="    ")
        super().__init__(
            f"nbl {verb}",
            description=f"{textwrap.fill(summary, 78)}\n\n{details}".rstrip(),
            epilog="Example:\n" + " \\\n".join(lines).replace("\0", " "),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        for names, settings in VERBS[verb].arguments:
            self.add_argument(*names, **settings)

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message.removeprefix('argument ')} (see {self.prog} --help)")


def run(arguments: list[str]) -> None:
    """Run a verb; the first argument names it."""
    verb, *rest = arguments or ["--help"]
    if verb in {"-h", "--help"}:
        print(_help())
    elif verb == "--version":
        from importlib.metadata import version  # slow to import

        print(f"nbl {version('nbl')}")
    elif verb not in VERBS:
        raise UserError(f"there is no verb {verb!r}{suggestion(verb, list(VERBS))} (see nbl --help)")
    else:
        parser = Parser(verb)
        if {"-h", "--help"} & set(rest):
            return parser.print_help()
        options, unknown = parser.parse_known_intermixed_args(rest)
        if unknown:
            names = [name for argument in VERBS[verb].arguments for name in argument.names]
            parser.error(f"there is no argument {unknown[0]!r}{suggestion(unknown[0], names)}")
        module = import_module(f"nbl.commands.{VERBS[verb].module}")
        getattr(module, verb)(**vars(options))


def main() -> None:
    """The entry point: a user's mistake is one sentence and exit code 2, Ctrl-C is exit code 130."""
    share_cores()
    keep_freed_memory()
    try:
        run(sys.argv[1:])
        sys.stdout.flush()
    except UserError as error:
        _fail(str(error))
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not (extra := _extra_with(package)):
            raise
        _fail(f"{package}, which this needs, is not installed: pip install 'nbl[{extra}]'")
    except (MemoryError, RuntimeError) as error:  # torch raises the latter
        reason = str(error).partition("\n")[0]
        if not isinstance(error, MemoryError) and not re.search("allocate|out of memory", reason):
            raise
        _fail(f"not enough memory ({reason or 'no details'}): choose smaller sizes or shorter sentences")
    except BrokenPipeError:  # the reader has left, as `head` does: discard the rest
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _extra_with(package: str) -> str | None:
    """The extra of this distribution that has a package."""
    from importlib.metadata import PackageNotFoundError, requires  # slow to import

    try:
        matches = (re.match(rf"{package}\b.*extra == .(\w+)", requirement) for requirement in requires("nbl") or [])
        return next((match[1] for match in matches if match), None)
    except PackageNotFoundError:
        return None


def _help() -> str:
    lines = ["usage: nbl VERB [ARGUMENTS]", "       nbl [-h | --version]", "", *textwrap.wrap(ABOUT, 78), "", "verbs:"]
    for verb, (_, summary, *_) in VERBS.items():
        lines += textwrap.wrap(summary, 78, initial_indent=f"  {verb:10}", subsequent_indent=" " * 12)
    return "\n".join([*lines, "", "nbl VERB --help explains a verb and its arguments."])


def _fail(message: str) -> NoReturn:
    print(f"nbl: {message}", file=sys.stderr)
    sys.exit(2)
