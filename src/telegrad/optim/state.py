"""Collecting the state of an optimiser, in PyTorch's layout, and restoring it.

``{"state": {position: {name: tensor}}, "param_groups": [{option: value, "params": [positions]}]}``.
A state is checked as a whole before anything is changed.
"""

import math
import numbers
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from telegrad.arrays.host import in_host_memory
from telegrad.errors import ShapeError, UsageError
from telegrad.ops.creation import tensor
from telegrad.optim.kernels import flat
from telegrad.tensors import Tensor, wrap

if TYPE_CHECKING:
    from telegrad.optim.optimizer import Optimizer


def collect_state(optimizer: "Optimizer") -> dict[str, Any]:
    """Return a copy of the state: later steps don't change it."""
    positions = {p: i for i, p in enumerate(_parameters(optimizer))}
    groups = [
        {**group, **optimizer.marks, "params": [positions[p] for p in group["params"]]}
        for group in optimizer.param_groups
    ]
    state = {
        positions[p]: {name: _shown(value, p) for name, value in kept.items()}
        for p, kept in optimizer.state.items()
    }
    return {"state": dict(sorted(state.items())), "param_groups": groups}


def _parameters(optimizer: "Optimizer") -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _shown(value: Any, p: Tensor) -> Any:
    if isinstance(value, int):
        return tensor(float(value))
    if value is None:
        return None
    return wrap(value.copy().view(p.dtype).reshape(p.shape))


def restore_state(optimizer: "Optimizer", state_dict: Mapping[str, Any]) -> None:
    """Give an optimiser the numbers and options of a state; see ``Optimizer.load_state_dict``."""
    if not isinstance(state_dict, Mapping) or {"state", "param_groups"} - set(state_dict):
        names = [*state_dict] if isinstance(state_dict, Mapping) else []
        some = ", ".join(map(repr, names[:3])) + (", …" if len(names) > 3 else "")
        raise UsageError(
            "expected the state dict of an optimiser, with 'state' and 'param_groups', got a "
            f"{type(state_dict).__name__} with {some or 'neither'}; give what the optimiser's own "
            "state_dict() returned"
        )
    groups = state_dict["param_groups"]
    _check_form(groups, state_dict["state"])
    sizes = [len(group["params"]) for group in optimizer.param_groups]
    given = [len(group["params"]) for group in groups]
    if sizes != given:
        raise UsageError(
            f"expected the state of an optimiser with groups of {sizes} parameters, got one of "
            f"{given}"
        )
    chosen = [_options(optimizer, own, other) for own, other in zip(optimizer.param_groups, groups)]
    parameters = _parameters(optimizer)
    by_parameter = {p: group for group in chosen for p in group["params"]}
    places = [position for group in groups for position in group["params"]]
    by_position = dict(zip(places, parameters))
    restored: dict[Tensor, dict[str, Any]] = {}
    for position, kept in state_dict["state"].items():
        p = by_position.get(_place(position))
        if p is None:
            raise UsageError(f"expected positions of parameters in the state, got {position!r}")
        _check_names(optimizer, kept, by_parameter[p])
        restored[p] = {
            name: None if value is None and name in optimizer.made_later else _kept(name, value, p)
            for name, value in kept.items()
        }
    optimizer.state = restored
    for group, options in zip(optimizer.param_groups, chosen):
        group.update(options)


def _check_form(groups: Any, state: Any) -> None:
    """Raise unless the state has lists and dicts where it should."""
    if not isinstance(groups, (list, tuple)) or not all(
        isinstance(group, Mapping) and isinstance(group.get("params"), (list, tuple))
        for group in groups
    ):
        raise UsageError(
            "expected a list of dicts as 'param_groups' of the state, each with a list of "
            f"positions as 'params', got {groups!r:.200}"
        )
    places = [position for group in groups for position in group["params"]]
    are_numbers = all(isinstance(position, numbers.Integral) for position in places)
    if not are_numbers or len(set(places)) < len(places):
        raise UsageError(f"expected each position once, as a number, in 'params', got {places}")
    if not isinstance(state, Mapping) or not all(isinstance(e, Mapping) for e in state.values()):
        raise UsageError(
            f"expected a dict by position, of a dict by name, as 'state', got {state!r:.200}"
        )


def _place(position: Any) -> int | None:
    """Return the position that a key of the state means: JSON turns it into text."""
    is_text = isinstance(position, str) and position.isdecimal()
    return int(position) if is_text or isinstance(position, numbers.Integral) else None


def _options(
    optimizer: "Optimizer", own: dict[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a group with those options of a state that this optimiser has.

    PyTorch's states have more, about how its own kernels run.
    """
    kind = type(optimizer).__name__
    missing = [name for name in optimizer.defaults if name not in given]
    if missing:
        raise UsageError(
            f"expected the state of {kind}, got one of another optimiser: its groups lack "
            f"{', '.join(missing)}"
        )
    for name, own_mark in optimizer.marks.items():
        if given.get(name, own_mark) != own_mark:
            raise UsageError(
                f"expected the state of {kind}, with {name}={own_mark}, got one with "
                f"{name}={given[name]}, of another optimiser"
            )
    known = {*optimizer.defaults, "initial_lr"}
    group = {**own, **{name: value for name, value in given.items() if name in known}}
    optimizer.check(group)
    return group


def _check_names(optimizer: "Optimizer", kept: Mapping[str, Any], group: dict[str, Any]) -> None:
    needed = set(optimizer.start(np.zeros(1), group))
    missing, unexpected = needed - set(kept), set(kept) - needed - optimizer.made_later
    if missing or unexpected:
        raise UsageError(
            f"expected the state of {type(optimizer).__name__}, got another: missing "
            f"{', '.join(sorted(missing)) or 'nothing'}; unexpected "
            f"{', '.join(sorted(unexpected)) or 'nothing'}"
        )


def _kept(name: str, value: Any, p: Tensor) -> Any:
    array = in_host_memory(value.array) if isinstance(value, Tensor) else np.asarray(value)
    if array.dtype.kind not in "biufc":
        raise UsageError(
            f"expected numbers as {name} in the state of a parameter, got {type(value).__name__}"
        )
    if name == "step":
        if array.size != 1 or array.dtype.kind == "c" or not 0 <= array.item() < math.inf:
            raise UsageError(f"expected a number of steps, 0 or more, as step, got {value}")
        return int(array.item())
    if array.shape != p.shape:
        raise ShapeError(
            f"expected {name} of shape {p.shape} in the state of a parameter of that shape, got "
            f"{array.shape}"
        )
    if array.dtype.kind == "c" and p.dtype.kind != "c":
        raise UsageError(
            f"expected real numbers as {name} in the state of a parameter of {p.dtype}, got "
            f"{array.dtype}"
        )
    return flat(array.astype(p.dtype, order="C"))
