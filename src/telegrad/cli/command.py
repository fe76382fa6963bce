"""What a subcommand of `telegrad` is: a row of the table in `telegrad.cli`."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from telegrad.errors import UsageError
from telegrad.rpc.introduction import check_worker_name

__all__ = ["Command", "worker_names"]


@dataclass(frozen=True)
class Command:
    """Its name, its one-line help, its arguments, and what it does (returning the exit code)."""

    name: str
    help: str
    configure: Callable[[argparse.ArgumentParser], None]
    execute: Callable[[argparse.Namespace], int]


def worker_names(text: str) -> list[str]:
    """Return the workers of a list like `ps,trainer0,trainer1`."""
    names = [check_worker_name(name.strip()) for name in text.split(",")]
    for position, name in enumerate(names):
        if name in names[:position]:
            raise UsageError(f"two workers are called {name!r}: give each a name of its own")
    return names
