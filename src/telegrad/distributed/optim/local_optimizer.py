"""The optimiser of one owner's parameters, and what a DistributedOptimizer calls there.

Invariants. Updates to one parameter are serialised by a lock of its own, so those of several
trainers never mix. An update makes the new value elsewhere and binds the parameter to it when it is
complete: nobody reads half of it, and a pass between its forward and backward keeps the old value.
Another framework's optimiser writes into its parameters; where a graph may have saved them, it gets
copies to write into, which the framework then puts in their place (``Parameters.stepped``).
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from telegrad.distributed import frameworks
from telegrad.distributed.autograd import get_gradients
from telegrad.distributed.contexts.context import Contexts
from telegrad.distributed.current import autograd_of
from telegrad.distributed.parameter_lock import alone_with
from telegrad.errors import DTypeError, UsageError
from telegrad.nn.parameter import Parameter
from telegrad.optim.optimizer import Optimizer
from telegrad.rpc.current import current_worker
from telegrad.rpc.references.rref import RRef


class LocalOptimizer:
    """An ordinary optimiser, and the parameters of this worker that it steps."""

    def __init__(
        self, optimizer_class: Callable[..., Any], given: Sequence[Any], args: Any, kwargs: Any
    ) -> None:
        self.params = [p for each in given for p in _listed(each)]
        self.optimizer = optimizer_class(given, *args, **kwargs)
        if isinstance(self.optimizer, Optimizer):
            # Handlers of other trainers may read a parameter while it is stepped.
            self.optimizer.always_aside = True
        else:
            _check_step(self.optimizer)

    def step(self, gradients: Mapping[Any, Any], contexts: Contexts, context_id: int) -> None:
        """Update the parameters that have a gradient in a context, whatever their ``.grad``."""
        with alone_with(self.params):
            if isinstance(self.optimizer, Optimizer):
                self.optimizer.step(gradients=gradients)
                return
            with contexts.hold_back(context_id) as is_alone:
                if is_alone:
                    self._step_foreign(gradients, {})
                    return
            # An optimiser that does not list its parameters can't be given copies.
            is_listed = hasattr(self.optimizer, "param_groups")
            self._step_foreign(gradients, _successors(gradients) if is_listed else {})

    def state_dict(self) -> Any:
        """Return the optimiser's state, between two steps."""
        with alone_with(self.params):
            return self.optimizer.state_dict()

    def load_state_dict(self, state: Any) -> None:
        """Give the optimiser a state, between two steps."""
        with alone_with(self.params):
            self.optimizer.load_state_dict(state)

    def _step_foreign(self, gradients: Mapping[Any, Any], successors: Mapping[Any, Any]) -> None:
        """Step an optimiser that reads ``.grad``: put the gradients there for the step."""
        before = [parameter.grad for parameter in self.params]
        try:
            for parameter in self.params:
                successors.get(parameter, parameter).grad = gradients.get(parameter)
            with _standing_in(self.optimizer, successors):
                self.optimizer.step()
            for parameter in gradients:
                steps = _steps_of(parameter)
                if steps is not None:
                    steps.stepped(parameter, successors.get(parameter))
        finally:
            for parameter, gradient in zip(self.params, before):
                parameter.grad = gradient

    def gradients(self, context_id: int) -> dict[Any, Any]:
        """Return the gradients of these parameters in a context; none if it never came here."""
        if autograd_of(current_worker()).contexts.met(context_id) is None:
            return {}
        found = get_gradients(context_id)
        return {p: found[p] for p in self.params if p in found}


def _successors(gradients: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a copy of each parameter that a step must not write into."""
    found: dict[Any, Any] = {}
    for parameter, gradient in gradients.items():
        steps = _steps_of(parameter)
        made = None if steps is None else steps.successor(parameter, gradient)
        if made is not None:
            found[parameter] = made
    return found


def _steps_of(parameter: Any) -> frameworks.Parameters | None:
    framework = frameworks.framework_of(parameter)
    return None if framework is None else framework.parameters


@contextmanager
def _standing_in(optimizer: Any, successors: Mapping[Any, Any]) -> Iterator[None]:
    """Have an optimiser step the successors in place of its parameters, with their states."""
    if not successors:
        yield
        return
    listed = [(group, group["params"]) for group in optimizer.param_groups]
    state = optimizer.state
    try:
        for group, parameters in listed:
            group["params"] = [successors.get(p, p) for p in parameters]
        for parameter, successor in successors.items():
            if parameter in state:
                state[successor] = state.pop(parameter)
        yield
    finally:
        for group, parameters in listed:
            group["params"] = parameters
        for parameter, successor in successors.items():
            if successor in state:
                state[parameter] = state.pop(successor)


def make(optimizer_class: Callable[..., Any], given: Sequence[Any], args: Any, kwargs: Any) -> RRef:
    """Return an optimiser for parameters of this worker, given as RRefs or as groups of RRefs."""
    params = [
        _parameter(each)
        if isinstance(each, RRef)
        else {**each, "params": [_parameter(reference) for reference in each["params"]]}
        for each in given
    ]
    return current_worker().make_rref(LocalOptimizer(optimizer_class, params, args, kwargs))


def _check_step(optimizer: Any) -> None:
    """Raise for an optimiser whose ``step`` can't do without a closure, such as LBFGS."""
    try:
        inspect.signature(optimizer.step).bind()
    except ValueError:
        pass  # It has no signature to be read.
    except TypeError as error:
        raise UsageError(
            "expected the class of an optimiser that steps with gradients alone, got "
            f"{type(optimizer).__name__}, whose step() needs more ({error}); take another, such "
            "as Adam"
        ) from None


def _listed(parameter_or_group: Any) -> list[Any]:
    if isinstance(parameter_or_group, dict):
        return list(parameter_or_group["params"])
    return [parameter_or_group]


def _parameter(reference: RRef) -> Any:
    parameter = reference.local_value()
    framework = frameworks.framework_of(parameter)
    if framework is not None:
        if framework.parameters is not None:
            framework.parameters.note(parameter)
        # Its optimisers have rules of their own, e.g. that a constant is never stepped.
        return parameter
    # A Parameter that is frozen has no gradient, and so is never stepped.
    if isinstance(parameter, Parameter):
        return parameter
    if not getattr(parameter, "requires_grad", False) or not parameter.is_leaf:
        raise DTypeError(
            f"expected RRefs to parameters (leaves that require grad), got {reference!r} to "
            f"{type(parameter).__name__}"
        )
    return parameter


def step(reference: RRef, context_id: int) -> None:
    """Step with the gradients of a context."""
    local: LocalOptimizer = reference.local_value()
    contexts = autograd_of(current_worker()).contexts
    local.step(local.gradients(context_id), contexts, context_id)


def sum_of_squares(reference: RRef, context_id: int) -> float:
    """Return the sum of the squares of all gradients of these parameters in a context."""
    local: LocalOptimizer = reference.local_value()
    found = frameworks.adopted(list(local.gradients(context_id).values()), are_gradients=True)
    lines = (np.asarray(g.detach()).reshape(-1) for g in found)
    return float(sum(np.vdot(line, line).real for line in lines))


def scale(reference: RRef, context_id: int, factor: float) -> None:
    """Multiply the gradients of these parameters in a context."""
    context = autograd_of(current_worker()).contexts.met(context_id)
    if context is None:
        return
    with context.lock:
        for parameter in reference.local_value().params:
            if parameter in context.gradients:
                context.gradients[parameter] = context.gradients[parameter] * factor


def make_scheduler(reference: RRef, scheduler_class: Any, args: Any, kwargs: Any) -> RRef:
    """Return a scheduler beside the optimiser."""
    scheduler = scheduler_class(reference.local_value().optimizer, *args, **kwargs)
    return current_worker().make_rref(scheduler)


def call(reference: RRef, method: str, *args: Any) -> Any:
    """Call a method of an optimiser or a scheduler; return its result."""
    return getattr(reference.local_value(), method)(*args)
