"""Where Ray places the workers of a cluster: the resources that it reserves, and the actors.

Nothing here knows what workers say to each other.
"""

import importlib
import logging
import time
from contextlib import suppress
from typing import Any, Final

from telegrad.distributed.cluster.on_ray.actors import (
    LONGEST_LEAVE,
    NAMESPACE,
    BoardActor,
    ClusterSpec,
    WorkerActor,
    board_name,
)
from telegrad.distributed.cluster.on_ray.resources import bundle, in_words, rounded
from telegrad.errors import CallTimeout, UnknownWorker, UsageError, WorkerLost

_log = logging.getLogger("telegrad.cluster")
_PROGRESS: Final = 5.0  # Seconds between two messages about what is being waited for.


class Placement:
    """Where the workers of one spec are; Ray has `timeout` seconds for each request."""

    def __init__(self, ray: Any, spec: ClusterSpec, timeout: float, *, is_detached: bool) -> None:
        self.board: Any = None
        self.actors: dict[str, Any] = {}
        self._ray = ray
        self._spec = spec
        self._timeout = timeout
        self._lifetime = "detached" if is_detached else None
        self._group: Any = None

    @classmethod
    def found(cls, ray: Any, name: str, timeout: float) -> tuple["Placement", ClusterSpec]:
        """Return the placement of a cluster that another program started, and its spec."""
        try:
            board = ray.get_actor(board_name(name), NAMESPACE)
        except ValueError:
            raise UsageError(
                f"there is no cluster named {name!r} on this Ray: start one with "
                "RayCluster(..., name=...)"
            ) from None
        spec: ClusterSpec = ray.get(board.spec.remote())
        placement = cls(ray, spec, timeout, is_detached=True)
        placement.board = board
        for worker in spec.resources:
            placement.actors[worker] = ray.get_actor(_actor_name(name, worker), NAMESPACE)
        return placement, spec

    def start(self, strategy: str) -> None:
        """Have Ray reserve resources for everyone, and start the board and the actors."""
        ray, spec = self._ray, self._spec
        needs = [bundle(each) for each in spec.resources.values()]
        if needs:
            group = ray.util.placement_group(needs, strategy=strategy, lifetime=self._lifetime)
            self._group = group
            self.wait(group.ready(), f"room for {in_words(spec.resources)}")
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        # On this program's own node: workers that come back need it, whatever other node is gone.
        here = strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        board = ray.remote(BoardActor).options(
            num_cpus=0,
            name=board_name(spec.name),
            namespace=NAMESPACE,
            lifetime=self._lifetime,
            scheduling_strategy=here,
        )
        self.board = board.remote(spec)
        for index, name in enumerate(spec.resources):
            place = strategies.PlacementGroupSchedulingStrategy(self._group, index)
            self.spawn(name, index + 1, scheduling_strategy=place)

    def spawn(self, name: str, rank: int, **given: Any) -> None:
        """Start the actor of a worker."""
        spec = self._spec
        if self._lifetime is not None:
            # Other programs find it by its name.
            own = _actor_name(spec.name, name)
            given.update(name=own, namespace=NAMESPACE, lifetime=self._lifetime)
        actor = self._ray.remote(WorkerActor).options(
            **{"num_gpus": 0, **spec.resources[name]},
            **spec.actor_options,
            max_concurrency=4,
            **given,
        )
        bare = ClusterSpec(spec.name, spec.key, spec.options, spec.is_secure, {}, {})
        self.actors[name] = actor.remote(bare, name, rank)

    def actor(self, name: str) -> Any:
        """Return Ray's handle of a worker's actor."""
        if name not in self.actors:
            raise UnknownWorker(
                f"there is no actor of worker {name!r}; there are {', '.join(self.actors)}"
            )
        return self.actors[name]

    def await_actor(self, name: str) -> None:
        """Wait until a worker's actor is up."""
        needs = in_words({name: self._spec.resources[name]})
        self.wait(self.actors[name].incarnation.remote(), f"the actor of {needs}")

    def wait(self, waited_for: Any, what: str) -> Any:
        """Wait for one of Ray's futures; log what is being waited for if that takes long."""
        end = time.monotonic() + self._timeout
        while True:
            left = end - time.monotonic()
            done, _ = self._ray.wait([waited_for], timeout=min(_PROGRESS, max(0.01, left)))
            if done:
                break
            has = rounded(self._ray.available_resources())
            if left <= _PROGRESS:
                raise CallTimeout(
                    f"Ray did not find {what} within {self._timeout:g} s; free are {has} of "
                    f"{rounded(self._ray.cluster_resources())}. Ask for less, add nodes, or give "
                    "RayCluster a longer start_timeout"
                )
            _log.warning("waiting for %s; free are %s", what, has)
        try:
            return self._ray.get(waited_for)
        except self._ray.exceptions.RayActorError as error:
            raise WorkerLost(f"Ray could not start {what}: {error}") from error

    def state_of(self, name: str) -> str:
        """Return Ray's word for the state of a worker's actor: ALIVE, RESTARTING, DEAD and more."""
        actor = self.actors.get(name)
        if actor is None:
            return "DEAD"
        # Not public, but the public one needs Ray's dashboard; the version of Ray is fixed.
        table = importlib.import_module("ray._private.state").actors(actor._actor_id.hex())
        return str(table.get("State", ""))

    def remove(self, name: str) -> None:
        """End the actor of a worker, after giving it a moment to leave."""
        actor = self.actors.pop(name)
        with suppress(self._ray.exceptions.RayError):
            self._ray.get(actor.leave.remote(), timeout=self._timeout)
        self._ray.kill(actor)

    def note_spec(self) -> None:
        """Save the spec as it is now, for a program that attaches later."""
        self._ray.get(self.board.change.remote(self._spec))

    def end(self) -> None:
        """End all actors and release their resources; may be called again.

        They get a moment to leave, since one that is killed leaves its socket's directory behind.
        """
        actors, self.actors = self.actors, {}
        if actors:
            with suppress(Exception):
                left = [actor.leave.remote() for actor in actors.values()]
                self._ray.wait(left, num_returns=len(left), timeout=LONGEST_LEAVE)
        for actor in [*actors.values(), self.board]:
            if actor is not None:
                with suppress(Exception):
                    self._ray.kill(actor)
        self.board = None
        group, self._group = self._group, None
        if group is not None:
            with suppress(Exception):
                self._ray.util.remove_placement_group(group)


def _actor_name(cluster: str, worker: str) -> str:
    return f"telegrad:{cluster}:{worker}"
