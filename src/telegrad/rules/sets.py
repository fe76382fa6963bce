"""The distinct elements. How many there are depends on the values, so they carry no derivative."""

from telegrad.rules.primitive import NOT_DIFFERENTIABLE, Primitive

__all__ = ["ROWS", "UNIQUE_ALL", "UNIQUE_COUNTS", "UNIQUE_INVERSE", "UNIQUE_VALUES"]

UNIQUE_ALL = Primitive(
    "unique_all",
    vjp=NOT_DIFFERENTIABLE,
    outputs=("values", "indices", "inverse_indices", "counts"),
)

UNIQUE_COUNTS = Primitive("unique_counts", vjp=NOT_DIFFERENTIABLE, outputs=("values", "counts"))

UNIQUE_INVERSE = Primitive(
    "unique_inverse", vjp=NOT_DIFFERENTIABLE, outputs=("values", "inverse_indices")
)

UNIQUE_VALUES = Primitive("unique_values", vjp=NOT_DIFFERENTIABLE)

ROWS = (UNIQUE_ALL, UNIQUE_COUNTS, UNIQUE_INVERSE, UNIQUE_VALUES)
