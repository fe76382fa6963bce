"""`telegrad debug`: the prompt of a handler at a breakpoint on a worker without a terminal."""

import argparse
import os
import selectors
import socket
import sys
from contextlib import suppress

from telegrad.cli.command import Command
from telegrad.errors import UsageError
from telegrad.rpc.transport.user import check_same_user

_CHUNK = 1 << 16


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("socket", help="the path that the worker printed when it stopped")


def _execute(arguments: argparse.Namespace) -> int:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        try:
            line.connect(arguments.socket)
        except OSError as error:
            raise UsageError(
                f"no handler waits at {arguments.socket} ({error.strerror or error}): somebody "
                "else has attached, or its worker has ended"
            ) from None
        check_same_user(line)
        _relay(line)
    return 0


def _relay(line: socket.socket) -> None:
    """Send what is typed to the debugger, and show its output, until it has ended."""
    # This selector accepts files on disk, too, for standard input.
    with selectors.SelectSelector() as selector:
        selector.register(line, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not line:
                    _carry(line, selector)
                    continue
                said = line.recv(_CHUNK)
                if not said:
                    return
                sys.stdout.buffer.write(said)
                sys.stdout.buffer.flush()


def _carry(line: socket.socket, selector: selectors.BaseSelector) -> None:
    typed = os.read(sys.stdin.fileno(), _CHUNK)
    # The debugger may just have ended.
    with suppress(BrokenPipeError):
        if typed:
            line.sendall(typed)
        else:
            # Ctrl-D: the debugger sees the end of its input, and quits.
            selector.unregister(sys.stdin)
            line.shutdown(socket.SHUT_WR)


DEBUG = Command("debug", "attach to a handler that is at a breakpoint", _configure, _execute)
