"""NumPy's own kernels give what the plain rows give, at the sizes where they are used."""

import math
from typing import Any

import array_api_strict
import numpy as np
import pytest
import scipy.special
import torch

import telegrad as tg
from telegrad.arrays.numpy import attention, gelu
from telegrad.arrays.numpy.powers import quickest_power
from telegrad.arrays.numpy.rows import add_to_rows, column_sums, row_dots, row_sums
from telegrad.nn import functional
from telegrad.rules.attention import SELF_ATTENTION
from telegrad.tensors import apply


def rng() -> np.random.Generator:
    return np.random.default_rng(11)


@pytest.fixture(params=["e", "two"])
def base(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the kernels take powers of this base, whichever is the quicker one here."""
    chosen = (np.exp, 1.0) if request.param == "e" else (np.exp2, math.log2(math.e))
    for module in (attention, gelu):
        monkeypatch.setattr(module, "quickest_power", lambda dtype: chosen)


def test_a_border_never_wins_a_maximum_and_a_nan_always_does() -> None:
    inf, nan = np.inf, np.nan
    images = np.full((4, 1, 3, 3), -inf)
    images[1, 0, 1, 1] = nan
    images[2, 0] = [[nan, 1, nan], [2, inf, -inf], [nan, 3, -inf]]
    images[3, 0] = [[-inf, 1, 1], [inf, inf, -inf], [-inf, -inf, 4]]
    for size, stride, padding in ((2, 2, 1), (2, 1, 1), (3, 1, 1), (3, 1, 0)):
        theirs = torch.tensor(images, requires_grad=True)
        expected = torch.nn.functional.max_pool2d(theirs, size, stride, padding)
        weights = np.arange(1.0, expected.numel() + 1).reshape(expected.shape)
        expected.backward(torch.tensor(weights))
        for as_array in (np.asarray, array_api_strict.asarray):
            ours = tg.asarray(as_array(images)).requires_grad_()
            found = functional.max_pool2d(ours, size, stride, padding)
            found.backward(tg.asarray(as_array(weights)))
            np.testing.assert_array_equal(np.asarray(found.array), expected.detach().numpy())
            np.testing.assert_array_equal(np.asarray(ours.grad.array), theirs.grad.numpy())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_quickest_power_is_the_exponential(dtype: str) -> None:
    x = np.linspace(-20, 5, 1001).astype(dtype)
    power, unit = quickest_power(x.dtype)
    found = power(x * unit)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, np.exp(x), rtol=4e-6 if dtype == "float32" else 1e-15)


@pytest.mark.usefixtures("base")
def test_gelu_of_many_float32_numbers_is_as_exact_as_float32() -> None:
    # An odd number of them, more than a block; and far out, where nothing may overflow.
    x = np.concatenate([np.linspace(-15, 15, 200_001), [-1e5, 1e5, 0.0]]).astype(np.float32)
    at = tg.tensor(x, requires_grad=True)
    value = functional.gelu(at)
    value.backward(tg.ones(x.shape))
    wide = x.astype(np.float64)
    share = scipy.special.ndtr(wide)
    slope = share + wide * np.exp(-wide * wide / 2) / np.sqrt(2 * np.pi)
    size = np.maximum(1, np.abs(wide))
    assert (np.abs(value.detach().numpy() - wide * share) / size).max() < 2e-7
    assert at.grad is not None
    assert np.abs(at.grad.numpy() - slope).max() < 4e-7


def test_gelu_of_many_numbers_bends_as_of_few() -> None:
    x = rng().normal(size=3000).astype(np.float32)

    def bend(part: Any) -> Any:
        at = tg.tensor(part, requires_grad=True)
        (slope,) = tg.autograd.grad(functional.gelu(at).sum(), at, create_graph=True)
        return tg.autograd.grad(slope.sum(), at)[0].numpy()

    few = np.concatenate([bend(part) for part in np.split(x, 10)])
    np.testing.assert_allclose(bend(x), few, atol=1e-6)


MASKS: dict[str, Any] = {
    "none": None,
    "truth": np.tri(20, dtype=bool),
    "numbers": np.where(np.tri(20, dtype=bool), 0.5, -np.inf).astype(np.float32),
}


@pytest.mark.usefixtures("base")
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("scale", [0.3, 60.0], ids=["near", "far apart"])
def test_attention_over_many_places_is_pytorchs(mask: str, scale: float) -> None:
    packed = rng().normal(size=(3, 20, 3, 2, 8)).astype(np.float32)
    cotangent = rng().normal(size=(3, 20, 2, 8)).astype(np.float32)
    ours = tg.tensor(packed, requires_grad=True)
    heads, weights = apply(SELF_ATTENTION, ours, scale=scale, mask=MASKS[mask])
    heads.backward(tg.tensor(cotangent))
    theirs = torch.tensor(packed, dtype=torch.float64, requires_grad=True)
    q, k, v = theirs.permute(2, 0, 3, 1, 4)
    given = None if MASKS[mask] is None else torch.tensor(MASKS[mask])
    if given is not None and given.dtype != torch.bool:
        given = given.double()
    expected = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, given, scale=scale
    ).permute(0, 2, 1, 3)
    expected.backward(torch.tensor(cotangent, dtype=torch.float64))
    close = 1e-5 if scale < 1 else 2e-3
    np.testing.assert_allclose(heads.detach().numpy(), expected.detach().numpy(), atol=close)
    np.testing.assert_allclose(weights.detach().numpy().sum(-1), 1, atol=1e-5)
    assert ours.grad is not None
    assert theirs.grad is not None
    np.testing.assert_allclose(
        ours.grad.numpy(), theirs.grad.numpy(), atol=close * max(1, scale), rtol=1e-4
    )


def test_attention_takes_a_complex_step_beside_a_place_not_to_look_at() -> None:
    packed = rng().normal(size=(1, 2, 3, 1, 2))
    direction = rng().normal(size=packed.shape)
    mask = np.array([[0.0, -0.5], [0.3, -np.inf]])
    step = 1e-30
    ahead, _ = apply(
        SELF_ATTENTION, tg.tensor(packed + 1j * step * direction), scale=0.7, mask=mask
    )
    _, slope = tg.autograd.functional.jvp(
        lambda x: apply(SELF_ATTENTION, x, scale=0.7, mask=mask)[0],
        (tg.tensor(packed),),
        (tg.tensor(direction),),
    )
    np.testing.assert_allclose(ahead.numpy().imag / step, slope.numpy(), rtol=1e-12)


@pytest.mark.parametrize("shape", [(6, 40), (2, 3, 8, 5)], ids=["one axis", "two axes"])
def test_layer_norm_of_float32_is_pytorchs(shape: tuple[int, ...]) -> None:
    last = shape[1:] if len(shape) == 2 else shape[2:]
    arrays = [(rng().normal(size=s) + 3).astype(np.float32) for s in (shape, last, last, shape)]
    x, weight, bias = (tg.tensor(a, requires_grad=True) for a in arrays[:3])
    functional.layer_norm(x, last, weight, bias).backward(tg.tensor(arrays[3]))
    twins = [torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in arrays[:3]]
    torch.nn.functional.layer_norm(twins[0], last, *twins[1:]).backward(
        torch.tensor(arrays[3], dtype=torch.float64)
    )
    for ours, theirs in zip((x, weight, bias), twins):
        assert ours.grad is not None
        assert theirs.grad is not None
        np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), atol=3e-5, rtol=1e-5)


@pytest.mark.parametrize("length", [0, 1, 7, 5000])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_by_products_are_sums(length: int, dtype: str) -> None:
    # Small integers add up exactly in any order.
    x = rng().integers(-3, 4, size=(3, length)).astype(dtype)
    y = rng().integers(-3, 4, size=(3, length)).astype(dtype)
    np.testing.assert_array_equal(row_sums(x), x.sum(-1, keepdims=True))
    np.testing.assert_array_equal(row_dots(x, y), (x * y).sum(-1, keepdims=True))
    np.testing.assert_array_equal(column_sums(x.T), x.sum(-1))
    deep = np.stack([x, y])
    np.testing.assert_array_equal(row_sums(deep, 2), deep.sum((1, 2), keepdims=True))
    assert row_dots(deep, deep, 2).shape == (2, 1, 1)
    assert row_sums(x).dtype == x.dtype


@pytest.mark.parametrize("count", [0, 1, 100, 256, 512, 516])
@pytest.mark.parametrize("width", [0, 1, 30, 300, 9000])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_line_is_added_to_each_row(count: int, width: int, order: Any) -> None:
    x = np.array(rng().normal(size=(count, width)), np.float32, order=order)
    line = rng().normal(size=width).astype(np.float32)
    expected = x + line
    add_to_rows(x, line)
    np.testing.assert_array_equal(x, expected)
