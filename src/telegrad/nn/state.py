"""State dicts: collecting all parameters and buffers of a module by path, and restoring them.

A state is checked as a whole before anything is changed, so loading succeeds or changes nothing.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from telegrad.arrays.host import for_numpy
from telegrad.errors import ShapeError, UsageError
from telegrad.tensors import Tensor
from telegrad.tensors.recording.modes import no_grad

if TYPE_CHECKING:
    from telegrad.nn.module import Module


class KeyReport(NamedTuple):
    """What did not fit when a state was loaded."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def collect_state(module: "Module", prefix: str = "") -> dict[str, Tensor]:
    """Return the state of a module and all inside it: constants that later steps don't change."""
    return {path: value.detach() for path, value in _places(module, prefix)}


def _places(module: "Module", prefix: str = "") -> list[tuple[str, Tensor]]:
    found: list[tuple[str, Tensor]] = []
    for path, each in module.named_modules(prefix.removesuffix("."), remove_duplicate=False):
        before = f"{path}." if path else ""
        for name, parameter in each.own_parameters().items():
            found.append((before + name, parameter))
        for name, buffer in each.own_buffers(persistent_only=True).items():
            found.append((before + name, buffer))
    return found


def restore_state(module: "Module", state: Any, strict: bool) -> KeyReport:
    """Give a module the values of a state; see ``Module.load_state_dict``."""
    if not isinstance(state, Mapping):
        raise UsageError(
            f"expected a state dict, a mapping from names to tensors, got {type(state).__name__}"
        )
    places = dict(_places(module))
    report = KeyReport(
        [name for name in places if name not in state],
        [name for name in state if name not in places],
    )
    kind = type(module).__name__
    if strict and (report.missing_keys or report.unexpected_keys):
        raise UsageError(
            f"expected the state dict of a {kind}, got another: missing "
            f"{', '.join(report.missing_keys) or 'nothing'}; unexpected "
            f"{', '.join(report.unexpected_keys) or 'nothing'}; pass strict=False to load what fits"
        )
    values = {name: _value(name, state[name]) for name in places if name in state}
    wrong = [
        f"{name} has shape {place.shape}, the state's has {values[name].shape}"
        for name, place in places.items()
        if name in values and tuple(values[name].shape) != place.shape
    ]
    if wrong:
        raise ShapeError(
            f"expected the state dict of this {kind}, got other shapes: {'; '.join(wrong)}"
        )
    unfit = [
        f"{name} is {places[name].dtype}, the state's is {value.dtype}"
        for name, value in values.items()
        if not np.can_cast(value.dtype, places[name].dtype, "same_kind")
    ]
    if unfit:
        raise UsageError(
            f"expected the state dict of this {kind}, got other dtypes: {'; '.join(unfit)}"
        )
    with no_grad():
        for name, value in values.items():
            places[name].copy_(value)
    return report


def _value(name: str, value: Any) -> Any:
    if isinstance(value, Tensor):
        return for_numpy(value.array)
    if hasattr(value, "__array__"):
        # Whatever tells NumPy its numbers: an array, or another library's tensor.
        return np.asarray(value)
    raise UsageError(
        f"expected a Tensor or an array for {name} in the state dict, got {type(value).__name__}"
    )
