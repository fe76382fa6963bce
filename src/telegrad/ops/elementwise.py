"""Public functions of elementwise primitives: written out as names, types and docstrings.

Such a function does nothing but call its primitive, so it *is* that one's fast path, under its own
name.
"""

from collections.abc import Callable
from functools import update_wrapper
from typing import TypeVar, cast

from telegrad.rules import Primitive
from telegrad.tensors.recording.fast_paths import binary, unary

F = TypeVar("F", bound=Callable[..., object])


def elementwise(primitive: Primitive) -> Callable[[F], F]:
    """Make a function of a declaration without a body, for a primitive of one or two inputs."""

    def decorate(declared: F) -> F:
        function = unary(primitive) if len(primitive.inputs) == 1 else binary(primitive)
        return cast(F, update_wrapper(function, declared))

    return decorate
