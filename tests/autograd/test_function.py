"""``Function``: operations with derivatives of their own, beside PyTorch and at any order."""

import gc
import itertools
import weakref

import numpy as np
import pytest
from tests.autograd.beside_torch import agree, constant, leaf

import telegrad as tg
from telegrad.autograd import Function, forward_ad, functional, grad


def make_cube(lib):
    class Cube(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.save_for_forward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return gradient * 3.0 * x * x

        @staticmethod
        def jvp(ctx, tangent):
            (x,) = ctx.saved_tensors
            return tangent * 3.0 * x * x

    return Cube


def make_exp(lib):
    class Exp(lib.autograd.Function):
        """Saves its result, by ``setup_context``."""

        @staticmethod
        def forward(x):
            return lib.exp(x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(output)
            ctx.save_for_forward(output)

        @staticmethod
        def backward(ctx, gradient):
            (out,) = ctx.saved_tensors
            return gradient * out

        @staticmethod
        def jvp(ctx, tangent):
            (out,) = ctx.saved_tensors
            return tangent * out

    return Exp


def make_scaled(lib):
    class Scaled(lib.autograd.Function):
        """Two tensors, other arguments between, two results."""

        @staticmethod
        def forward(ctx, x, power, y, label):
            ctx.power = power
            ctx.label = label
            ctx.save_for_backward(x, y)
            return x**power * y, x + y

        @staticmethod
        def backward(ctx, first, second):
            x, y = ctx.saved_tensors
            dx = first * ctx.power * x ** (ctx.power - 1) * y + second
            return dx, None, first * x**ctx.power + second, None

    return Scaled


def test_both_forms_give_first_and_second_derivatives():
    def scenario(lib):
        x = leaf(lib, [0.5, -1.5])
        cube, exp = make_cube(lib).apply, make_exp(lib).apply
        (first,) = lib.autograd.grad(exp(cube(x) * 0.5).sum(), x, create_graph=True)
        (second,) = lib.autograd.grad(first.sum(), x, create_graph=True)
        return first, second, lib.autograd.grad(second.sum(), x)

    agree(scenario)


def test_other_arguments_and_several_results():
    def scenario(lib):
        x, y = leaf(lib, [1.0, 2.0]), leaf(lib, [3.0, 4.0])
        first, second = make_scaled(lib).apply(x, 3, y, "label")
        (first * second).sum().backward()
        return first, second, x.grad, y.grad

    agree(scenario)


def test_an_unused_result_comes_as_zeros():
    def scenario(lib):
        x, y = leaf(lib, [1.0, 2.0]), leaf(lib, [3.0, 4.0])
        first, second = make_scaled(lib).apply(x, 2, y, "label")
        return (
            lib.autograd.grad(first.sum(), [x, y], retain_graph=True),
            lib.autograd.grad(second.sum(), [x, y]),
        )

    agree(scenario)


def test_without_materialized_gradients_an_unused_result_comes_as_none():
    def scenario(lib):
        seen = []

        class Pair(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.set_materialize_grads(False)
                return x * 2.0, x * 3.0

            @staticmethod
            def backward(ctx, first, second):
                seen.append((first is None, second is None))
                return second * 3.0

        x = leaf(lib, [1.0, 2.0])
        _, second = Pair.apply(x)
        second.sum().backward()
        return seen, x.grad

    agree(scenario)


def test_needs_input_grad_says_which_gradients_are_wanted():
    def scenario(lib):
        seen = []

        class Product(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x, factor, y):
                seen.append(tuple(ctx.needs_input_grad))
                ctx.save_for_backward(x, y)
                return x * y

            @staticmethod
            def backward(ctx, gradient):
                seen.append(tuple(ctx.needs_input_grad))
                x, _ = ctx.saved_tensors
                return None, None, gradient * x

        x, y = constant(lib, [1.0, 2.0]), leaf(lib, [3.0, 4.0])
        Product.apply(x, 5.0, y).sum().backward()
        return seen, y.grad

    agree(scenario)


def test_results_marked_non_differentiable_are_constants():
    def scenario(lib):
        seen = []

        class Both(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                side = x * 10.0
                ctx.mark_non_differentiable(side)
                return x * 2.0, side

            @staticmethod
            def backward(ctx, gradient, nothing):
                seen.append(nothing)
                return gradient * 2.0

        x = leaf(lib, [1.0, 2.0])
        out, side = Both.apply(x)
        out.sum().backward()
        return out.requires_grad, side.requires_grad, seen, x.grad

    agree(scenario)


def test_integer_results_are_constants():
    def scenario(lib):
        class Largest(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 1.0, lib.argmax(x)

            @staticmethod
            def backward(ctx, gradient, nothing):
                return gradient

        x = leaf(lib, [1.0, 5.0, 2.0])
        value, place = Largest.apply(x)
        return value.requires_grad, place.requires_grad, place

    agree(scenario)


def test_results_that_are_no_tensors_pass_through():
    def scenario(lib):
        class Labelled(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2.0, "label"

            @staticmethod
            def backward(ctx, gradient, nothing):
                assert nothing is None
                return gradient * 2.0

        x = leaf(lib, [1.0, 2.0])
        out, label = Labelled.apply(x)
        out.sum().backward()
        return label, x.grad

    agree(scenario)


def test_trailing_nones_are_ignored():
    def scenario(lib):
        class Extra(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2.0

            @staticmethod
            def backward(ctx, gradient):
                return gradient * 2.0, None, None

        x = leaf(lib, [1.0, 2.0])
        Extra.apply(x).sum().backward()
        return x.grad

    agree(scenario)


def test_a_gradient_that_broadcasting_stretched_is_summed_and_cast():
    def scenario(lib):
        class Stretch(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x, y):
                ctx.save_for_backward(x, y)
                return x * y

            @staticmethod
            def backward(ctx, gradient):
                x, y = ctx.saved_tensors
                return gradient * y, gradient * x

        x, y = leaf(lib, [[1.0], [2.0]]), leaf(lib, [3.0, 4.0, 5.0], "float32")
        Stretch.apply(x, y).sum().backward()
        return x.grad, y.grad

    agree(scenario)


def test_a_none_gradient_reaches_no_one():
    def scenario(lib):
        class Stop(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2.0

            @staticmethod
            def backward(ctx, gradient):
                return None

        x = leaf(lib, [1.0, 2.0])
        (Stop.apply(x) + x * 3.0).sum().backward()
        return x.grad

    agree(scenario)


def test_an_argument_returned_as_it_is_still_passes_through_backward():
    def scenario(lib):
        class Scale(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x

            @staticmethod
            def backward(ctx, gradient):
                return gradient * 7.0

        x = leaf(lib, [1.0, 2.0])
        out = Scale.apply(x)
        out.sum().backward()
        return x.grad, out.requires_grad, x.requires_grad

    agree(scenario)


def test_it_records_nothing_under_no_grad_or_without_inputs_that_need_it():
    def scenario(lib):
        cube = make_cube(lib).apply
        x = leaf(lib, 2.0)
        with lib.no_grad():
            first = cube(x)
        return first.requires_grad, cube(constant(lib, 2.0)).requires_grad

    agree(scenario)


def test_forward_runs_unrecorded():
    def scenario(lib):
        seen = []

        class Look(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                seen.append(lib.is_grad_enabled())
                return x * 2.0

            @staticmethod
            def backward(ctx, gradient):
                seen.append(lib.is_grad_enabled())
                return gradient * 2.0

        x = leaf(lib, 2.0)
        Look.apply(x).backward()
        Look.apply(x).backward(create_graph=True)
        return seen

    agree(scenario)


def test_a_second_pass_needs_a_retained_graph_only_where_something_was_saved():
    def scenario(lib):
        class Bare(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2.0

            @staticmethod
            def backward(ctx, gradient):
                return gradient * 2.0

        from tests.autograd.beside_torch import fails

        x = leaf(lib, 2.0)
        bare, saving = Bare.apply(x), make_cube(lib).apply(x)
        bare.backward()
        bare.backward()
        saving.backward()
        return fails(saving.backward), x.grad

    assert agree(scenario)[0] is True


def test_hooks_and_names_of_its_node():
    def scenario(lib):
        x = leaf(lib, [1.0, 2.0])
        out = make_cube(lib).apply(x)
        seen = []
        out.grad_fn.register_hook(lambda inputs, outputs: seen.append((inputs, outputs)))
        out.grad_fn.register_prehook(lambda outputs: (outputs[0] * 2.0,))
        out.sum().backward()
        return out.grad_fn.name(), len(out.grad_fn.next_functions), seen, x.grad

    agree(scenario)


@pytest.mark.parametrize("make", [make_cube, make_exp])
def test_every_mixture_of_modes_to_third_order(make):
    function = make(tg)
    one, x = tg.tensor(1.0, dtype=tg.float64), tg.tensor(0.7, dtype=tg.float64)

    def forward(f):
        return lambda x: functional.jvp(f, x, one)[1]

    def target(x):
        return function.apply(tg.sin(x)) * x

    def plain(x):
        inner = tg.sin(x)
        return (inner * inner * inner if make is make_cube else tg.exp(inner)) * x

    expected = functional.grad(functional.grad(functional.grad(plain)))(x).item()
    for outer, middle, inner in itertools.product([forward, functional.grad], repeat=3):
        assert outer(middle(inner(target)))(x).item() == pytest.approx(expected, rel=1e-12)


def test_jvp_receives_zeros_for_arguments_without_tangent_and_none_for_others():
    def scenario(lib):
        seen = []

        class Product(lib.autograd.Function):
            @staticmethod
            def forward(x, factor, y):
                return x * y, x + y

            @staticmethod
            def setup_context(ctx, inputs, output):
                x, _, y = inputs
                ctx.save_for_forward(x, y)

            @staticmethod
            def jvp(ctx, dx, none, dy):
                seen.append((dx, none, dy))
                x, y = ctx.saved_tensors
                return dx * y + dy * x, dx + dy

        fw = lib.autograd.forward_ad
        x, y = constant(lib, [1.0, 2.0]), constant(lib, [3.0, 4.0])
        with fw.dual_level():
            dual = fw.make_dual(x, constant(lib, [0.5, 1.0]))
            results = Product.apply(dual, 2, y)
            return [tuple(fw.unpack_dual(r)) for r in results], seen

    agree(scenario)


def test_attributes_of_ctx_carry_tangents_to_backward():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.x = x
            return x * x

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2.0 * ctx.x

        @staticmethod
        def jvp(ctx, tangent):
            return 2.0 * ctx.x * tangent

    x, v = tg.tensor(3.0, dtype=tg.float64), tg.tensor(1.0, dtype=tg.float64)
    assert functional.hvp(lambda x: Square.apply(x) * x, x, v)[1].item() == pytest.approx(18.0)
    twice = functional.jvp(lambda x: functional.jvp(Square.apply, x, v)[1], x, v)[1]
    assert twice.item() == pytest.approx(2.0)


def test_writing_to_an_argument_inside_forward_changes_nothing_outside():
    class Add(Function):
        @staticmethod
        def forward(ctx, x):
            x += 1.0
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, gradient):
            (shifted,) = ctx.saved_tensors
            return gradient * 2.0 * shifted

    leaf_ = tg.tensor([1.0, 2.0], requires_grad=True)
    x = leaf_ * 1.0
    out = Add.apply(x)
    assert x.tolist() == [1.0, 2.0]
    assert x.requires_grad
    out.sum().backward()
    assert leaf_.grad.tolist() == [4.0, 6.0]


def test_a_saved_result_makes_no_reference_cycle():
    exp = make_exp(tg)
    x = tg.tensor(np.ones(4), requires_grad=True)
    gc.disable()
    try:
        out = exp.apply(x)
        node = weakref.ref(out.grad_fn)
        del out
        assert node() is None
    finally:
        gc.enable()


def test_saved_tensors_come_back_as_the_leaves_they_were():
    class Keep(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x, None)
            return x * 2.0

        @staticmethod
        def backward(ctx, gradient):
            assert ctx.saved_tensors[0] is x
            assert ctx.saved_tensors[1] is None
            return gradient * 2.0

    x = tg.tensor([1.0, 2.0], requires_grad=True)
    out = Keep.apply(x)
    assert out.grad_fn.saved_tensors[0] is x
    out.sum().backward()


def test_complex_functions():
    def scenario(lib):
        class Square(lib.autograd.Function):
            @staticmethod
            def forward(ctx, z):
                ctx.save_for_backward(z)
                return z * z

            @staticmethod
            def backward(ctx, gradient):
                (z,) = ctx.saved_tensors
                return gradient * 2.0 * lib.conj(z)

        z = leaf(lib, [1.0 + 2.0j, -1.0j], "complex128")
        lib.real(Square.apply(z) * (1.0 + 1.0j)).sum().backward()
        return z.grad

    agree(scenario)


def test_duals_at_two_levels_and_a_gradient_through_a_function():
    cube = make_cube(tg).apply
    x = tg.tensor(2.0, dtype=tg.float64, requires_grad=True)
    one = tg.tensor(1.0, dtype=tg.float64)
    with forward_ad.dual_level() as outer:
        a = forward_ad.make_dual(x, one)
        with forward_ad.dual_level():
            b = forward_ad.make_dual(a, one)
            primal, tangent = forward_ad.unpack_dual(cube(b))
        first = forward_ad.unpack_dual(tangent, level=outer)
        assert forward_ad.unpack_dual(primal, level=outer).tangent.item() == pytest.approx(12.0)
        assert first.primal.item() == pytest.approx(12.0)
        assert first.tangent.item() == pytest.approx(12.0)
        assert grad(first.tangent, x)[0].item() == pytest.approx(6.0)


def test_second_derivatives_by_one_of_several_results_that_was_saved():
    def scenario(lib):
        class Pair(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                a, b = lib.exp(x), lib.sin(x)
                ctx.save_for_backward(x, a)
                return a, b

            @staticmethod
            def backward(ctx, da, db):
                x, a = ctx.saved_tensors
                return da * a + db * lib.cos(x)

        x = leaf(lib, [0.3, 0.6])
        a, b = Pair.apply(x)
        (first,) = lib.autograd.grad((a * a * b).sum(), x, create_graph=True)
        return first, lib.autograd.grad(first.sum(), [a, b, x])

    agree(scenario)


def test_ctx_takes_any_attribute():
    class Scale(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.keep, ctx.release, ctx.name, ctx.node, ctx.saved = 2.0, 3.0, "name", None, x
            return x * 6.0

        @staticmethod
        def backward(ctx, gradient):
            assert ctx.name == "name"
            return gradient * ctx.keep * ctx.release + 0.0 * ctx.saved

    x = tg.tensor([1.0, 2.0], requires_grad=True)
    Scale.apply(x).sum().backward()
    assert x.grad.tolist() == [6.0, 6.0]
