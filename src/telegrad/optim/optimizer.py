"""Optimizer, the base of all optimisers. A subclass says how one parameter's numbers change.

An update reuses the memory of a parameter only if nothing else refers to it: no saved value, no
copy of the state, no other thread at work with it. Otherwise the new value is made elsewhere, and
the parameter is bound to it when it is complete. So no update disturbs a graph that was recorded
before, and none is ever seen half done.
"""

import numbers
from collections.abc import Callable, Collection, Iterable, Mapping
from sys import getrefcount
from typing import Any, Final

import numpy as np

from telegrad.arrays import backend_of
from telegrad.arrays.cupy import is_cupy
from telegrad.arrays.devices import placed
from telegrad.arrays.host import in_host_memory
from telegrad.arrays.ownership import IS_LOCKED
from telegrad.errors import DTypeError, ShapeError, UsageError
from telegrad.ops.filled import zeros_like
from telegrad.optim.kernels import add_scaled, flat, scratch
from telegrad.optim.state import collect_state, restore_state
from telegrad.tensors import Tensor
from telegrad.tensors.describe import kind_of
from telegrad.tensors.recording.modes import enable_grad


def _count_held(holder: list[Any]) -> int:
    value = holder[0]
    return getrefcount(value)


_HELD: Final = _count_held([object()]) if IS_LOCKED else 0
"""References to a value that a local and its Tensor know: note COUNTS in engine/local.py."""

ParamGroup = dict[str, Any]

_SIZES = ["lr", "eps", "weight_decay", "momentum", "lr_decay", "alpha", "initial_accumulator_value"]
"""Options that must be numbers of 0 or more, for all optimisers that have them."""


class Optimizer:
    """Changes parameters by their gradients; a subclass says how.

    Arguments:
        params: The tensors to train, or groups, each a dict with "params" and options of its own.
        defaults: The options of groups that don't have their own.

    Raises:
        UsageError: If there are no parameters, one is no leaf, or one is named twice.

    Examples:
        >>> class SignDescent(tg.optim.Optimizer):
        ...     def __init__(self, params, lr):
        ...         super().__init__(params, {"lr": lr})
        ...
        ...     def update(self, value, gradient, state, group):
        ...         value -= group["lr"] * (gradient > 0)
        >>> x = tg.tensor([1.0], requires_grad=True)
        >>> (x * x).sum().backward()
        >>> SignDescent([x], lr=0.25).step()
        >>> x
        tensor([0.75], requires_grad=True)
    """

    made_later: frozenset[str] = frozenset()
    """Entries that a later update may add to a state, which so need not have them."""

    marks: Mapping[str, Any] = {}
    """What the groups of a state say besides options, to tell Adam from AdamW, for instance."""

    always_aside: bool = False
    """Whether never to update in place: for when other threads read parameters in a step."""

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self.param_groups: list[ParamGroup] = []
        self.state: dict[Tensor, dict[str, Any]] = {}
        """By parameter: the numbers that an update remembers, flat."""
        if isinstance(params, (Tensor, Mapping, str)):
            raise UsageError(
                f"expected an iterable of parameters or of groups, got {type(params).__name__}; "
                "pass model.parameters() or a list"
            )
        if not isinstance(params, Iterable):
            raise UsageError(
                f"expected an iterable of parameters or of groups, got {type(params).__name__}; "
                "for a module, pass its parameters()"
            )
        given = _in_order(params)
        if not given:
            raise UsageError(
                "expected at least one parameter, got none; was model.parameters() used up by an "
                "earlier loop, or are its modules in a plain list instead of a ModuleList?"
            )
        groups = given if isinstance(given[0], Mapping) else [{"params": given}]
        for group in groups:
            self.add_param_group(group)
        if not any(group["params"] for group in self.param_groups):
            raise UsageError(f"expected at least one parameter, got none in {len(groups)} groups")

    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """Add parameters with options of their own; other options are the defaults."""
        if not isinstance(param_group, Mapping) or "params" not in param_group:
            raise UsageError(f"expected a dict with 'params' as a group, got {param_group!r}")
        chosen = param_group["params"]
        params = [chosen] if isinstance(chosen, Tensor) else _in_order(chosen)
        known = {p for group in self.param_groups for p in group["params"]}
        for p in params:
            if not isinstance(p, Tensor):
                raise UsageError(f"expected telegrad Tensors as parameters, got {kind_of(p)}")
            if not p.is_leaf:
                raise UsageError(
                    "expected leaves as parameters, got a tensor that was computed from others; "
                    "only leaves can be changed"
                )
            if p in known:
                raise UsageError("expected each parameter once, got one twice")
            known.add(p)
        unknown = sorted(set(param_group) - set(self.defaults) - {"params", "initial_lr"})
        if unknown:
            raise UsageError(
                f"expected options out of {', '.join(self.defaults)} in a group, got "
                f"{', '.join(unknown)}"
            )
        group = {**self.defaults, **param_group, "params": params}
        self.check(group)
        self.param_groups.append(group)

    def check(self, group: ParamGroup) -> None:
        """Raise for options out of range; subclasses may check more."""
        for name in _SIZES:
            size = group.get(name, 0.0)
            if not isinstance(size, numbers.Real) or not float(size) >= 0:
                raise UsageError(f"expected {name} of 0 or more, got {size!r}")
        betas = group.get("betas", (0.0, 0.0))
        if (
            not isinstance(betas, Collection)
            or len(betas) != 2
            or not all(isinstance(beta, numbers.Real) and 0 <= float(beta) < 1 for beta in betas)
        ):
            raise UsageError(f"expected two betas from 0 up to 1, got {betas!r}")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or make them zero."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.grad = None if set_to_none else zeros_like(p.grad)

    def step(
        self,
        closure: Callable[[], Any] | None = None,
        *,
        gradients: Mapping[Tensor, Tensor] | None = None,
    ) -> Any:
        """Update each parameter that has a gradient: in ``.grad``, or in `gradients` if given.

        `closure` computes the loss anew, with its gradients; its result is returned.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        found = []
        for group in self.param_groups:
            for p in group["params"]:
                gradient = p.grad if gradients is None else gradients.get(p)
                if gradient is not None:
                    found.append((p, _fitting(p, gradient), group))
        # Only once all gradients fit: a step is done as a whole or not at all.
        for p, g, group in found:
            self._step_one(p, g, group)
        return loss

    def _step_one(self, p: Tensor, g: Any, group: ParamGroup) -> None:
        array = p.array
        # Held by the parameter, and by nobody else.
        is_device = is_cupy(array)
        in_place = (
            (is_device or type(array) is np.ndarray)
            and array.base is None
            and getrefcount(array) <= _HELD
            and array.flags.c_contiguous
            and not self.always_aside
        )
        if in_place:
            value = array
        elif is_device:
            value = array.copy()
        else:
            value = np.array(in_host_memory(array), order="C", subok=False)
        line = flat(value)
        state = self.state.get(p)
        if state is None:
            state = self.state[p] = self.start(line, group)
        for name, kept in state.items():
            if type(kept) is not type(line) and hasattr(kept, "dtype"):
                # The parameter was moved to another device since.
                state[name] = placed(kept, p.device)
        self.update(line, flat(g), state, group)
        if not in_place:
            xp = backend_of(array)
            p.array = value if is_device or xp.is_numpy else xp.asarray(value)

    def start(self, value: Any, group: ParamGroup) -> dict[str, Any]:
        """Return what an update remembers of a parameter, before the first."""
        return {}

    def update(self, value: Any, gradient: Any, state: dict[str, Any], group: ParamGroup) -> None:
        """Change the numbers of one parameter in place.

        Arguments:
            value: The numbers.
            gradient: Their gradient, which must stay as it is.
            state: What is remembered of the parameter; `start` made it.
            group: The options of its group.
        """
        raise NotImplementedError(f"{type(self).__name__} has no update method yet")

    def state_dict(self) -> dict[str, Any]:
        """Return the remembered numbers by the parameter's position, and the groups."""
        return collect_state(self)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from a state; one that does not fit is an error and changes nothing."""
        restore_state(self, state_dict)

    def __repr__(self) -> str:
        lines = []
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {name}: {group[name]}" for name in sorted(group) if name != "params"]
        return f"{type(self).__name__} (\n" + "\n".join(lines) + "\n)"


def _in_order(params: Iterable[Any]) -> list[Any]:
    if isinstance(params, (set, frozenset)):
        raise UsageError(
            "expected parameters in an order that is the same in every run, as the state names "
            f"them by their positions, got a {type(params).__name__}; pass a list"
        )
    return list(params)


def _fitting(p: Tensor, gradient: Tensor) -> Any:
    """Return the numbers of a parameter's gradient, of its shape and dtype, where it is updated."""
    g, array = gradient.array, p.array
    if g.shape != array.shape:
        raise ShapeError(
            f"expected a gradient of shape {p.shape} for a parameter of that shape, got "
            f"{gradient.shape}"
        )
    if type(g) is np.ndarray and g.dtype is array.dtype:
        return g
    if gradient.dtype.kind == "c" and p.dtype.kind != "c":
        raise DTypeError(
            f"expected a real gradient for a parameter of {p.dtype}, got {gradient.dtype}"
        )
    if is_cupy(array):
        return placed(g, p.device).astype(p.dtype, copy=False)
    return np.asarray(in_host_memory(g), dtype=p.dtype)


def decayed(value: Any, gradient: Any, group: ParamGroup) -> Any:
    """Return the gradient, negated for `maximize`, plus `weight_decay`; perhaps in scratch."""
    if not group["maximize"] and not group["weight_decay"]:
        return gradient
    out = scratch(value, "gradient")
    np.multiply(gradient, -1.0 if group["maximize"] else 1.0, out=out)
    if group["weight_decay"]:
        add_scaled(out, value, group["weight_decay"])
    return out
