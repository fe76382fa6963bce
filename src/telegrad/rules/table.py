"""All rows, by name: the table that tests go through and that NumPy's protocols look into."""

from telegrad.rules import (
    activations,
    arithmetic,
    comparison,
    exponential,
    indexing,
    logic,
    products,
    reductions,
    selection,
    shaping,
    trigonometric,
)
from telegrad.rules.primitive import Primitive

__all__ = ["TABLE"]

FAMILIES = (
    arithmetic,
    exponential,
    trigonometric,
    activations,
    comparison,
    logic,
    selection,
    reductions,
    shaping,
    indexing,
    products,
)

TABLE: dict[str, Primitive] = {row.name: row for family in FAMILIES for row in family.ROWS}
