"""Runs one scenario in telegrad and in PyTorch, and compares what it returns.

A scenario is a function of the library: both have ``tensor``, ``float64``, ``autograd``,
``no_grad`` and the elementwise functions by the same names.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import telegrad

__all__ = ["agree", "constant", "fails", "leaf"]


def leaf(lib: Any, data: Any, dtype: str = "float64") -> Any:
    """A leaf of the library that requires grad."""
    return lib.tensor(data, dtype=getattr(lib, dtype), requires_grad=True)


def constant(lib: Any, data: Any, dtype: str = "float64") -> Any:
    """A constant of the library."""
    return lib.tensor(data, dtype=getattr(lib, dtype))


def fails(action: Callable[[], Any]) -> bool:
    """Whether the action raises an ordinary error of misuse."""
    try:
        action()
    except (RuntimeError, ValueError, TypeError, telegrad.errors.UsageError):
        return True
    return False


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().resolve_conj().numpy()
    if isinstance(value, telegrad.Tensor):
        return value.detach().numpy()
    if isinstance(value, (tuple, list)):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return value


def _compare(ours: Any, theirs: Any, path: str) -> None:
    if isinstance(theirs, np.ndarray):
        assert isinstance(ours, np.ndarray), f"{path}: {ours!r} beside {theirs!r}"
        assert ours.dtype == theirs.dtype, path
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12, err_msg=path)
    elif isinstance(theirs, list):
        assert isinstance(ours, list), path
        assert len(ours) == len(theirs), path
        for i, (mine, other) in enumerate(zip(ours, theirs)):
            _compare(mine, other, f"{path}[{i}]")
    elif isinstance(theirs, dict):
        assert ours.keys() == theirs.keys(), path
        for key in theirs:
            _compare(ours[key], theirs[key], f"{path}[{key!r}]")
    else:
        assert ours == theirs, f"{path}: {ours!r} beside {theirs!r}"


def agree(scenario: Callable[[Any], Any]) -> Any:
    """Runs the scenario in both libraries; the results must be equal. Returns ours."""
    ours = _plain(scenario(telegrad))
    _compare(ours, _plain(scenario(torch)), "result")
    return ours
