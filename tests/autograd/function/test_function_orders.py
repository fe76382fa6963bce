"""``Function`` at any order, in both modes, and on complex values."""

import itertools

import pytest
from tests.autograd.beside_torch import agree, constant, leaf
from tests.autograd.functions import make_cube, make_exp

import telegrad as tg
from telegrad.autograd import Function, forward_ad, functional, grad


def test_both_forms_give_first_and_second_derivatives():
    def scenario(lib):
        x = leaf(lib, [0.5, -1.5])
        cube, exp = make_cube(lib).apply, make_exp(lib).apply
        (first,) = lib.autograd.grad(exp(cube(x) * 0.5).sum(), x, create_graph=True)
        (second,) = lib.autograd.grad(first.sum(), x, create_graph=True)
        return first, second, lib.autograd.grad(second.sum(), x)

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


def test_without_materialized_gradients_jvp_receives_none_for_arguments_without_tangent():
    def scenario(lib):
        seen = []

        class Sum(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x, y):
                ctx.set_materialize_grads(False)
                return x + y

            @staticmethod
            def jvp(ctx, dx, dy):
                seen.append((dx, dy))
                return dx * 1.0

        fw = lib.autograd.forward_ad
        with fw.dual_level():
            dual = fw.make_dual(constant(lib, [1.0, 2.0]), constant(lib, [0.5, 1.0]))
            out = Sum.apply(dual, constant(lib, [3.0, 4.0]))
            return tuple(fw.unpack_dual(out)), seen

    agree(scenario)


def test_the_tangents_of_several_results_reach_a_backward_that_saved_them():
    class Circle(Function):
        @staticmethod
        def forward(x):
            return tg.sin(x), tg.cos(x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            sine, cosine = output
            ctx.save_for_backward(sine, cosine)

        @staticmethod
        def backward(ctx, by_sine, by_cosine):
            sine, cosine = ctx.saved_tensors
            return by_sine * cosine - by_cosine * sine

        @staticmethod
        def jvp(ctx, tangent):
            sine, cosine = ctx.saved_tensors
            return tangent * cosine, -tangent * sine

    def product(pair):
        return pair[0] * pair[1] * pair[1]

    x, v = tg.tensor(0.7, dtype=tg.float64), tg.tensor(1.5, dtype=tg.float64)
    found = functional.hvp(lambda x: product(Circle.apply(x)), x, v)[1]
    expected = functional.hvp(lambda x: product((tg.sin(x), tg.cos(x))), x, v)[1]
    assert found.item() == pytest.approx(expected.item(), rel=1e-12)


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
