"""All rows, by name: the table that tests go through and that NumPy's protocols look into."""

from telegrad.rules import (
    activations,
    arithmetic,
    comparison,
    complex_parts,
    cumulative,
    exponential,
    indexing,
    joining,
    logic,
    magnitude,
    products,
    reductions,
    rounding,
    searching,
    selection,
    sets,
    shaping,
    softmax,
    sorting,
    special,
    statistics,
    trigonometric,
    windows,
)
from telegrad.rules.primitive import Primitive

__all__ = ["TABLE"]

FAMILIES = (
    arithmetic,
    exponential,
    trigonometric,
    activations,
    special,
    softmax,
    comparison,
    logic,
    selection,
    reductions,
    shaping,
    indexing,
    products,
    rounding,
    magnitude,
    complex_parts,
    cumulative,
    statistics,
    sorting,
    searching,
    sets,
    joining,
    windows,
)

TABLE: dict[str, Primitive] = {row.name: row for family in FAMILIES for row in family.ROWS}
