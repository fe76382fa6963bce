"""Residents: values that a worker keeps by name, and that are made again when it comes back.

A reference is bound to one life of a worker. A resident is bound to the worker's name: it finds the
value of the present life, which makes it if need be. Invariant: within one context, it is the value
of one life; if that life is over, so is the context.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from telegrad.distributed.contexts.context import CURRENT
from telegrad.errors import UsageError, WorkerLost
from telegrad.rpc.current import current_worker
from telegrad.rpc.references.rref import RRef
from telegrad.rpc.worker import Worker

_lock = threading.Lock()
_kept: WeakKeyDictionary[Worker, dict[str, tuple[Any, RRef]]] = WeakKeyDictionary()
"""What each worker of this process keeps, by name: its factory, and the reference to it."""


class Resident:
    """A value that a worker keeps by name; `keep` makes one.

    Arguments:
        worker: The worker's name.
        name: The value's name.
        recipe: The factory, its positional arguments and its keyword arguments.

    Examples:
        >>> rpc.keep("ps", "counts", dict)
        Resident('counts' on 'ps')
    """

    def __init__(self, worker: str, name: str, recipe: tuple[Any, Any, Any]) -> None:
        self.worker = worker
        self.name = name
        self._recipe = recipe
        self._found: tuple[int, RRef] | None = None
        self._context: tuple[int, int] | None = None
        """The last context that it was used in, and the worker's life there."""

    def __repr__(self) -> str:
        return f"Resident({self.name!r} on {self.worker!r})"

    def __reduce__(self) -> Any:
        return Resident, (self.worker, self.name, self._recipe)

    def rref(self) -> RRef:
        """Return a reference to the value of the worker's present life, which makes it if need be.

        Raises:
            WorkerLost: If the worker is lost, or came back while the current context was open.
        """
        here = current_worker()
        life = here.find(self.worker).info.incarnation
        found = self._found
        if found is None or found[0] != life:
            made: RRef = here.rpc_sync(self.worker, _made, (self.name, *self._recipe))
            found = self._found = here.find(self.worker).info.incarnation, made
        self._check(found[0])
        return found[1]

    def _check(self, life: int) -> None:
        point = CURRENT.get()
        if point is None or point.context.released:
            return
        number = point.context.id
        if self._context is not None and self._context[0] == number and self._context[1] != life:
            raise WorkerLost(
                f"worker {self.worker!r} was lost: {self.name!r} is that of another life since "
                "this context began; begin a new one"
            )
        self._context = number, life

    def rpc_sync(self, timeout: float | None = None) -> Any:
        """Return a proxy whose methods are called on the value, and return their results."""
        return self.rref().rpc_sync(timeout)

    def rpc_async(self, timeout: float | None = None) -> Any:
        """Return a proxy whose methods are called on the value, and return futures."""
        return self.rref().rpc_async(timeout)

    def to_here(self) -> Any:
        """Return a copy of the value."""
        return self.rref().to_here()

    def state_dict(self) -> Any:
        """Return the state of the value, which must have one."""
        return self.rref().rpc_sync().state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Give the value a state."""
        self.rref().rpc_sync().load_state_dict(state)


def keep(
    to: str,
    name: str,
    factory: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Resident:
    """Have worker `to` keep `factory(*args, **kwargs)` under a name, in each of its lives.

    Arguments:
        to: The worker's name.
        name: The value's name. If the worker already keeps a value of that name, it stays.
        factory: Makes the value on the worker, and once more when the worker comes back.
        args: The factory's positional arguments.
        kwargs: Its keyword arguments.

    Returns:
        The resident, which may be sent in calls.

    Examples:
        >>> counts = rpc.keep("ps", "numbers", dict)
        >>> counts.rpc_sync().update(a=1)
        >>> counts.to_here()
        {'a': 1}
    """
    if not isinstance(to, str) or not isinstance(name, str):
        raise UsageError(
            f"expected the names of a worker and of a value, got {to!r} and {name!r}: a resident "
            "is bound to names, which outlive a worker"
        )
    if not callable(factory):
        raise UsageError(
            f"expected a function or class that makes {name!r}, got a {type(factory).__name__}: a "
            "value itself could not be made again"
        )
    resident = Resident(to, name, (factory, tuple(args), dict(kwargs or {})))
    resident.rref()
    return resident


def _made(name: str, factory: Any, args: Any, kwargs: Any) -> RRef:
    """Return what this worker keeps by a name, made if it keeps nothing yet."""
    worker = current_worker()
    with _lock:
        held = _kept.setdefault(worker, {})
        found = held.get(name)
    if found is None:
        made = worker.make_rref(factory(*args, **kwargs))
        with _lock:
            # If two were made at the same time, the first counts.
            found = held.setdefault(name, (factory, made))
    return found[1]
