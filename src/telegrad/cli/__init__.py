"""The command line. Each subcommand is an entry of `COMMANDS`, with a module of its own."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from telegrad._version import __version__
from telegrad.cli.command import Command
from telegrad.cli.debug import DEBUG
from telegrad.cli.demo import DEMO
from telegrad.cli.keygen import KEYGEN
from telegrad.cli.run import RUN
from telegrad.cli.standard_streams import fill_standard_streams
from telegrad.errors import TelegradError

__all__ = ["COMMANDS", "main"]

COMMANDS: tuple[Command, ...] = (RUN, KEYGEN, DEBUG, DEMO)

# Exit codes: argparse's for misuse, and what shells report after Ctrl-C.
_MISUSED = 2
_INTERRUPTED = 130
_UNWRITTEN = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    fill_standard_streams()
    try:
        try:
            arguments = _parser().parse_args(argv)
            return int(arguments.execute(arguments))
        finally:
            # Flushed here, where a failure can still be reported.
            sys.stdout.flush()
    except TelegradError as error:
        print(f"telegrad: {error}", file=sys.stderr)
        return _MISUSED
    except KeyboardInterrupt:
        return _INTERRUPTED
    except OSError as error:
        if error.filename is not None:
            print(f"telegrad: {error.strerror}: {error.filename}", file=sys.stderr)
            return _MISUSED
        # The reader of our output is gone, which is no news, or there is no room for it. What is
        # left of it must not fail again when the process ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            print(f"telegrad: {error.strerror or error}", file=sys.stderr)
        return _UNWRITTEN


class _Parser(argparse.ArgumentParser):
    """A parser that raises if its help can't be written, where argparse's is silent."""

    def _print_message(self, message: str, file: Any = None) -> None:
        (file or sys.stderr).write(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="telegrad", description="Automatic differentiation across processes and machines."
    )
    parser.add_argument("--version", action="version", version=f"telegrad {__version__}")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        subparser = subparsers.add_parser(
            command.name, help=command.help, description=command.help.capitalize() + "."
        )
        command.configure(subparser)
        subparser.set_defaults(execute=command.execute)
    return parser
