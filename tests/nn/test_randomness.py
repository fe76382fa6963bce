"""Seeds, first values, dropout and clipping."""

import math
from typing import Any

import array_api_strict
import numpy as np
import pytest
import torch

import telegrad as tg
from telegrad import nn, optim
from telegrad.errors import GradientError, ShapeError, UsageError


def run(seed: int) -> list[Any]:
    tg.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(6, 8), nn.Dropout(0.3), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 2)
    )
    optimizer = optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for _ in range(5):
        x = tg.randn(4, 6)
        loss = nn.functional.mse_loss(model(x), tg.zeros((4, 2)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [losses, *(p.detach().numpy() for p in model.parameters())]


def test_the_same_seed_gives_the_same_run_bit_for_bit() -> None:
    for a, b in zip(run(3), run(3)):
        np.testing.assert_array_equal(a, b)
    assert run(3)[0] != run(4)[0]


def test_dropout_draws_from_its_generator() -> None:
    x = tg.ones((50,))
    first = nn.Dropout(0.5, generator=tg.Generator(1))
    second = nn.Dropout(0.5, generator=tg.Generator(1))
    a, b = first(x).numpy(), second(x).numpy()
    np.testing.assert_array_equal(a, b)
    assert set(np.unique(a)) == {0.0, 2.0}
    assert not np.array_equal(first(x).numpy(), a)
    np.testing.assert_array_equal(first.eval()(x).numpy(), np.ones(50))


def test_dropout_keeps_the_share_it_says() -> None:
    kept = nn.functional.dropout(tg.ones((20_000,)), 0.25, generator=tg.Generator(0)).numpy()
    assert abs((kept > 0).mean() - 0.75) < 0.02
    assert abs(kept.mean() - 1) < 0.02


def test_the_gradient_of_dropout_falls_where_values_were_kept() -> None:
    x = tg.ones((20,), dtype=tg.float64).requires_grad_()
    y = nn.functional.dropout(x, 0.5, generator=tg.Generator(2))
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), y.detach().numpy())


@pytest.mark.parametrize("p", [-0.1, 1.5])
def test_dropout_of_more_than_all_is_refused(p: float) -> None:
    with pytest.raises(UsageError, match="probability from 0 to 1"):
        nn.Dropout(p)
    with pytest.raises(UsageError, match="probability from 0 to 1"):
        nn.functional.dropout(tg.ones(2), p)


SPREADS: dict[str, tuple[Any, float]] = {
    "uniform_": (lambda t, g: nn.init.uniform_(t, -1, 3, generator=g), math.sqrt(16 / 12)),
    "normal_": (lambda t, g: nn.init.normal_(t, 1.0, 0.5, generator=g), 0.5),
    "xavier_uniform_": (lambda t, g: nn.init.xavier_uniform_(t, generator=g), math.sqrt(2 / 300)),
    "xavier_normal_": (lambda t, g: nn.init.xavier_normal_(t, generator=g), math.sqrt(2 / 300)),
    "kaiming_uniform_": (
        lambda t, g: nn.init.kaiming_uniform_(t, nonlinearity="relu", generator=g),
        math.sqrt(2 / 200),
    ),
    "kaiming_normal_": (
        lambda t, g: nn.init.kaiming_normal_(t, mode="fan_out", generator=g),
        math.sqrt(2 / 100),
    ),
    "trunc_normal_": (lambda t, g: nn.init.trunc_normal_(t, generator=g), 0.8796),
}


@pytest.mark.parametrize("name", SPREADS)
def test_first_values_have_the_spread_of_their_formula(name: str) -> None:
    fill, spread = SPREADS[name]
    weight = nn.Parameter(tg.zeros((100, 200)))
    assert fill(weight, tg.Generator(0)) is weight
    values = weight.detach().numpy()
    assert abs(values.std() / spread - 1) < 0.02
    other = nn.Parameter(tg.zeros((100, 200)))
    fill(other, tg.Generator(0))
    np.testing.assert_array_equal(other.detach().numpy(), values)


def test_truncated_values_stay_inside() -> None:
    weight = nn.init.trunc_normal_(tg.zeros((1000,)), std=2.0, a=-1.0, b=0.5)
    assert weight.numpy().min() >= -1
    assert weight.numpy().max() <= 0.5


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_far_from_the_mean_truncated_values_crowd_at_the_near_end(side: float) -> None:
    a, b = sorted((9.0 * side, 10.0 * side))
    weight = tg.zeros((20_000,), dtype=tg.float64)
    values = side * nn.init.trunc_normal_(weight, a=a, b=b, generator=tg.Generator(0)).numpy()
    # The mean of the tail above 9 is the density there over its share.
    assert abs(values.mean() - 9.1085) < 0.003
    assert values.min() >= 9
    assert values.max() < 10


@pytest.mark.parametrize("options", [{"std": 0.0}, {"a": 1.0, "b": 1.0}, {"a": 50.0, "b": 51.0}])
def test_a_truncated_distribution_of_nothing_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=r"expected (std above 0|a below b) in trunc_normal_"):
        nn.init.trunc_normal_(tg.zeros((3,)), **options)


@pytest.mark.parametrize("shape", [(3, 8), (8, 3), (4, 2, 2)])
def test_orthogonal_values_have_orthonormal_rows_or_columns(shape: tuple[int, ...]) -> None:
    weight = nn.init.orthogonal_(tg.zeros(shape, dtype=tg.float64)).numpy().reshape(shape[0], -1)
    product = weight @ weight.T if weight.shape[0] <= weight.shape[1] else weight.T @ weight
    np.testing.assert_allclose(product, np.eye(len(product)), atol=1e-12)


def test_gains_are_pytorchs() -> None:
    for name in ("linear", "conv2d", "sigmoid", "tanh", "relu", "selu", "leaky_relu"):
        assert nn.init.calculate_gain(name) == torch.nn.init.calculate_gain(name)
    assert nn.init.calculate_gain("leaky_relu", 0.3) == torch.nn.init.calculate_gain(
        "leaky_relu", 0.3
    )
    with pytest.raises(UsageError, match="nonlinearity, got 'sinus'"):
        nn.init.calculate_gain("sinus")


def test_constant_initialisers_fill_the_whole_tensor() -> None:
    assert nn.init.ones_(tg.zeros(2)).numpy().tolist() == [1.0, 1.0]
    assert nn.init.zeros_(tg.ones(2)).numpy().tolist() == [0.0, 0.0]
    assert nn.init.constant_(tg.ones(2), 3.0).numpy().tolist() == [3.0, 3.0]


def test_a_vector_has_no_fan() -> None:
    with pytest.raises(ShapeError, match=r"two axes, got shape \(3,\)"):
        nn.init.xavier_normal_(tg.zeros(3))
    with pytest.raises(UsageError, match="mode, got 'in'"):
        nn.init.kaiming_normal_(tg.zeros((2, 2)), mode="in")


@pytest.mark.parametrize("order", [2.0, 1.0, 3.0, math.inf])
@pytest.mark.parametrize("bound", [0.1, 100.0])
def test_clipping_is_pytorchs(order: float, bound: float) -> None:
    rng = np.random.default_rng(0)
    ours, theirs = [], []
    for shape in ((2, 3), (4,)):
        gradient = rng.normal(size=shape)
        mine, other = nn.Parameter(np.zeros(shape)), torch.nn.Parameter(torch.zeros(shape).double())
        mine.grad, other.grad = tg.tensor(gradient), torch.tensor(gradient)
        ours.append(mine)
        theirs.append(other)
    ours.append(nn.Parameter(np.zeros(2)))
    found = nn.utils.clip_grad_norm_(ours, bound, norm_type=order)
    expected = torch.nn.utils.clip_grad_norm_(theirs, bound, norm_type=order)
    np.testing.assert_allclose(found.item(), expected.item(), rtol=1e-12)
    for a, b in zip(ours, theirs):
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-12)


def test_clipping_refuses_what_is_not_finite_if_asked() -> None:
    p = nn.Parameter(np.zeros(2))
    p.grad = tg.tensor([np.inf, 1.0], dtype=tg.float64)
    with pytest.raises(GradientError, match="norm of inf"):
        nn.utils.clip_grad_norm_([p], 1.0, error_if_nonfinite=True)
    assert nn.utils.clip_grad_norm_([nn.Parameter(np.zeros(2))], 1.0).item() == 0.0
    with pytest.raises(UsageError, match="norm_type"):
        nn.utils.clip_grad_norm_([p], 1.0, norm_type=-1)
    for bound in (-1.0, np.nan):
        with pytest.raises(UsageError, match=f"max_norm of 0 or more .* got {bound}"):
            nn.utils.clip_grad_norm_([p], bound)
    with pytest.raises(UsageError, match=r"got Sequential; pass its parameters\(\)"):
        nn.utils.clip_grad_norm_(nn.Sequential(nn.Linear(1, 1)), 1.0)  # type: ignore[arg-type]


def test_clipped_gradients_stay_with_the_library_of_their_parameter() -> None:
    p = tg.asarray(array_api_strict.asarray([0.0, 0.0], dtype=array_api_strict.float64))
    p.requires_grad_()
    (
        p * tg.asarray(array_api_strict.asarray([3.0, 4.0], dtype=array_api_strict.float64))
    ).sum().backward()
    assert nn.utils.clip_grad_norm_([p], 1.0).item() == 5.0
    assert p.grad is not None
    assert type(p.grad.array) is type(p.array)
    np.testing.assert_allclose(np.asarray(p.grad.array), [0.6, 0.8], rtol=1e-6)


def test_the_norm_of_gradients_has_the_dtype_that_they_promote_to() -> None:
    single, double = nn.Parameter(np.zeros(2, "float32")), nn.Parameter(np.zeros(2))
    single.grad, double.grad = tg.ones_like(single.detach()), tg.ones_like(double.detach())
    for parameters in ([single, double], [double, single]):
        assert nn.utils.clip_grad_norm_(parameters, 9.0).dtype == np.float64
