"""Derivatives of arrays that are not NumPy's: nothing in autograd reaches for NumPy."""

import numpy as np
import pytest

import telegrad as tg
from telegrad.autograd import Function, checkpoint, detect_anomaly, functional
from telegrad.errors import DeviceError
from telegrad.tensors import wrap

strict = pytest.importorskip("array_api_strict")
pytestmark = pytest.mark.filterwarnings("ignore:You are comparing a array_api_strict dtype")


class Pair(Function):
    """Two results, both derivatives."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        return x * 2.0, x * x

    @staticmethod
    def backward(ctx, first, second):
        (x,) = ctx.saved_tensors
        return first * 2.0 + second * 2.0 * x

    @staticmethod
    def jvp(ctx, tangent):
        (x,) = ctx.saved_tensors
        return tangent * 2.0, 2.0 * x * tangent


def loss(x):
    return (tg.exp(tg.sin(x)) * x).sum()


COMPUTATIONS = {
    "grad": lambda x, t: functional.grad(loss)(x),
    "jvp": lambda x, t: functional.jvp(loss, x, t)[1],
    "hvp": lambda x, t: functional.hvp(loss, x, t)[1],
    "vhp": lambda x, t: functional.vhp(loss, x, t)[1],
    "jacobian": lambda x, t: functional.jacobian(tg.sin)(x),
    "forward jacobian": lambda x, t: functional.jacobian(tg.sin, mode="forward")(x),
    "hessian": lambda x, t: functional.hessian(loss)(x),
    "linearize": lambda x, t: functional.linearize(tg.exp, x)[1](t),
    "unused": lambda x, t: functional.grad(lambda x: t.sum())(x),
    "checkpoint": lambda x, t: functional.hvp(lambda x: checkpoint(loss, x), x, t)[1],
    "Function": lambda x, t: functional.hvp(lambda x: Pair.apply(x)[1].sum(), x, t)[1],
    "anomaly": lambda x, t: detect_anomaly()(functional.grad(loss))(x),
}


@pytest.mark.parametrize("name", COMPUTATIONS)
def test_derivatives_in_another_namespace_equal_those_in_numpy(name):
    data, direction = [0.5, 1.5, -0.25], [1.0, -2.0, 0.5]
    ours = [tg.tensor(each, dtype=tg.float64) for each in (data, direction)]
    theirs = [wrap(strict.asarray(each, dtype=strict.float64)) for each in (data, direction)]
    found = COMPUTATIONS[name](*theirs)
    assert type(found.array).__module__.startswith("array_api_strict")
    np.testing.assert_allclose(
        np.asarray(found.tolist()), COMPUTATIONS[name](*ours).numpy(), rtol=1e-14
    )


def test_recorded_tensors_on_arrays_of_two_libraries_are_refused_with_what_to_do():
    theirs = tg.asarray(strict.asarray([1.0], dtype=strict.float64))
    with pytest.raises(DeviceError, match=r"got array_api_strict and numpy; .*telegrad\.asarray"):
        theirs + tg.tensor([1.0], dtype=tg.float64, requires_grad=True)
