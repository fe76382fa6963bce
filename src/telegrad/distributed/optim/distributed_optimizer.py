"""One optimiser for parameters that live on many workers.

On each owner there is an ordinary optimiser for the owner's parameters (``local_optimizer.py``);
``step`` runs them all at once, with the gradients of a context. Any class with the interface of
``telegrad.optim`` (or ``torch.optim``) will do.

A request to all owners is sent to each of them, even if another fails; the error has a note that
says which of them have done it.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from telegrad.distributed.current import autograd_of
from telegrad.distributed.optim import local_optimizer as local
from telegrad.distributed.remote_module import RemoteModule
from telegrad.errors import DTypeError, UsageError
from telegrad.pictures.table import html_table
from telegrad.rpc.calls.call import Call
from telegrad.rpc.current import current_worker
from telegrad.rpc.references.rref import RRef
from telegrad.tensors.torch_hints import advises, without_advice


class _OnOwners:
    """An optimiser or a scheduler on each owner."""

    _kind = ""
    """The word for it in errors."""

    def __init__(self, make: Callable[..., RRef], asked: Mapping[str, tuple[Any, ...]]) -> None:
        self._local: dict[str, RRef] = _ask_all(f"build the {self._kind}", make, asked)

    def state_dict(self) -> dict[str, Any]:
        """Return the states of all owners, by owner, as copies."""
        what = f"read the state of the {self._kind}"
        return {"owners": self._everywhere(local.call, what, "state_dict")}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned; a state that does not fit changes nothing.

        The owners must have the same names, each with the same number and shapes of parameters.
        """
        states = _states_of(state, self._local)
        before = self.state_dict()["owners"]
        try:
            self._load(states)
        except Exception as error:
            # Some may have taken the new state, others not: all get the old one back.
            try:
                self._load(before)
            except Exception as second:
                error.add_note(f"the old state could not be put back everywhere: {second}")
            raise

    def _load(self, states: Mapping[str, Any]) -> None:
        asked = {
            owner: (each, "load_state_dict", states[owner]) for owner, each in self._local.items()
        }
        _ask_all(f"restore the state of the {self._kind}", local.call, asked)

    def _renew(self) -> None:
        """Make sure that there is one on the present life of each owner, where that is known."""

    def _everywhere(self, function: Callable[..., Any], what: str, *args: Any) -> dict[str, Any]:
        self._renew()
        asked = {owner: (reference, *args) for owner, reference in self._local.items()}
        return _ask_all(what, function, asked)


@advises(
    "DistributedOptimizer",
    {
        "zero_grad": "gradients belong to a context and go with it, leave it out",
        "param_groups": "they are on the owners; to change the rate use schedule(LambdaLR, ...)",
    },
)
class DistributedOptimizer(_OnOwners):
    """An optimiser on each owner of some parameters, which steps them where they live.

    A list without groups may contain RemoteModules of residents (``RemoteModule.of``). When the
    worker of one comes back, the next context has a new optimiser there, without the old one's
    state; a snapshot restores it.

    Arguments:
        optimizer_class: The class of the optimiser that is made on each owner.
        params_rref: RRefs to the parameters, or groups, each a dict with RRefs as "params" and
            options of its own. A group may have parameters of several owners; every owner has all
            groups, in this order.
        args: The positional arguments of the class, after the parameters.
        kwargs: Its keyword arguments.

    Raises:
        UsageError: For arguments that don't fit.
        DTypeError: For what is no RRef to a parameter.

    Examples:
        >>> from telegrad.distributed import RemoteModule
        >>> from telegrad.distributed.optim import DistributedOptimizer
        >>> model = RemoteModule("ps", tg.nn.Linear, (3, 1))
        >>> optimizer = DistributedOptimizer(tg.optim.SGD, model.parameters(), lr=0.1)
        >>> with dist_autograd.context() as context_id:
        ...     dist_autograd.backward(context_id, [model(tg.ones(4, 3)).sum()])
        ...     optimizer.step(context_id)
    """

    _kind = "optimiser"
    _may_be_empty = False
    _given: Sequence[Any] = ()

    def __init__(
        self,
        optimizer_class: Callable[..., Any],
        params_rref: Iterable[RRef | Mapping[str, Any]],
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if not callable(optimizer_class):
            raise UsageError(
                f"expected the class of an optimiser, such as optim.SGD, got a "
                f"{type(optimizer_class).__name__}; the class's arguments follow the parameters"
            )
        if isinstance(params_rref, (list, tuple)):
            self._given = list(params_rref)
        self._recipe = optimizer_class, args, kwargs
        self._modules = [each for each in self._given if _is_of_resident(each)]
        self._used = [module.module_rref for module in self._modules]
        by_owner = _by_owner(_expanded(self._given) if self._modules else params_rref)
        if not by_owner and not self._may_be_empty:
            raise UsageError("expected at least one RRef to a parameter, got none")
        self._class_name = getattr(optimizer_class, "__qualname__", repr(optimizer_class))
        self._counts = {owner: _count(given) for owner, given in by_owner.items()}
        super().__init__(
            local.make,
            {owner: (optimizer_class, given, args, kwargs) for owner, given in by_owner.items()},
        )

    def _renew(self) -> None:
        """Make the optimiser again on owners that came back, if their modules are residents."""
        present = [module.module_rref for module in self._modules]
        pairs = zip(self._modules, self._used, present)
        back = {module.on for module, used, now in pairs if used is not now}
        if not back:
            return
        optimizer_class, args, kwargs = self._recipe
        here = [each for each in self._given if _owner_of(each) in back]
        asked = {
            owner: (optimizer_class, given, args, kwargs)
            for owner, given in _by_owner(_expanded(here)).items()
        }
        self._local.update(_ask_all(f"build the {self._kind} anew", local.make, asked))
        self._used = present

    def __dir__(self) -> list[str]:
        return without_advice(self, super().__dir__())

    def __repr__(self) -> str:
        owned = ", ".join(f"{count} on {owner!r}" for owner, count in self._counts.items())
        return f"<{self._title()}: {owned or 'none'}>"

    def _repr_html_(self) -> str:
        rows = [(owner, str(count)) for owner, count in self._counts.items()]
        return html_table([("owner", "parameters"), *rows], self._title())

    def _title(self) -> str:
        return f"DistributedOptimizer of {self._class_name}, parameters"

    def step(self, context_id: int) -> None:
        """Update every parameter with its gradient in the context, on all owners at once.

        Parameters without a gradient in the context stay as they are. If an owner fails or is lost,
        the others have stepped all the same: a note on the error names them.
        """
        _check_live(context_id)
        self._everywhere(local.step, "step", context_id)

    def schedule(
        self, scheduler_class: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> "DistributedScheduler":
        """Return a learning-rate schedule for the optimisers of all owners.

        Arguments:
            scheduler_class: The class of the schedulers; each gets its owner's optimiser.
            *args: Their other positional arguments.
            **kwargs: Their keyword arguments.
        """
        return DistributedScheduler(self._local, scheduler_class, args, kwargs)

    def clip_grad_norm_(self, context_id: int, max_norm: float) -> float:
        """Scale the gradients of a context to a norm, over all workers, of at most `max_norm`.

        Return the norm that they had. If that is NaN, so are all gradients afterwards, as with
        ``nn.utils.clip_grad_norm_``.
        """
        _check_live(context_id)
        if not max_norm >= 0:
            raise UsageError(f"expected a max_norm of 0 or more, got {max_norm}")
        squares = self._everywhere(local.sum_of_squares, "measure the gradients", context_id)
        norm = math.sqrt(sum(squares.values()))
        # 1e-6 as in `nn.utils.clip_grad_norm_`.
        factor = norm if math.isnan(norm) else min(1.0, max_norm / (norm + 1e-6))
        if factor != 1.0:
            self._everywhere(local.scale, "scale the gradients", context_id, factor)
        return norm


class DistributedScheduler(_OnOwners):
    """Schedulers of one class beside the optimisers of a DistributedOptimizer.

    ``DistributedOptimizer.schedule`` makes it.

    Arguments:
        optimizers: RRefs to the optimisers, by owner.
        scheduler_class: The class of the scheduler beside each.
        args: Further arguments of the scheduler.
        kwargs: Its options.

    Examples:
        >>> from telegrad.distributed import RemoteModule
        >>> from telegrad.distributed.optim import DistributedOptimizer
        >>> model = RemoteModule("ps", tg.nn.Linear, (3, 1))
        >>> optimizer = DistributedOptimizer(tg.optim.SGD, model.parameters(), lr=0.1)
        >>> optimizer.schedule(tg.optim.lr_scheduler.StepLR, 1).get_last_lr()
        {'ps': [0.1]}
    """

    _kind = "scheduler"

    def __init__(
        self,
        optimizers: Mapping[str, RRef],
        scheduler_class: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        super().__init__(
            local.make_scheduler,
            {owner: (each, scheduler_class, args, kwargs) for owner, each in optimizers.items()},
        )

    def step(self, *args: Any) -> None:
        """Set the next learning rate everywhere.

        The arguments are those of the schedulers, such as the loss for ``ReduceLROnPlateau``.
        """
        self._everywhere(local.call, "step the scheduler", "step", *args)

    def get_last_lr(self) -> dict[str, Any]:
        """Return the learning rates last set, by owner."""
        return self._everywhere(local.call, "read the learning rate", "get_last_lr")


def _is_of_resident(given: Any) -> bool:
    return isinstance(given, RemoteModule) and given.resident is not None


def _owner_of(given: Any) -> str | None:
    if isinstance(given, RemoteModule):
        return given.on
    return given.owner_name() if isinstance(given, RRef) else None


def _expanded(given: Sequence[Any]) -> list[Any]:
    """Return what was given, with the parameters of residents in place of these."""
    return [each for one in given for each in (one.parameters() if _is_of_resident(one) else [one])]


def _count(given: list[Any]) -> int:
    """Return how many parameters an owner was given, alone or in groups."""
    return sum(len(each["params"]) if isinstance(each, Mapping) else 1 for each in given)


def _by_owner(given: Any) -> dict[str, list[Any]]:
    """Return, by owner, what its optimiser takes.

    That is RRefs to its parameters, or all groups, with RRefs to its own parameters.
    """
    if not isinstance(given, Iterable) or isinstance(given, Mapping):
        raise UsageError(
            f"expected RRefs to parameters, or a list of groups, got {type(given).__name__}; for a "
            "module elsewhere, pass its remote_parameters()"
        )
    _refuse_sets(given, "params_rref")
    listed = list(given)
    found: dict[str, list[Any]]
    if not listed or not isinstance(listed[0], Mapping):
        found = {**_sorted_out(listed, "params_rref")}
    else:
        groups = [_group(each, f"params_rref[{i}]") for i, each in enumerate(listed)]
        owners = dict.fromkeys(owner for _, chosen in groups for owner in chosen)
        # Every owner has all groups, so that positions of groups mean the same everywhere.
        found = {
            owner: [{**options, "params": chosen.get(owner, [])} for options, chosen in groups]
            for owner in owners
        }
    return found


def _group(group: Any, name: str) -> tuple[Mapping[str, Any], dict[str, list[RRef]]]:
    """Return a group and its RRefs, by owner."""
    if not isinstance(group, Mapping) or "params" not in group:
        came = f"one with {sorted(group)}" if isinstance(group, Mapping) else type(group).__name__
        raise UsageError(f"expected a dict with 'params' as {name}, a group, got {came}")
    chosen = group["params"]
    _refuse_sets(chosen, f"{name}['params']")
    if not isinstance(chosen, Iterable):
        chosen = [chosen]
    return group, _sorted_out(chosen, f"{name}['params']")


def _refuse_sets(given: Any, name: str) -> None:
    if isinstance(given, (set, frozenset)):
        raise UsageError(
            f"expected {name} in an order that is the same in every run, as the state names "
            f"parameters by their positions, got a {type(given).__name__}; pass a list"
        )


def _sorted_out(references: Iterable[Any], name: str) -> dict[str, list[RRef]]:
    """Return RRefs by owner, in order."""
    by_owner: dict[str, list[RRef]] = {}
    for i, reference in enumerate(references):
        if not isinstance(reference, RRef):
            raise DTypeError(
                f"expected an RRef to a parameter as {name}[{i}], got "
                f"{type(reference).__name__}; wrap a local one with rpc.RRef(parameter), and "
                "join lists of them, [*some, *others]"
            )
        by_owner.setdefault(reference.owner_name(), []).append(reference)
    return by_owner


def _check_live(context_id: int) -> None:
    """Raise for a context that is unknown or released here."""
    autograd_of(current_worker()).contexts.get(context_id)


def _states_of(state: Any, owners: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the states by owner; raise unless their owners are ours."""
    found = state.get("owners") if isinstance(state, Mapping) else None
    if not isinstance(found, Mapping) or set(found) != set(owners):
        came = f"those of {sorted(found)}" if isinstance(found, Mapping) else type(state).__name__
        raise UsageError(
            f"expected states of the owners {sorted(owners)}, got {came}; restore them on a "
            "cluster whose parameters live on workers of the same names"
        )
    return found


def _ask_all(
    what: str, function: Callable[..., Any], asked: Mapping[str, tuple[Any, ...]]
) -> dict[str, Any]:
    """Call a function on each owner, all at once, with its arguments; return results by owner.

    If one failed, raise its error, with notes on what the others did.
    """
    worker = current_worker()
    calls: dict[str, Call] = {}
    done: dict[str, Any] = {}
    failed: dict[str, Exception] = {}
    # What this worker does itself, it does on this thread while the others work. And if only one is
    # asked, this thread reads its answer: no other one has to be woken for it.
    here = worker.name if worker.name in asked else next(iter(asked)) if len(asked) == 1 else None
    for owner, args in asked.items():
        if owner != here:
            try:
                calls[owner] = worker.rpc_async(owner, function, args)
            except Exception as error:
                failed[owner] = error
    for owner in calls if here is None else [here, *calls]:
        try:
            if owner == here:
                done[owner] = worker.rpc_sync(owner, function, asked[owner])
            else:
                done[owner] = calls[owner].wait()
        except Exception as error:
            failed[owner] = error
    done = {owner: done[owner] for owner in asked if owner in done}
    if not failed:
        return done
    failed = {owner: failed[owner] for owner in asked if owner in failed}
    owner, first = next(iter(failed.items()))
    others = f"these did: {', '.join(done)}" if done else "no other worker did"
    first.add_note(f"worker {owner!r} could not {what}; {others}")
    if len(failed) > 1:
        first.add_note(f"neither could {', '.join(list(failed)[1:])}")
    try:
        raise first
    finally:
        # The traceback holds this frame, whose variables must not refer to the error again.
        del first, failed, calls
