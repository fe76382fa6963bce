"""The scan of a layer of gated recurrent units, and its pull-back, as NumPy does them best.

``rules/recurrence.py`` states the formulas. Here every step writes into memory taken once for the
whole sequence and works in a few small arrays: a fresh large one costs more to get than to fill.
"""

from math import prod
from typing import Any

import numpy as np

from telegrad.arrays.numpy.sums import total
from telegrad.arrays.scratch import scratch

__all__ = ["gru_pull", "gru_scan"]

Sizes = tuple[int, int, int]


def _views(packed: Any, sizes: Sizes) -> list[Any]:
    """Return the steps' inputs, the first state, the weight and the bias, in the packed memory."""
    length, items, units = sizes
    found, start = [], 0
    for shape in ((length, items, 3 * units), (items, units), (3 * units, units), (3 * units,)):
        end = start + prod(shape)
        found.append(packed[start:end].reshape(shape))
        start = end
    return found


def gru_scan(packed: Any, *, sizes: Sizes) -> tuple[Any, Any]:
    length, items, units = sizes
    steps, h, weight, bias = _views(packed, sizes)
    # With few items BLAS is more than twice as fast on rows as on columns.
    turned = weight.T.copy()
    states = np.empty((length, items, units), packed.dtype)
    gates = np.empty((length, 4, items, units), packed.dtype)
    a = np.empty((items, 3 * units), packed.dtype)
    by_gate = _gate_first(a, units)
    for t in range(length):
        i, h_next = _gate_first(steps[t], units), states[t]
        rz, (r, z, n, m) = gates[t, :2], gates[t]
        np.matmul(h, turned, out=a)
        a += bias
        # A sigmoid by tanh: no overflow at either end, and one pass over both gates.
        np.add(i[:2], by_gate[:2], out=rz)
        rz *= 0.5
        np.tanh(rz, out=rz)
        rz *= 0.5
        rz += 0.5
        m[...] = by_gate[2]
        np.multiply(r, m, out=n)
        n += i[2]
        np.tanh(n, out=n)
        np.subtract(h, n, out=h_next)
        h_next *= z
        h_next += n
        h = h_next
    return states, gates


def _gate_first(x: Any, units: int) -> Any:
    """Return a view of (item, gates x unit) with axes (gate, item, unit)."""
    return x.reshape(len(x), 3, units).transpose(1, 0, 2)


def gru_pull(by_states: Any, packed: Any, states: Any, gates: Any, sizes: Sizes) -> Any:
    """Return the gradient of the packed input from that of the states."""
    length, items, units = sizes
    _, first, weight, _ = _views(packed, sizes)
    result = np.empty_like(packed)
    by_steps, by_first, by_weight, by_bias = _views(result, sizes)
    products = scratch("gru_pull", length * items * 3 * units, packed.dtype)
    products = products.reshape(length, items, 3 * units)
    carry, u, v, dr, dz, dn, dm = pieces = np.zeros((7, items, units), packed.dtype)
    for t in reversed(range(length)):
        r, z, n, m = gates[t]
        product = products[t]
        carry += by_states[t]
        np.multiply(n, n, out=u)
        np.subtract(1, u, out=u)
        u *= carry
        np.subtract(1, z, out=v)
        np.multiply(u, v, out=dn)
        v *= z
        v *= carry
        np.subtract(states[t - 1] if t else first, n, out=u)
        np.multiply(u, v, out=dz)
        np.subtract(1, r, out=u)
        u *= r
        u *= m
        np.multiply(u, dn, out=dr)
        np.multiply(dn, r, out=dm)
        by_gate = _gate_first(product, units)
        by_gate[:2], by_gate[2] = pieces[3:5], dm
        _gate_first(by_steps[t], units)[...] = pieces[3:6]
        carry *= z
        np.matmul(product, weight, out=u)
        carry += u
    by_first[...] = carry
    # The weight met the first state at the first step, and each step's state at the next.
    later, earlier = products[1:].reshape(-1, 3 * units), states[:-1].reshape(-1, units)
    np.matmul(products[0].T, first, out=by_weight)
    by_weight += later.T @ earlier
    by_bias[...] = total(products.reshape(length * items, 3 * units), axis=0)
    return result
