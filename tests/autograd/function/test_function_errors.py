"""Functions that are written wrong: the error names the Function, and nothing has changed."""

import numpy as np
import pytest
from tests.autograd.beside_torch import agree, fails, leaf

import telegrad as tg
from telegrad.autograd import Function, forward_ad, functional, grad, once_differentiable
from telegrad.errors import (
    DTypeError,
    GradientError,
    GraphFreedError,
    NotDifferentiable,
    ShapeError,
    UsageError,
)


def returning(answer, forward=lambda x, k: x * 2.0, tangent=None):
    class Odd(Function):
        @staticmethod
        def forward(ctx, x, k):
            return forward(x, k)

        @staticmethod
        def backward(ctx, *cotangents):
            return answer(*cotangents)

        @staticmethod
        def jvp(ctx, *tangents):
            return tangent(*tangents)

    return Odd


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (lambda g: (g,), GradientError, r"expected 2 gradients from Odd\.backward.*got 1"),
        (lambda g: (g, None, g), GradientError, r"expected 2 gradients from Odd\.backward.*got 3"),
        (lambda g: g, GradientError, r"expected 2 gradients from Odd\.backward.*got 1"),
        (lambda g: (g, g), GradientError, r"None from Odd\.backward for argument 1, which was no"),
        (
            lambda g: (g[:1], None),
            ShapeError,
            r"shape \(2,\).*Odd\.backward for argument 0.*\(1,\)",
        ),
        (lambda g: (tg.ones((2, 3)), None), ShapeError, r"Odd\.backward.*got shape \(2, 3\)"),
        (lambda g: (g.sum(), None), ShapeError, r"Odd\.backward.*got shape \(\)"),
        (lambda g: (1.0, None), DTypeError, r"Tensor or None from Odd\.backward.*got float"),
        (lambda g: (np.ones(2), None), DTypeError, r"got ndarray; wrap it with telegrad\.asarray"),
    ],
)
def test_wrong_gradients_are_refused_and_leave_everything_unchanged(answer, error, message):
    x, y = tg.tensor([1.0, 2.0], requires_grad=True), tg.tensor([1.0, 2.0], requires_grad=True)
    (x * 3.0 + y).sum().backward()
    out = returning(answer).apply(x, 3)
    with pytest.raises(error, match=message):
        (out + y * 2.0).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]
    assert y.grad.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("tangent", "error", "message"),
    [
        (lambda t, k: (t, t), ShapeError, r"expected 1 tangents from Odd\.jvp.*got 2"),
        (lambda t, k: t[:1], ShapeError, r"shape \(2,\), that of.*Odd\.jvp for result 0.*\(1,\)"),
        (lambda t, k: t.to(tg.float64), DTypeError, r"Odd\.jvp for result 0.*float64"),
        (lambda t, k: 1.0, DTypeError, r"Tensor or None from Odd\.jvp.*got float"),
    ],
)
def test_wrong_tangents_are_refused(tangent, error, message):
    function = returning(None, tangent=tangent)
    x = tg.tensor([1.0, 2.0])
    with forward_ad.dual_level(), pytest.raises(error, match=message):
        function.apply(forward_ad.make_dual(x, x), 3)


def test_a_tangent_of_a_result_that_is_a_constant_is_refused():
    function = returning(
        None, forward=lambda x, k: (x * 2.0, tg.argsort(x)), tangent=lambda t, k: (t * 2.0, t)
    )
    x = tg.tensor([1.0, 2.0])
    message = r"expected None from Odd\.jvp for result 1, which is a constant, got Tensor"
    with forward_ad.dual_level(), pytest.raises(GradientError, match=message):
        function.apply(forward_ad.make_dual(x, x), 3)


@pytest.mark.parametrize(
    ("kind", "refused"), [("marked", True), ("integers", True), ("text", False)]
)
def test_a_tangent_of_a_constant_tensor_is_refused_and_one_of_anything_else_ignored(kind, refused):
    def scenario(lib):
        class Both(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                side = {"marked": x * 10.0, "integers": lib.argsort(x), "text": "side"}[kind]
                if kind == "marked":
                    ctx.mark_non_differentiable(side)
                return x * 2.0, side

            @staticmethod
            def jvp(ctx, tangent):
                return tangent * 2.0, tangent

        x, levels = leaf(lib, [1.0, 2.0]).detach(), lib.autograd.forward_ad
        with levels.dual_level():
            return fails(lambda: Both.apply(levels.make_dual(x, x)))

    assert agree(scenario) is refused


def test_a_missing_backward_is_named_when_it_is_needed():
    class OnlyForward(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2.0

    x = tg.tensor(1.0, requires_grad=True)
    out = OnlyForward.apply(x)
    with pytest.raises(NotDifferentiable, match="OnlyForward has no backward"):
        out.backward()


def test_a_missing_jvp_is_named_when_a_dual_comes():
    class OnlyReverse(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2.0

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2.0

    x = tg.tensor(1.0)
    with (
        forward_ad.dual_level(),
        pytest.raises(NotDifferentiable, match="OnlyReverse has no jvp"),
    ):
        OnlyReverse.apply(forward_ad.make_dual(x, x))
    assert OnlyReverse.apply(x).item() == 2.0


def test_a_missing_forward_is_named():
    class Empty(Function):
        pass

    with pytest.raises(UsageError, match="expected a static method forward"):
        Empty.apply(tg.tensor(1.0))


def test_named_arguments_that_setup_context_would_not_see_are_refused():
    class Bare(Function):
        @staticmethod
        def forward(ctx, x, factor=2.0):
            return x * factor

    class Named(Function):
        @staticmethod
        def forward(x, *, factor=2.0):
            return x * factor

        @staticmethod
        def setup_context(ctx, inputs, output):
            assert len(inputs) == 1

    x = tg.tensor(1.0)
    assert Bare.apply(x, 3.0).item() == 3.0
    assert Named.apply(x).item() == 2.0
    for function in (Bare, Named):
        with pytest.raises(TypeError, match=r"by position, got \['factor'\] by name"):
            function.apply(x, factor=3.0)


def test_functions_are_not_instantiated():
    with pytest.raises(UsageError, match=r"expected Odd\.apply"):
        returning(None)()


def test_only_tensors_are_saved():
    class SavesText(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x, "text")
            return x

    with pytest.raises(DTypeError, match="SavesText, got str as number 1; keep other values"):
        SavesText.apply(tg.tensor(1.0, requires_grad=True))


def test_mark_dirty_is_refused_with_a_reason():
    class Dirty(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x

    with pytest.raises(GradientError, match=r"no mark_dirty in Dirty.*do not alias"):
        Dirty.apply(tg.tensor(1.0, requires_grad=True))


def test_saved_tensors_of_a_freed_graph_say_so():
    class Keep(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2.0

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2.0

    x = tg.tensor(1.0, requires_grad=True)
    out = Keep.apply(x)
    out.backward()
    with pytest.raises(GraphFreedError, match=r"KeepBackward.*retain_graph=True"):
        out.backward()
    with pytest.raises(GraphFreedError, match="Keep whose values"):
        _ = out.grad_fn.saved_tensors


class Numeric(Function):
    """A sine whose derivative leaves telegrad."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return tg.asarray(np.sin(x.detach().numpy()))

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return tg.asarray(gradient.detach().numpy() * np.cos(x.detach().numpy()))


class NumericByAttribute(Numeric):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return tg.sin(x)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        return tg.asarray(gradient.detach().numpy() * np.cos(ctx.x.detach().numpy()))


both_ways_of_saving = pytest.mark.parametrize("function", [Numeric, NumericByAttribute])


def test_once_differentiable_allows_one_derivative():
    x = tg.tensor([0.5, 1.0], dtype=tg.float64, requires_grad=True)
    (found,) = grad(Numeric.apply(x).sum(), x)
    np.testing.assert_allclose(found.numpy(), np.cos([0.5, 1.0]))
    assert not found.requires_grad


@both_ways_of_saving
def test_once_differentiable_refuses_a_second(function):
    x = tg.tensor([0.5, 1.0], dtype=tg.float64, requires_grad=True)
    (first,) = grad(function.apply(x).sum() + (x * x).sum(), x, create_graph=True)
    message = rf"{function.__name__}.backward is marked once_differentiable"
    with pytest.raises(NotDifferentiable, match=message):
        grad(first.sum(), x)


@both_ways_of_saving
def test_once_differentiable_refuses_forward_over_reverse(function):
    x = tg.tensor([0.5, 1.0], dtype=tg.float64)

    class WithJvp(function):
        @staticmethod
        def jvp(ctx, tangent):
            return tangent

    with pytest.raises(NotDifferentiable, match="once_differentiable"):
        functional.hvp(lambda x: WithJvp.apply(x).sum(), x, x)
