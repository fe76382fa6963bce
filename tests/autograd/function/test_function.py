"""``Function``: operations with derivatives of their own, beside PyTorch."""

import gc
import weakref

import numpy as np
from tests.autograd.beside_torch import agree, constant, leaf
from tests.autograd.functions import make_cube, make_exp, make_scaled

import telegrad as tg
from telegrad.autograd import Function


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


def test_what_is_neither_argument_nor_differentiable_result_is_saved_as_a_constant():
    def scenario(lib):
        seen = []

        class Gated(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                gate, slope = (x > 1.5) * 1.0, x * 0.0 + 2.0
                ctx.mark_non_differentiable(gate)
                ctx.save_for_backward(gate, slope)
                return x * gate * slope, gate

            @staticmethod
            def backward(ctx, cotangent, _):
                gate, slope = ctx.saved_tensors
                seen.append((gate.requires_grad, slope.requires_grad))
                return cotangent * gate * slope

        x = leaf(lib, [1.0, 2.0])
        out, gate = Gated.apply(x)
        (first,) = lib.autograd.grad((out * x).sum(), x, create_graph=True)
        return gate.requires_grad, first, lib.autograd.grad(first.sum(), x), seen

    agree(scenario)


def test_setup_context_sees_defaults_and_named_arguments_in_their_places():
    def scenario(lib):
        seen = []

        class Product(lib.autograd.Function):
            @staticmethod
            def forward(x, y, scale=3.0, label="none"):
                return x * y * scale

            @staticmethod
            def setup_context(ctx, inputs, output):
                x, y, ctx.scale, label = inputs
                seen.append((ctx.scale, label, ctx.needs_input_grad))
                ctx.save_for_backward(x, y)

            @staticmethod
            def backward(ctx, gradient):
                x, y = ctx.saved_tensors
                return gradient * y * ctx.scale, gradient * x * ctx.scale, None, None

        x, y = leaf(lib, 2.0), leaf(lib, 5.0)
        Product.apply(x, y).backward()
        Product.apply(x, label="named", y=y).backward()
        Product.apply(x, y, 7.0).backward()
        return seen, x.grad, y.grad

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
