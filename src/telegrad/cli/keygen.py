"""`telegrad keygen`: make and change a cluster's key, mint and revoke certificates."""

import argparse
import datetime
from importlib import import_module
from pathlib import Path
from types import ModuleType

from telegrad.cli.command import WORKERS_HELP, Command, worker_names
from telegrad.errors import UsageError
from telegrad.rpc.security.key_file import STEPS, next_keys, write_keys
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.security.tls import KEY_FILE


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "place",
        type=Path,
        help="the file to put a key into; with --workers, where to put one directory a worker",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--workers", metavar="NAMES|NUMBER", help=WORKERS_HELP)
    what.add_argument(
        "--rotate",
        choices=STEPS,
        help="change the key, in three steps: add another, use it, drop the old one",
    )
    what.add_argument("--revoke", metavar="NAMES", help="whose certificates to revoke")
    parser.add_argument(
        "--days", type=int, default=365, help="how long the certificates hold (default: 365)"
    )


def _execute(arguments: argparse.Namespace) -> int:
    place: Path = arguments.place
    if arguments.rotate is not None:
        return _rotate(place, arguments.rotate)
    if arguments.revoke is not None:
        for path in _certificates().revoke(place, worker_names(arguments.revoke)):
            print(f"{path}: copy it to where the worker's directory is, which notices by itself")
        return 0
    if arguments.workers is not None:
        return _mint(place, arguments.workers, arguments.days)
    if place.exists():
        raise UsageError(f"{place} is there already: choose another place for a new key")
    ClusterKey.fresh().save(place)
    print(f"{place}: copy it to every machine, readable by its user alone")
    return 0


def _mint(place: Path, workers: str, days: int) -> int:
    if days < 1:
        raise UsageError(f"expected --days of at least 1, got {days}")
    certificates = _certificates()
    now = datetime.datetime.now(datetime.UTC)
    try:
        now + datetime.timedelta(days=days)
    except OverflowError:
        raise UsageError(f"expected --days that end before the year 10000, got {days}") from None
    for made in certificates.mint(place, worker_names(workers), now=now, days=days):
        print(f"{made}: copy it to the machine of {made.name}, readable by its user alone")
    print(f"{place / certificates.AUTHORITY_DIRECTORY}: keep it here, to add workers later")
    return 0


def _rotate(place: Path, step: str) -> int:
    paths = sorted(place.glob(f"*/{KEY_FILE}")) if place.is_dir() else [place]
    if not paths:
        raise UsageError(f"no {KEY_FILE} in the directories of {place}: nothing is there to change")
    keys = next_keys(ClusterKey.load_all(paths[0]), step)
    for path in paths:
        write_keys(path, keys)
        print(f"{path}: copy it to its machine, where it is noticed by itself")
    taken = "".join(f", {key.tag} is taken, too" for key in keys[1:])
    print(f"workers prove with the key {keys[0].tag} from then on{taken}")
    return 0


def _certificates() -> ModuleType:
    try:
        return import_module("telegrad.rpc.security.certificates")
    except ImportError:
        raise UsageError(
            "minting certificates needs the package cryptography: pip install cryptography"
        ) from None


KEYGEN = Command("keygen", "make a cluster's key, mint its certificates", _configure, _execute)
