"""Samples of ``rules/manipulation.py``."""

from typing import Any

import numpy as np
from tests.rules.samples.families import of_one
from tests.rules.samples.sample import Entry, complex_normal, normal, sample

__all__ = ["SAMPLES"]


def _astype_twin(torch: Any, x: Any, *, dtype: Any) -> Any:
    return x.to(getattr(torch, np.dtype(dtype).name))


_PRECISION = dict.fromkeys(
    ("reverse", "forward", "second"), "finite differences need the precision that float32 lacks"
)

SAMPLES = {
    "clone": Entry(of_one(complex_draw=complex_normal), numpy="array", torch="clone"),
    "reshape": Entry(
        (
            sample("plain", normal(2, 3), shape=(3, 2)),
            sample("one length left open", normal(2, 3), shape=(-1,)),
            sample("from 0-d", normal(), shape=(1, 1)),
            sample("zero-size", normal(0, 3), shape=(3, 0)),
            sample("complex", complex_normal(2, 2), shape=(4,)),
        ),
        torch="reshape",
    ),
    "permute_dims": Entry(
        (
            sample("plain", normal(2, 3), axes=(1, 0)),
            sample("three axes", normal(2, 3, 2), axes=(2, 0, 1)),
            sample("0-d", normal(), axes=()),
            sample("zero-size", normal(0, 3), axes=(1, 0)),
            sample("complex", complex_normal(2, 2), axes=(1, 0)),
        ),
        torch=lambda torch, x, *, axes: torch.permute(x, axes),
    ),
    "broadcast_to": Entry(
        (
            sample("new axis", normal(3), shape=(2, 3)),
            sample("stretched axis", normal(2, 1), shape=(2, 3)),
            sample("from 0-d", normal(), shape=(2, 2)),
            sample("to zero-size", normal(1, 3), shape=(0, 3)),
            sample("from zero-size", normal(0, 1), shape=(0, 3)),
            sample("complex", complex_normal(2), shape=(2, 2)),
        ),
        torch=lambda torch, x, *, shape: torch.broadcast_to(x, shape),
    ),
    "astype": Entry(
        (
            sample("same", normal(2, 3), dtype=np.dtype("float64")),
            sample("narrower", normal(2, 3), dtype=np.dtype("float32"), without=_PRECISION),
            sample("to complex", normal(2, 3), dtype=np.dtype("complex128")),
            sample("zero-size", normal(0, 3), dtype=np.dtype("float32")),
            sample("complex", complex_normal(2), dtype=np.dtype("complex128")),
        ),
        numpy=lambda x, *, dtype: x.astype(dtype),
        torch=_astype_twin,
    ),
    "flip": Entry(
        (
            sample("one axis", normal(3), axis=(0,)),
            sample("two of three axes", normal(2, 3, 2), axis=(0, 2)),
            sample("0-d", normal(), axis=()),
            sample("zero-size", normal(0, 3), axis=(1,)),
            sample("complex", complex_normal(2, 2), axis=(1,)),
        ),
        torch=lambda torch, x, *, axis: torch.flip(x, axis),
    ),
    "roll": Entry(
        (
            sample("flattened", normal(2, 3), shift=2, axis=None),
            sample("one axis", normal(2, 3), shift=-1, axis=1),
            sample("two axes", normal(2, 3), shift=(1, 2), axis=(0, 1)),
            sample("zero-size", normal(0, 3), shift=1, axis=1),
            sample("complex", complex_normal(3), shift=1, axis=0),
        ),
        torch=lambda torch, x, *, shift, axis: torch.roll(x, shift, axis),
    ),
}
