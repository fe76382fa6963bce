"""Derivatives as functions: values, structures, purity; beside ``torch.func``."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from tests.autograd.beside_torch import agree, constant

import telegrad as tg
from telegrad.autograd import functional as F


def double(data):
    return tg.tensor(data, dtype=tg.float64)


def func(lib):
    """The transforms of the library that take and return functions."""
    return F if lib is tg else torch.func


def smooth(lib):
    def f(x, y):
        return (lib.sin(x) * lib.exp(y * 0.3)).sum() + (x * x * y).mean()

    return f


def test_grad_takes_the_arguments_that_argnums_name():
    def scenario(lib):
        x, y = constant(lib, [0.1, 0.7]), constant(lib, [1.3, -0.4])
        f, grad = smooth(lib), func(lib).grad
        return [grad(f)(x, y), grad(f, argnums=1)(x, y), grad(f, argnums=(1, 0))(x, y)]

    agree(scenario)


def test_negative_argnums_and_options_by_keyword():
    def f(x, y, *, power):
        return (x**power * y).sum()

    x, y = double([1.0, 2.0]), double([3.0, 4.0])
    assert F.grad(f, argnums=-1)(x, y, power=3).tolist() == [1.0, 8.0]


def test_value_and_grad_gives_both():
    def f(x):
        return (x**3).sum()

    value, gradient = F.value_and_grad(f)(double([1.0, 2.0]))
    assert value.item() == 9.0
    assert gradient.tolist() == [3.0, 12.0]


def test_has_aux_passes_values_beside_the_derivative():
    def f(x):
        return (x * x).sum(), {"doubled": x * 2.0, "note": "text"}

    x = double([1.0, 2.0])
    gradient, aux = F.grad(f, has_aux=True)(x)
    assert gradient.tolist() == [2.0, 4.0]
    assert aux["note"] == "text"
    assert aux["doubled"].tolist() == [2.0, 4.0]
    assert not aux["doubled"].requires_grad
    (value, aux), gradient = F.value_and_grad(f, has_aux=True)(x)
    assert value.item() == 5.0
    assert not value.requires_grad
    value, pull, aux = F.vjp(f, x, has_aux=True)
    assert pull(double(1.0))[0].tolist() == [2.0, 4.0]
    value, tangent, aux = F.jvp(f, (x,), (x,), has_aux=True)
    assert tangent.item() == 10.0
    assert not aux["doubled"].is_dual
    matrix, aux = F.jacobian(lambda x: (x * x, "aux"), has_aux=True)(x)
    assert aux == "aux"
    assert matrix.tolist() == [[2.0, 0.0], [0.0, 4.0]]
    matrix, aux = F.jacobian(lambda x: (x * x, "aux"), has_aux=True, mode="forward")(x)
    assert matrix.tolist() == [[2.0, 0.0], [0.0, 4.0]]
    matrix, aux = F.hessian(lambda x: ((x**3).sum(), "aux"), has_aux=True)(x)
    assert matrix.tolist() == [[6.0, 0.0], [0.0, 12.0]]
    assert aux == "aux"
    value, push, aux = F.linearize(lambda x: (x * x, "aux"), x, has_aux=True)
    assert push(x).tolist() == [2.0, 8.0]


def test_nested_structures_in_and_out():
    def f(parameters, pair):
        w, (b, c) = parameters["w"], parameters["rest"]
        return {"out": [tg.sin(w @ pair[0]) + b, c * pair[1]], "none": None}

    parameters = {
        "w": double([[1.0, 2.0], [3.0, 4.0]]),
        "rest": [double([0.5, 0.25]), double(2.0)],
    }
    pair = (double([0.1, 0.2]), double(3.0))
    _, pull = F.vjp(f, parameters, pair)
    cotangent = {"out": [double([1.0, 1.0]), double(1.0)], "none": None}
    by_parameters, by_pair = pull(cotangent)
    assert set(by_parameters) == {"w", "rest"}
    assert isinstance(by_parameters["rest"], list)
    assert isinstance(by_pair, tuple)
    assert by_parameters["w"].shape == (2, 2)
    assert by_parameters["rest"][1].item() == 3.0
    assert by_pair[1].item() == 2.0
    tangents = ({"w": parameters["w"] * 0.0, "rest": [double([1.0, 0.0]), double(1.0)]}, pair)
    _, pushed = F.jvp(f, (parameters, pair), tangents)
    assert pushed["none"] is None
    assert pushed["out"][1].item() == 3.0 + 2.0 * 3.0


def test_named_tuples_stay_what_they_are():
    class Layer(NamedTuple):
        weight: Any
        bias: Any

    layer = Layer(double([2.0, 3.0]), double(1.0))
    by_layer = F.grad(lambda layer, x: (layer.weight * x + layer.bias).sum())(layer, 5.0)
    assert isinstance(by_layer, Layer)
    assert by_layer.weight.tolist() == [5.0, 5.0]
    assert by_layer.bias.item() == 2.0


def test_dicts_of_derivatives_may_have_their_keys_in_another_order():
    x = double(1.0)
    _, pull = F.vjp(lambda x: {"a": x * 2.0, "b": x * 300.0}, x)
    assert pull({"b": double(0.0), "a": double(1.0)})[0].item() == 2.0

    def f(parts):
        return parts["a"] * 2.0 + parts["b"] * 300.0

    tangents = {"b": double(0.0), "a": double(1.0)}
    assert F.jvp(f, ({"a": x, "b": x},), (tangents,))[1].item() == 2.0
    assert F.linearize(f, {"a": x, "b": x})[1](tangents).item() == 2.0


def test_the_transposed_derivative_matches_the_derivative():
    generator = np.random.default_rng(0)
    x, u = double(generator.normal(size=(3, 3))), double(generator.normal(size=(3, 3)))

    def f(x):
        return tg.tanh(x @ x.mT), tg.exp(x[0])

    value, pushed = F.jvp(f, x, u)
    v = tuple(double(generator.normal(size=part.shape)) for part in value)
    _, pull = F.vjp(f, x)
    left = sum((a * b).sum().item() for a, b in zip(v, pushed))
    assert left == pytest.approx((pull(v)[0] * u).sum().item())


def test_vjp_pulls_as_often_as_you_like():
    def scenario(lib):
        x = constant(lib, [0.5, 1.5])
        out, pull = func(lib).vjp(lambda x: lib.sin(x) * x, x)
        return out, pull(constant(lib, [1.0, 0.0])), pull(constant(lib, [0.0, 1.0]))

    agree(scenario)


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_jacobians_of_several_arguments_and_results(mode):
    def jacobian(lib, f):
        if lib is tg:
            return F.jacobian(f, argnums=(0, 1), mode=mode)
        return {"reverse": torch.func.jacrev, "forward": torch.func.jacfwd}[mode](f, (0, 1))

    def scenario(lib):
        x, y = constant(lib, [0.5, 1.5, 2.5]), constant(lib, [[2.0, 1.0, 0.5], [1.0, 1.0, 1.0]])
        return jacobian(lib, lambda x, y: (lib.sin(x) * y[0], (x * x).sum()))(x, y)

    agree(scenario)


def test_hessians_of_several_arguments():
    def scenario(lib):
        x, y = constant(lib, [0.1, 0.7]), constant(lib, [1.3, -0.4])
        return func(lib).hessian(smooth(lib), argnums=(0, 1))(x, y)

    agree(scenario)


def test_jacobians_of_complex_functions_agree_in_both_modes():
    def f(z):
        return tg.exp(z * z) + z[0]

    z = tg.tensor([0.5 + 0.2j, -0.3j], dtype=tg.complex128)
    reverse, forward = (F.jacobian(f, mode=mode)(z) for mode in ("reverse", "forward"))
    np.testing.assert_allclose(reverse.numpy(), forward.numpy())
    values = z.numpy()
    expected = np.diag(2 * values * np.exp(values**2))
    expected[:, 0] += 1.0
    np.testing.assert_allclose(reverse.numpy(), expected)


def test_jacobians_between_real_and_complex_values_need_the_right_mode():
    x = double([0.5, 1.5])
    with pytest.raises(tg.errors.NotDifferentiable, match="use mode='forward'"):
        F.jacobian(lambda x: x * 1.0j)(x)
    found = F.jacobian(lambda x: x * 1.0j, mode="forward")(x)
    np.testing.assert_allclose(found.numpy(), 1.0j * np.eye(2))
    z = tg.tensor([0.5 + 1.0j], dtype=tg.complex128)
    with pytest.raises(tg.errors.NotDifferentiable, match="use mode='reverse'"):
        F.jacobian(tg.abs, mode="forward")(z)


def test_empty_jacobians_have_their_shape():
    empty = tg.zeros((0,), dtype=tg.float64)
    x = double([1.0, 2.0])
    for mode in ("reverse", "forward"):
        assert F.jacobian(lambda x: x[:0] * 2.0, mode=mode)(x).shape == (0, 2)
        assert F.jacobian(lambda e: e.sum() + x, mode=mode)(empty).shape == (2, 0)


@pytest.mark.parametrize("product", [F.hvp, F.vhp])
def test_hessian_products_are_the_hessian_times_the_vector(product):
    generator = np.random.default_rng(1)
    x, y = double(generator.normal(size=3)), double(generator.normal(size=(3, 2)))
    v = double(generator.normal(size=3)), double(generator.normal(size=(3, 2)))

    def f(x, y):
        return (tg.sin(x @ y) ** 2).sum() + tg.exp(x[0] * y[0, 0])

    value, (by_x, by_y) = product(f, (x, y), v)
    (hxx, hxy), (hyx, hyy) = F.hessian(f, argnums=(0, 1))(x, y)
    flat = v[1].reshape(6)
    np.testing.assert_allclose(
        by_x.numpy(), (hxx @ v[0] + hxy.reshape(3, 6) @ flat).numpy(), rtol=1e-10
    )
    np.testing.assert_allclose(
        by_y.numpy().reshape(6),
        (hyx.reshape(6, 3) @ v[0] + hyy.reshape(6, 6) @ flat).numpy(),
        rtol=1e-10,
    )
    assert value.item() == pytest.approx(f(x, y).item())


@pytest.mark.parametrize("product", [F.hvp, F.vhp])
def test_hessian_products_keep_the_form_of_their_argument(product):
    x = double([1.0, 2.0])
    assert product(lambda x: (x**3).sum(), x, x)[1].tolist() == [6.0, 24.0]
    assert isinstance(product(lambda x: (x**3).sum(), (x,), (x,))[1], tuple)
    nested = {"a": x, "b": [x]}
    found = product(lambda d: (d["a"] ** 3 * d["b"][0]).sum(), (nested,), (nested,))[1]
    assert set(found[0]) == {"a", "b"}


def test_linearize_runs_the_function_once():
    runs = []

    def f(x, y):
        runs.append(1)
        return {"a": tg.sin(x) * y, "b": x.sum()}

    x, y = double([0.5, 1.5]), double(2.0)
    value, push = F.linearize(f, x, y)
    for _ in range(3):
        dx, dy = double([1.0, -2.0]), double(0.5)
        pushed = push(dx, dy)
    assert len(runs) == 1
    expected = F.jvp(f, (x, y), (dx, dy))[1]
    np.testing.assert_allclose(pushed["a"].numpy(), expected["a"].numpy())
    assert pushed["b"].item() == expected["b"].item()
    assert not value["a"].requires_grad
    assert not pushed["a"].requires_grad


def test_linearize_of_a_complex_function():
    z = tg.tensor([0.5 + 1.0j, 2.0 - 1.0j], dtype=tg.complex128)
    t = tg.tensor([1.0j, 1.0 + 1.0j], dtype=tg.complex128)
    _, push = F.linearize(lambda z: tg.exp(z) * tg.conj(z), z)
    np.testing.assert_allclose(
        push(t).numpy(), F.jvp(lambda z: tg.exp(z) * tg.conj(z), z, t)[1].numpy()
    )


def test_transforms_touch_no_grad_and_leave_constants():
    w = double([2.0, 3.0]).requires_grad_()
    x = double([1.0, 2.0])
    found = F.grad(lambda x: (x * x).sum())(x)
    assert not found.requires_grad
    assert not x.requires_grad
    gradient = F.grad(lambda x: (x * x * w).sum())(x)
    assert w.grad is None
    assert gradient.requires_grad
    gradient.sum().backward()
    assert w.grad.tolist() == [2.0, 4.0]


def test_inputs_that_require_grad_outside_stay_differentiable_from_outside():
    def scenario(lib):
        x = constant(lib, [0.5, 1.5]).requires_grad_()
        found = func(lib).grad(lambda x: (lib.sin(x) * x).sum())(x)
        (second,) = lib.autograd.grad(found.sum(), x)
        return found, second, x.grad

    agree(scenario)


def test_jvp_inputs_that_require_grad_outside_stay_differentiable_from_outside():
    def scenario(lib):
        x = constant(lib, [0.5, 1.5]).requires_grad_()
        t = constant(lib, [1.0, 2.0]).requires_grad_()
        out, pushed = func(lib).jvp(lambda x: lib.sin(x) * x, (x,), (t,))
        return lib.autograd.grad(pushed.sum() + out.sum(), [x, t])

    agree(scenario)


def test_a_function_may_change_its_argument_in_place():
    x, v = double([1.0, 2.0]), double([1.0, 0.5])

    def cubes(x):
        x *= x * x
        return x

    def total(x):
        return cubes(x).sum()

    assert F.grad(total)(x).tolist() == [3.0, 12.0]
    assert F.vjp(cubes, x)[1](v)[0].tolist() == F.jvp(cubes, x, v)[1].tolist() == [3.0, 6.0]
    assert F.linearize(cubes, x)[1](v).tolist() == [3.0, 6.0]
    assert F.jacobian(cubes)(x).tolist() == [[3.0, 0.0], [0.0, 12.0]]
    assert F.hessian(total)(x).tolist() == [[6.0, 0.0], [0.0, 12.0]]
    assert F.hvp(total, x, v)[1].tolist() == F.vhp(total, x, v)[1].tolist() == [6.0, 6.0]
    assert x.tolist() == [1.0, 2.0]


def test_no_grad_inside_the_function_makes_constants():
    def scenario(lib):
        def f(x):
            with lib.no_grad():
                fixed = x * x
            return (x * fixed).sum()

        return func(lib).grad(f)(constant(lib, [2.0, 3.0]))

    agree(scenario)


def test_no_grad_outside_keeps_the_transform_working():
    def scenario(lib):
        x = constant(lib, [2.0, 3.0]).requires_grad_()
        with lib.no_grad():
            found = func(lib).grad(lambda x: (x**3).sum())(x)
        return found, found.requires_grad

    agree(scenario)


def test_a_function_that_ignores_its_argument_has_zero_derivatives():
    x, y = double([1.0, 2.0]), double(3.0)
    assert F.grad(lambda x: y * 2.0)(x).tolist() == [0.0, 0.0]
    assert F.jvp(lambda x: y * 2.0, x, x)[1].item() == 0.0
    assert F.jacobian(lambda x: y * 2.0)(x).tolist() == [0.0, 0.0]
    assert F.hvp(lambda x: y * 2.0, x, x)[1].tolist() == [0.0, 0.0]
    assert F.linearize(lambda x: y * 2.0, x)[1](x).item() == 0.0


def test_numbers_and_arrays_are_taken_as_tensors():
    assert F.grad(lambda x: x * x)(3.0).item() == 6.0
    assert F.grad(lambda x: (x * x).sum())(np.array([1.0, 2.0])).tolist() == [2.0, 4.0]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda x: F.grad(lambda x: x * x)(x),
            RuntimeError,
            r"one real number from <lambda>.*\(2,",
        ),
        (lambda x: F.grad(lambda x: "text")(x), RuntimeError, r"a Tensor from <lambda>.*got str"),
        (
            lambda x: F.grad(lambda x: x.sum().item())(x),
            RuntimeError,
            r"got float; float\(\) and .item\(\) leave the graph",
        ),
        (
            lambda x: F.grad(lambda x: x.sum(), argnums=1)(x),
            RuntimeError,
            r"got 1 for a call with 1",
        ),
        (
            lambda x: F.grad(lambda x: x.sum(), argnums=(0, 0))(x),
            RuntimeError,
            r"each argument once",
        ),
        (lambda x: F.grad(lambda n: n.sum())(tg.tensor([1, 2])), TypeError, r"got int64; convert"),
        (lambda x: F.grad(lambda s: s)("text"), TypeError, r"tensors or numbers.*got"),
        (
            lambda x: F.grad(lambda x: x.sum(), has_aux=True)(x),
            RuntimeError,
            r"pair \(output, aux\)",
        ),
        (lambda x: F.vjp(lambda x: x * x, x)[1](x[:1]), ValueError, r"expected shape \(2,\)"),
        (lambda x: F.vjp(lambda x: (x, x), x)[1](x), RuntimeError, r"expected the structure"),
        (lambda x: F.vjp(lambda x: {"a": x}, x)[1]({"b": x}), RuntimeError, r"the structure"),
        (lambda x: F.vjp(lambda x: [{"a": x}], x)[1]([{}]), RuntimeError, r"the structure"),
        (lambda x: F.vjp(lambda x: (x, "text"), x), TypeError, r"got str; return other values"),
        (lambda x: F.jvp(lambda x: x * x, (x,), (x[:1],)), ValueError, r"tangents of <lambda>"),
        (lambda x: F.jvp(lambda x: x * x, (x,), (x, x)), RuntimeError, r"expected the structure"),
        (lambda x: F.jvp(lambda: x * x, (), ()), RuntimeError, r"at least one argument"),
        (lambda x: F.jacobian(lambda x: x, mode="sideways"), Exception, r"got 'sideways'"),
        (lambda x: F.jacobian(lambda x: x, x), TypeError, r"write jacobian\(f\)\(x\)"),
        (lambda x: F.hessian(lambda x: x, x), TypeError, r"write hessian\(f\)\(x\)"),
        (lambda x: F.grad(lambda x: x, x), TypeError, r"write grad\(f\)\(x\)"),
        (lambda x: F.value_and_grad(lambda x: x, (x,)), TypeError, r"got Tensor; value_and_grad"),
    ],
)
def test_bad_input_is_told(call, error, message):
    with pytest.raises(error, match=message) as info:
        call(double([1.0, 2.0]))
    assert isinstance(info.value, tg.errors.UsageError)


def test_a_level_is_closed_when_the_function_raises():
    escaped = []

    def f(x):
        escaped.append(x * 2.0)
        raise KeyError

    with pytest.raises(KeyError):
        F.jvp(f, double(1.0), double(1.0))
    assert not escaped[0].is_dual


def test_plain_numbers_as_tangents_take_the_dtype_of_their_primal():
    assert F.jvp(lambda x: x * x, double(3.0), 1.0)[1].item() == 6.0
    assert F.vjp(lambda x: x * x, double(3.0))[1](1.0)[0].item() == 6.0
    assert F.hvp(lambda x: x**3, double(2.0), 1)[1].item() == 12.0


def test_hvp_reaching_tensors_from_outside_stays_differentiable_from_there():
    w = double([2.0, 3.0]).requires_grad_()
    x, v = double([1.0, 2.0]), double([1.0, 1.0])

    def f(x):
        return (x**3 * w).sum()

    value, product = F.hvp(f, x, v)
    assert value.requires_grad
    np.testing.assert_allclose(product.detach().numpy(), [12.0, 36.0])
    product.sum().backward()
    assert w.grad.tolist() == [6.0, 12.0]
    with tg.no_grad():
        assert not F.hvp(f, x, v)[1].requires_grad


def test_hvp_by_its_tangents_is_the_hessian():
    x, v = double([1.0, 2.0]), double([1.0, 1.0]).requires_grad_()
    product = F.hvp(lambda x: (x**3).sum() * x[0], x, v)[1]
    rows = [tg.autograd.grad(product[i], v, retain_graph=True)[0].tolist() for i in range(2)]
    expected = F.hessian(lambda x: (x**3).sum() * x[0])(x)
    np.testing.assert_allclose(rows, expected.numpy())


def test_hvp_of_a_function_that_differentiates_inside():
    def f(x):
        inner = F.grad(lambda y: (tg.sin(y) * x).sum())(x)
        along = F.jvp(lambda y: y**3 * x, x, tg.ones_like(x))[1]
        return (inner * along).sum()

    x, v = double([0.4, 0.8]), double([1.0, -0.5])
    np.testing.assert_allclose(F.hvp(f, x, v)[1].numpy(), (F.hessian(f)(x) @ v).numpy(), rtol=1e-12)
    np.testing.assert_allclose(F.vhp(f, x, v)[1].numpy(), F.hvp(f, x, v)[1].numpy(), rtol=1e-12)


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_a_function_that_is_not_holomorphic_has_no_jacobian_of_complex_numbers(mode):
    z = tg.tensor([0.5 + 0.2j, -0.3j], dtype=tg.complex128)
    for function in (tg.conj, lambda z: z * tg.conj(z), lambda z: z[0] + tg.abs(z[1]) * z):
        with pytest.raises(
            tg.errors.NotDifferentiable, match=r"holomorphic.*real and imaginary parts"
        ):
            F.jacobian(function, mode=mode)(z)


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_a_constant_is_holomorphic(mode):
    z = tg.tensor([0.5 + 0.2j, -0.3j], dtype=tg.complex128)
    assert F.jacobian(lambda z: z * 0.0 + 1.0, mode=mode)(z).tolist() == [[0j, 0j], [0j, 0j]]


def test_a_hessian_by_complex_numbers_is_that_of_a_holomorphic_function_or_an_error():
    z = tg.tensor([0.5 + 0.2j, -0.3j], dtype=tg.complex128)
    # The real part of z^3 has the second derivative 6 z.
    found = F.hessian(lambda z: tg.real(z**3).sum())(z)
    np.testing.assert_allclose(found.numpy(), np.diag(6 * z.numpy()), rtol=1e-12)
    with pytest.raises(tg.errors.NotDifferentiable, match="holomorphic"):
        F.hessian(lambda z: (tg.abs(z) ** 2).sum())(z)
