"""The command line. A subcommand is a row of `COMMANDS`; what it does lives in its own file."""

import argparse
import os
import sys
from collections.abc import Sequence

from telegrad._version import __version__
from telegrad.cli.command import Command
from telegrad.cli.demo import DEMO
from telegrad.cli.keygen import KEYGEN
from telegrad.cli.run import RUN
from telegrad.cli.standard import fill_standard_streams
from telegrad.errors import TelegradError

__all__ = ["COMMANDS", "main"]

COMMANDS: tuple[Command, ...] = (RUN, KEYGEN, DEMO)

# The exit code of a command that was misused, as argparse gives it.
_MISUSED = 2
# As a shell tells of a command that Ctrl-C ended.
_INTERRUPTED = 130
_UNREAD = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    fill_standard_streams()
    parser = argparse.ArgumentParser(
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
    arguments = parser.parse_args(argv)
    try:
        return int(arguments.execute(arguments))
    except TelegradError as error:
        print(f"telegrad: {error}", file=sys.stderr)
        return _MISUSED
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone; what is left of it must not fail once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _UNREAD
    except OSError as error:
        if error.filename is None:
            raise
        print(f"telegrad: {error.strerror}: {error.filename}", file=sys.stderr)
        return _MISUSED
