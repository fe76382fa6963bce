"""``checkpoint``: the same gradients, computed again instead of kept."""

import gc
import threading

import numpy as np
import pytest
from tests.interpreter import needs_lock

import telegrad as tg
from telegrad.autograd import checkpoint, forward_ad, functional, grad
from telegrad.errors import GradientError, UsageError


def block(x, w, *, scale=1.0):
    return tg.tanh(x @ w) * scale + tg.sin(x)


@pytest.fixture
def values():
    generator = np.random.default_rng(3)
    x = tg.asarray(generator.normal(size=(4, 4))).requires_grad_()
    w = tg.asarray(generator.normal(size=(4, 4))).requires_grad_()
    return x, w


def gradients(call, x, w):
    out = call(x, w).sum()
    return [g.tolist() for g in grad(out, [x, w])]


def test_gradients_are_the_same_bits(values):
    plain = gradients(lambda x, w: block(block(x, w), w, scale=2.0), *values)
    kept = gradients(lambda x, w: checkpoint(block, checkpoint(block, x, w), w, scale=2.0), *values)
    assert plain == kept


def test_the_function_runs_once_more_and_not_under_no_grad(values):
    runs = []

    def counted(x, w):
        runs.append(tg.autograd.is_grad_enabled())
        return block(x, w)

    x, w = values
    out = checkpoint(counted, x, w).sum()
    assert runs == [True]
    with tg.no_grad():
        out.backward()
    assert runs == [True, True]
    with tg.no_grad():
        assert not checkpoint(counted, x, w).requires_grad
    assert runs == [True, True, False]


def test_values_in_between_are_not_kept(values):
    x, _ = values

    def wide(x):
        y = x
        for _ in range(20):
            y = tg.exp(tg.sin(y))
        return y

    def kept_bytes(out):
        seen, stack, total = set(), [out.grad_fn], 0
        while stack:
            node = stack.pop()
            for held in gc.get_referents(node):
                if isinstance(held, np.ndarray) and id(held) not in seen:
                    seen.add(id(held))
                    total += held.nbytes
            stack += [fn for fn, _ in node.next_functions if fn is not None]
        return total

    assert kept_bytes(wide(x)) >= 20 * x.nbytes
    assert kept_bytes(checkpoint(wide, x)) == 0


def test_it_works_at_second_order(values):
    def second(call):
        x, w = values
        (first,) = grad(call(x, w).sum(), x, create_graph=True)
        return [g.tolist() for g in grad((first * first).sum(), [x, w])]

    assert second(block) == second(lambda x, w: checkpoint(block, x, w))


def test_a_retained_graph_runs_again(values):
    x, w = values
    out = checkpoint(block, x, w).sum()
    first = grad(out, [x, w], retain_graph=True)
    again = grad(out, [x, w])
    assert [g.tolist() for g in first] == [g.tolist() for g in again]


def test_nested_checkpoints(values):
    runs = []

    def inner(x, w):
        runs.append("inner")
        return block(x, w)

    def outer(x, w):
        runs.append("outer")
        return checkpoint(inner, checkpoint(inner, x, w), w) * 2.0

    x, w = values
    plain = gradients(lambda x, w: block(block(x, w), w) * 2.0, x, w)
    assert gradients(lambda x, w: checkpoint(outer, x, w), x, w) == plain
    assert runs.count("outer") == 2


def test_arguments_are_taken_as_they_were_at_the_call(values):
    x, w = values
    expected = gradients(block, x, w)
    changed = x * 1.0
    out = checkpoint(block, changed, w).sum()
    changed += 100.0
    assert [g.tolist() for g in grad(out, [x, w])] == expected


def test_tensors_in_containers_and_other_arguments():
    def total(parts, *, options):
        return (tg.sin(parts["a"]) * parts["b"][0] * options["factor"]).sum()

    a, b = tg.tensor([1.0, 2.0], requires_grad=True), tg.tensor([3.0, 4.0], requires_grad=True)
    arguments = {"a": a, "b": (b, None)}
    plain = grad(total(arguments, options={"factor": 2.0}), [a, b])
    kept = grad(checkpoint(total, arguments, options={"factor": 2.0}), [a, b])
    assert [g.tolist() for g in plain] == [g.tolist() for g in kept]


def test_values_from_a_closure_receive_gradients(values):
    x, w = values
    expected = gradients(block, x, w)
    out = checkpoint(lambda x: block(x, w), x).sum()
    assert [g.tolist() for g in grad(out, [x, w])] == expected


def test_it_works_on_duals_and_inside_transforms(values):
    x, w = (t.detach() for t in values)
    tangents = (tg.ones_like(x), w * 0.5)

    def loss(call):
        return lambda x, w: (call(x, w) ** 2).sum()

    plain = functional.hvp(loss(block), (x, w), tangents)[1]
    kept = functional.hvp(loss(lambda x, w: checkpoint(block, x, w)), (x, w), tangents)[1]
    for one, other in zip(plain, kept):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-12)


def test_a_level_may_be_left_before_the_backward_pass(values):
    x, w = values
    expected = gradients(block, x, w)
    with forward_ad.dual_level():
        dual = checkpoint(block, forward_ad.make_dual(x, tg.ones_like(x)), w)
        tangent = forward_ad.unpack_dual(dual).tangent
    assert [g.tolist() for g in grad(dual.sum(), [x, w], retain_graph=True)] == expected
    with forward_ad.dual_level():
        plain = forward_ad.unpack_dual(block(forward_ad.make_dual(x, tg.ones_like(x)), w)).tangent
    for one, other in zip(grad(tangent.sum(), [x, w]), grad(plain.sum(), [x, w])):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-12)


def _forward(function):
    def push(x):
        return functional.jvp(function, x, tg.ones_like(x))[1]

    return push


@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("order", ["rf", "rff", "frf", "rrf", "rfr", "frfr"])
def test_reverse_over_forward_is_that_of_the_plain_function(order, inner):
    x = tg.tensor(0.5, dtype=tg.float64)

    def curve(x):
        return tg.exp(tg.sin(x)) * x

    def kept(x):
        if inner:
            return checkpoint(lambda x: checkpoint(curve, x * 1.0) * 1.0, x)
        return checkpoint(curve, x)

    plain = curve
    for mode in reversed(order):
        transform = functional.grad if mode == "r" else _forward
        plain, kept = transform(plain), transform(kept)
    np.testing.assert_allclose(kept(x).item(), plain(x).item(), rtol=1e-12)


def test_a_tangent_that_came_by_a_closure_and_went_with_its_level_is_an_error(values):
    x, w = values
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, tg.ones_like(x))
        out = checkpoint(lambda w: block(dual, w), w).sum()
    with pytest.raises(GradientError, match="to do the same when run again"):
        out.backward()


def test_a_function_that_does_something_else_the_second_time_is_an_error():
    runs = []

    def fickle(x):
        runs.append(1)
        return tg.sin(x) if len(runs) > 1 else tg.sin(tg.exp(x))

    x = tg.tensor([1.0, 2.0], requires_grad=True)
    out = checkpoint(fickle, x).sum()
    with pytest.raises(GradientError, match="fickle to do the same when run again"):
        out.backward()
    assert x.grad is None


def test_a_function_that_computes_other_numbers_the_second_time_is_an_error():
    x = tg.tensor(np.linspace(0.0, 1.0, 1000), requires_grad=True)
    scale = 1.0
    out = checkpoint(lambda x: tg.sin(x * scale), x).sum()
    scale = 2.0
    with pytest.raises(GradientError, match=r"do the same .* but value 0 has other numbers"):
        out.backward()
    assert x.grad is None


def test_a_function_that_takes_another_branch_the_second_time_is_an_error():
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    chosen = tg.tensor([True, False])
    out = checkpoint(lambda x: tg.where(chosen, x, -x), x).sum()
    chosen = tg.tensor([False, True])
    with pytest.raises(GradientError, match=r"do the same .* but value 0 has other numbers"):
        out.backward()
    assert x.grad is None


@pytest.mark.parametrize(
    ("second", "difference"),
    [
        (lambda x: tg.sin(x[:1]), r"value 0 has shape \(1,\) of float32"),
        (lambda x: tg.sin(x), "it saved 1 values"),
    ],
    ids=["another shape", "less"],
)
def test_a_function_that_saves_something_else_the_second_time_is_an_error(second, difference):
    runs = []

    def fickle(x):
        runs.append(1)
        return second(x) if len(runs) > 1 else tg.exp(tg.sin(x))

    x = tg.tensor([1.0, 2.0], requires_grad=True)
    out = checkpoint(fickle, x).sum()
    with pytest.raises(GradientError, match=f"saving 2 values, but {difference}"):
        out.backward()
    assert x.grad is None


def test_arguments_that_hooks_keep_in_fewer_bits_are_allowed():
    x = tg.tensor(np.linspace(0.1, 1.0, 100), requires_grad=True)

    def halves(t):
        return t.numpy().astype(np.float16)

    def doubles(a):
        return tg.tensor(a.astype(np.float64))

    with tg.autograd.graph.saved_tensors_hooks(halves, doubles):
        out = checkpoint(lambda x: tg.sin(tg.exp(x)), x).sum()
    (found,) = grad(out, x)
    wide = x.detach().numpy()
    assert np.allclose(found.numpy(), np.cos(np.exp(wide)) * np.exp(wide), atol=1e-2)


def test_a_value_that_is_not_a_number_is_alike_the_second_time():
    x = tg.tensor([np.nan, np.inf, 1.0], requires_grad=True)
    out = checkpoint(lambda x: tg.exp(x * x), x).sum()
    assert grad(out, x)[0].tolist()[2] == 2.0 * np.exp(np.float32(1.0))


def test_a_parameter_of_a_closure_that_changed_before_the_backward_pass_is_an_error(values):
    x, w = values
    # Addition saves nothing: that the leaf changed shows nowhere but in what is computed with it.
    out = checkpoint(lambda x: tg.sin(x + w), x).sum()
    with tg.no_grad():
        w.copy_(w * 2.0)
    with pytest.raises(
        GradientError, match="got a leaf of shape \\(4, 4\\) that was changed since"
    ):
        out.backward()
    assert x.grad is None


def test_a_parameter_among_the_arguments_may_change_before_the_backward_pass(values):
    x, w = values
    expected = gradients(block, x, w)
    out = checkpoint(block, x, w).sum()
    with tg.no_grad():
        w.copy_(w * 2.0)
    assert [g.tolist() for g in grad(out, [x, w])] == expected


@needs_lock
def test_a_parameter_changes_in_its_own_memory_when_the_pass_is_over(values):
    x, w = values
    out = checkpoint(lambda x: tg.sin(x @ w), x).sum()
    out.backward()
    memory = w.array.ctypes.data
    with tg.no_grad():
        w.copy_(0.0)
    assert w.array.ctypes.data == memory


def test_a_function_that_catches_everything_runs_to_its_end(values):
    def stubborn(x, w):
        try:
            return block(x, w)
        except BaseException:
            return tg.exp(x) * w

    assert gradients(lambda x, w: checkpoint(stubborn, x, w), *values) == gradients(block, *values)


def test_passes_of_several_threads_through_one_checkpoint(values):
    x, w = values
    out = checkpoint(block, x, w).sum()
    expected = [g.tolist() for g in grad(out, [x, w], retain_graph=True)]
    found = []

    def work():
        for _ in range(10):
            found.append([g.tolist() for g in grad(out, [x, w], retain_graph=True)])

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=60)
    assert found == [expected] * 40


GENERATOR = tg.Generator(5)


def noisy(x):
    kept = tg.nn.functional.dropout(x, 0.5)
    return tg.sin(kept) * tg.rand_like(x) * tg.rand_like(x, generator=GENERATOR)


def orders(call):
    """The value and two derivatives, and what the generators give afterwards."""
    x = tg.ones(64, dtype=tg.float64).requires_grad_()
    tg.manual_seed(7)
    GENERATOR.manual_seed(8)
    out = call(x)
    (first,) = grad(out.sum(), x, create_graph=True)
    (second,) = grad(first.sum(), x)
    after = tg.rand(2), tg.rand(2, generator=GENERATOR)
    return [value.tolist() for value in (out, first, second, *after)]


@pytest.mark.parametrize(
    ("checkpointed", "plain"),
    [
        (lambda x: checkpoint(noisy, x), noisy),
        (
            lambda x: checkpoint(lambda y: checkpoint(noisy, y) * noisy(y), x),
            lambda x: noisy(x) * noisy(x),
        ),
        (lambda x: checkpoint(noisy, checkpoint(noisy, x)), lambda x: noisy(noisy(x))),
    ],
    ids=["one", "nested", "two"],
)
def test_random_numbers_are_those_of_the_first_run(checkpointed, plain):
    assert orders(checkpointed) == orders(plain)


def test_generators_made_inside_are_drawn_from_as_they_are():
    def block(x):
        return tg.sin(x) * tg.rand_like(x, generator=tg.Generator(3))

    assert orders(lambda x: checkpoint(block, x)) == orders(block)


@pytest.mark.parametrize("is_recorded", [True, False])
def test_an_option_of_pytorchs_checkpoint_is_not_passed_on_to_the_function(
    is_recorded: bool,
) -> None:
    x = tg.ones(2).requires_grad_(is_recorded)
    with (
        tg.set_grad_enabled(is_recorded),
        pytest.raises(UsageError, match="use_reentrant=False; leave it out"),
    ):
        checkpoint(lambda x, **options: x * 2, x, use_reentrant=False)
