"""The environment variables that launchers set for a worker, and how its secrets are found.

The names are here and nowhere else: `telegrad run` sets them, `init_rpc` reads them. The
environment is an argument. Invariant: telegrad itself puts only the paths of secrets there, never a
secret.
"""

import os
from collections.abc import Mapping
from typing import Final

from telegrad.errors import UsageError
from telegrad.rpc.security.key_file import KeyFile, KeySource
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.security.tls import Credentials

MASTER_ADDR = "MASTER_ADDR"
MASTER_PORT = "MASTER_PORT"
RANK = "RANK"
WORLD_SIZE = "WORLD_SIZE"
WORKER_NAME = "TELEGRAD_WORKER_NAME"
LAUNCHER = "TELEGRAD_LAUNCHER"
MEETING = "TELEGRAD_MEETING"
"""A directory that all workers see, to meet in."""
KEY = "TELEGRAD_KEY"
"""The key itself, as 64 hexadecimal digits: for Secrets of Kubernetes."""
KEY_FILE = "TELEGRAD_KEY_FILE"
CREDENTIALS = "TELEGRAD_CREDENTIALS"
THREADS = "OMP_NUM_THREADS"
"""OpenBLAS, MKL and PyTorch read it if their own variables are not set."""


def threads_each(processes: int) -> str:
    """Return the value of THREADS for each of several processes that share this machine's cores.

    By default each would start threads for all cores, and they would wait for each other.
    """
    return str(max(1, usable_cores() // processes))


def usable_cores() -> int:
    """Return how many cores this process may use, or how many there are if that is not known."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


NO_KEY: Final = (
    f"no cluster key: start the workers with `telegrad run` or a LocalCluster, or set {KEY_FILE} "
    f"to a file that `telegrad keygen FILE` made, or {KEY} to what is in it, or {CREDENTIALS} to a "
    "worker's directory that `telegrad keygen DIR --workers NAMES` made. Workers on several "
    "machines need one of these"
)


def names_secrets(environment: Mapping[str, str]) -> bool:
    """Say whether the environment names a key or certificates."""
    return any(environment.get(name) for name in (KEY, KEY_FILE, CREDENTIALS))


def find_secrets(
    environment: Mapping[str, str], name: str = ""
) -> tuple[KeySource, Credentials | None]:
    """Return the key and, where `telegrad keygen` made one, a worker's certificate.

    TELEGRAD_CREDENTIALS names the directory that `telegrad keygen` made for a worker, with the
    key, or the directory of those of all workers, `name` among them. TELEGRAD_KEY_FILE names a key
    alone, or one to use in place of the directory's; TELEGRAD_KEY holds a key.
    """
    directory, key_file = environment.get(CREDENTIALS), environment.get(KEY_FILE)
    credentials = None
    if directory:
        own = os.path.join(directory, name)
        credentials = Credentials(own if name and os.path.isdir(own) else directory)
    if environment.get(KEY):
        return ClusterKey.parse(environment[KEY], KEY), credentials
    if key_file:
        return KeyFile(key_file), credentials
    if credentials is not None:
        return credentials.load_key(), credentials
    raise UsageError(NO_KEY)
