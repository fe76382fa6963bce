"""A training loop that survives the loss of a worker: it waits, restores a snapshot, and goes on.

1. The parts of a training (modules, optimisers, residents) are built. If there is a snapshot of
   their states, it is restored; otherwise the first one is taken.
2. Each step runs in a context of its own. After every so many steps there is another snapshot.
3. If a step fails and a worker was lost, the error is swallowed. The loop waits for the cluster,
   builds the parts again on the present lives, restores all of them from the last snapshot, and
   continues with the step after it.

Names are roles, incarnations are lives: nothing that was built on a past life is used again. An
error without a loss is the program's own, and is raised. So the steps after a loss compute what
they would have computed without it, bit for bit, if a step depends only on its number and the
parts.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from telegrad.distributed.autograd import context
from telegrad.distributed.survival.snapshots import snapshots_in
from telegrad.errors import ContextError, PeerError, UsageError
from telegrad.rpc.current import current_worker
from telegrad.rpc.timeouts import seconds

if TYPE_CHECKING:
    from telegrad.distributed.cluster.cluster import Cluster

_log = logging.getLogger("telegrad.training")
_MOST_LOSSES: Final = 100
"""In a row, without a step in between; after so many, something else is wrong."""

Build = Callable[[], Mapping[str, Any]]


class Step:
    """One step: a context, in a `with` statement; `step["name"]` is a part."""

    def __init__(self, training: "Training", number: int) -> None:
        self._training = training
        self.number = number
        """From 0."""
        self.is_done = False
        self.loss: BaseException | None = None
        """Why the step has to be done again, if it has."""
        self._context = context()

    def __repr__(self) -> str:
        return f"<Step {self.number} of {self._training.steps}>"

    def __getitem__(self, part: str) -> Any:
        return self._training.parts[part]

    def __enter__(self) -> int:
        return self._context.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        try:
            self._context.__exit__(kind, error, traceback)
        except (PeerError, ContextError) as ended:
            error = error or ended
        if error is None:
            self.is_done = True
            return False
        if not self._training.is_loss(error):
            return False
        self.loss = error
        return True


class Training:
    """The steps of a training that survives the loss of workers; see `Cluster.training`."""

    def __init__(
        self,
        cluster: "Cluster",
        build: Build,
        steps: int,
        *,
        snapshot_every: int = 10,
        snapshots: Any = None,
        patience: float = 300.0,
    ) -> None:
        if not callable(build):
            raise UsageError(
                f"expected a function that builds the parts, got a {type(build).__name__}: they "
                "are built anew after a loss"
            )
        if snapshot_every < 1 or steps < 0:
            raise UsageError(
                f"expected steps of 0 or more and snapshot_every of 1 or more, got {steps} and "
                f"{snapshot_every}"
            )
        self._cluster = cluster
        self._build = build
        self.steps = steps
        self._every = snapshot_every
        self._snapshots = snapshots_in(snapshots, cluster.names)
        self._patience = seconds(patience, "patience")
        self.parts: Mapping[str, Any] = {}
        """What `build` returned, on the present lives."""
        self._lives: dict[str, int] = {}
        self.losses = 0
        """How many times the training went back to a snapshot."""

    def __repr__(self) -> str:
        return f"<Training of {', '.join(self.parts)}: {self.steps} steps>"

    def __iter__(self) -> Iterator[Step]:
        number = self._safely(self._begin)
        while number < self.steps:
            step = Step(self, number)
            yield step
            if step.loss is not None:
                number = self._recover(step.loss)
            elif not step.is_done:
                raise UsageError(
                    "expected the work of a step inside of `with step as context_id:`, which was "
                    "not entered, or was left by an error that was kept from the loop"
                )
            elif (number + 1) % self._every == 0 or number + 1 == self.steps:
                number = self._safely(partial(self._save, number + 1))
            else:
                number += 1

    def _safely(self, act: Callable[[], int]) -> int:
        """Return the step that `act` returns, or recover if a worker is lost in it."""
        try:
            return act()
        except (PeerError, ContextError) as error:
            if not self.is_loss(error):
                raise
            return self._recover(error)

    def _begin(self) -> int:
        """Build the parts and restore the newest snapshot, or save the first; return the step."""
        worker = current_worker()
        others = [name for name in self._cluster.names if name != worker.name]
        self._lives = {name: worker.find(name).info.incarnation for name in others}
        self.parts = {}
        self.parts = dict(self._build())
        found = self._snapshots.newest()
        if found is None:
            return self._save(0)
        step, states = found
        self._load(step, states)
        return step

    def _save(self, step: int) -> int:
        states = {name: part.state_dict() for name, part in self.parts.items()}
        self._snapshots.save(step, states)
        return step

    def _load(self, step: int, states: Mapping[str, Any]) -> None:
        if set(states) != set(self.parts):
            raise UsageError(
                f"expected a snapshot of {sorted(self.parts)}, that of step {step} has "
                f"{sorted(states)}: build the same parts, or name another place for snapshots"
            )
        for name, part in self.parts.items():
            try:
                part.load_state_dict(states[name])
            except Exception as error:
                error.add_note(f"while {name!r} was restored from the snapshot of step {step}")
                raise

    def is_loss(self, error: BaseException) -> bool:
        """Say whether an error was caused by the loss of a worker."""
        return isinstance(error, (PeerError, ContextError)) and bool(self._lost())

    def _lost(self) -> list[str]:
        """Ask everyone; return who is gone, or in another life than when the parts were built."""
        worker = current_worker()
        patience = worker.options.lost_after
        return [name for name, life in self._lives.items() if _life(name, patience) != life]

    def _recover(self, error: BaseException) -> int:
        for _ in range(_MOST_LOSSES):
            lost = self._lost()
            self.losses += 1
            _log.warning("lost %s (%s): waiting, then back to a snapshot", ", ".join(lost), error)
            for name in lost:
                self._cluster.wait_for(name, after=self._lives[name], timeout=self._patience)
            try:
                return self._begin()
            except (PeerError, ContextError) as again:
                if not self.is_loss(again):
                    raise
                error = again
        raise error


def _life(name: str, patience: float) -> int | None:
    """Return the incarnation of a worker that answers; None if it does not."""
    worker = current_worker()
    try:
        found: int = worker.rpc_sync(name, _own_life, timeout=patience)
    except (PeerError, UsageError):
        return None
    return found


def _own_life() -> int:
    return current_worker().info.incarnation
