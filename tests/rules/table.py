"""All primitives, by name: every one that a module of ``telegrad.rules`` has."""

import importlib
import pkgutil

from telegrad import rules
from telegrad.rules.concatenation import concat_of, stack_of, unstack_of
from telegrad.rules.primitive import Primitive

__all__ = ["TABLE"]

_FAMILIES = [
    importlib.import_module(each.name)
    for each in pkgutil.iter_modules(rules.__path__, f"{rules.__name__}.")
]
_OF_PARTS = [concat_of(3), stack_of(3), unstack_of(3)]
"""There is one for each number of parts; those of three stand for all."""

TABLE: dict[str, Primitive] = {
    primitive.name: primitive
    for primitive in (*(each for family in _FAMILIES for each in vars(family).values()), *_OF_PARTS)
    if isinstance(primitive, Primitive)
}
