"""At kinks, poles, ties and infinities, gradients follow the conventions of PyTorch."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import telegrad

INF = np.inf
TINY = 1e-300
"""What underflow may leave."""
NOT_NUMBERS = [np.nan, INF, -INF]
AROUND_ZERO = [0.0, -0.0, 1.0, -2.0]
NOT_CHOSEN = "a branch that is not chosen"
"""Its reverse mode is NaN, there as here: zero times the slope of log at zero."""
TIES = [[1.0, 2.0, 2.0], [3.0, 3.0, 3.0]]


class Kink(NamedTuple):
    """A function in both libraries, and where to look."""

    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    inputs: Sequence[Any]


def same(name: str, *inputs: Any) -> Kink:
    return Kink(getattr(telegrad, name), getattr(torch, name), inputs)


def norm_of(order: float) -> Kink:
    return Kink(
        lambda x: telegrad.linalg.vector_norm(x, ord=order),
        lambda x: torch.linalg.vector_norm(x, ord=order),
        ([3.0, 0.0, 3.0, -1.0],),
    )


KINKS: dict[str, Kink] = {
    **{
        f"{name} around zero": same(name, AROUND_ZERO)
        for name in ("relu", "abs", "sign", "sqrt", "reciprocal", "log", "floor", "round", "trunc")
    },
    **{
        f"{name} of what is no number": same(name, NOT_NUMBERS)
        for name in ("relu", "sigmoid", "tanh", "exp", "square")
    },
    **{
        f"{name} of what is no number": Kink(
            getattr(telegrad, name), getattr(torch.nn.functional, name), (NOT_NUMBERS,)
        )
        for name in ("silu", "softplus", "gelu")
    },
    **{
        f"{name} beside NaN": same(name, [np.nan, INF, -INF, np.nan], [1.0, np.nan, 2.0, np.nan])
        for name in ("maximum", "minimum")
    },
    "clip of what is no number": Kink(
        lambda x: telegrad.clip(x, 0.0, 1.0), lambda x: torch.clamp(x, 0.0, 1.0), (NOT_NUMBERS,)
    ),
    "max beside NaN": Kink(telegrad.max, torch.amax, ([1.0, np.nan, 3.0, np.nan],)),
    "asin at the ends": same("asin", [1.0, -1.0]),
    "acos at the ends": same("acos", [1.0, -1.0]),
    "acosh at one": same("acosh", [1.0]),
    "atanh at the ends": same("atanh", [1.0, -1.0]),
    "sigmoid far out": same("sigmoid", [1000.0, -1000.0]),
    "max of equal values": Kink(
        lambda x: telegrad.max(x, axis=1), lambda x: torch.amax(x, 1), (TIES,)
    ),
    "max of all": Kink(telegrad.max, lambda x: torch.amax(x, (0, 1)), (TIES,)),
    "min of equal values": Kink(
        lambda x: telegrad.min(x, axis=1), lambda x: torch.amin(x, 1), (TIES,)
    ),
    "maximum of equal values": same("maximum", [1.0, 2.0, 3.0], [1.0, 1.0, 4.0]),
    "minimum of equal values": same("minimum", [1.0, 2.0, 3.0], [1.0, 1.0, 4.0]),
    "clip at its bounds": Kink(
        lambda x: telegrad.clip(x, -1.0, 1.0),
        lambda x: torch.clamp(x, -1.0, 1.0),
        ([-1.0, 0.0, 1.0, 2.0, -3.0],),
    ),
    "sort of equal values": Kink(
        telegrad.sort, lambda x: torch.sort(x, stable=True).values, ([2.0, 1.0, 2.0, 1.0],)
    ),
    "prod with a zero": same("prod", [2.0, 0.0, 3.0]),
    "prod with two zeros": same("prod", [2.0, 0.0, 0.0, 3.0]),
    "prod along an axis": Kink(
        lambda x: telegrad.prod(x, axis=1),
        lambda x: torch.prod(x, 1),
        ([[2.0, 0.0, 3.0], [0.0, 0.0, 1.0], [1.0, 2.0, 3.0]],),
    ),
    "running products with zeros": Kink(
        telegrad.cumulative_prod, lambda x: torch.cumprod(x, 0), ([2.0, 0.0, 3.0, 0.0, 5.0],)
    ),
    "powers of zero": same("pow", [0.0, 0.0, 0.0, 2.0], [0.0, 2.0, 1.0, 0.0]),
    "squares by pow": Kink(lambda x: x**2.0, lambda x: x**2.0, ([-2.0, 0.0, 3.0],)),
    "roots by pow": Kink(lambda x: x**0.5, lambda x: x**0.5, ([0.0, 1.0, 4.0],)),
    "to the power of zero": Kink(lambda x: x**0.0, lambda x: x**0.0, ([0.0, 1.0],)),
    "zero to a power": Kink(lambda x: 0.0**x, lambda x: 0.0**x, ([0.0, 1.0, 4.0],)),
    "hypot at zero": same("hypot", [0.0, 1.0, 0.0], [0.0, 0.0, 2.0]),
    "atan2 at zero": same("atan2", [0.0, 1.0, 0.0], [0.0, 0.0, 2.0]),
    "std of equal values": Kink(telegrad.std, lambda x: torch.std(x, correction=0), ([2.0, 2.0],)),
    "var of as many as its correction": Kink(
        lambda x: telegrad.var(x, axis=0, correction=3),
        lambda x: torch.var(x, 0, correction=3),
        ([1.0, 2.0, 4.0],),
    ),
    NOT_CHOSEN: Kink(
        lambda x: telegrad.where(x > 0, telegrad.log(x), telegrad.zeros_like(x)),
        lambda x: torch.where(x > 0, torch.log(x), torch.zeros_like(x)),
        ([1.0, 0.0, -1.0],),
    ),
    "the length of nothing": Kink(
        telegrad.linalg.vector_norm, torch.linalg.vector_norm, ([0.0, 0.0],)
    ),
    **{f"vector_norm of order {order}": norm_of(order) for order in (1, 2, 3, 0.5, INF, -INF)},
    "logaddexp of nothing": same("logaddexp", [-INF, 1.0], [2.0, -INF]),
    "logsumexp beside nothing": Kink(
        lambda x: telegrad.logsumexp(x, axis=0),
        lambda x: torch.logsumexp(x, 0),
        ([-INF, 1.0, 2.0],),
    ),
    "softmax beside nothing": Kink(
        lambda x: telegrad.softmax(x, axis=0), lambda x: torch.softmax(x, 0), ([-INF, 1.0, 2.0],)
    ),
    "remainder at a jump": same("remainder", [3.0, -3.0, 4.0], [2.0, 2.0, 2.0]),
    "copysign of zero": same("copysign", [3.0, 0.0, -4.0], [2.0, -1.0, -0.0]),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", KINKS)
def test_value_and_gradient_at_a_kink_are_those_of_pytorch(name: str) -> None:
    kink = KINKS[name]
    arrays = [np.array(values, dtype=np.float64) for values in kink.inputs]
    mine = [telegrad.tensor(array, requires_grad=True) for array in arrays]
    twins = [torch.tensor(array, requires_grad=True) for array in arrays]
    result, expected = kink.ours(*mine), kink.theirs(*twins)
    np.testing.assert_allclose(result.detach().numpy(), expected.detach().numpy(), atol=TINY)
    weights = np.arange(1.0, result.size + 1).reshape(result.shape)
    found = telegrad.autograd.grad(result, mine, telegrad.asarray(weights))
    wanted = torch.autograd.grad(expected, twins, torch.from_numpy(weights))
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-12, atol=TINY)


CUT_OFF: dict[str, Kink] = {
    "the root of relu": Kink(
        lambda x: telegrad.sqrt(telegrad.relu(x)), lambda x: torch.sqrt(torch.relu(x)), ()
    ),
    "relu times its root": Kink(
        lambda x: telegrad.relu(x) * telegrad.sqrt(telegrad.relu(x)),
        lambda x: torch.relu(x) * torch.sqrt(torch.relu(x)),
        (),
    ),
    "the root of the largest in a window": Kink(
        lambda x: telegrad.sqrt(telegrad.nn.functional.max_pool2d(x.reshape(1, 1, 2, 2), 2)),
        lambda x: torch.sqrt(torch.max_pool2d(x.reshape(1, 1, 2, 2), 2)),
        (),
    ),
}


@pytest.mark.parametrize("name", CUT_OFF)
@pytest.mark.parametrize("create_graph", [False, True])
def test_where_a_value_is_cut_off_an_infinite_gradient_is_too(
    name: str, create_graph: bool
) -> None:
    kink, numbers = CUT_OFF[name], [-1.0, 0.0, -3.0, -2.0]
    x = telegrad.tensor(numbers, requires_grad=True)
    twin = torch.tensor(numbers, requires_grad=True)
    kink.theirs(twin).sum().backward()
    kink.ours(x).sum().backward(create_graph=create_graph)
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.detach().numpy(), twin.grad.numpy())


def test_relu_passes_the_gradient_on_where_its_result_is_nan() -> None:
    x = telegrad.tensor([np.nan, 1.0], requires_grad=True)
    telegrad.relu(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1.0, 1.0]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", [name for name in KINKS if name != NOT_CHOSEN])
def test_forward_mode_at_a_kink_fits_reverse_mode(name: str) -> None:
    kink = KINKS[name]
    arrays = [np.array(values, dtype=np.float64) for values in kink.inputs]
    inputs = tuple(telegrad.asarray(array) for array in arrays)
    ones = tuple(telegrad.ones_like(x) for x in inputs)
    result, tangent = telegrad.autograd.functional.jvp(kink.ours, inputs, ones)
    leaves = [telegrad.tensor(array, requires_grad=True) for array in arrays]
    found = telegrad.autograd.grad(kink.ours(*leaves), leaves, telegrad.ones_like(result))
    along = sum(np.sum(gradient.numpy()) for gradient in found)
    np.testing.assert_allclose(np.sum(tangent.numpy()), along, rtol=1e-12, atol=1e-12)
