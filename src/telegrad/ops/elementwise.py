"""Public functions of elementwise primitives: declarations without a body.

Such a function would only call its primitive, so it *is* the fast path of that, with the
declaration's name, types and docstring.
"""

from collections.abc import Callable
from functools import update_wrapper
from typing import TypeVar, cast

from telegrad.rules import Primitive
from telegrad.tensors.recording.fast_paths import binary, unary

F = TypeVar("F", bound=Callable[..., object])


def elementwise(primitive: Primitive) -> Callable[[F], F]:
    """Turn a declaration without a body into the function of a primitive of one or two inputs."""

    def decorate(declared: F) -> F:
        function = unary(primitive) if len(primitive.inputs) == 1 else binary(primitive)
        return cast(F, update_wrapper(function, declared))

    return decorate
