"""Finding and counting: results are positions, counts or truth values, without a derivative."""

from telegrad.rules.primitive import NOT_DIFFERENTIABLE, Primitive

ALL = Primitive("all", vjp=NOT_DIFFERENTIABLE, options=("axis", "keepdims"))
ANY = Primitive("any", vjp=NOT_DIFFERENTIABLE, options=("axis", "keepdims"))
ARGMAX = Primitive("argmax", vjp=NOT_DIFFERENTIABLE, options=("axis", "keepdims"))
ARGMIN = Primitive("argmin", vjp=NOT_DIFFERENTIABLE, options=("axis", "keepdims"))
ARGSORT = Primitive("argsort", vjp=NOT_DIFFERENTIABLE, options=("axis", "descending", "stable"))
COUNT_NONZERO = Primitive("count_nonzero", vjp=NOT_DIFFERENTIABLE, options=("axis", "keepdims"))

# As many outputs as the input has axes.
NONZERO = Primitive("nonzero", vjp=NOT_DIFFERENTIABLE, outputs=("indices",))

SEARCHSORTED = Primitive(
    "searchsorted", vjp=NOT_DIFFERENTIABLE, inputs=("x", "y"), options=("side", "sorter")
)

# For `ops/sets.py`, which picks the elements by these places, so that they keep their history.
UNIQUE_ALL = Primitive(
    "unique_all",
    vjp=NOT_DIFFERENTIABLE,
    outputs=("values", "indices", "inverse_indices", "counts"),
)
