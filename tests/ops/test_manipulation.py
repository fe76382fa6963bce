"""Other shapes and orders, joining and taking apart."""

from typing import Any

import numpy as np
import pytest
import torch
from tests.ops.twins import assert_twins, complexes, normals

import telegrad as tg
from telegrad.errors import DTypeError, ShapeError

X = np.arange(24.0).reshape(2, 3, 4)


@pytest.mark.parametrize(
    "change",
    [
        lambda xp, x: xp.reshape(x, (4, -1)),
        lambda xp, x: xp.permute_dims(x, (2, 0, 1)),
        lambda xp, x: xp.moveaxis(x, 0, -1),
        lambda xp, x: xp.moveaxis(x, (0, 1), (2, 0)),
        lambda xp, x: xp.squeeze(xp.expand_dims(x, axis=1), axis=1),
        lambda xp, x: xp.expand_dims(x, axis=-1),
        lambda xp, x: xp.flip(x),
        lambda xp, x: xp.flip(x, axis=(0, -1)),
        lambda xp, x: xp.roll(x, 5),
        lambda xp, x: xp.roll(x, (1, -1), axis=(1, 2)),
        lambda xp, x: xp.roll(x, (1, 1), axis=(1, 1)),
        lambda xp, x: xp.tile(x, (2, 1, 3)),
        lambda xp, x: xp.tile(x, (2,)),
        lambda xp, x: xp.tile(x, (2, 1, 1, 1)),
        lambda xp, x: xp.repeat(x, 2),
        lambda xp, x: xp.repeat(x, 3, axis=1),
        lambda xp, x: xp.repeat(x, xp.asarray([1, 0, 2]), axis=1),
        lambda xp, x: xp.broadcast_to(x, (5, 2, 3, 4)),
        lambda xp, x: xp.concat([x, x[:, :1]], axis=1),
        lambda xp, x: xp.concat([x, x], axis=None),
        lambda xp, x: xp.stack([x, x + 1], axis=-1),
        lambda xp, x: xp.stack(xp.unstack(x, axis=1)[::-1]),
        lambda xp, x: xp.matrix_transpose(x),
    ],
)
def test_values_are_those_of_numpy(change: Any) -> None:
    np.testing.assert_array_equal(change(tg, tg.asarray(X)).numpy(), change(np, X))


def test_repeating_and_tiling_are_differentiated_as_in_pytorch() -> None:
    x = normals(2, 3)
    counts = torch.tensor([1, 0, 2])
    assert_twins(lambda a: tg.tile(a * a, (2, 2)), lambda a: torch.tile(a * a, (2, 2)), x)
    assert_twins(
        lambda a: tg.repeat(a * a, 2, axis=1),
        lambda a: torch.repeat_interleave(a * a, 2, 1),
        x,
    )
    assert_twins(
        lambda a: tg.repeat(a * a, tg.from_dlpack(counts), axis=1),
        lambda a: torch.repeat_interleave(a * a, counts, 1),
        x,
    )


def test_joining_is_differentiated_as_in_pytorch() -> None:
    arrays = normals(2, 3), normals(1, 3), normals(4, 3)
    assert_twins(
        lambda *parts: tg.concat([p * p for p in parts]),
        lambda *parts: torch.cat([p * p for p in parts]),
        *arrays,
    )
    assert_twins(
        lambda x, y: tg.stack([x * y, y], axis=1),
        lambda x, y: torch.stack([x * y, y], 1),
        complexes(3),
        complexes(3, seed=5),
    )


def test_layers_that_are_not_used_receive_zeros() -> None:
    x = tg.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], requires_grad=True)
    first, _, last = x
    (first * last).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[5.0, 6.0], [0.0, 0.0], [1.0, 2.0]]
    assert tg.unstack(tg.ones((0, 2))) == ()


def test_joined_dtypes_are_promoted() -> None:
    assert tg.concat([tg.ones(1), tg.arange(2)]).dtype == tg.float32
    assert tg.stack([tg.arange(2, dtype=tg.int8), tg.arange(2)]).dtype == tg.int64
    x = tg.ones(1).requires_grad_()
    tg.concat([x, tg.ones(1, dtype=tg.float64)]).sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == tg.float32


def test_grids_are_those_of_numpy() -> None:
    axes = [np.arange(2.0), np.arange(3.0), np.arange(4.0)]
    for indexing in ("xy", "ij"):
        for count in (0, 1, 2, 3):
            ours = tg.meshgrid(*map(tg.asarray, axes[:count]), indexing=indexing)
            theirs = np.meshgrid(*axes[:count], indexing=indexing)
            for a, b in zip(ours, theirs, strict=True):
                np.testing.assert_array_equal(a.numpy(), b)


def test_arrays_are_broadcast_together() -> None:
    a, b = tg.broadcast_arrays(tg.ones((2, 1)), tg.ones(3))
    assert a.shape == b.shape == (2, 3)
    assert tg.broadcast_shapes((2, 1), (3,)) == (2, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tg.concat([]), "at least one"),
        (lambda: tg.concat([tg.ones(()), tg.ones(())]), "0-d"),
        (lambda: tg.concat([tg.ones((1, 2)), tg.ones((1, 3))]), "up to axis 0"),
        (lambda: tg.stack([tg.ones(1), tg.ones(2)]), "equal shapes"),
        (lambda: tg.squeeze(tg.ones((2, 1)), 0), "length 1"),
        (lambda: tg.permute_dims(tg.ones((2, 1)), (0, 0)), "once"),
        (lambda: tg.moveaxis(tg.ones((2, 1)), (0, 1), 0), "as many destinations"),
        (lambda: tg.broadcast_shapes((2,), (3,)), "broadcast together"),
        (lambda: tg.roll(tg.ones((2, 2)), (1, 1), axis=0), "one axis for each shift"),
        (lambda: tg.repeat(tg.ones(3), tg.asarray([1, 2])), "one for each of 3"),
        (lambda: tg.meshgrid(tg.ones(2), indexing="ji"), "'xy' or 'ij'"),
        (lambda: tg.reshape(tg.ones(6), (4, 2)), "reshape"),
    ],
)
def test_shapes_that_do_not_fit_are_refused_with_the_reason(call: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        call()


def test_a_new_axis_beyond_the_others_is_refused_as_the_standard_says() -> None:
    with pytest.raises(IndexError, match="expected an axis from -2 to 1 in expand_dims, got 2"):
        tg.expand_dims(tg.ones(3), axis=2)


def test_axes_may_be_numpys_integers() -> None:
    assert tg.sum(tg.ones((2, 3)), axis=np.int64(0)).shape == (3,)


def test_dtypes_that_do_not_fit_are_refused_with_the_reason() -> None:
    with pytest.raises(DTypeError, match="one dtype"):
        tg.meshgrid(tg.ones(2), tg.arange(2))
    with pytest.raises(DTypeError, match="integers"):
        tg.repeat(tg.ones(2), tg.asarray([0.5]))
    with pytest.raises(DTypeError, match="real"):
        tg.astype(tg.ones(2, dtype=tg.complex64), tg.float32)


def test_reshape_copies_when_told_and_refuses_when_it_would_have_to() -> None:
    x = tg.ones((2, 3))
    assert not np.shares_memory(tg.reshape(x, (6,), copy=True).numpy(), x.numpy())
    assert tg.reshape(x, (6,), copy=False).shape == (6,)
    with pytest.raises(ValueError, match="copy"):
        tg.reshape(x.T, (6,), copy=False)


def test_many_layers_are_differentiated_in_parts() -> None:
    x = tg.ones((600, 2)).requires_grad_()
    total: Any = 0.0
    for i, layer in enumerate(x):
        total = total + i * layer.sum()
    total.backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy()[:, 0], np.arange(600.0))


@pytest.mark.parametrize("length", [2, 70_000], ids=["copied", "a view"])
def test_a_shape_with_fewer_axes_is_refused(length: int) -> None:
    x = tg.ones((1, length)).requires_grad_()
    for stretch in (lambda: tg.broadcast_to(x, (length,)), lambda: x.expand(length)):
        with pytest.raises(ShapeError, match="a shape with at least 2 axes in broadcast_to"):
            stretch()
    with pytest.raises(ShapeError, match="at least 2 axes"):
        tg.zeros(length).copy_(x.detach())
    with pytest.raises(ShapeError, match="at least 1 axes"):
        tg.broadcast_to(tg.ones(1), ())


@pytest.mark.parametrize("function", [tg.reshape, tg.broadcast_to])
def test_one_number_is_a_shape_with_one_axis(function: Any) -> None:
    assert function(tg.ones(1), 1).shape == (1,)


@pytest.mark.parametrize(
    "make", [tg.zeros, tg.rand, lambda shape: tg.full(shape, 1.0), lambda n: tg.ones(1).expand(n)]
)
def test_a_length_below_zero_is_refused(make: Any) -> None:
    with pytest.raises(ShapeError, match=r"lengths of 0 or more .*\(-2,\)"):
        make(-2)
