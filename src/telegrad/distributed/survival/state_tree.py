"""The state of a part as arrays and a skeleton, so that it can be saved without pickle.

A state consists of dicts, lists, tuples, numbers, text and arrays (NumPy's, telegrad's or
PyTorch's). Arrays are taken out by name; what remains is JSON. Invariant:
`joined(*taken_apart(state))` equals state.
"""

from importlib import import_module
from typing import Any

import numpy as np

from telegrad.errors import UsageError
from telegrad.tensors import Tensor, wrap

_PLAIN = (bool, int, float, str, type(None))


def taken_apart(state: Any) -> tuple[dict[str, np.ndarray[Any, Any]], Any]:
    """Return the arrays of a state, by name, and the rest."""
    arrays: dict[str, np.ndarray[Any, Any]] = {}

    def visit(value: Any, path: str) -> Any:
        if type(value) in _PLAIN:
            return value
        if isinstance(value, dict):
            rows = [
                [visit(key, f"{path}.key"), visit(each, f"{path}.{key}")]
                for key, each in value.items()
            ]
            return {"dict": rows}
        if isinstance(value, (list, tuple)):
            kind = "list" if isinstance(value, list) else "tuple"
            return {kind: [visit(each, f"{path}.{i}") for i, each in enumerate(value)]}
        array, kind = _array(value, path)
        name = str(len(arrays))
        arrays[name] = array
        return {kind: name}

    return arrays, visit(state, "state")


def _array(value: Any, path: str) -> tuple[np.ndarray[Any, Any], str]:
    if isinstance(value, np.generic):
        return np.asarray(value), "scalar"
    if isinstance(value, np.ndarray):
        return value, "array"
    if isinstance(value, Tensor):
        return np.asarray(value.detach()), "tensor"
    if type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "numpy"):
        return value.detach().cpu().numpy(), "torch"
    raise UsageError(
        f"expected numbers, text and arrays in a state to save, got a {type(value).__name__} at "
        f"{path}"
    )


def joined(arrays: dict[str, Any], rest: Any) -> Any:
    """Return the state that ``taken_apart`` took apart."""
    if not isinstance(rest, dict):
        return rest
    ((kind, content),) = rest.items()
    if kind == "dict":
        return {joined(arrays, key): joined(arrays, each) for key, each in content}
    if kind == "list":
        return [joined(arrays, each) for each in content]
    if kind == "tuple":
        return tuple(joined(arrays, each) for each in content)
    array = np.array(arrays[content])
    if kind == "scalar":
        return array[()]
    if kind == "tensor":
        return wrap(array)
    return import_module("torch").from_numpy(array) if kind == "torch" else array
