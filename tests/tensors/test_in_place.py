"""What in-place changes do to a Tensor's history, tangents and retained gradient: as in PyTorch."""

from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg
from telegrad.autograd import forward_ad
from telegrad.errors import DTypeError, ShapeError


@pytest.mark.parametrize("lib", [tg, torch], ids=["telegrad", "torch"])
def test_a_change_under_no_grad_keeps_the_history(lib: Any) -> None:
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    y, z = x * 2, x * 3
    with lib.no_grad():
        y += 1
        z[0] = 5.0
    assert not y.is_leaf
    ((y * y).sum() + z.sum()).backward()
    assert x.grad.tolist() == [15.0, 23.0]


@pytest.mark.parametrize("lib", [tg, torch], ids=["telegrad", "torch"])
def test_the_retained_gradient_is_that_of_the_value_as_it_is_now(lib: Any) -> None:
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    y.retain_grad()
    y *= 3
    assert y.retains_grad
    y.sum().backward()
    assert y.grad.tolist() == [1.0, 1.0]
    assert x.grad.tolist() == [6.0, 6.0]


@pytest.mark.parametrize("recorded", [True, False])
def test_copy_takes_the_tangent_of_its_source(recorded: bool) -> None:
    x = tg.tensor([1.0, 2.0])
    with forward_ad.dual_level(), tg.set_grad_enabled(recorded):
        dual = forward_ad.make_dual(x, tg.tensor([3.0, 4.0]))
        target = tg.zeros(2).copy_(dual)
        tangent = forward_ad.unpack_dual(target).tangent
        assert tangent is not None
        assert tangent.tolist() == [3.0, 4.0]
        assert target.tolist() == [1.0, 2.0]


def test_copy_of_a_constant_leaves_no_tangent() -> None:
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(tg.tensor([1.0, 2.0]), tg.ones(2))
        dual.copy_(tg.zeros(2))
        assert forward_ad.unpack_dual(dual).tangent is None
        assert dual.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("lib", [tg, torch], ids=["telegrad", "torch"])
def test_copy_converts_and_stretches_its_source(lib: Any) -> None:
    assert lib.zeros(2, dtype=lib.int64).copy_(lib.tensor([1.5, -2.5])).tolist() == [1, -2]
    assert lib.zeros((2, 2)).copy_(lib.tensor([1, 2])).tolist() == [[1.0, 2.0], [1.0, 2.0]]


def test_copy_of_a_tensor_to_itself_changes_nothing_though_others_hold_its_memory() -> None:
    x = tg.tensor([1.0, 2.0, 3.0])
    held = x.detach()
    # What new memory holds before it is written: the next array of this size gets it.
    freed = np.full(3, 9.0, dtype=np.float32)
    del freed
    assert x.copy_(x).tolist() == held.tolist() == [1.0, 2.0, 3.0]


def test_copy_over_a_part_leaves_the_whole_as_it_was() -> None:
    whole = tg.tensor([1.0, 2.0, 3.0])
    part = whole[1:]
    part.copy_(tg.tensor([5.0, 6.0]))
    assert part.tolist() == [5.0, 6.0]
    assert whole.tolist() == [1.0, 2.0, 3.0]


def test_copy_refuses_what_does_not_fit() -> None:
    with pytest.raises(DTypeError, match="take real"):
        tg.zeros(2).copy_(tg.tensor([1j, 2.0]))
    with pytest.raises(ShapeError, match=r"\(3,\)"):
        tg.zeros(2).copy_(tg.zeros(3))


@pytest.mark.parametrize("lib", [tg, torch], ids=["telegrad", "torch"])
@pytest.mark.parametrize("is_constant", [True, False], ids=["a constant", "another leaf"])
def test_what_a_value_was_computed_from_has_the_gradient_zero_after_a_copy_over_it(
    lib: Any, is_constant: bool
) -> None:
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    w = lib.tensor(3.0, requires_grad=not is_constant)
    y = x * 2
    y.retain_grad()
    y.copy_(w)
    assert y.tolist() == [3.0, 3.0]
    (y * y).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0]
    assert y.grad.tolist() == [6.0, 6.0]
    assert is_constant or w.grad.item() == 12.0
