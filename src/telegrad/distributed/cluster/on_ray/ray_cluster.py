"""A cluster on Ray: an actor for each worker, and the calling program as one more worker.

Ray places and restarts workers and ships code; what workers send each other goes between them
directly, not through Ray. They meet on a board that is an actor, too, so a worker that Ray has
restarted joins again without anybody's help, and a new program can attach to a cluster that has
outlived the old one.
"""

import secrets
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

from telegrad.distributed.cluster.cluster import Cluster, ClusterChange
from telegrad.distributed.cluster.on_ray.actors import ClusterSpec, member_of
from telegrad.distributed.cluster.on_ray.condemnation import judge
from telegrad.distributed.cluster.on_ray.placement import Placement
from telegrad.distributed.cluster.on_ray.ray_library import load_ray
from telegrad.distributed.cluster.on_ray.resources import checked_resources, chosen_resources
from telegrad.errors import PeerError, UnknownWorker, UsageError, WorkerLost
from telegrad.rpc.current import check_not_serving, default_worker, set_default_worker
from telegrad.rpc.membership.membership import Membership
from telegrad.rpc.membership.roster import Left, RosterChange
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.options import Options, given_options
from telegrad.rpc.security.introduction import check_worker_name
from telegrad.rpc.security.keyed_credentials import KeyedCredentials
from telegrad.rpc.security.keys import KEY_BYTES, ClusterKey
from telegrad.rpc.timeouts import seconds
from telegrad.rpc.worker import Worker


class RayCluster(Cluster):
    """Workers as actors of Ray, in a `with` statement.

    Arguments:
        workers: The resources of each worker by its name (num_cpus, num_gpus, memory, resources),
            or names alone, of one CPU each.
        me: The name of the calling program.
        options: The options of every worker.
        strategy: How Ray is to place them: PACK, SPREAD, STRICT_PACK or STRICT_SPREAD.
        runtime_env: Ray's runtime environment for every worker.
        max_restarts: How often Ray restarts a worker that has died; -1 is always.
        start_timeout: The seconds that Ray has to place and start the workers.
        tls: Whether workers of different machines speak TLS, by the cluster's key; None finds out
            whether Ray has several machines.
        name: The name of a cluster that is to outlive this program; another program attaches to it
            with `RayCluster.attach(name)`, and `end` ends it.

    If Ray is not initialised, `ray.init()` is called. The cluster's key travels over Ray's own
    connections: whoever can read those can join.

    Examples:
        >>> from telegrad.distributed import RayCluster
        >>> with RayCluster({"ps": {"num_cpus": 1}}):  # doctest: +SKIP
        ...     print(rpc.rpc_sync("ps", abs, (-2,)))
        2
    """

    def __init__(
        self,
        workers: Mapping[str, Mapping[str, Any]] | Sequence[str],
        *,
        me: str = "main",
        options: Options | None = None,
        strategy: str = "PACK",
        runtime_env: Mapping[str, Any] | None = None,
        max_restarts: int = -1,
        start_timeout: float = 60.0,
        tls: bool | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self._ray = load_ray()
        self._me = check_worker_name(me)
        self._strategy = strategy
        self._timeout = seconds(start_timeout, "start_timeout")
        chosen = given_options(options)
        self._tls = chosen.tls if tls is None else tls
        self._is_detached = name is not None
        actor_options = {"max_restarts": max_restarts}
        if runtime_env is not None:
            actor_options["runtime_env"] = dict(runtime_env)  # type: ignore[assignment]
        self._spec = ClusterSpec(
            name or f"cluster-{secrets.token_hex(8)}",
            secrets.token_bytes(KEY_BYTES),
            chosen,
            bool(self._tls),
            actor_options,
            chosen_resources(workers, me),
        )
        self._is_attached = False
        self._placement = Placement(
            self._ray, self._spec, self._timeout, is_detached=self._is_detached
        )
        self._membership: Membership | None = None
        self._before: Worker | None = None

    @classmethod
    def attach(cls, name: str, *, me: str = "main", start_timeout: float = 60.0) -> "RayCluster":
        """Return a running cluster of that name, started by another program, with this one in it.

        Leaving it, by `stop` or at the end of a `with` block, leaves the workers as they are.

        Arguments:
            name: The name that the other program gave to the cluster.
            me: The name of this program's own worker.
            start_timeout: How many seconds the cluster may take to be found.
        """
        ray = load_ray()
        if not ray.is_initialized():
            ray.init()
        attached = cls([], me=me, name=name, start_timeout=start_timeout)
        attached._placement, attached._spec = Placement.found(ray, name, attached._timeout)
        attached._is_attached = True
        return attached.start()

    @property
    def is_running(self) -> bool:
        return self._membership is not None

    @property
    def worker(self) -> Worker:
        """The calling program's own worker."""
        if self._membership is None:
            raise UsageError("the cluster is not running: use it in a with statement")
        return self._membership.worker

    @property
    def names(self) -> list[str]:
        return [self._me, *self._spec.resources]

    def actor(self, name: str) -> Any:
        """Return Ray's handle of a worker's actor."""
        return self._placement.actor(name)

    def start(self) -> Self:
        if self._membership is not None:
            raise UsageError("the cluster is running already")
        check_not_serving()
        try:
            if not self._is_attached:
                self._place()
            self._take_part()
        except BaseException:
            if self._is_attached:
                self.stop()
            else:
                self.end()
            raise
        return self

    def _place(self) -> None:
        """Have Ray start the workers."""
        ray, spec = self._ray, self._spec
        if not ray.is_initialized():
            ray.init()
        if self._tls is None:
            # Wherever they start, Ray may restart them on another machine.
            spec.is_secure = len({node["NodeManagerAddress"] for node in ray.nodes()}) > 1
        if spec.is_secure:
            # Raises, if it has to, before Ray is asked for anything.
            KeyedCredentials(self._me, ClusterKey(spec.key)).check(self._me)
        self._placement.start(self._strategy)

    def _take_part(self) -> None:
        """Join the cluster as a worker, and wait for the others."""
        host = self._ray.util.get_node_ip_address()
        membership = member_of(self._spec, self._placement.board, self._me, None, host)
        self._membership = membership
        membership.watchers.append(self._on_roster)
        membership.worker.on_worker_lost(self._on_lost)
        self._tell(ClusterChange("came", membership.worker.info))
        for name in self._spec.resources:
            self._await_up(name)
        self._before = set_default_worker(membership.worker)

    def _await_up(self, name: str) -> WorkerInfo:
        """Wait until a worker's actor is up, and call it once, so that its loss will be noticed."""
        self._placement.await_actor(name)
        info = self.worker.find(name).info
        self.worker.rpc_sync(name, abs, (0,), timeout=self._timeout)
        self._tell(ClusterChange("came", info))
        return info

    # Changes.

    def add(self, name: str, **resources: Any) -> WorkerInfo:
        """Start one more worker, with resources of Ray; return when it is up."""
        check_worker_name(name)
        _ = self.worker
        if name in self.names:
            raise UsageError(
                f"there is a worker named {name!r} already, at {self.worker.find(name).address}: "
                "choose another name, or remove it first"
            )
        self._spec.resources[name] = checked_resources(name, resources)
        try:
            rank = max(peer.info.id for peer in self.worker.peers.all()) + 1
            self._placement.spawn(name, rank)
            info = self._await_up(name)
        except BaseException:
            del self._spec.resources[name]
            if (actor := self._placement.actors.pop(name, None)) is not None:
                self._ray.kill(actor)
            raise
        self._placement.note_spec()
        return info

    def remove(self, name: str) -> None:
        _ = self.worker
        if name not in self._spec.resources:
            raise UnknownWorker(
                f"there is no worker {name!r} to remove; there are {', '.join(self.names[1:])}"
            )
        del self._spec.resources[name]
        self._tell(ClusterChange("left", self.worker.find(name).info))
        self._placement.remove(name)
        self._placement.note_spec()
        assert self._membership is not None, "it runs"
        self._membership.roster.refresh()

    def _on_roster(self, change: RosterChange) -> None:
        if isinstance(change, Left):
            # The next life of a worker that died says that it is gone.
            has_died = change.name in self._spec.resources
            self._tell_gone("lost" if has_died else "left", change.name, change.incarnation)
            return
        name = change.card.name
        if name in self._spec.resources and self._up.get(name) != change.card.info:
            threading.Thread(
                target=self._welcome, args=(change.card.info,), name="telegrad-ray", daemon=True
            ).start()

    def _welcome(self, info: WorkerInfo) -> None:
        """Call a worker that came, so that its loss will be noticed; then report that it came."""
        with suppress(PeerError, UsageError):
            self.worker.rpc_sync(info.name, abs, (0,), timeout=self._timeout)
            self._tell_came(info)

    def _on_lost(self, who: WorkerInfo, error: BaseException) -> Any:
        def note() -> None:
            self._tell(ClusterChange("lost", who, str(error)))
            if who.name in self._spec.resources:
                threading.Thread(
                    target=self._judge, args=(who.name,), name="telegrad-ray", daemon=True
                ).start()

        return note

    def _judge(self, name: str) -> None:
        def is_over() -> bool:
            return self._membership is None or name in self._up

        if judge(self._ray, self._placement, name, is_over):
            self._give_up(name, WorkerLost(f"Ray has given worker {name!r} up"))

    # The end.

    def stop(self) -> None:
        """Leave the cluster, and end it unless it has a name; may be called again."""
        self._leave()
        if not self._is_detached:
            self._placement.end()

    def end(self) -> None:
        """End all workers, even of a cluster with a name; may be called again."""
        self._leave()
        self._placement.end()

    def _leave(self) -> None:
        membership, self._membership = self._membership, None
        if membership is not None:
            if membership.worker is default_worker():
                set_default_worker(self._before)
            membership.close()
        with self._news:
            self._up.clear()
