"""A subcommand of `telegrad`, and the arguments that several of them take."""

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass

from telegrad.errors import UsageError
from telegrad.rpc.names import UNKNOWN_ID
from telegrad.rpc.security.introduction import check_worker_name

WORKERS_HELP = "the workers' names, like ps,trainer0, or how many: 2 means worker0,worker1"
"""The help of `--workers`."""

# Ids start at 0, and the last one stands for a worker whose id is not known yet.
_MOST = UNKNOWN_ID
_EXPECTED = (
    f"--workers to be names like ps,trainer0 or a number from 1 to {_MOST} (2 means "
    "worker0,worker1)"
)


@dataclass(frozen=True)
class Command:
    """A name, one-line help, arguments, and the function that runs it and returns the exit code."""

    name: str
    help: str
    configure: Callable[[argparse.ArgumentParser], None]
    execute: Callable[[argparse.Namespace], int]


def worker_names(text: str) -> list[str]:
    """Return the names in a list like `ps,trainer0,trainer1`, or as many as a number says."""
    text = text.strip()
    if not text:
        raise UsageError(f"expected {_EXPECTED}, got nothing")
    if re.fullmatch(r"[+-]?[0-9]+", text):
        return [f"worker{rank}" for rank in range(_count(int(text)))]
    names = [check_worker_name(name.strip()) for name in text.split(",")]
    for position, name in enumerate(names):
        if name in names[:position]:
            raise UsageError(
                f"two workers are called {name!r} in {text!r}: give each a name of its own"
            )
    return names


def _count(number: int) -> int:
    if not 1 <= number <= _MOST:
        raise UsageError(f"expected {_EXPECTED}, got {number}")
    return number
