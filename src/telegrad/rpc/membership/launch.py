"""Finding out which launcher started this process, and its rank, world size and job.

Each launcher has a function of the environment, which returns None if another launcher set it. The
first that recognises the environment counts, so a launcher that may run inside another's job
(torchrun under srun) comes before the other.
"""

import re
import socket
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from telegrad.errors import UsageError
from telegrad.rpc.membership import environment as names

_Environment = Mapping[str, str]


class Launch(msgspec.Struct, frozen=True):
    """What a launcher says about this process."""

    launcher: str
    rank: int | None = None
    size: int | None = None
    local_size: int | None = None
    """How many of the workers are on this machine; None if that is not known."""
    job: str = ""
    """Distinguishes this run from all others on this machine."""
    host: str = ""
    """Where rank 0 runs, if the launcher says so."""

    @property
    def is_on_one_machine(self) -> bool:
        """Whether all workers are known to be on this machine."""
        return self.size is not None and self.local_size == self.size


def _torchrun(env: _Environment) -> Launch | None:
    run = env.get("TORCHELASTIC_RUN_ID")
    if run is None:
        return None
    again = env.get("TORCHELASTIC_RESTART_COUNT", "0")
    # The agents of several jobs may share a run id, but not their store's port.
    job = f"{run}-{env.get(names.MASTER_PORT, '')}-{again}"
    size = _number(env, names.WORLD_SIZE)
    local = _number(env, "LOCAL_WORLD_SIZE")
    return Launch("torchrun", _number(env, names.RANK), size, local, job)


def _telegrad_run(env: _Environment) -> Launch | None:
    if env.get(names.LAUNCHER) != "run":
        return None
    rank, size = _number(env, names.RANK), _number(env, names.WORLD_SIZE)
    return Launch("telegrad run", rank, size, size)


def _open_mpi(env: _Environment) -> Launch | None:
    if "OMPI_COMM_WORLD_RANK" not in env:
        return None
    rank, size, local = (
        _number(env, f"OMPI_COMM_WORLD_{what}") for what in ("RANK", "SIZE", "LOCAL_SIZE")
    )
    job = env.get("PMIX_NAMESPACE") or env.get("OMPI_MCA_ess_base_jobid", "")
    return Launch("mpirun (Open MPI)", rank, size, local, job)


def _mpich(env: _Environment) -> Launch | None:
    # srun sets PMI_RANK too, where it speaks PMI.
    if "PMI_RANK" not in env or "SLURM_PROCID" in env:
        return None
    rank, size = _number(env, "PMI_RANK"), _number(env, "PMI_SIZE")
    local = _number(env, "MPI_LOCALNRANKS") if "MPI_LOCALNRANKS" in env else None
    job = env.get("PMI_JOBID") or env.get("HYDRA_JOB_ID") or env.get("PMI_PORT", "")
    return Launch("mpirun (MPICH, Intel MPI)", rank, size, local, job)


def _slurm(env: _Environment) -> Launch | None:
    # A batch script itself has the first variable, too, though srun did not start it.
    if "SLURM_PROCID" not in env or "SLURM_STEP_ID" not in env:
        return None
    size = _number(env, "SLURM_NTASKS")
    nodes = env.get("SLURM_STEP_NUM_NODES") or env.get("SLURM_NNODES", "")
    host = _first_host(env.get("SLURM_STEP_NODELIST") or env.get("SLURM_NODELIST", ""))
    job = "-".join(
        env.get(name, "0") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")
    )
    local = size if nodes == "1" else None
    return Launch("srun", _number(env, "SLURM_PROCID"), size, local, job, host)


def _leader_worker_set(env: _Environment) -> Launch | None:
    if "LWS_WORKER_INDEX" not in env:
        return None
    rank, size = _number(env, "LWS_WORKER_INDEX"), _number(env, "LWS_GROUP_SIZE")
    host = env.get("LWS_LEADER_ADDRESS", "")
    return Launch("Kubernetes (LeaderWorkerSet)", rank, size, job=host, host=host)


def _indexed_job(env: _Environment) -> Launch | None:
    if "JOB_COMPLETION_INDEX" not in env:
        return None
    rank = _number(env, "JOB_COMPLETION_INDEX")
    # Kubernetes does not tell a pod how many pods there are: the manifest must.
    size = _number(env, names.WORLD_SIZE) if names.WORLD_SIZE in env else None
    host, _, domain = socket.getfqdn().partition(".")
    job = host.removesuffix(f"-{rank}")
    first = f"{job}-0.{domain}" if domain else f"{job}-0"
    return Launch("Kubernetes (indexed Job)", rank, size, job=job, host=first)


def _plain(env: _Environment) -> Launch | None:
    if names.RANK not in env and names.WORLD_SIZE not in env:
        return None
    rank = _number(env, names.RANK) if names.RANK in env else None
    size = _number(env, names.WORLD_SIZE) if names.WORLD_SIZE in env else None
    return Launch("the environment (RANK, WORLD_SIZE)", rank, size)


_LAUNCHERS: Final[tuple[Callable[[_Environment], Launch | None], ...]] = (
    _telegrad_run,
    _torchrun,
    _leader_worker_set,
    _indexed_job,
    _open_mpi,
    _mpich,
    _slurm,
    _plain,
)


def find_launch(env: _Environment) -> Launch | None:
    """Return what the launcher of this process says; None without a launcher."""
    return next((found for each in _LAUNCHERS if (found := each(env)) is not None), None)


def _number(env: _Environment, name: str) -> int:
    text = env.get(name)
    if text is None:
        raise UsageError(f"expected {name} in the environment, beside the others of its launcher")
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"expected an integer for {name}, got {text!r}") from None


def _first_host(listed: str) -> str:
    """Return the first host of one of Slurm's lists, such as ``node[03-07,11],login``."""
    found = re.match(r"([^,\[]+)(?:\[(\d+)[^\]]*\])?([^,\[]*)", listed)
    return "" if found is None else "".join(part or "" for part in found.groups())
