"""``grad``: every documented behaviour, beside PyTorch."""

import pytest
from tests.autograd.beside_torch import agree, constant, fails, leaf

import telegrad as tg
from telegrad.errors import GradientError


def test_grad_returns_a_tuple_and_leaves_grad_untouched():
    def scenario(lib):
        x, y = leaf(lib, [1.0, 2.0]), leaf(lib, [3.0, 4.0])
        found = lib.autograd.grad((x * lib.exp(y)).sum(), [x, y])
        return type(found).__name__, found, x.grad, y.grad

    agree(scenario)


def test_grad_takes_single_tensors():
    def scenario(lib):
        x = leaf(lib, 2.0)
        return lib.autograd.grad(x * x, x)

    agree(scenario)


def test_grad_outputs_weight_the_outputs():
    def scenario(lib):
        x = leaf(lib, [1.0, 2.0])
        outputs = [x * x, lib.sin(x).sum()]
        return lib.autograd.grad(outputs, [x], [constant(lib, [2.0, 3.0]), None])

    agree(scenario)


def test_grad_for_values_that_are_no_leaves():
    def scenario(lib):
        x = leaf(lib, [1.0, 2.0])
        a = x * 2.0
        b = lib.sin(a)
        return lib.autograd.grad((b * a).sum(), [a, b, x])

    agree(scenario)


def test_grad_of_an_output_that_is_its_own_input():
    def scenario(lib):
        x = leaf(lib, 2.0)
        y = x * x
        return lib.autograd.grad(y, [y, x])

    agree(scenario)


def test_an_unused_input_is_an_error_and_with_allow_unused_none():
    def scenario(lib):
        x, y = leaf(lib, 1.0), leaf(lib, 2.0)
        out = x * x
        failed = fails(lambda: lib.autograd.grad(out, [x, y], retain_graph=True))
        return failed, lib.autograd.grad(out, [x, y], allow_unused=True)

    agree(scenario)


def test_materialize_grads_gives_zeros_for_unused_inputs():
    def scenario(lib):
        x, y = leaf(lib, 1.0), leaf(lib, [2.0, 3.0])
        failed = fails(
            lambda: lib.autograd.grad(x * x, [x, y], materialize_grads=True, allow_unused=False)
        )
        return failed, lib.autograd.grad(x * x, [x, y], materialize_grads=True)

    agree(scenario)


def test_materialized_zeros_can_be_differentiated_as_the_other_gradients():
    def scenario(lib):
        x, y = leaf(lib, 1.0), leaf(lib, [2.0, 3.0])
        first = lib.autograd.grad(x * x, [x, y], create_graph=True, materialize_grads=True)
        second = [
            lib.autograd.grad(g.sum(), [x, y], materialize_grads=True, retain_graph=True)
            for g in first
        ]
        alone = lib.autograd.grad(x * x, [y], materialize_grads=True)
        return first, second, [g.requires_grad for g in (*first, *alone)]

    agree(scenario)


def test_an_unused_input_is_found_before_anything_runs():
    x, y = tg.tensor(1.0, requires_grad=True), tg.tensor(2.0, requires_grad=True)
    out = x * x
    with pytest.raises(tg.errors.GradientError, match=r"inputs \[1\] were not used"):
        tg.autograd.grad(out, [x, y])
    (found,) = tg.autograd.grad(out, [x])
    assert found.item() == 2.0


def test_create_graph_gives_any_order():
    def scenario(lib):
        x = leaf(lib, [0.3, 0.7])
        y = lib.exp(lib.sin(x)).sum()
        orders = []
        for _ in range(4):
            (y,) = lib.autograd.grad(y, [x], create_graph=True)
            orders.append(y)
            y = y.sum()
        return orders

    agree(scenario)


def test_the_same_input_twice():
    def scenario(lib):
        x = leaf(lib, 3.0)
        return lib.autograd.grad(x * x, [x, x])

    agree(scenario)


def test_second_derivative_with_respect_to_grad_outputs():
    def scenario(lib):
        x, v = leaf(lib, [1.0, 2.0]), leaf(lib, [3.0, 4.0])
        (g,) = lib.autograd.grad(lib.sin(x) * x, [x], [v], create_graph=True)
        return lib.autograd.grad(g.sum(), [x, v])

    agree(scenario)


def test_gradients_that_are_not_recorded_do_not_require_grad():
    def scenario(lib):
        x = leaf(lib, 3.0)
        plain = lib.autograd.grad(x * x, x)[0]
        recorded = lib.autograd.grad(x * x, x, create_graph=True)[0]
        return plain.requires_grad, recorded.requires_grad

    agree(scenario)


def test_mixed_second_derivative_through_a_middle_value():
    def scenario(lib):
        x = leaf(lib, 0.4)
        middle = lib.sin(x)
        out = lib.exp(middle) * middle
        (first,) = lib.autograd.grad(out, middle, create_graph=True)
        return lib.autograd.grad(first, x)

    agree(scenario)


def test_grad_under_no_grad_still_differentiates_what_was_recorded():
    def scenario(lib):
        x = leaf(lib, 3.0)
        y = x * x
        with lib.no_grad():
            return lib.autograd.grad(y, x)

    agree(scenario)


def test_second_derivatives_by_one_of_several_results_of_a_decomposition():
    def scenario(lib):
        x = leaf(lib, [[2.0, 0.5], [0.5, 1.0]])
        values, vectors = lib.linalg.eigh(x)
        out = (values**3).sum() + (vectors * vectors * values).sum()
        (first,) = lib.autograd.grad(out, x, create_graph=True)
        return first, lib.autograd.grad((first * first).sum(), values)

    agree(scenario)


@pytest.mark.parametrize("recorded", [False, True])
def test_gradients_of_two_inputs_are_two_tensors(recorded):
    x, y = tg.tensor([1.0, 2.0], requires_grad=True), tg.tensor([3.0, 4.0], requires_grad=True)
    weight = tg.tensor([5.0, 6.0], requires_grad=True)
    by_x, by_y = tg.autograd.grad(x + y, [x, y], weight, create_graph=recorded)
    by_x += 100.0
    assert by_y.tolist() == weight.tolist() == [5.0, 6.0]
    (x + y).backward(weight, create_graph=recorded)
    with tg.no_grad():
        x.grad += 100.0
    assert y.grad.tolist() == weight.tolist() == [5.0, 6.0]


def test_a_recorded_gradient_stays_recorded_when_a_later_pass_adds_to_it():
    def scenario(lib):
        x = leaf(lib, [1.0, 2.0])
        (x * x * x).sum().backward(create_graph=True)
        (x * x).sum().backward()
        return x.grad, x.grad.requires_grad, lib.autograd.grad(x.grad.sum(), x)

    agree(scenario)


def test_later_passes_add_no_nodes_to_the_graph_of_a_recorded_gradient():
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    (x**3).sum().backward(create_graph=True)
    node = x.grad.grad_fn
    for _ in range(3):
        (x * x).sum().backward()
    assert x.grad.grad_fn is node
    assert x.grad.tolist() == [9.0, 24.0]
    (second,) = tg.autograd.grad((x.grad * x.grad).sum(), x)
    assert second.tolist() == [108.0, 576.0]


def test_a_recorded_gradient_is_added_to_one_that_has_no_history():
    def scenario(lib):
        x = leaf(lib, [1.0, 2.0])
        (x * x).sum().backward()
        (x * x * x).sum().backward(create_graph=True)
        return x.grad, lib.autograd.grad(x.grad.sum(), x)

    agree(scenario)


def test_recorded_gradients_accumulate_with_their_history_under_no_grad():
    def scenario(lib):
        x = leaf(lib, [1.0, 2.0])
        for _ in range(2):
            y = (x * x * x).sum()
            with lib.no_grad():
                y.backward(create_graph=True)
        return x.grad.requires_grad, lib.autograd.grad(x.grad.sum(), x)

    agree(scenario)


def test_an_input_that_a_pass_finds_unused_leaves_retained_gradients_as_they_were():
    class Silent(tg.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1.0

        @staticmethod
        def backward(ctx, cotangent):
            return None

    x = tg.tensor([1.0, 2.0], requires_grad=True)
    y = Silent.apply(x) * 3.0
    y.retain_grad()
    with pytest.raises(GradientError, match="not used"):
        tg.autograd.grad(y.sum(), x, retain_graph=True)
    assert y.grad is None
