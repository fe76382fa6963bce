"""Public functions of elementwise rows: written out as names, types and docstrings.

Such a function does nothing but call its row, so it *is* the row's hot path, under its own name.
"""

from collections.abc import Callable
from functools import update_wrapper
from typing import TypeVar, cast

from telegrad.rules import Primitive
from telegrad.tensors.recording.fast_paths import binary, unary

__all__ = ["elementwise"]

F = TypeVar("F", bound=Callable[..., object])


def elementwise(row: Primitive) -> Callable[[F], F]:
    """Makes a function of a declaration without a body: that of `row`, of one or two inputs."""

    def decorate(declared: F) -> F:
        function = unary(row) if len(row.inputs) == 1 else binary(row)
        return cast(F, update_wrapper(function, declared))

    return decorate
