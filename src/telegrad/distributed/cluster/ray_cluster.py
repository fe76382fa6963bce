"""A cluster on Ray: an actor for each worker, and the calling program as one more worker.

Ray places, restarts and ships code; what workers send each other goes between them directly, not
through Ray. They meet on a board that is an actor, too, so a worker that Ray has started again is
back without anybody's help, and a new program can attach to a cluster that outlived the old one.

A worker that telegrad has lost, but Ray calls alive (it was stopped, its node is stuck), is
condemned: Ray ends it and starts another life of it.
"""

import importlib
import logging
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Self

from telegrad.distributed.cluster.cluster import Cluster, ClusterChange
from telegrad.distributed.cluster.ray_actors import (
    NAMESPACE,
    BoardActor,
    Plan,
    WorkerActor,
    board_name,
    member_of,
)
from telegrad.distributed.cluster.tls_files import Files, mint_files
from telegrad.errors import CallTimeout, PeerError, UnknownWorker, UsageError, WorkerLost
from telegrad.rpc.current import default_worker, set_default_worker
from telegrad.rpc.membership.membership import Membership
from telegrad.rpc.membership.roster import Left, RosterChange
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.options import Options, given_options
from telegrad.rpc.security.introduction import check_worker_name
from telegrad.rpc.security.keys import KEY_BYTES
from telegrad.rpc.timeouts import seconds
from telegrad.rpc.worker import Worker

__all__ = ["RayCluster"]

_log = logging.getLogger("telegrad.cluster")
_VERSION: Final = "2.60"
_RESOURCES: Final = ("num_cpus", "num_gpus", "memory", "resources")
_PROGRESS: Final = 5.0  # Seconds between two words on what is being waited for.
_DOUBT: Final = 3.0  # Seconds that Ray has to see that a lost worker's process has ended.


def _load_ray() -> Any:
    """Import Ray, or say how to get it."""
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise UsageError(
            f"a RayCluster needs Ray {_VERSION}, which is not installed here: "
            "pip install 'telegrad[ray]'"
        ) from error
    if not ray.__version__.startswith(f"{_VERSION}."):
        raise UsageError(
            f"a RayCluster needs Ray {_VERSION}, got {ray.__version__}: pip install "
            "'telegrad[ray]', here and on the nodes"
        )
    return ray


class RayCluster(Cluster):
    """Workers as actors of Ray, in a `with` statement.

    Arguments:
        workers: the resources of each worker by its name (num_cpus, num_gpus, memory, resources),
            or names alone, of one CPU each.
        me: what the calling program is called.
        options: those of every worker.
        strategy: how Ray is to place them: PACK, SPREAD, STRICT_PACK or STRICT_SPREAD.
        runtime_env: Ray's, for every worker.
        max_restarts: how often Ray starts a worker again that has died; -1 is always.
        start_timeout: the seconds that Ray has to place and start the workers.
        tls: whether workers speak TLS; None finds out whether they are on several machines.
        name: what a cluster is called that is to outlive this program; a program attaches to it
            with `RayCluster.attach(name)`, and `end` ends it.

    Ray must be initialised, or is by `ray.init()`. The cluster's key travels by Ray's own
    connections: who can read those can join.

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
        self._ray = _load_ray()
        self._me = check_worker_name(me)
        self._strategy = strategy
        self._timeout = seconds(start_timeout, "start_timeout")
        self._tls = tls
        self._is_detached = name is not None
        actor_options = {"max_restarts": max_restarts}
        if runtime_env is not None:
            actor_options["runtime_env"] = dict(runtime_env)  # type: ignore[assignment]
        self._plan = Plan(
            name or f"cluster-{secrets.token_hex(8)}",
            secrets.token_bytes(KEY_BYTES),
            given_options(options),
            bool(tls),
            {},
            actor_options,
            _chosen_resources(workers, me),
        )
        self._is_attached = False
        self._board: Any = None
        self._group: Any = None
        self._actors: dict[str, Any] = {}
        self._membership: Membership | None = None
        self._before: Worker | None = None

    @classmethod
    def attach(cls, name: str, *, me: str = "main", start_timeout: float = 60.0) -> "RayCluster":
        """Return a running cluster of that name, started by another program, with this one in it.

        Leaving it, by `stop` or at the end of a `with` block, leaves the workers as they are.
        """
        ray = _load_ray()
        if not ray.is_initialized():
            ray.init()
        try:
            board = ray.get_actor(board_name(name), NAMESPACE)
        except ValueError:
            raise UsageError(
                f"there is no cluster named {name!r} on this Ray: start one with "
                "RayCluster(..., name=...)"
            ) from None
        found = cls([], me=me, name=name, start_timeout=start_timeout)
        found._plan = ray.get(board.plan.remote())
        found._board = board
        found._is_attached = True
        for worker in found._plan.resources:
            found._actors[worker] = ray.get_actor(_actor_name(name, worker), NAMESPACE)
        return found.start()

    @property
    def is_running(self) -> bool:
        """Whether it has started and not ended."""
        return self._membership is not None

    @property
    def worker(self) -> Worker:
        """The calling program's own worker."""
        if self._membership is None:
            raise UsageError("the cluster is not running: use it in a with statement")
        return self._membership.worker

    @property
    def names(self) -> list[str]:
        """All workers, in the order of their ids."""
        return [self._me, *self._plan.resources]

    def actor(self, name: str) -> Any:
        """Return Ray's handle of a worker's actor."""
        if name not in self._actors:
            raise UnknownWorker(
                f"there is no actor of worker {name!r}; there are {', '.join(self._actors)}"
            )
        return self._actors[name]

    def start(self) -> Self:
        """Start the workers; return when all are up."""
        if self._membership is not None:
            raise UsageError("the cluster is running already")
        try:
            if not self._ray.is_initialized():
                self._ray.init()
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
        """Have Ray find room for everyone and start the actors."""
        ray, plan = self._ray, self._plan
        needs = [_bundle(each) for each in plan.resources.values()]
        if needs:
            lifetime = "detached" if self._is_detached else None
            group = ray.util.placement_group(needs, strategy=self._strategy, lifetime=lifetime)
            self._group = group
            self._await_ray(group.ready(), f"room for {_in_words(plan.resources)}")
        if self._tls is None:
            plan.is_secure = self._is_on_several_machines()
        if plan.is_secure:
            _, plan.authority = mint_files(self._me, plan.authority)
        lifetime = "detached" if self._is_detached else None
        board = ray.remote(BoardActor).options(
            num_cpus=0, name=board_name(plan.name), namespace=NAMESPACE, lifetime=lifetime
        )
        self._board = board.remote(plan)
        for index, name in enumerate(plan.resources):
            self._spawn(name, index)

    def _is_on_several_machines(self) -> bool:
        if self._group is None:
            return False
        table = self._ray.util.placement_group_table(self._group)
        where = {node["NodeID"]: node["NodeManagerAddress"] for node in self._ray.nodes()}
        hosts = {where.get(node) for node in table["bundles_to_node_id"].values()}
        return hosts != {self._ray.util.get_node_ip_address()}

    def _own_options(self, name: str) -> dict[str, Any]:
        """Return Ray's options of an actor that others find by name, where it is to outlive us."""
        if not self._is_detached:
            return {}
        return {"name": name, "namespace": NAMESPACE, "lifetime": "detached"}

    def _spawn(self, name: str, index: int | None) -> None:
        """Start the actor of a worker, in its place of the group."""
        ray, plan = self._ray, self._plan
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        given: dict[str, Any] = {}
        if index is not None:
            given["scheduling_strategy"] = strategies.PlacementGroupSchedulingStrategy(
                self._group, index
            )
        actor = ray.remote(WorkerActor).options(
            **_actor_needs(plan.resources[name]),
            **plan.actor_options,
            **self._own_options(_actor_name(plan.name, name)),
            max_concurrency=4,
            **given,
        )
        rank = list(plan.resources).index(name) + 1 if index is not None else self._free_rank()
        bare = Plan(plan.name, plan.key, plan.options, plan.is_secure, {}, {}, {})
        self._actors[name] = actor.remote(bare, name, rank, self._files(name))

    def _free_rank(self) -> int:
        return max(peer.info.id for peer in self.worker.peers.all()) + 1

    def _files(self, name: str) -> Files:
        return mint_files(name, self._plan.authority)[0] if self._plan.is_secure else {}

    def _take_part(self) -> None:
        """Become a worker of the cluster, and wait for the others."""
        host = self._ray.util.get_node_ip_address()
        membership = member_of(self._plan, self._board, self._me, None, self._files(self._me), host)
        self._membership = membership
        membership.watchers.append(self._on_roster)
        membership.worker.on_worker_lost(self._on_lost)
        self._tell(ClusterChange("came", membership.worker.info))
        for name in self._plan.resources:
            self._await_up(name)
        self._before = set_default_worker(membership.worker)

    def _await_up(self, name: str) -> WorkerInfo:
        """Wait until a worker's actor is up, and has been called once: its loss is seen then."""
        needs = _in_words({name: self._plan.resources[name]})
        self._await_ray(self._actors[name].incarnation.remote(), f"the actor of {needs}")
        info = self.worker.find(name).info
        self.worker.rpc_sync(name, abs, (0,), timeout=self._timeout)
        self._tell(ClusterChange("came", info))
        return info

    def _await_ray(self, waited_for: Any, what: str) -> Any:
        """Wait for something of Ray's, and say what it is if that takes long."""
        end = time.monotonic() + self._timeout
        while True:
            left = end - time.monotonic()
            done, _ = self._ray.wait([waited_for], timeout=min(_PROGRESS, max(0.01, left)))
            if done:
                break
            has = _rounded(self._ray.available_resources())
            if left <= _PROGRESS:
                raise CallTimeout(
                    f"Ray did not find {what} within {self._timeout:g} s; free are {has} of "
                    f"{_rounded(self._ray.cluster_resources())}. Ask for less, add nodes, or give "
                    "RayCluster a longer start_timeout"
                )
            _log.warning("waiting for %s; free are %s", what, has)
        try:
            return self._ray.get(waited_for)
        except self._ray.exceptions.RayActorError as error:
            raise WorkerLost(f"Ray could not start {what}: {error}") from error

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
        self._plan.resources[name] = _checked_resources(name, resources)
        try:
            self._spawn(name, None)
            info = self._await_up(name)
        except BaseException:
            del self._plan.resources[name]
            if (actor := self._actors.pop(name, None)) is not None:
                self._ray.kill(actor)
            raise
        self._ray.get(self._board.change.remote(self._plan))
        return info

    def remove(self, name: str) -> None:
        """End a worker; its name is unknown afterwards."""
        _ = self.worker
        if name not in self._actors:
            raise UnknownWorker(
                f"there is no worker {name!r} to remove; there are {', '.join(self._actors)}"
            )
        del self._plan.resources[name]
        actor = self._actors.pop(name)
        self._tell(ClusterChange("left", self.worker.find(name).info))
        with suppress(self._ray.exceptions.RayError):
            self._ray.get(actor.leave.remote(), timeout=self._timeout)
        self._ray.kill(actor)
        self._ray.get(self._board.change.remote(self._plan))
        assert self._membership is not None, "it runs"
        self._membership.roster.refresh()

    def _on_roster(self, change: RosterChange) -> None:
        if isinstance(change, Left):
            known = self._up.get(change.name)
            if known is not None and known.incarnation == change.incarnation:
                # Of one that died the next life says that it is gone.
                kind: Any = "lost" if change.name in self._actors else "left"
                self._tell(ClusterChange(kind, known))
            return
        name = change.card.name
        if name in self._actors and not self._is_known(change.card.info):
            threading.Thread(
                target=self._welcome, args=(change.card.info,), name="telegrad-ray", daemon=True
            ).start()

    def _is_known(self, info: WorkerInfo) -> bool:
        known = self._up.get(info.name)
        return known is not None and known.incarnation == info.incarnation

    def _welcome(self, info: WorkerInfo) -> None:
        """A worker has come, or is back: call it, so that its loss is seen, then tell."""
        with suppress(PeerError, UsageError):
            self.worker.rpc_sync(info.name, abs, (0,), timeout=self._timeout)
            known = self._up.get(info.name)
            if known is not None and known.incarnation != info.incarnation:
                self._tell(ClusterChange("lost", known, "it has started anew"))
            self._tell(ClusterChange("came", info))

    def _on_lost(self, who: WorkerInfo, error: BaseException) -> Any:
        def note() -> None:
            if self._is_known(who):
                self._tell(ClusterChange("lost", who, str(error)))
            if who.name in self._actors:
                threading.Thread(
                    target=self._judge, args=(who,), name="telegrad-ray", daemon=True
                ).start()

        return note

    def _judge(self, who: WorkerInfo) -> None:
        """Wait for Ray to see that a worker has died; condemn one that it calls alive."""
        end = time.monotonic() + _DOUBT
        while time.monotonic() < end:
            state, actor = self._state_of(who.name), self._actors.get(who.name)
            if self._membership is None or actor is None or who.name in self._up:
                return
            if state == "DEAD":
                self._give_up(who.name, WorkerLost(f"Ray has given worker {who.name!r} up"))
                return
            if state != "ALIVE":
                # It is being started again: that takes as long as it takes.
                end = time.monotonic() + _DOUBT
            time.sleep(0.1)
        _log.warning("worker %r is lost, but alive for Ray: it is started anew", who.name)
        with suppress(self._ray.exceptions.RayError):
            self._ray.kill(actor, no_restart=False)

    def _state_of(self, name: str) -> str:
        actor = self._actors.get(name)
        if actor is None:
            return "DEAD"
        # Not public, but the public one needs Ray's dashboard; the version of Ray is fixed.
        table = importlib.import_module("ray._private.state").actors(actor._actor_id.hex())
        return str(table.get("State", ""))

    # The end.

    def stop(self) -> None:
        """Leave the cluster, and end it unless it was given a name; may be called again."""
        membership, self._membership = self._membership, None
        if membership is not None:
            if membership.worker is default_worker():
                set_default_worker(self._before)
            membership.close()
        with self._news:
            self._up.clear()
        if not self._is_detached:
            self.end()

    def end(self) -> None:
        """End all workers, those of a cluster with a name too; may be called again."""
        actors, self._actors = self._actors, {}
        if self._membership is not None:
            self.stop()
        for actor in [*actors.values(), self._board]:
            if actor is not None:
                with suppress(Exception):
                    self._ray.kill(actor)
        self._board = None
        group, self._group = self._group, None
        if group is not None:
            with suppress(Exception):
                self._ray.util.remove_placement_group(group)


def _actor_name(cluster: str, worker: str) -> str:
    return f"telegrad:{cluster}:{worker}"


def _chosen_resources(workers: Any, me: str) -> dict[str, dict[str, Any]]:
    if isinstance(workers, str) or not isinstance(workers, (Mapping, Sequence)):
        raise UsageError(
            'expected workers like {"ps": {"num_cpus": 1}} or ["ps", "trainer"], got '
            f"{workers!r}"
        )
    if not isinstance(workers, Mapping):
        twice = sorted({name for name in workers if list(workers).count(name) > 1})
        if twice:
            raise UsageError(f"expected different names, {', '.join(twice)} came twice")
        workers = {name: {} for name in workers}
    if me in workers:
        raise UsageError(
            f"expected different names, {me} came twice; this program is {me!r} itself, me=... "
            "gives it another name"
        )
    return {
        check_worker_name(name): _checked_resources(name, given) for name, given in workers.items()
    }


def _checked_resources(name: str, given: Any) -> dict[str, Any]:
    unknown = sorted(set(given) - set(_RESOURCES)) if isinstance(given, Mapping) else [repr(given)]
    if unknown:
        raise UsageError(
            f"expected {', '.join(_RESOURCES)} as resources of {name!r}, got {', '.join(unknown)}"
        )
    return {"num_cpus": 1, **given}


def _bundle(given: Mapping[str, Any]) -> dict[str, float]:
    """Return what Ray is to keep free for a worker."""
    bundle = {
        "CPU": given.get("num_cpus", 0),
        "GPU": given.get("num_gpus", 0),
        "memory": given.get("memory", 0),
        **given.get("resources", {}),
    }
    needs = {kind: amount for kind, amount in bundle.items() if amount}
    return needs or {"CPU": 0.001}


def _actor_needs(given: Mapping[str, Any]) -> dict[str, Any]:
    return {"num_gpus": 0, **given}


def _in_words(resources: Mapping[str, Mapping[str, Any]]) -> str:
    return ", ".join(f"{name!r} ({_bundle(needs)})" for name, needs in resources.items())


def _rounded(resources: Mapping[str, float]) -> dict[str, float]:
    wanted = {k: v for k, v in resources.items() if not k.startswith(("node:", "bundle_group"))}
    return {
        kind: round(amount, 2) for kind, amount in sorted(wanted.items()) if "_group_" not in kind
    }
