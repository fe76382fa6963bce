"""Borders and sliding windows: PyTorch's pad, unfold and convolution."""

from typing import Any

import numpy as np
import pytest
import torch
from tests.ops.twins import assert_twins, complexes, normals

import telegrad as tg
from telegrad.errors import ShapeError, UsageError
from telegrad.testing import gradient_check

F = torch.nn.functional


def test_pad_puts_a_value_around_as_in_pytorch() -> None:
    assert_twins(
        lambda x: tg.pad(x, ((1, 2), (0, 3)), constant_values=1.5),
        lambda x: F.pad(x, (0, 3, 1, 2), value=1.5),
        normals(2, 3),
    )
    assert_twins(lambda x: tg.pad(x, 1), lambda x: F.pad(x, (1, 1)), complexes(3))


@pytest.mark.parametrize(
    ("mode", "theirs"), [("edge", "replicate"), ("reflect", "reflect"), ("wrap", "circular")]
)
def test_pad_continues_a_value_as_in_pytorch(mode: str, theirs: str) -> None:
    assert_twins(
        lambda x: tg.pad(x, ((0, 0), (0, 0), (2, 1)), mode=mode),
        lambda x: F.pad(x, (2, 1), mode=theirs),
        normals(1, 2, 4),
    )


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric", "wrap"])
def test_pad_has_numpys_values_in_every_mode(mode: Any) -> None:
    x = normals(3, 4)
    got = tg.pad(tg.asarray(x), ((2, 1), (0, 3)), mode=mode)
    np.testing.assert_array_equal(got.numpy(), np.pad(x, ((2, 1), (0, 3)), mode=mode))


def test_pad_refuses_widths_that_make_no_sense() -> None:
    x = tg.ones((2, 2))
    for widths in (-1, ((1, 2, 3),), ((1, 1), (1, 1), (1, 1)), "much"):
        with pytest.raises(ShapeError, match="expected a width of 0 or more"):
            tg.pad(x, widths)
    with pytest.raises(UsageError, match="as mode of pad, got 'mirror'"):
        tg.pad(x, 1, mode="mirror")


def test_windows_are_pytorchs_unfold() -> None:
    assert_twins(lambda x: tg.windows(x, 3, strides=2), lambda x: x.unfold(-1, 3, 2), normals(2, 7))
    assert_twins(
        lambda x: tg.windows(x, (2, 3), axes=(0, 1), strides=(1, 2)),
        lambda x: x.unfold(0, 2, 1).unfold(1, 3, 2),
        normals(3, 6),
    )


def test_a_dilated_window_skips_elements() -> None:
    x = tg.arange(7)
    assert tg.windows(x, 3, dilations=2).tolist() == [[0, 2, 4], [1, 3, 5], [2, 4, 6]]


def test_windows_and_products_make_a_convolution_with_all_its_derivatives() -> None:
    def convolution(x: Any, w: Any) -> Any:
        patches = tg.windows(x, w.shape[2:], strides=2, dilations=(1, 2))
        moved = tg.permute_dims(patches, (0, 2, 3, 1, 4, 5))
        flat = tg.reshape(moved, (*moved.shape[:3], -1))
        out = flat @ tg.reshape(w, (w.shape[0], -1)).mT
        return tg.permute_dims(out, (0, 3, 1, 2))

    assert_twins(
        convolution,
        lambda x, w: F.conv2d(x, w, stride=2, dilation=(1, 2)),
        normals(2, 2, 5, 6),
        normals(3, 2, 2, 2),
    )


def test_overlap_add_lays_windows_back() -> None:
    x = tg.asarray(normals(6))
    once = tg.overlap_add(tg.windows(x, 3), (6,))
    np.testing.assert_allclose(once.numpy(), x.numpy() * [1, 2, 3, 3, 2, 1])


def test_overlap_add_is_the_adjoint_of_windows() -> None:
    x, y = tg.asarray(normals(3, 7)), tg.asarray(normals(2, 3, 2, 2))
    options = {"axes": (0, 1), "strides": (1, 2), "dilations": (1, 3)}
    there = (tg.windows(x, (2, 2), **options)[:, :2] * y[:, :2]).sum()
    back = (tg.overlap_add(y[:, :2], (3, 7), **options) * x).sum()
    assert there.item() == pytest.approx(back.item())


def test_overlap_add_is_differentiable_twice() -> None:
    gradient_check(lambda x: tg.overlap_add(x, (5,), strides=2) ** 2, (normals(2, 3),))


def test_gradients_through_windows_reach_what_no_window_covers_as_zero() -> None:
    x = tg.tensor(np.arange(6.0), requires_grad=True)
    tg.windows(x, 2, strides=3)[0].sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]


def test_no_window_at_all_lays_nothing_back() -> None:
    none = tg.zeros((0, 3)).requires_grad_()
    laid = tg.overlap_add(none, (2,), strides=2)
    assert laid.tolist() == [0.0, 0.0]
    laid.sum().backward()
    assert none.grad is not None
    assert none.grad.shape == (0, 3)


def test_windows_refuse_what_does_not_fit() -> None:
    x = tg.ones((2, 4))
    with pytest.raises(ShapeError, match=r"expected windows that fit on axis 1 of shape \(2, 4\)"):
        tg.windows(x, 5)
    with pytest.raises(ShapeError, match="expected as many different axes"):
        tg.windows(x, (2, 2), axes=(1, 1))
    with pytest.raises(ShapeError, match="of 1 or more in windows"):
        tg.windows(x, 2, strides=0)
    with pytest.raises(ShapeError, match=r"expected windows of shape \(3, 2\) to lay back on"):
        tg.overlap_add(tg.ones((2, 2)), (4,))
