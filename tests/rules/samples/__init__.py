"""Sample inputs for every primitive of ``tests.rules.table``, for ``test_every_primitive.py``.

A module here for each family of primitives (``samples/arithmetic.py`` for ``rules/arithmetic.py``),
with one dictionary ``SAMPLES: dict[str, Entry]`` by the name of the primitive; ``FAMILIES`` below
lists the modules. A differentiable primitive without an entry fails the tests.

An entry::

    "divide": Entry(
        of_two(normal, positive, is_complex=True),    # the samples: a tuple
        torch="divide",                               # the twin in PyTorch
    )
    "mean": Entry(
        (
            sample("all", normal(2, 3), axis=None, keepdims=False),
            sample("one axis", normal(2, 3), axis=(1,), keepdims=True),
            sample("zero-size", normal(0, 3), axis=(1,), keepdims=False),
        ),
        torch=lambda torch, x, *, axis, keepdims: torch.mean(x, axis, keepdim=keepdims),
    )

- ``sample(label, *draws, without={}, prepare=None, finish=None, **options)``: one call
  ``apply(primitive, *inputs, **options)``, so options as the primitive takes them, which ``ops``
  has completed and normalised. A draw takes a seeded NumPy generator and gives one input:
  ``normal(2, 3)``, ``positive(3)``, ``between(-0.9, 0.9, 2, 2)``, ``complex_normal(2)``,
  ``distinct(2, 3)`` (no ties, nothing near zero), ``whole(0, 4, 2)``, ``truths(3)``,
  ``constant([[1.0, 2.0]])``. Floating inputs are float64 (the tests try float32 too). Keep them
  small, at most a dozen elements, and at least 0.01 from any kink or pole: finite differences move
  them by 2e-3.
- Which samples: plain, broadcast, batched, zero-size, 0-d, complex where the primitive is defined
  there, and each option that changes the derivative. ``of_one`` and ``of_two`` (``families.py``)
  make the usual ones of elementwise primitives.
- ``without={"second": "why"}`` excuses a sample from a check, with the reason. The checks:
  ``numpy`` (value), ``reverse``, ``forward``, ``second`` (all second orders), ``float32``,
  ``strict`` (the same under array-api-strict), ``torch`` (random programs).
- ``prepare=lambda xp, *inputs: (...)`` changes the inputs, differentiably, before the call, e.g.
  makes a matrix symmetric: ``lambda xp, a: (a + a.mT,)``. ``finish=lambda xp, *results: ...`` makes
  of the results what is well defined, e.g. ``lambda xp, q, r: xp.abs(r)``. ``xp`` is telegrad,
  NumPy or torch, so use operators and names that all three have.
- ``numpy=``: the reference for the value, ``"linalg.det"`` or a function with the primitive's
  calling convention; by default NumPy's function of the primitive's name. ``no_numpy="why"`` if
  there is none.
- ``torch=``: PyTorch's twin, ``"linalg.det"`` or a function that takes the module ``torch`` first,
  then what the primitive takes; or ``no_torch="why"``. A primitive without derivatives needs no
  entry.
"""

from tests.rules.samples import (
    activations,
    affine,
    arithmetic,
    attention,
    complex_parts,
    concatenation,
    contraction,
    convolution,
    cumulative,
    decompositions,
    exponential,
    fourier,
    gelu,
    indexing,
    linear_systems,
    magnitude,
    manipulation,
    normalization,
    norms,
    pooling,
    products,
    recurrence,
    reductions,
    rounding,
    selection,
    softmax,
    sorting,
    special,
    spectra,
    statistics,
    trigonometric,
    windows,
)
from tests.rules.samples.sample import Entry

__all__ = ["FAMILIES", "SAMPLES"]

FAMILIES = (
    arithmetic,
    exponential,
    trigonometric,
    activations,
    special,
    softmax,
    selection,
    reductions,
    manipulation,
    indexing,
    products,
    windows,
    rounding,
    magnitude,
    complex_parts,
    cumulative,
    statistics,
    sorting,
    concatenation,
    contraction,
    linear_systems,
    decompositions,
    spectra,
    norms,
    fourier,
    affine,
    normalization,
    convolution,
    pooling,
    recurrence,
    gelu,
    attention,
)

SAMPLES: dict[str, Entry] = {
    name: entry for family in FAMILIES for name, entry in family.SAMPLES.items()
}
