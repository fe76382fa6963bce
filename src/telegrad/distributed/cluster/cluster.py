"""Cluster, the base of all clusters: workers by name, which come, leave and are lost.

A name is a role, and an incarnation is one life in it: a worker that is started again has the same
name and another incarnation. How workers are started is left to the derived classes.
"""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Literal, Self

import msgspec

from telegrad.distributed.survival.training import Training
from telegrad.errors import CallTimeout, UnknownWorker, UsageError
from telegrad.pictures.table import html_table
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.timeouts import seconds
from telegrad.rpc.worker import Worker

_log = logging.getLogger("telegrad.cluster")


class ClusterChange(msgspec.Struct, frozen=True):
    """A worker came (for the first time or again), left on purpose, or was lost.

    Arguments:
        kind: Which of the three.
        worker: The worker, and which life of it.
        reason: Why, if that is known.

    Examples:
        >>> from telegrad.distributed import ClusterChange
        >>> change = ClusterChange("lost", rpc.get_worker_info("ps"), "its process ended")
        >>> change.kind, change.worker.name
        ('lost', 'ps')
    """

    kind: Literal["came", "left", "lost"]
    worker: WorkerInfo
    reason: str = ""


class Cluster(ABC):
    """Workers that this process can call, itself among them; use it in a `with` statement.

    Examples:
        >>> from telegrad.distributed import Cluster, LocalCluster
        >>> cluster = LocalCluster(["ps", "trainer"])
        >>> isinstance(cluster, Cluster), cluster.names
        (True, ['main', 'ps', 'trainer'])
    """

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._up: dict[str, WorkerInfo] = {}
        self._failed: dict[str, BaseException] = {}
        """By worker that is not up and won't be: why."""
        self._callbacks: list[Callable[[ClusterChange], object]] = []

    def __repr__(self) -> str:
        state = "running" if self.is_running else "not running"
        return f"<{type(self).__name__} of {', '.join(self.names)}: {state}>"

    def _repr_html_(self) -> str:
        state = "running" if self.is_running else "not running"
        rows = [self._row(name) for name in self.names]
        titles = ("worker", "id", "process", "state")
        return html_table([titles, *rows], f"{type(self).__name__}, {state}")

    def _row(self, name: str) -> tuple[str, ...]:
        worker, failed = self._up.get(name), self._failed.get(name)
        if worker is not None:
            return name, str(worker.id), self._process_number(name), "up"
        return name, "", "", "not up" if failed is None else f"lost: {failed}"

    def _process_number(self, name: str) -> str:
        """Return the number of a worker's process as text, "" if that is not known."""
        return ""

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""

    @property
    @abstractmethod
    def worker(self) -> Worker:
        """The calling process's own worker."""

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """All workers, in the order of their ids."""

    @abstractmethod
    def add(self, name: str, **resources: Any) -> WorkerInfo:
        """Start one more worker; return when everyone knows it."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """End a worker; its name is unknown afterwards."""

    @abstractmethod
    def start(self) -> Self:
        """Start the workers; return when all are up."""

    @abstractmethod
    def stop(self) -> None:
        """End the cluster; may be called again."""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def wait_for(
        self, *names: str, after: int | None = None, timeout: float = 60.0
    ) -> list[WorkerInfo]:
        """Wait until all of these workers are up, and return them.

        Arguments:
            names: The names of the workers; all workers of the cluster by default.
            after: An incarnation that is over: wait for another one.
            timeout: Seconds to wait.

        Raises:
            CallTimeout: If not all were up in time.
            UnknownWorker: If the cluster has no worker of that name, and none may join.
        """
        wanted = names or tuple(self.names)

        def missing() -> list[str]:
            there = {name: self._up.get(name) for name in wanted}
            return [n for n, info in there.items() if info is None or info.incarnation == after]

        def is_over() -> bool:
            return not missing() or any(name in self._failed for name in missing())

        for name in wanted:
            if not self._may_come(name):
                known = ", ".join(map(repr, self.names))
                raise UnknownWorker(f"there is no worker {name!r}; the workers are {known}")
        patience = min(seconds(timeout), threading.TIMEOUT_MAX)
        with self._news:
            in_time = self._news.wait_for(is_over, patience)
            for name in missing():
                if name in self._failed:
                    raise UsageError(
                        f"worker {name!r} won't come back: {self._failed[name]}"
                    ) from self._failed[name]
            if not in_time:
                late = ", ".join(map(repr, missing()))
                raise CallTimeout(f"{late} did not come up within {timeout:g} s")
            return [self._up[name] for name in wanted]

    def _may_come(self, name: str) -> bool:
        """Say whether there is a worker of that name, or one may still join."""
        return name in self.names

    def training(
        self,
        build: Callable[[], Mapping[str, Any]],
        steps: int,
        *,
        snapshot_every: int = 10,
        snapshots: Any = None,
        patience: float = 300.0,
    ) -> Training:
        """Return the steps of a training that recovers by itself when a worker is lost.

        Arguments:
            build: Makes the parts, by name: objects with `state_dict` and `load_state_dict`, such
                as RemoteModule, DistributedOptimizer and residents. Called again after a loss.
            steps: How many steps there are.
            snapshot_every: After how many steps the states of all parts are saved.
            snapshots: Where: a directory's path, the name of a worker that keeps them in its
                memory, or None for this process's memory. If there are some, training goes on.
            patience: The seconds that a lost worker has to come back.

        Example::

            for step in cluster.training(build, 100, snapshots="snapshots"):
                with step as context_id:
                    loss = step["model"](batch(step.number)).sum()
                    dist_autograd.backward(context_id, [loss])
                    step["optimizer"].step(context_id)
        """
        return Training(
            self,
            build,
            steps,
            snapshot_every=snapshot_every,
            snapshots=snapshots,
            patience=patience,
        )

    def on_change(self, callback: Callable[[ClusterChange], object]) -> None:
        """Call `callback(change)` when a worker comes, leaves or is lost; it must not wait."""
        self._callbacks.append(callback)

    def _tell(self, change: ClusterChange) -> bool:
        """Note a change and report it; return False if it is old news."""
        with self._news:
            known = self._up.get(change.worker.name)
            is_it = known is not None and known.incarnation == change.worker.incarnation
            if is_it == (change.kind == "came"):
                return False
            if change.kind == "came":
                self._up[change.worker.name] = change.worker
                self._failed.pop(change.worker.name, None)
            else:
                del self._up[change.worker.name]
            self._news.notify_all()
        for callback in list(self._callbacks):
            try:
                callback(change)
            except Exception:
                _log.exception("a callback of on_change failed")
        return True

    def _tell_gone(self, kind: Literal["left", "lost"], name: str, incarnation: int) -> None:
        """Report that a life of a worker has ended, if that life was up."""
        known = self._up.get(name)
        if known is not None and known.incarnation == incarnation:
            self._tell(ClusterChange(kind, known))

    def _tell_came(self, worker: WorkerInfo) -> None:
        """Report that a worker came, and before that the loss of another life that was up."""
        known = self._up.get(worker.name)
        if known is not None and known.incarnation != worker.incarnation:
            self._tell(ClusterChange("lost", known, "it has started anew"))
        self._tell(ClusterChange("came", worker))

    def _give_up(self, name: str, why: BaseException) -> None:
        """Note that a worker won't be back."""
        with self._news:
            self._failed[name] = why
            self._news.notify_all()
