"""A whole layer of gated recurrent units (GRU) as one primitive: the sequence in one scan.

At each step, with the input's part ``i = W_ih x + b_ih`` already computed for all steps::

    a = W_hh h + b_hh
    r = sigmoid(i_r + a_r)    z = sigmoid(i_z + a_z)    m = a_n
    n = tanh(i_n + r m)       h' = n + z (h - n)

The four inputs (i, the first h, W_hh, b_hh) come as one packed vector, because the backward scan
gives the gradients of all four at once: four inputs would take four scans. The results are the
states and the gates (r, z, n, m) of all steps, which is all that the rules read besides the input.
NumPy has kernels of its own for the scan and its plain pull-back (``arrays/numpy/recurrence.py``).
"""

from math import prod
from typing import Any, NamedTuple

from telegrad.rules.primitive import Primitive


class _Parts(NamedTuple):
    """The four inputs; `steps` has axes (step, item, 3 gates x unit)."""

    steps: Any
    first: Any
    weight: Any
    bias: Any


def _unpacked(xp: Any, packed: Any, sizes: tuple[int, int, int]) -> _Parts:
    length, items, units = sizes
    shapes = ((length, items, 3 * units), (items, units), (3 * units, units), (3 * units,))
    parts, start = [], 0
    for shape in shapes:
        end = start + prod(shape)
        parts.append(xp.reshape(packed[start:end], shape))
        start = end
    return _Parts(*parts)


def _packed(xp: Any, *parts: Any) -> Any:
    return xp.concat([xp.reshape(part, (-1,)) for part in parts], axis=0)


def _gates(gates: Any) -> tuple[Any, Any, Any, Any]:
    """Return r, z, n and m of all steps; `gates` has axes (step, 4, item, unit)."""
    return gates[:, 0, ...], gates[:, 1, ...], gates[:, 2, ...], gates[:, 3, ...]


def _before(xp: Any, states: Any, first: Any) -> Any:
    """Return the state that each step began with."""
    return xp.concat([xp.expand_dims(first, axis=0), states[:-1, ...]], axis=0)


def _scan(xp: Any, packed: Any, *, sizes: tuple[int, int, int]) -> tuple[Any, Any]:
    if xp.is_numpy:
        return xp.gru_scan(packed, sizes=sizes)  # type: ignore[no-any-return]
    units = sizes[2]
    steps, h, weight, bias = _unpacked(xp, packed, sizes)
    turned = weight.mT
    states, gates = [], []
    for t in range(sizes[0]):
        i, a = steps[t, ...], xp.matmul(h, turned) + bias
        # A sigmoid by tanh: no overflow at either end, and one pass over both gates.
        rz = xp.tanh((i[:, : 2 * units] + a[:, : 2 * units]) * 0.5) * 0.5 + 0.5
        r, z, m = rz[:, :units], rz[:, units:], a[:, 2 * units :]
        n = xp.tanh(i[:, 2 * units :] + r * m)
        h = n + z * (h - n)
        states.append(h)
        gates.append(xp.stack([r, z, n, m]))
    return xp.stack(states), xp.stack(gates)


def _scan_vjp(xp: Any, g: Any, s: Any) -> Any:
    length, items, units = s.sizes
    by_states, by_gates = g
    if xp.is_numpy and by_gates is None:
        return xp.gru_pull(by_states, s.packed, s.states, s.gates, s.sizes)
    parts = _unpacked(xp, s.packed, s.sizes)
    r, z, n, m = _gates(s.gates)
    before = _before(xp, s.states, parts.first)
    # Everything that does not depend on the gradient coming back is done for all steps at once.
    to_r, to_z, to_n = r - r * r, z - z * z, 1 - n * n
    n_by_h, z_by_h, r_by_n = (1 - z) * to_n, (before - n) * to_z, m * to_r
    if by_gates is not None:
        more_r, more_z, more_n, more_m = _gates(by_gates)
        more_r, more_z, more_n = more_r * to_r, more_z * to_z, more_n * to_n
    carry = xp.zeros((items, units), dtype=xp.dtype_of(s.states))
    by_steps, by_products = [], []
    for t in reversed(range(length)):
        dh = carry if by_states is None else by_states[t, ...] + carry
        dn, dz = dh * n_by_h[t, ...], dh * z_by_h[t, ...]
        if by_gates is not None:
            dn, dz = dn + more_n[t, ...], dz + more_z[t, ...]
        dr, dm = dn * r_by_n[t, ...], dn * r[t, ...]
        if by_gates is not None:
            dr, dm = dr + more_r[t, ...], dm + more_m[t, ...]
        by_product = xp.concat([dr, dz, dm], axis=-1)
        by_steps.append(xp.concat([dr, dz, dn], axis=-1))
        by_products.append(by_product)
        carry = dh * z[t, ...] + xp.matmul(by_product, parts.weight)
    products = xp.reshape(xp.stack(by_products[::-1]), (length * items, 3 * units))
    states = xp.reshape(before, (length * items, units))
    by_weight = xp.matmul(products.mT, states)
    return _packed(xp, xp.stack(by_steps[::-1]), carry, by_weight, xp.sum(products, axis=0))


def _scan_jvp(xp: Any, t: Any, s: Any) -> tuple[Any, Any]:
    length, _, units = s.sizes
    parts, along = _unpacked(xp, s.packed, s.sizes), _unpacked(xp, t, s.sizes)
    r, z, n, m = _gates(s.gates)
    before = _before(xp, s.states, parts.first)
    to_r, to_z, to_n = r - r * r, z - z * z, 1 - n * n
    dh, states, gates = along.first, [], []
    for k in range(length):
        by_h = xp.matmul(dh, parts.weight.mT) + xp.matmul(before[k, ...], along.weight.mT)
        a, i = by_h + along.bias, along.steps[k, ...]
        dr = (i[:, :units] + a[:, :units]) * to_r[k, ...]
        dz = (i[:, units : 2 * units] + a[:, units : 2 * units]) * to_z[k, ...]
        dm = a[:, 2 * units :]
        dn = (i[:, 2 * units :] + dr * m[k, ...] + r[k, ...] * dm) * to_n[k, ...]
        dh = dn + dz * (before[k, ...] - n[k, ...]) + z[k, ...] * (dh - dn)
        states.append(dh)
        gates.append(xp.stack([dr, dz, dn, dm]))
    return xp.stack(states), xp.stack(gates)


GRU_SCAN = Primitive(
    "gru_scan",
    forward=_scan,
    inputs=("packed",),
    saves=("packed",),
    vjp=(_scan_vjp,),
    jvp=(_scan_jvp,),
    options=("sizes",),
    outputs=("states", "gates"),
    gaps=True,
    exact=True,
)
