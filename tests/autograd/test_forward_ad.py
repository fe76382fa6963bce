"""Dual levels: what they compute, how they nest, and how they end."""

import asyncio
import threading

import numpy as np
import pytest
from tests.autograd.beside_torch import agree, constant, leaf
from tests.interpreter import HANDS_CONTEXTS_ON

import telegrad as tg
from telegrad.autograd import forward_ad as fw
from telegrad.autograd import functional, grad
from telegrad.tensors.forward.levels import Level, Tangents


def number(value, **options):
    return tg.tensor(value, dtype=tg.float64, **options)


def test_a_function_of_a_dual_carries_the_derivative():
    def scenario(lib):
        fw = lib.autograd.forward_ad
        x, t = constant(lib, [0.5, 1.5]), constant(lib, [1.0, -2.0])
        with fw.dual_level():
            dual = fw.make_dual(x, t)
            out = lib.exp(lib.sin(dual) * x + dual * dual)
            return tuple(fw.unpack_dual(out)), fw.unpack_dual(x).tangent

    agree(scenario)


def test_the_tangent_of_a_linear_function_is_the_function_of_the_tangent():
    def scenario(lib):
        fw = lib.autograd.forward_ad
        x, t = constant(lib, [[1.0, 2.0], [3.0, 4.0]]), constant(lib, [[0.5, 0.0], [1.0, -1.0]])
        w = constant(lib, [[2.0, 1.0], [0.0, 3.0]])
        with fw.dual_level():
            dual = fw.make_dual(x, t)
            outs = [dual @ w, w @ dual, dual.sum(), dual[0], dual.reshape(4), dual.mT, dual + 2.0]
            return [fw.unpack_dual(out).tangent for out in outs]

    agree(scenario)


def test_it_works_under_no_grad():
    def scenario(lib):
        fw = lib.autograd.forward_ad
        x = leaf(lib, [0.5, 1.5])
        with fw.dual_level(), lib.no_grad():
            out = lib.sin(fw.make_dual(x, constant(lib, [1.0, 2.0])))
            return tuple(fw.unpack_dual(out)), out.requires_grad

    agree(scenario)


def test_detach_drops_history_and_tangents():
    def scenario(lib):
        fw = lib.autograd.forward_ad
        x = leaf(lib, [0.5, 1.5])
        with fw.dual_level():
            detached = fw.make_dual(x, constant(lib, [1.0, 2.0])).detach()
            return tuple(fw.unpack_dual(detached * 2.0)), detached.requires_grad

    agree(scenario)


def test_complex_duals_have_pytorchs_tangents():
    def scenario(lib):
        fw = lib.autograd.forward_ad
        z = constant(lib, [1.0 + 2.0j, 0.5 - 1.0j], "complex128")
        t = constant(lib, [1.0j, 2.0 + 0.0j], "complex128")
        with fw.dual_level():
            dual = fw.make_dual(z, t)
            outs = lib.exp(dual * dual), lib.real(dual), lib.abs(dual), lib.conj(dual)
            return [fw.unpack_dual(out).tangent for out in outs]

    agree(scenario)


def test_linear_algebra_on_duals():
    def scenario(lib):
        fw = lib.autograd.forward_ad
        a = constant(lib, [[3.0, 1.0], [1.0, 2.0]])
        t = constant(lib, [[0.5, 0.1], [0.2, 1.0]])
        with fw.dual_level():
            dual = fw.make_dual(a, t)
            outs = lib.linalg.inv(dual), lib.linalg.det(dual), lib.linalg.solve(dual, a)
            return [fw.unpack_dual(out).tangent for out in outs]

    agree(scenario)


def test_the_gradient_of_a_function_of_a_dual_is_itself_dual():
    def scenario(lib):
        fw = lib.autograd.forward_ad
        x = leaf(lib, [0.5, 1.5])
        with fw.dual_level():
            dual = fw.make_dual(x, constant(lib, [1.0, -2.0]))
            out = (lib.exp(lib.sin(dual)) * dual).sum()
            (by_leaf,) = lib.autograd.grad(out, x, retain_graph=True)
            (by_dual,) = lib.autograd.grad(out, dual)
            return tuple(fw.unpack_dual(by_leaf)), tuple(fw.unpack_dual(by_dual))

    agree(scenario)


def test_a_level_that_was_left_takes_no_tangents():
    """As where one thread computes with a dual while another leaves its level."""
    open_level, left = Level(), Level()
    left.close()
    tangents = Tangents({open_level: number(1.0), left: number(2.0)})
    assert list(tangents) == [open_level]
    open_level.close()
    assert not tangents


def test_a_mixed_part_of_the_tangent_adds_to_one_that_the_primal_has():
    with fw.dual_level() as outer, fw.dual_level() as inner:
        # 1 + d (2 + 3 e), and 4 + 5 d along e: together 1 + 2 d + 4 e + (3 + 5) d e.
        primal = fw.make_dual(
            number(1.0), fw.make_dual(number(2.0), number(3.0), level=outer), level=inner
        )
        tangent = fw.make_dual(number(4.0), number(5.0), level=inner)
        both = fw.make_dual(primal, tangent, level=outer)
        along_inner = fw.unpack_dual(both, level=inner).tangent
        assert fw.unpack_dual(along_inner, level=outer).tangent.item() == 8.0
        along_outer = fw.unpack_dual(both, level=outer).tangent
        assert fw.unpack_dual(along_outer, level=inner).tangent.item() == 8.0


def test_the_gradient_to_start_from_may_be_dual():
    def scenario(lib):
        fw = lib.autograd.forward_ad
        x = leaf(lib, [0.5, 1.5])
        with fw.dual_level():
            start = fw.make_dual(constant(lib, [1.0, 2.0]), constant(lib, [3.0, 4.0]))
            (gradient,) = lib.autograd.grad(lib.sin(x), x, start)
            return tuple(fw.unpack_dual(gradient))

    agree(scenario)


@pytest.mark.parametrize("asked", [False, True])
def test_gradients_with_tangents_add_to_those_without(asked):
    x = number([1.0, 2.0], requires_grad=True)
    with fw.dual_level():
        # The oldest part comes last, to a sum of two gradients that have no tangent.
        dual = (x * fw.make_dual(number([3.0, 4.0]), number([5.0, 6.0]))).sum()
        plain = (x * 2.0 + x * 3.0).sum()
        if asked:
            (gradient,) = grad([plain, dual], x)
        else:
            tg.autograd.backward([plain, dual])
            gradient = x.grad
        value, tangent = fw.unpack_dual(gradient)
    np.testing.assert_array_equal(value.numpy(), [8.0, 9.0])
    np.testing.assert_array_equal(tangent.numpy(), [5.0, 6.0])


def test_backward_accumulates_dual_gradients_that_become_ordinary():
    x = number([0.5, 1.5], requires_grad=True)
    with fw.dual_level():
        dual = fw.make_dual(x, number([1.0, 1.0]))
        (dual * dual * dual).sum().backward()
        np.testing.assert_allclose(fw.unpack_dual(x.grad).tangent.numpy(), [3.0, 9.0])
    assert not x.grad.is_dual
    np.testing.assert_allclose(x.grad.numpy(), [0.75, 6.75])


def test_a_tangent_that_requires_grad_is_differentiable():
    def scenario(lib):
        fw = lib.autograd.forward_ad
        x, t = leaf(lib, [0.5, 1.5]), leaf(lib, [1.0, 2.0])
        with fw.dual_level():
            tangent = fw.unpack_dual(lib.sin(fw.make_dual(x, t)) * x).tangent
            return lib.autograd.grad(tangent.sum(), [x, t])

    agree(scenario)


def test_levels_nest_and_give_higher_derivatives():
    x, one = number(0.7), number(1.0)
    with fw.dual_level() as a:
        outer = fw.make_dual(x, one)
        with fw.dual_level() as b:
            middle = fw.make_dual(outer, one)
            with fw.dual_level() as c:
                inner = fw.make_dual(middle, one)
                out = tg.exp(2.0 * inner)
                third = fw.unpack_dual(out, level=c).tangent
                third = fw.unpack_dual(third, level=b).tangent
                third = fw.unpack_dual(third, level=a).tangent
    assert (a, b, c) == (0, 1, 2)
    assert third.item() == pytest.approx(8.0 * np.exp(1.4))


def test_tangents_of_different_levels_do_not_mix():
    # d/dx (x * d/dy (x + y)) is 1 everywhere; confusing the two perturbations gives 2.
    x, one = number(3.0), number(1.0)
    with fw.dual_level():
        outer = fw.make_dual(x, one)
        with fw.dual_level():
            y = fw.make_dual(number(5.0), one)
            inner = fw.unpack_dual(outer + y).tangent
        out = outer * inner
        assert fw.unpack_dual(out).tangent.item() == 1.0


def test_perturbations_that_pass_through_closures_stay_apart():
    # d/dx [d/dy (x * y) at y = x * x] = d/dx x = 1.
    def derivative(f):
        return lambda x: functional.jvp(f, x, tg.ones_like(x))[1]

    def outer(x):
        return derivative(lambda y: x * y)(x * x)

    assert derivative(outer)(number(2.0)).item() == 1.0
    assert functional.grad(outer)(number(2.0)).item() == 1.0


def test_an_outer_level_may_be_given_a_tangent_that_is_dual_further_in():
    x, one = number(2.0), number(1.0)
    with fw.dual_level() as outer, fw.dual_level() as inner:
        tangent = fw.make_dual(number(3.0), number(5.0), level=inner)
        z = fw.make_dual(x, tangent, level=outer)
        out = z * z
        # z = 2 + e (3 + 5 d), so z z = 4 + 12 e + 20 e d.
        primal, along = fw.unpack_dual(out, level=outer)
        assert fw.unpack_dual(primal, level=inner).tangent.item() == 0.0
        assert fw.unpack_dual(along, level=inner).primal.item() == 12.0
        assert fw.unpack_dual(along, level=inner).tangent.item() == 20.0
        assert fw.unpack_dual(out, level=inner).primal.item() == 4.0
        assert one.item() == 1.0


def test_tangents_of_several_levels_and_a_gradient_at_once():
    x = number(0.3, requires_grad=True)
    with fw.dual_level() as a, fw.dual_level() as b:
        z = fw.make_dual(fw.make_dual(x, number(1.0), level=a), number(1.0), level=b)
        out = tg.sin(z) * z
        mixed = fw.unpack_dual(fw.unpack_dual(out, level=b).tangent, level=a).tangent
        (third,) = grad(mixed, x)
    closed = -3.0 * np.sin(0.3) - 0.3 * np.cos(0.3)
    assert third.item() == pytest.approx(closed)


def test_leaving_a_level_clears_its_tangents_everywhere():
    x = number([1.0, 2.0], requires_grad=True)
    level = fw.enter_dual_level()
    dual = fw.make_dual(x, number([1.0, 1.0]))
    kept = [dual, dual.detach(), dual * 2.0, tg.sin(dual), dual[0], dual.clone()]
    recorded = (tg.exp(dual) * dual).sum()
    fw.exit_dual_level(level)
    assert not any(t.is_dual for t in kept)
    with fw.dual_level():
        assert all(fw.unpack_dual(t).tangent is None for t in kept)
        assert fw.unpack_dual(kept[2] * 3.0).tangent is None
        (found,) = grad(recorded, x)
        assert fw.unpack_dual(found).tangent is None
    np.testing.assert_allclose(found.numpy(), np.exp([1.0, 2.0]) * [2.0, 3.0])


def test_leaving_an_inner_level_keeps_the_outer_tangents():
    with fw.dual_level() as outer:
        x = fw.make_dual(number(2.0), number(1.0))
        with fw.dual_level():
            y = fw.make_dual(x, number(1.0))
            z = y * y
        assert fw.unpack_dual(z, level=outer).tangent.item() == 4.0
        assert fw.unpack_dual(z * x).tangent.item() == 12.0


def test_a_level_left_by_an_exception_is_closed():
    with pytest.raises(KeyError), fw.dual_level():
        dual = fw.make_dual(number(1.0), number(1.0))
        fw.enter_dual_level()
        raise KeyError
    assert not dual.is_dual
    assert fw.enter_dual_level() == 0
    fw.exit_dual_level(0)


def test_dual_level_decorates():
    @fw.dual_level()
    def derivative(x):
        return fw.unpack_dual(tg.sin(fw.make_dual(x, tg.ones_like(x)))).tangent

    assert derivative(number(0.0)).item() == 1.0
    with pytest.raises(tg.errors.LevelError):
        fw.exit_dual_level()


def test_make_dual_leaves_its_argument_as_it_was():
    x = number(1.0, requires_grad=True)
    with fw.dual_level():
        dual = fw.make_dual(x, number(2.0))
        assert not x.is_dual
        assert dual.is_dual
        assert dual.grad_fn.next_functions[0][0].variable is x


def test_unpack_dual_gives_named_parts():
    with fw.dual_level():
        parts = fw.unpack_dual(fw.make_dual(number(1.0), number(2.0)))
        assert parts.primal.item() == 1.0
        assert parts.tangent.item() == 2.0
        assert not parts.primal.is_dual
    assert fw.unpack_dual(number(1.0)).tangent is None


def test_functions_without_a_slope_give_zero_tangents_and_comparisons_none():
    with fw.dual_level():
        dual = fw.make_dual(number([1.5, -2.5]), number([1.0, 1.0]))
        assert fw.unpack_dual(tg.floor(dual)).tangent.tolist() == [0.0, 0.0]
        assert fw.unpack_dual(tg.sign(dual)).tangent.tolist() == [0.0, 0.0]
        assert fw.unpack_dual(dual > 0.0).tangent is None


def test_in_place_operators_carry_tangents():
    with fw.dual_level():
        y = fw.make_dual(number([1.0, 2.0]), number([1.0, 1.0])) * 1.0
        y *= y
        y[0] = 7.0
        assert fw.unpack_dual(y).tangent.tolist() == [0.0, 4.0]


def test_threads_have_levels_of_their_own_below_those_that_python_hands_on():
    found = {}

    def work():
        found["empty"] = fw.unpack_dual(number(1.0)).tangent
        with fw.dual_level() as level:
            found["level"] = level
            out = fw.make_dual(number(3.0), number(1.0)) * shared
            found["mixed"] = fw.unpack_dual(out).tangent.item()
            found["carried"] = out

    with fw.dual_level(), fw.dual_level():
        shared = fw.make_dual(number(2.0), number(10.0))
        worker = threading.Thread(target=work)
        worker.start()
        worker.join(timeout=30)
        assert found["level"] == (2 if HANDS_CONTEXTS_ON else 0)
        assert found["mixed"] == 2.0
        assert fw.unpack_dual(found["carried"]).tangent.item() == 30.0


def test_async_tasks_inherit_levels_and_keep_their_own():
    async def child(x):
        with fw.dual_level() as level:
            dual = fw.make_dual(x, number(1.0))
            await asyncio.sleep(0)
            return level, fw.unpack_dual(dual * dual).tangent

    async def main():
        with fw.dual_level() as level:
            x = fw.make_dual(number(3.0), number(1.0))
            pairs = await asyncio.gather(child(x), child(x))
            assert [inner for inner, _ in pairs] == [level + 1] * 2
            return [fw.unpack_dual(t).tangent.item() for _, t in pairs]

    assert asyncio.run(main()) == [2.0, 2.0]


def test_tangents_are_not_shared_with_the_tensors_they_came_from():
    tangent = number([1.0, 1.0])
    with fw.dual_level():
        dual = fw.make_dual(number([1.0, 2.0]), tangent)
        tangent += 5.0
        taken = fw.unpack_dual(dual).tangent
        taken += 7.0
        assert fw.unpack_dual(dual).tangent.tolist() == [1.0, 1.0]
        assert tangent.tolist() == [6.0, 6.0]
