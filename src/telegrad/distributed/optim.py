"""One optimiser for parameters that live on many workers.

On each owner there is an ordinary optimiser for the owner's parameters; ``step`` runs them all at
once, with the gradients of a context. Any class with the interface of ``telegrad.optim`` (or
``torch.optim``) will do.

Updates to one parameter are serialised by a lock of its own, so those of several trainers never
mix. They are never in the way of a pass between its forward and backward: an update gives the
parameter fresh memory if a graph still needs the old values.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from telegrad.distributed.autograd import get_gradients
from telegrad.distributed.equipment import autograd_of
from telegrad.distributed.locks import locks_of
from telegrad.errors import DTypeError, UsageError
from telegrad.rpc.call import Call
from telegrad.rpc.current import current_worker
from telegrad.rpc.rref import RRef
from telegrad.rpc.wire.functions import expose

__all__ = ["DistributedOptimizer", "DistributedScheduler"]


class DistributedOptimizer:
    """Steps parameters where they live; `params_rref` are RRefs to them."""

    def __init__(
        self,
        optimizer_class: Callable[..., Any],
        params_rref: Iterable[RRef],
        *args: Any,
        **kwargs: Any,
    ) -> None:
        by_owner: dict[str, list[RRef]] = {}
        for i, reference in enumerate(params_rref):
            if not isinstance(reference, RRef):
                raise DTypeError(
                    f"expected an RRef to a parameter as params_rref[{i}], got "
                    f"{type(reference).__name__}; wrap a local one with rpc.RRef(parameter)"
                )
            by_owner.setdefault(reference.owner_name(), []).append(reference)
        if not by_owner:
            raise UsageError("expected at least one RRef to a parameter, got none")
        worker = current_worker()
        makers = {
            owner: worker.rpc_async(owner, _make_local, (optimizer_class, references, args, kwargs))
            for owner, references in by_owner.items()
        }
        self._local: dict[str, RRef] = _gather(makers, "build the optimiser")

    def step(self, context_id: int) -> None:
        """Updates every parameter with its gradient in the context; all owners at once.

        A parameter that the context has no gradient for stays as it is.
        """
        autograd_of(current_worker()).recorder.contexts.get(context_id)
        self._everywhere(_step, "step", context_id)

    def state_dict(self) -> dict[str, Any]:
        """The optimisers' states, by owner."""
        return {"owners": self._everywhere(_state_dict, "read the state of the optimiser")}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what ``state_dict`` gave; the owners must be the same."""
        owners = state.get("owners") if isinstance(state, Mapping) else None
        if not isinstance(owners, Mapping) or set(owners) != set(self._local):
            came = sorted(owners) if isinstance(owners, Mapping) else type(state).__name__
            raise UsageError(
                f"expected a state of the owners {sorted(self._local)}, got {came}; restore it on "
                "a cluster whose parameters live on workers of the same names"
            )
        worker = current_worker()
        calls = {
            owner: worker.rpc_async(reference.owner(), _load, (reference, owners[owner]))
            for owner, reference in self._local.items()
        }
        _gather(calls, "restore the state of the optimiser")

    def schedule(
        self, scheduler_class: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> "DistributedScheduler":
        """A learning-rate schedule for the optimisers of all owners."""
        return DistributedScheduler(self._local, scheduler_class, args, kwargs)

    def clip_grad_norm_(self, context_id: int, max_norm: float) -> float:
        """Scales the gradients of a context to a norm, over all workers, of at most this.

        Returns the norm that they had.
        """
        squares = self._everywhere(_sum_of_squares, "measure the gradients", context_id)
        norm = sum(squares.values()) ** 0.5
        if norm > max_norm:
            self._everywhere(_scale, "scale the gradients", context_id, max_norm / (norm + 1e-6))
        return float(norm)

    def _everywhere(self, function: Callable[..., Any], what: str, *args: Any) -> dict[str, Any]:
        worker = current_worker()
        calls = {
            owner: worker.rpc_async(reference.owner(), function, (reference, *args))
            for owner, reference in self._local.items()
        }
        return _gather(calls, what)


class DistributedScheduler:
    """Schedulers of one kind beside the optimisers of a DistributedOptimizer."""

    def __init__(
        self,
        optimizers: Mapping[str, RRef],
        scheduler_class: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        worker = current_worker()
        calls = {
            owner: worker.rpc_async(
                reference.owner(), _make_scheduler, (reference, scheduler_class, args, kwargs)
            )
            for owner, reference in optimizers.items()
        }
        self._local: dict[str, RRef] = _gather(calls, "build the scheduler")

    def step(self) -> None:
        """Goes on to the next learning rate, everywhere."""
        calls = {o: r.rpc_async().step() for o, r in self._local.items()}
        _gather(calls, "step the scheduler")

    def get_last_lr(self) -> dict[str, Any]:
        """The learning rates last set, by owner."""
        calls = {o: r.rpc_async().get_last_lr() for o, r in self._local.items()}
        return _gather(calls, "read the learning rate")


def _gather(calls: Mapping[str, Call], what: str) -> dict[str, Any]:
    """The results by owner; if one failed, its error, with a note on what the others did."""
    done: dict[str, Any] = {}
    failed: dict[str, BaseException] = {}
    for owner, call in calls.items():
        try:
            done[owner] = call.wait()
        except Exception as error:
            failed[owner] = error
    if failed:
        owner, first = next(iter(failed.items()))
        others = f"these did: {', '.join(done)}" if done else "no other worker did"
        first.add_note(f"worker {owner!r} could not {what}; {others}")
        if len(failed) > 1:
            first.add_note(f"neither could {', '.join(list(failed)[1:])}")
        raise first
    return done


class _LocalOptimizer:
    """The optimiser of one owner's parameters."""

    def __init__(
        self, optimizer_class: Callable[..., Any], params: Sequence[Any], args: Any, kwargs: Any
    ) -> None:
        self.params = list(params)
        self.optimizer = optimizer_class(self.params, *args, **kwargs)

    @contextmanager
    def with_gradients(self, gradients: Mapping[Any, Any]) -> Iterator[None]:
        """Gives the parameters their gradients of a context, alone, and takes them away again."""
        with ExitStack() as held:
            for lock in locks_of(self.params):
                held.enter_context(lock)
            before = [parameter.grad for parameter in self.params]
            try:
                for parameter in self.params:
                    parameter.grad = gradients.get(parameter)
                yield
            finally:
                for parameter, gradient in zip(self.params, before):
                    parameter.grad = gradient

    def gradients(self, context_id: int) -> dict[Any, Any]:
        """The gradients of these parameters in a context; none if it never reached this worker."""
        if autograd_of(current_worker()).recorder.contexts.find(context_id) is None:
            return {}
        found = get_gradients(context_id)
        return {p: found[p] for p in self.params if p in found}


@expose
def _make_local(
    optimizer_class: Callable[..., Any], references: Sequence[RRef], args: Any, kwargs: Any
) -> RRef:
    params = [reference.local_value() for reference in references]
    for reference, parameter in zip(references, params):
        if not getattr(parameter, "requires_grad", False) or not parameter.is_leaf:
            raise DTypeError(
                f"expected RRefs to parameters (leaves that require grad), got {reference!r} to "
                f"{type(parameter).__name__}"
            )
    local = _LocalOptimizer(optimizer_class, params, args, kwargs)
    return current_worker().make_rref(local)


@expose
def _make_scheduler(reference: RRef, scheduler_class: Any, args: Any, kwargs: Any) -> RRef:
    scheduler = scheduler_class(reference.local_value().optimizer, *args, **kwargs)
    return current_worker().make_rref(scheduler)


@expose
def _step(reference: RRef, context_id: int) -> None:
    local: _LocalOptimizer = reference.local_value()
    with local.with_gradients(local.gradients(context_id)):
        local.optimizer.step()


@expose
def _state_dict(reference: RRef) -> Any:
    return reference.local_value().optimizer.state_dict()


@expose
def _load(reference: RRef, state: Any) -> None:
    reference.local_value().optimizer.load_state_dict(state)


@expose
def _sum_of_squares(reference: RRef, context_id: int) -> float:
    gradients = reference.local_value().gradients(context_id)
    return float(sum(float((abs(g) ** 2).sum()) for g in gradients.values()))


@expose
def _scale(reference: RRef, context_id: int, factor: float) -> None:
    context = autograd_of(current_worker()).recorder.contexts.find(context_id)
    if context is None:
        return
    with context.lock:
        for parameter in reference.local_value().params:
            if parameter in context.gradients:
                context.gradients[parameter] = context.gradients[parameter] * factor
