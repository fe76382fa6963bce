"""Every mixture of forward and reverse mode to third order, against closed forms and torch.func."""

import itertools

import numpy as np
import pytest
import torch
from tests.autograd.beside_torch import agree, constant

import telegrad as tg
from telegrad.autograd import functional as F

MIXTURES = list(itertools.product(["forward", "reverse"], repeat=3))


def derivative(lib, kind):
    """d/dx of a function of one number, in one mode."""
    func = F if lib is tg else torch.func

    def forward(f):
        return lambda x: func.jvp(f, (x,), (lib.ones_like(x),))[1]

    return forward if kind == "forward" else func.grad


CLOSED = {
    "power": (lambda x: x**5, lambda x: 60 * x**2),
    "exponential": (lambda x: tg.exp(2.0 * x), lambda x: 8 * np.exp(2 * x)),
    "product": (lambda x: tg.sin(x) * x, lambda x: -3 * np.sin(x) - x * np.cos(x)),
    "quotient": (lambda x: 1.0 / x, lambda x: -6 / x**4),
    "logarithm": (lambda x: tg.log(x) * x, lambda x: -1 / x**2),
    "root": (tg.sqrt, lambda x: 0.375 * x**-2.5),
    "tangent": (tg.tan, lambda x: 2 * (1 + np.tan(x) ** 2) * (1 + 3 * np.tan(x) ** 2)),
}


@pytest.mark.parametrize("mixture", MIXTURES, ids="-".join)
@pytest.mark.parametrize("name", CLOSED)
def test_third_derivatives_against_closed_forms(name, mixture):
    f, closed = CLOSED[name]
    for kind in mixture:
        f = derivative(tg, kind)(f)
    assert f(tg.tensor(0.7, dtype=tg.float64)).item() == pytest.approx(closed(0.7), rel=1e-10)


@pytest.mark.parametrize("mixture", MIXTURES, ids="-".join)
def test_third_derivatives_of_a_network_beside_torch(mixture):
    weights = np.random.default_rng(2).normal(size=(2, 4, 4))

    def scenario(lib):
        w1, w2 = (constant(lib, w.tolist()) for w in weights)
        direction = constant(lib, [0.5, -1.0, 0.25, 2.0])
        base = constant(lib, [0.1, 0.2, 0.3, 0.4])

        def f(t):
            hidden = lib.tanh((base + t * direction) @ w1)
            return (lib.exp(hidden @ w2 * 0.3) * hidden).sum()

        orders = [f]
        for kind in mixture:
            orders.append(derivative(lib, kind)(orders[-1]))
        return [each(constant(lib, 0.3)) for each in orders]

    agree(scenario)


def test_third_derivative_tensor_beside_torch():
    def scenario(lib):
        func = F if lib is tg else torch.func
        outer = F.jacobian if lib is tg else torch.func.jacrev

        def f(x):
            return (lib.sin(x[0] * x[1]) * lib.exp(x[2])) + (x**3).sum()

        return outer(func.hessian(f))(constant(lib, [0.5, -0.4, 0.3]))

    agree(scenario)


def test_mixed_arguments_across_orders():
    # d/dy d/dx d/dx of x^3 y^2 is 12 x y.
    def f(x, y):
        return x**3 * y**2

    x, y = tg.tensor(2.0, dtype=tg.float64), tg.tensor(5.0, dtype=tg.float64)
    xx = F.grad(F.grad(f))
    assert F.grad(xx, argnums=1)(x, y).item() == pytest.approx(120.0)
    assert F.jvp(lambda y: xx(x, y), y, tg.ones_like(y))[1].item() == pytest.approx(120.0)


def test_linearize_and_vjp_compose_with_the_others():
    def f(x):
        return tg.exp(tg.sin(x)) * x

    x, one = tg.tensor(0.7, dtype=tg.float64), tg.tensor(1.0, dtype=tg.float64)
    second = F.grad(F.grad(f))(x).item()
    compositions = [
        lambda x: F.linearize(f, x)[1](one),
        lambda x: F.vjp(f, x)[1](one)[0],
        lambda x: F.jacobian(f)(x),
        lambda x: F.jacobian(f, mode="forward")(x),
    ]
    for first in compositions:
        assert F.grad(first)(x).item() == pytest.approx(second)
        assert F.jvp(first, x, one)[1].item() == pytest.approx(second)
        assert F.linearize(first, x)[1](one).item() == pytest.approx(second)


def test_hvp_of_hvp_is_a_fourth_derivative():
    x, one = tg.tensor(0.7, dtype=tg.float64), tg.tensor(1.0, dtype=tg.float64)
    fourth = F.hvp(lambda x: F.hvp(tg.exp, x, one)[1], x, one)[1]
    assert fourth.item() == pytest.approx(np.exp(0.7))


def test_fifth_order_by_alternating_modes():
    f = tg.sin
    for kind in ("forward", "reverse", "forward", "reverse", "forward"):
        f = derivative(tg, kind)(f)
    assert f(tg.tensor(0.4, dtype=tg.float64)).item() == pytest.approx(np.cos(0.4))


def beside(ours, theirs):
    """A function of (library, x), where the libraries spell it differently."""
    return lambda lib, x: (ours if lib is tg else theirs)(lib, x)


def by_eigh(lib, x):
    values, vectors = lib.linalg.eigh(x @ x.mT + constant(lib, np.eye(4).tolist()))
    return (values**3).sum() + (vectors * vectors * values).sum()


def by_qr(lib, x):
    q, r = lib.linalg.qr(x)
    return (q**3).sum() + (r * r).sum()


CURVED = {
    "eigh": by_eigh,
    "qr": by_qr,
    "svd": lambda lib, x: (lib.linalg.svd(x)[1] ** 3).sum(),
    "solve": lambda lib, x: (lib.linalg.solve(x, x * x) ** 2).sum(),
    "where": lambda lib, x: lib.where(x > 0.0, x**3, lib.sin(x)).sum(),
    "repeated indices": lambda lib, x: (x[1:] * x[:-1] * x[[0, 0, 1]]).sum(),
    "softmax": beside(
        lambda lib, x: (lib.softmax(x, axis=-1) * x).sum(),
        lambda lib, x: (lib.softmax(x, -1) * x).sum(),
    ),
    "running sum": beside(
        lambda lib, x: (lib.cumulative_sum(x, axis=1) ** 3).sum(),
        lambda lib, x: (lib.cumsum(x, 1) ** 3).sum(),
    ),
    "maximum": beside(
        lambda lib, x: (lib.max(x, axis=1) ** 3).sum(),
        lambda lib, x: (lib.amax(x, 1) ** 3).sum(),
    ),
}


@pytest.mark.parametrize("name", CURVED)
def test_hessian_products_in_every_mixture_beside_torch(name):
    generator = np.random.default_rng(0)
    x, v = generator.normal(size=(2, 4, 4)).tolist()

    def scenario(lib):
        def f(x):
            return CURVED[name](lib, x)

        at, along = constant(lib, x), constant(lib, v)
        if lib is torch:
            return [torch.func.jvp(torch.func.grad(f), (at,), (along,))[1]] * 4
        return [
            F.hvp(f, at, along)[1],
            F.vhp(f, at, along)[1],
            F.jvp(F.grad(f), at, along)[1],
            F.grad(lambda x: F.jvp(f, x, along)[1])(at),
        ]

    agree(scenario)
