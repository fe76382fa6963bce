"""A cluster that a launcher, an engine or a person started, and that this process joins."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Self

from telegrad.distributed.cluster.cluster import Cluster, ClusterChange
from telegrad.distributed.worker_autograd import attach_autograd
from telegrad.errors import UsageError
from telegrad.rpc import api
from telegrad.rpc.membership.membership import Membership
from telegrad.rpc.membership.roster import Left, RosterChange
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.options import Options
from telegrad.rpc.worker import Worker

_NOBODY: Final = "nobody (found by arguments)"


class JoinedCluster(Cluster):
    """This process's view of a cluster that it has joined; leaving the `with` block shuts down.

    Examples:
        >>> from telegrad.distributed import join
        >>> with join("main", rank=0, world_size=1) as cluster:
        ...     cluster
        <JoinedCluster of main: running>
    """

    def __init__(self, membership: Membership) -> None:
        super().__init__()
        self._membership = membership
        self._worker = membership.worker
        self.launcher: str = membership.launcher or _NOBODY
        """What started this process, as far as that is known."""
        # First, so that nobody comes unseen meanwhile.
        self._membership.watchers.append(self._on_roster)
        self._worker.on_worker_lost(self._on_lost)
        for peer in self._worker.peers.all():
            self._tell(ClusterChange("came", peer.info))

    @property
    def is_running(self) -> bool:
        """Whether this process is still part of it."""
        return not self._worker.closed

    @property
    def worker(self) -> Worker:
        return self._worker

    @property
    def names(self) -> list[str]:
        """All workers that are known here, in the order of their ids."""
        return [peer.info.name for peer in self._worker.peers.all()]

    def _may_come(self, name: str) -> bool:
        return self._membership.is_open or super()._may_come(name)

    def add(self, name: str, **resources: Any) -> WorkerInfo:
        """Raise: workers of this cluster come by themselves."""
        raise UsageError(
            f"expected {name!r} to be started by {self.launcher}, as this process was: it joins by "
            "init_rpc"
        )

    def remove(self, name: str) -> None:
        """Raise: workers of this cluster leave by themselves."""
        raise UsageError(f"expected {name!r} to leave by itself, by rpc.shutdown()")

    def start(self) -> Self:
        """Do nothing: it was joined when it was made."""
        return self

    def stop(self) -> None:
        """Shut down gracefully; may be called again."""
        if not self._worker.closed:
            api.shutdown()

    def __exit__(self, *exception: object) -> None:
        if not self._worker.closed:
            # After an exception nobody waits for the others, who may wait for this one.
            api.shutdown(graceful=not any(exception))

    def _on_roster(self, change: RosterChange) -> None:
        if isinstance(change, Left):
            self._tell_gone("left", change.name, change.incarnation)
        else:
            self._tell_came(change.card.info)

    def _on_lost(self, who: WorkerInfo, error: BaseException) -> Callable[[], object]:
        return partial(self._tell, ClusterChange("lost", who, str(error)))


def join(
    name: str | None = None,
    *,
    rank: int | None = None,
    world_size: int | None = None,
    options: Options | None = None,
    meeting: Any = None,
) -> JoinedCluster:
    """Join the cluster that this process was started for, as ``rpc.init_rpc`` does.

    Arguments:
        name: The worker's name; by default, under a launcher, ``worker0`` and so on by rank.
        rank: Its rank, from 0.
        world_size: How many workers there are; without one, the world is open.
        options: The options of this worker.
        meeting: Where the workers meet: a directory that all see, or a ``torch.distributed.Store``.

    Returns:
        The cluster; its `launcher` says which launcher was found.

    Examples:
        >>> from telegrad.distributed import join
        >>> with join("main", rank=0, world_size=1) as cluster:
        ...     cluster.names
        ['main']
    """
    return JoinedCluster(
        api.join(
            name,
            rank=rank,
            world_size=world_size,
            options=options,
            meeting=meeting,
            on_start=attach_autograd,
        )
    )
