"""`telegrad keygen`: mint what workers on several machines need to trust each other."""

import argparse
import datetime
from pathlib import Path

from telegrad.cli.command import WORKERS_HELP, Command, worker_names
from telegrad.errors import UsageError

__all__ = ["KEYGEN"]


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, help="where to put one directory a worker")
    parser.add_argument("--workers", required=True, metavar="NAMES|NUMBER", help=WORKERS_HELP)
    parser.add_argument(
        "--days", type=int, default=365, help="how long the certificates hold (default: 365)"
    )


def _execute(arguments: argparse.Namespace) -> int:
    if arguments.days < 1:
        raise UsageError(f"expected --days of at least 1, got {arguments.days}")
    try:
        from telegrad.rpc.security.certificates import AUTHORITY_DIRECTORY, mint
    except ImportError:
        raise UsageError(
            "minting certificates needs the package cryptography: pip install cryptography"
        ) from None
    now = datetime.datetime.now(datetime.UTC)
    try:
        now + datetime.timedelta(days=arguments.days)
    except OverflowError:
        raise UsageError(
            f"expected --days that end before the year 10000, got {arguments.days}"
        ) from None
    made = mint(arguments.directory, worker_names(arguments.workers), now=now, days=arguments.days)
    for place in made:
        print(f"{place}: copy it to the machine of {place.name}, readable by its user alone")
    print(f"{arguments.directory / AUTHORITY_DIRECTORY}: keep it here, to add workers later")
    return 0


KEYGEN = Command("keygen", "mint a cluster's key and certificates", _configure, _execute)
