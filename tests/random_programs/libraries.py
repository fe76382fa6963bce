"""The two libraries that a random program runs under."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from tests.random_programs.program import Case, Library
from tests.rules.samples import SAMPLES
from tests.rules.table import TABLE

import telegrad
from telegrad.tensors import apply

__all__ = ["PYTORCH", "TELEGRAD"]


def _call_telegrad(case: Case, inputs: Sequence[Any]) -> Any:
    return apply(TABLE[case.name], *inputs, **case.sample.options)


def _call_torch(case: Case, inputs: Sequence[Any]) -> Any:
    return _twin(case.name)(*inputs, **case.sample.options)


@functools.cache
def _twin(name: str) -> Callable[..., Any]:
    """PyTorch's function for a primitive."""
    twin = SAMPLES[name].torch
    if callable(twin):
        return functools.partial(twin, torch)
    found: Any = torch
    for part in str(twin).split("."):
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]


def _torch_constant(array: Any) -> Any:
    return torch.from_numpy(np.array(array))


def _torch_join(vectors: list[Any]) -> Any:
    return torch.cat(vectors)


TELEGRAD = Library(
    xp=telegrad,
    constant=telegrad.asarray,
    call=_call_telegrad,
    tanh=telegrad.tanh,
    flat=lambda x: telegrad.reshape(x, (-1,)),
    shaped=telegrad.reshape,
    picked=lambda x, places: x[places],
    join=telegrad.concat,
    parts=lambda x: (telegrad.real(x), telegrad.imag(x)),
    to_float64=lambda x: telegrad.astype(x, telegrad.float64, copy=False),
)

PYTORCH = Library(
    xp=torch,
    constant=_torch_constant,
    call=_call_torch,
    tanh=torch.tanh,
    flat=lambda x: torch.reshape(x, (-1,)),
    shaped=torch.reshape,
    picked=lambda x, places: x[torch.from_numpy(places)],
    join=_torch_join,
    parts=lambda x: (torch.real(x), torch.imag(x)),
    to_float64=lambda x: x.to(torch.float64),
)
