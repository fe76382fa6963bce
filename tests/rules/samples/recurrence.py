"""Samples of ``rules/recurrence.py``."""

from typing import Any

import numpy as np
from tests.rules.samples.sample import Entry, between, sample

__all__ = ["SAMPLES"]


def _split(packed: Any, sizes: Any) -> Any:
    length, items, units = sizes
    ends = np.cumsum([length * items * 3 * units, items * units, 3 * units * units])
    steps, first, weight = packed[: ends[0]], packed[ends[0] : ends[1]], packed[ends[1] : ends[2]]
    return (
        steps.reshape(length, items, 3 * units),
        first.reshape(items, units),
        weight.reshape(3 * units, units),
        packed[ends[2] :],
    )


def _gru(xp: Any, packed: Any, sizes: Any) -> Any:
    units = sizes[2]
    steps, h, weight, bias = _split(packed, sizes)
    states, gates = [], []
    for i in steps:
        a = h @ weight.T + bias
        r = 1 / (1 + xp.exp(-(i[:, :units] + a[:, :units])))
        z = 1 / (1 + xp.exp(-(i[:, units : 2 * units] + a[:, units : 2 * units])))
        m = a[:, 2 * units :]
        n = xp.tanh(i[:, 2 * units :] + r * m)
        h = (1 - z) * n + z * h
        states.append(h)
        gates.append(xp.stack([r, z, n, m]))
    return xp.stack(states), xp.stack(gates)


SAMPLES = {
    "gru_scan": Entry(
        (
            sample("one step", between(-1, 1, 10), sizes=(1, 1, 1)),
            sample("two steps", between(-1, 1, 13), sizes=(2, 1, 1)),
            sample("two items and units", between(-1, 1, 34), sizes=(1, 2, 2)),
        ),
        numpy=lambda packed, *, sizes: _gru(np, packed, sizes),
        torch=lambda torch, packed, *, sizes: _gru(torch, packed, sizes),
    )
}
