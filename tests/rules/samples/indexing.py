"""Samples of ``rules/indexing.py``."""

from typing import Any

import numpy as np
from tests.rules.samples.sample import Entry, complex_normal, constant, normal, sample, whole

__all__ = ["SAMPLES"]

_STRICT = {"strict": "the standard has no indexing by several integer arrays"}
_TWICE = np.array([0, 2, 0])
_MASK = np.array([[True, False, True], [False, True, False]])


def _added(x: Any, values: Any, *, index: Any) -> Any:
    out = x.copy()
    np.add.at(out, index, values)
    return out


def _set(x: Any, values: Any, *, index: Any) -> Any:
    out = x.copy()
    out[index] = values
    return out


def _as_torch(torch: Any, index: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(_as_torch(torch, part) for part in index)
    return torch.from_numpy(index) if isinstance(index, np.ndarray) else index


def _torch_added(torch: Any, x: Any, values: Any, *, index: Any) -> Any:
    places = torch.arange(x.numel()).reshape(x.shape)[_as_torch(torch, index)]
    spread = torch.broadcast_to(values, places.shape).reshape(-1)
    return x.reshape(-1).index_add(0, places.reshape(-1), spread).reshape(x.shape)


def _torch_set(torch: Any, x: Any, values: Any, *, index: Any) -> Any:
    out = x.clone()
    out[_as_torch(torch, index)] = values
    return out


SAMPLES = {
    "getitem": Entry(
        (
            sample("integer", normal(2, 3), index=1),
            sample("slices", normal(3, 4), index=(slice(None, None, 2), slice(1, 3))),
            sample("ellipsis and new axis", normal(2, 3), index=(..., None, 0)),
            sample("repeated places", normal(3, 2), index=_TWICE, without=_STRICT),
            sample("two integer arrays", normal(3, 3), index=(_TWICE, _TWICE), without=_STRICT),
            sample("mask", normal(2, 3), index=_MASK),
            sample("0-d", normal(), index=()),
            sample("zero-size", normal(0, 3), index=(slice(None), 1)),
            sample("complex", complex_normal(2, 3), index=(slice(None), 1)),
        ),
        numpy=lambda x, *, index: x[index],
        torch=lambda torch, x, *, index: x[_as_torch(torch, index)],
    ),
    "index_add": Entry(
        (
            sample("slice", normal(3, 2), normal(2, 2), index=(slice(0, 2), ...)),
            sample("repeated places", normal(3, 2), normal(3, 2), index=_TWICE, without=_STRICT),
            sample("broadcast values", normal(3, 2), normal(2), index=_TWICE, without=_STRICT),
            sample("one place", normal(3, 2), normal(), index=(1, 0)),
            sample("zero-size", normal(0, 2), normal(0, 2), index=(slice(None), ...)),
            sample("complex", complex_normal(3), complex_normal(2), index=(slice(0, 2), ...)),
        ),
        numpy=_added,
        torch=_torch_added,
    ),
    "index_set": Entry(
        (
            sample("slice", normal(3, 2), normal(2, 2), index=(slice(0, 2), ...)),
            sample("one value for all", normal(2, 3), normal(), index=_MASK),
            sample("broadcast values", normal(3, 2), normal(2), index=(slice(0, 2), ...)),
            sample("one place", normal(3, 2), normal(), index=(1, 0)),
            sample("zero-size", normal(0, 2), normal(0, 2), index=(slice(None), ...)),
            sample("complex", complex_normal(3), complex_normal(2), index=(slice(0, 2), ...)),
        ),
        numpy=_set,
        torch=_torch_set,
    ),
    "take_along_axis": Entry(
        (
            sample("plain", normal(2, 3), whole(0, 3, 2, 4), axis=1),
            sample("first axis", normal(3, 2), whole(0, 3, 2, 2), axis=0),
            sample("one line for all", normal(2, 3), constant([[2, 0]]), axis=1),
            sample("zero-size", normal(0, 3), whole(0, 3, 0, 2), axis=1),
            sample("complex", complex_normal(2, 3), whole(0, 3, 2, 2), axis=1),
        ),
        torch=lambda torch, x, indices, *, axis: torch.take_along_dim(x, indices, axis),
    ),
}
