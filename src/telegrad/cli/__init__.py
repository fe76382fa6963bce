"""The command line. A subcommand is a row of `COMMANDS`; what it does lives in its own file."""

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
from telegrad.cli.standard import fill_standard_streams
from telegrad.errors import TelegradError

__all__ = ["COMMANDS", "main"]

COMMANDS: tuple[Command, ...] = (RUN, KEYGEN, DEBUG, DEMO)

# The exit code of a command that was misused, as argparse gives it.
_MISUSED = 2
# As a shell tells of a command that Ctrl-C ended.
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
            # Here, where it can still be told that this fails.
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
        # The reader of our output has gone, which is no news, or there is no room for it; what is
        # left of it must not fail once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            print(f"telegrad: {error.strerror or error}", file=sys.stderr)
        return _UNWRITTEN


class _Parser(argparse.ArgumentParser):
    """One that does not keep it to itself if its help can't be written."""

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
