"""Holds a function of telegrad to its twin in PyTorch, in value and in every derivative.

For the real number L = Re sum(conj(g) * f(x)) with random g: f, the gradient of L, the tangent of
f, and the second derivative of L along a random v three ways: reverse over reverse, forward over
reverse and reverse over forward.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

import telegrad as tg
from telegrad.autograd.functional import jvp

__all__ = ["assert_twins", "complexes", "normals"]

_CLOSE = {"rtol": 1e-7, "atol": 1e-9}


def normals(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Normal numbers."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def complexes(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Complex normal numbers."""
    return normals(*shape, seed=seed) + 1j * normals(*shape, seed=seed + 1)


def assert_twins(
    ours: Callable[..., Any],
    theirs: Callable[..., Any],
    *arrays: np.ndarray[Any, Any],
    second: bool = True,
) -> None:
    """Fails where `ours` differs from `theirs` at `arrays`; without `second` only first orders."""
    xs = [tg.tensor(a, requires_grad=True) for a in arrays]
    txs = [torch.tensor(a, requires_grad=True) for a in arrays]
    outs, touts = _listed(ours(*xs)), _listed(theirs(*txs))
    _assert_close("value", outs, touts)
    gs = [_like(t, i) for i, t in enumerate(touts)]
    tangents = [_like(t, 10 + i) for i, t in enumerate(txs)]

    got = tg.autograd.grad(
        outs, xs, [tg.tensor(g) for g in gs], create_graph=second, materialize_grads=True
    )
    expected = torch.autograd.grad(
        touts, txs, [torch.tensor(g) for g in gs], create_graph=second, materialize_grads=True
    )
    _assert_close("gradient", got, expected)

    duals = [tg.tensor(t) for t in tangents]
    plain = [tg.tensor(a) for a in arrays]
    _, moved = jvp(lambda *inputs: tuple(_listed(ours(*inputs))), tuple(plain), tuple(duals))
    _, tmoved = torch.func.jvp(
        lambda *inputs: tuple(_listed(theirs(*inputs))),
        tuple(torch.tensor(a) for a in arrays),
        tuple(torch.tensor(t) for t in tangents),
    )
    _assert_close("tangent", _listed(moved), _listed(tmoved))
    if second:
        _assert_second(ours, xs, got, txs, expected, gs, tangents)


def _assert_second(
    ours: Callable[..., Any],
    xs: list[Any],
    gradients: Sequence[Any],
    txs: list[Any],
    expected: Sequence[Any],
    gs: list[Any],
    tangents: list[Any],
) -> None:
    twice = _torch_gradients(expected, txs, [torch.tensor(t) for t in tangents])
    duals = [tg.tensor(t) for t in tangents]
    _assert_close("reverse over reverse", _gradients(gradients, xs, duals), twice)

    def pulled(*inputs: Any) -> Any:
        leaves = [x.clone().requires_grad_() if x.node is None else x for x in inputs]
        outs = _listed(ours(*leaves))
        return tg.autograd.grad(
            outs, leaves, [tg.tensor(g) for g in gs], create_graph=True, materialize_grads=True
        )

    _, forward = jvp(pulled, tuple(x.detach() for x in xs), tuple(duals))
    _assert_close("forward over reverse", _listed(forward), twice)

    leaves = [tg.tensor(x.detach().numpy(), requires_grad=True) for x in xs]
    _, moved = jvp(lambda *a: tuple(_listed(ours(*a))), tuple(leaves), tuple(duals))
    back = _gradients(_listed(moved), leaves, [tg.tensor(g) for g in gs])
    _assert_close("reverse over forward", back, twice)


def _gradients(outs: Sequence[Any], ins: Sequence[Any], gs: Sequence[Any]) -> Sequence[Any]:
    """The gradients, where some or all of the outputs may be constants."""
    live = [i for i, out in enumerate(outs) if out.requires_grad]
    if not live:
        return [tg.zeros_like(x) for x in ins]
    chosen, weights = [outs[i] for i in live], [gs[i] for i in live]
    return tg.autograd.grad(chosen, ins, weights, materialize_grads=True)


def _torch_gradients(outs: Sequence[Any], ins: Sequence[Any], gs: Sequence[Any]) -> Sequence[Any]:
    live = [i for i, out in enumerate(outs) if out.requires_grad]
    if not live:
        return [torch.zeros_like(x) for x in ins]
    chosen, weights = [outs[i] for i in live], [gs[i] for i in live]
    return torch.autograd.grad(chosen, ins, weights, materialize_grads=True)


def _listed(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _like(x: Any, seed: int) -> np.ndarray[Any, Any]:
    shape = tuple(x.shape)
    return complexes(*shape, seed=seed) if x.is_complex() else normals(*shape, seed=seed)


def _assert_close(what: str, got: Sequence[Any], expected: Sequence[Any]) -> None:
    assert len(got) == len(expected)
    for ours, theirs in zip(got, expected):
        ours, theirs = ours.detach().numpy(), theirs.detach().numpy(force=True)
        assert ours.shape == theirs.shape, what
        assert ours.dtype == theirs.dtype, what
        np.testing.assert_allclose(ours, theirs, err_msg=what, **_CLOSE)
