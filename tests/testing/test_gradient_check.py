"""``gradient_check`` passes what is right, and finds each kind of wrong rule by name."""

from typing import Any

import numpy as np
import pytest

import telegrad
from telegrad.errors import DTypeError, UsageError
from telegrad.rules import LINEAR, Primitive
from telegrad.tensors import Tensor, apply
from telegrad.testing import GradientMismatch, gradient_check
from telegrad.testing.differences import jacobian
from telegrad.testing.layout import Layout

X = np.array([[0.3, -0.7, 1.2], [0.9, 0.4, -1.5]])


def cubed(**replaced: Any) -> Any:
    """The function x³ as a row, with some of it replaced."""
    parts: dict[str, Any] = {
        "forward": lambda xp, x: x * x * x,
        "saves": ("x",),
        "vjp": (lambda xp, g, s: 3 * g * s.x * s.x,),
        "jvp": (lambda xp, t, s: 3 * t * s.x * s.x,),
    }
    row = Primitive("cubed", **(parts | replaced))
    return lambda x: apply(row, x)


def test_right_rules_pass_to_the_third_order() -> None:
    gradient_check(cubed(), (X[0],), order=3)


def test_several_inputs_and_results_may_have_different_shapes() -> None:
    gradient_check(lambda x, y: (telegrad.sin(x) * y, telegrad.sum(x * y)), (X, X[0]))


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_a_wrong_rule_is_named_with_its_worst_entry_and_both_values(mode: str) -> None:
    wrong = {"reverse": "vjp", "forward": "jvp"}[mode]

    def rule(xp: Any, v: Any, s: Any) -> Any:
        return 3 * v * s.x * s.x + v * xp.asarray(np.array([0.0, 1.0, 0.0]))

    with pytest.raises(GradientMismatch) as caught:
        gradient_check(cubed(**{wrong: (rule,)}), (X[0],))
    message = str(caught.value)
    assert message.startswith(f"{mode} mode is wrong in 1 of 3 entries, worst at ")
    assert "0[1]: expected " in message
    assert "got " in message
    assert "operations met: CubedBackward" in message


@pytest.mark.parametrize("size", [1e-3, 1e-6, 1e-9])
def test_a_wrong_rule_is_found_where_all_derivatives_are_small(size: float) -> None:
    wrong = cubed(vjp=(lambda xp, g, s: 2 * g * s.x * s.x,))
    with pytest.raises(GradientMismatch, match="reverse mode"):
        gradient_check(lambda x: wrong(x) * size, (X[0],), order=1)
    gradient_check(lambda x: wrong(x) * size, (X[0],), order=1, atol=1.0, modes=("reverse",))
    for right in (cubed(), telegrad.sin, telegrad.abs, lambda x: x**5):
        gradient_check(lambda x, right=right: right(x) * size, (X[0],))
    gradient_check(lambda x: x**5 + size * x**4, (np.zeros(2),))


def test_the_parts_that_are_right_pass_on_their_own() -> None:
    wrong = cubed(vjp=(lambda xp, g, s: 2 * g * s.x * s.x,))
    gradient_check(wrong, (X[0],), modes=("forward",), order=1)
    with pytest.raises(GradientMismatch, match="reverse mode"):
        gradient_check(wrong, (X[0],), modes=("reverse",), order=1)


def test_a_rule_that_is_right_but_not_differentiable_again_fails_only_at_second_order() -> None:
    def detached(xp: Any, g: Any, s: Any) -> Any:
        x = s.x.detach() if isinstance(s.x, Tensor) else s.x
        return 3 * g * x * x

    wrong = cubed(vjp=(detached,))
    gradient_check(wrong, (X[0],), order=1)
    with pytest.raises(GradientMismatch, match="of the reverse-mode derivative is wrong"):
        gradient_check(wrong, (X[0],), order=2, modes=("reverse",))


def test_a_function_falsely_called_linear_is_found() -> None:
    with pytest.raises(GradientMismatch, match="forward mode is wrong"):
        gradient_check(cubed(jvp=(LINEAR,)), (X[0],))


def test_modes_that_do_not_fit_each_other_are_found_though_both_are_close_to_differences() -> None:
    slightly_off = cubed(vjp=(lambda xp, g, s: 3.0000003 * g * s.x * s.x,))
    with pytest.raises(GradientMismatch, match=r"forward and reverse mode don't fit"):
        gradient_check(slightly_off, (X[0],), order=1)


def test_complex_inputs_follow_the_convention_that_gradients_point_uphill() -> None:
    z = X[:, :2] + 1j * X[:, 1:]
    gradient_check(lambda z: z * telegrad.conj(z), (z,))
    gradient_check(lambda z, x: telegrad.exp(z) * x, (z, X[:, :2]))


def test_a_holomorphic_rule_for_a_function_that_is_not_is_found() -> None:
    z = X[:, :2] + 1j * X[:, 1:]
    row = Primitive("mirror", forward="conj", vjp=(lambda xp, g, s: g,), jvp=(LINEAR,))
    with pytest.raises(GradientMismatch, match=r"reverse mode is wrong .* part of 0"):
        gradient_check(lambda z: apply(row, z), (z,))


def test_zero_size_and_0d_inputs_pass() -> None:
    gradient_check(telegrad.sin, (np.zeros((0, 3)),))
    gradient_check(telegrad.sin, (np.array(0.3),))


def test_inputs_in_single_precision_are_checked_in_double() -> None:
    gradient_check(lambda x: telegrad.exp(x), (X.astype(np.float32),))


def test_integers_are_passed_as_they_are() -> None:
    def power(x: Tensor, n: Tensor) -> Tensor:
        assert n.dtype == np.int64
        return telegrad.pow(x, n)

    gradient_check(power, (np.abs(X[0]), np.array([2, 3, 1])))


def test_a_constant_function_has_derivative_zero() -> None:
    gradient_check(lambda x: telegrad.asarray(X[0]) * 2.0, (X[0],))


def test_a_check_inside_no_grad_is_the_same_check() -> None:
    with telegrad.no_grad():
        gradient_check(telegrad.sin, (X,))


def test_a_gradient_cut_off_by_detach_is_found() -> None:
    with pytest.raises(GradientMismatch, match="reverse mode is wrong"):
        gradient_check(lambda x: x * x.detach(), (X[0],), modes=("reverse",))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"modes": ("sideways",)}, "expected modes out of"),
        ({"modes": ()}, "expected modes out of"),
        ({"order": 0}, "expected an order of at least 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        gradient_check(telegrad.sin, (X,), **options)


def test_inputs_without_derivatives_are_refused() -> None:
    with pytest.raises(DTypeError, match="at least one floating or complex input"):
        gradient_check(telegrad.sin, (np.array([1, 2]),))


def test_a_function_that_gives_no_tensor_is_refused() -> None:
    with pytest.raises(DTypeError, match="expected a Tensor or a sequence of Tensors"):
        gradient_check(lambda x: [x.detach().numpy()], (X,))


@pytest.mark.parametrize("function", [telegrad.argmax, lambda x: ()], ids=["integers", "nothing"])
def test_a_function_without_a_result_to_differentiate_is_refused(function: Any) -> None:
    with pytest.raises(
        DTypeError, match=r"expected a floating or complex result .* got (int|none)"
    ):
        gradient_check(function, telegrad.ones(3))


def test_modes_that_can_be_read_only_once_are_checked_all_the_same() -> None:
    with pytest.raises(GradientMismatch, match="reverse mode is wrong"):
        gradient_check(lambda x: x.detach() * x, telegrad.ones(3), modes=iter(["reverse"]))  # type: ignore[arg-type]


def test_the_complex_step_is_taken_where_it_holds_and_is_exact_there() -> None:
    at = np.array([0.3, 0.7])
    probe = np.array([1.0, -0.5])
    slopes = jacobian(np.exp, at, 1e-3, probe, np.exp)
    np.testing.assert_array_equal(slopes, np.diag(np.exp(at)))


def test_the_complex_step_is_not_taken_where_the_function_is_not_analytic() -> None:
    at = np.array([0.3, -0.7])

    def f(x: Any) -> Any:
        return (x * np.conj(x)).real if x.dtype.kind != "c" else x * np.conj(x)

    slopes = jacobian(f, at, 1e-3, np.array([1.0, -0.5]), f)
    np.testing.assert_allclose(slopes, np.diag(2 * at), rtol=1e-10)


def test_a_layout_takes_apart_what_it_put_together() -> None:
    arrays = [X, np.array(2.0), X[0] + 1j, np.zeros((0, 2))]
    layout = Layout(arrays)
    vector = layout.flat(arrays)
    assert vector.shape == (layout.size,) == (6 + 1 + 6,)
    for before, after in zip(arrays, layout.apart(vector), strict=True):
        np.testing.assert_array_equal(before, after)
    assert layout.place(4) == "0[1, 1]"
    assert layout.place(6) == "1"
    assert layout.place(10) == "the imaginary part of 2[1]"


def test_differences_go_as_far_as_is_asked():
    seen = []

    def watched(x):
        seen.append(np.array(x.array))
        return telegrad.sin(x)

    for step in (1e-3, 1e-2):
        seen.clear()
        gradient_check(watched, (X[0],), order=1, step=step, complex_step=False, rtol=1e-4)
        farthest = max(np.abs(each - X[0]).max() for each in seen)
        assert step <= farthest <= 2.001 * step
