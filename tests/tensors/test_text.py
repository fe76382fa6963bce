"""What a tensor looks like: its value, its dtype where not obvious, how it is differentiated."""

from typing import Any

import pytest

import telegrad as tg
from telegrad.autograd import forward_ad
from telegrad.errors import DTypeError


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (tg.tensor(1.5), "tensor(1.5)"),
        (tg.arange(3), "tensor([0, 1, 2])"),
        (tg.tensor([True]), "tensor([ True])"),
        (tg.arange(2, dtype=tg.int8), "tensor([0, 1], dtype=int8)"),
        (tg.tensor(1j), "tensor(0.+1.j, dtype=complex64)"),
        (tg.ones((2, 1), dtype=tg.float64), "tensor([[1.],\n        [1.]], dtype=float64)"),
        (tg.zeros((0, 3)), "tensor([], shape=(0, 3))"),
        (tg.ones(1).requires_grad_(), "tensor([1.], requires_grad=True)"),
        (tg.ones(1).requires_grad_() * 2, "tensor([2.], grad_fn=<MultiplyBackward>)"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_tensor_shows_its_value_and_its_history(tensor: Any, text: str) -> None:
    assert repr(tensor) == text


def test_a_dual_tensor_shows_how_many_tangents_it_has() -> None:
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(tg.ones(1), tg.ones(1))
        assert repr(dual) == "tensor([1.], tangents=1)"


def test_a_long_tensor_is_abbreviated() -> None:
    assert "..." in repr(tg.arange(5000))
    assert len(repr(tg.arange(5000))) < 100


@pytest.mark.parametrize("kind", [float, int, bool])
def test_a_tensor_of_many_elements_is_no_number_and_the_error_says_how_to_get_them(kind) -> None:
    with pytest.raises(DTypeError, match=r"got shape \(3,\); use .* tolist\(\) of many"):
        kind(tg.ones(3))


def test_a_tensor_without_axes_is_not_iterated() -> None:
    with pytest.raises(TypeError, match="0-d"):
        iter(tg.tensor(1.0))


def test_a_format_shows_the_number_of_a_tensor_without_axes() -> None:
    loss = tg.tensor(1.5, requires_grad=True) * 2
    assert f"{loss:.2f} {tg.tensor(3):4d} {loss}" == "3.00    3 3.0"
    assert f"{tg.ones(2)}" == "tensor([1., 1.])"
    with pytest.raises(DTypeError, match=r"0-d tensor for the format '.2f', got shape \(2,\)"):
        format(tg.ones(2), ".2f")
