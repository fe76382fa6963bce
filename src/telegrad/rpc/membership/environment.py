"""What a launcher tells a worker through its environment, and how the secrets are found by it.

The names are here and nowhere else: `telegrad run` sets them, `init_rpc` reads them. The
environment comes in as an argument. Invariant: it holds paths of secrets, never a secret.
"""

import os
from collections.abc import Mapping

from telegrad.errors import UsageError
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.security.tls import Credentials

__all__ = [
    "CREDENTIALS",
    "KEY_FILE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "RANK",
    "THREADS",
    "WORKER_NAME",
    "WORLD_SIZE",
    "find_secrets",
    "threads_each",
    "usable_cores",
]

MASTER_ADDR = "MASTER_ADDR"
MASTER_PORT = "MASTER_PORT"
RANK = "RANK"
WORLD_SIZE = "WORLD_SIZE"
WORKER_NAME = "TELEGRAD_WORKER_NAME"
KEY_FILE = "TELEGRAD_KEY_FILE"
CREDENTIALS = "TELEGRAD_CREDENTIALS"
THREADS = "OMP_NUM_THREADS"
"""Read, where their own variables are not set, by OpenBLAS, MKL and PyTorch alike."""


def threads_each(processes: int) -> str:
    """The value of THREADS for each of the processes that share this machine's cores.

    By default each would have threads for all cores; together they would wait for each other.
    """
    return str(max(1, usable_cores() // processes))


def usable_cores() -> int:
    """The cores that this process may use, where the system tells; else those there are."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def find_secrets(environment: Mapping[str, str]) -> tuple[ClusterKey, Credentials | None]:
    """Return the key and, for a cluster of several machines, this worker's certificate.

    TELEGRAD_CREDENTIALS names a worker's directory as `telegrad keygen` made it, the key included;
    TELEGRAD_KEY_FILE names a key alone, or another one than the directory's.
    """
    directory, key_file = environment.get(CREDENTIALS), environment.get(KEY_FILE)
    credentials = Credentials(directory) if directory else None
    if key_file:
        return ClusterKey.load(key_file), credentials
    if credentials is not None:
        return credentials.load_key(), credentials
    raise UsageError(
        f"no cluster key: start the workers with `telegrad run` or a LocalCluster, or set "
        f"{KEY_FILE} to a file that ClusterKey.fresh().save(path) of telegrad.rpc.security.keys "
        f"made, or set {CREDENTIALS} to a worker's directory made by `telegrad keygen`"
    )
