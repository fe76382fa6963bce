"""The distinct elements: where they are. Places are constants; the elements are picked by them."""

from telegrad.rules.primitive import NOT_DIFFERENTIABLE, Primitive

__all__ = ["UNIQUE_ALL"]

UNIQUE_ALL = Primitive(
    "unique_all",
    vjp=NOT_DIFFERENTIABLE,
    outputs=("values", "indices", "inverse_indices", "counts"),
)
