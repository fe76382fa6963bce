"""``backward``: every documented behaviour, beside PyTorch."""

import numpy as np
import pytest
from tests.autograd.beside_torch import agree, constant, fails, leaf

import telegrad as tg


def test_backward_adds_the_gradient_of_a_scalar_to_its_leaves():
    def scenario(lib):
        x, y = leaf(lib, [1.0, 2.0]), leaf(lib, [3.0, 4.0])
        (lib.sin(x) * y).sum().backward()
        return x.grad, y.grad

    agree(scenario)


def test_leaves_accumulate_over_passes():
    def scenario(lib):
        x = leaf(lib, [1.0, 2.0])
        for factor in (2.0, 3.0):
            (x * factor).sum().backward()
        return x.grad

    agree(scenario)


def test_a_gradient_set_to_none_starts_again():
    def scenario(lib):
        x = leaf(lib, [1.0, 2.0])
        (x * 2.0).sum().backward()
        x.grad = None
        (x * 5.0).sum().backward()
        return x.grad

    agree(scenario)


def test_several_roots_with_gradients_some_of_them_none():
    def scenario(lib):
        x = leaf(lib, [1.0, 2.0])
        scalar, vector = (x * x).sum(), lib.exp(x)
        lib.autograd.backward([scalar, vector], [None, constant(lib, [0.5, -1.0])])
        return x.grad

    agree(scenario)


def test_a_root_named_twice_counts_twice():
    def scenario(lib):
        x = leaf(lib, 3.0)
        y = x * x
        lib.autograd.backward([y, y])
        return x.grad

    agree(scenario)


def test_a_root_that_leads_to_another_root():
    def scenario(lib):
        x = leaf(lib, 3.0)
        y = x * x
        z = lib.sin(y)
        lib.autograd.backward([y, z])
        return x.grad

    agree(scenario)


def test_a_leaf_can_be_the_root():
    def scenario(lib):
        x = leaf(lib, 3.0)
        x.backward()
        x.backward()
        return x.grad

    agree(scenario)


def test_gradient_argument_of_the_method():
    def scenario(lib):
        x = leaf(lib, [[1.0, 2.0], [3.0, 4.0]])
        (x * x).backward(constant(lib, [[1.0, 0.0], [0.5, 2.0]]))
        return x.grad

    agree(scenario)


def test_a_graph_is_freed_by_the_first_pass_and_says_so_at_the_second():
    def scenario(lib):
        x = leaf(lib, [1.0, 2.0])
        y = (x * x).sum()
        y.backward()
        return fails(y.backward), x.grad

    assert agree(scenario)[0] is True


def test_a_graph_that_saved_nothing_can_run_twice():
    def scenario(lib):
        x = leaf(lib, [1.0, 2.0])
        y = (x + 3.0).sum()
        y.backward()
        return fails(y.backward), x.grad

    assert agree(scenario)[0] is False


def test_retain_graph_allows_a_second_pass():
    def scenario(lib):
        x = leaf(lib, [1.0, 2.0])
        y = (x * x).sum()
        y.backward(retain_graph=True)
        y.backward()
        return fails(y.backward), x.grad

    agree(scenario)


def test_create_graph_retains_and_gives_gradients_with_history():
    def scenario(lib):
        x = leaf(lib, [1.0, 2.0])
        y = (x * x * x).sum()
        y.backward(create_graph=True)
        first = x.grad
        x.grad = None
        first.sum().backward()
        return first, first.requires_grad, x.grad

    agree(scenario)


def test_retain_graph_false_with_create_graph_frees():
    def scenario(lib):
        x = leaf(lib, [1.0, 2.0])
        y = (x * x).sum()
        y.backward(create_graph=True, retain_graph=False)
        return fails(y.backward), x.grad.requires_grad

    agree(scenario)


def test_inputs_choose_which_leaves_accumulate():
    def scenario(lib):
        x, y = leaf(lib, [1.0, 2.0]), leaf(lib, [3.0, 4.0])
        (x * y).sum().backward(inputs=[x])
        return x.grad, y.grad

    agree(scenario)


def test_an_input_that_is_no_leaf_accumulates_and_retains():
    def scenario(lib):
        x = leaf(lib, [1.0, 2.0])
        middle = x * 3.0
        loss = lib.sin(middle).sum()
        loss.backward(inputs=[middle], retain_graph=True)
        loss.backward(inputs=[middle], retain_graph=True)
        return middle.grad, middle.retains_grad, x.grad

    agree(scenario)


def test_an_input_behind_another_input():
    def scenario(lib):
        x = leaf(lib, [1.0, 2.0])
        middle = x * 3.0
        lib.sin(middle).sum().backward(inputs=[middle, x])
        return middle.grad, x.grad

    agree(scenario)


def test_only_what_leads_to_an_input_runs():
    def scenario(lib):
        x, y = leaf(lib, 1.0), leaf(lib, 2.0)
        ran = []
        side = y * 2.0
        side.register_hook(lambda g: ran.append("side"))
        (lib.sin(x) * side).backward(inputs=[x])
        return ran, x.grad, y.grad

    agree(scenario)


def test_one_value_used_many_times_sums_its_gradients():
    def scenario(lib):
        x = leaf(lib, [0.5, -0.25])
        y = x
        for _ in range(6):
            y = y * x + lib.sin(y) * x
        y.sum().backward()
        return x.grad

    agree(scenario)


def test_broadcast_values_receive_summed_gradients():
    def scenario(lib):
        x, y = leaf(lib, [[1.0], [2.0]]), leaf(lib, [3.0, 4.0, 5.0])
        (x * y + 2.0 * y).sum().backward()
        return x.grad, y.grad

    agree(scenario)


def test_mixed_dtypes_receive_gradients_of_their_own_dtype():
    def scenario(lib):
        x, y = leaf(lib, [1.0, 2.0], "float32"), leaf(lib, [3.0, 4.0])
        (x * y).sum().backward()
        return x.grad, y.grad

    agree(scenario)


def test_complex_gradients_are_conjugate_wirtinger():
    def scenario(lib):
        z = leaf(lib, [1.0 + 2.0j, -0.5 + 0.25j], "complex128")
        w = leaf(lib, [0.5, 2.0])
        out = lib.exp(z * w) * z
        (lib.real(out) * 2.0 + lib.imag(out)).sum().backward()
        return z.grad, w.grad

    agree(scenario)


def test_a_complex_root_needs_a_gradient():
    def scenario(lib):
        z = leaf(lib, 1.0 + 2.0j, "complex128")
        y = z * z
        failed = fails(y.backward)
        y.backward(constant(lib, 1.0 - 1.0j, "complex128"))
        return failed, z.grad

    agree(scenario)


def test_a_size_one_root_of_any_shape_starts_with_ones():
    def scenario(lib):
        x = leaf(lib, [[2.0]])
        (x * x).backward()
        return x.grad

    agree(scenario)


def test_a_real_gradient_for_a_complex_tensor_is_refused():
    def scenario(lib):
        y = leaf(lib, [1.0, 2.0]) * constant(lib, [1 + 2j, 3 - 1j], "complex128")
        return fails(lambda: y.backward(constant(lib, [5.0, 7.0])))

    assert agree(scenario)


def test_two_leaves_never_share_the_memory_of_a_gradient():
    x, y = tg.tensor([1.0, 2.0], requires_grad=True), tg.tensor([3.0, 4.0], requires_grad=True)
    gradient = tg.tensor([5.0, 6.0])
    (x + y).backward(gradient)
    arrays = [x.grad.array, y.grad.array, gradient.array]
    for i, one in enumerate(arrays):
        for other in arrays[i + 1 :]:
            assert not np.shares_memory(one, other)


def test_two_leaves_share_no_gradient_either_where_a_hook_drops_the_older_ones_on_the_way():
    x, y, late = (tg.tensor([1.0, 2.0], requires_grad=True) for _ in range(3))
    (x + y + late).sum().backward()

    def drop(gradient):
        x.grad = y.grad = None

    slow = late * 2.0  # The oldest node: it runs after x and y have their gradients.
    slow.register_hook(drop)
    (slow + (x + y) * tg.tensor([3.0, 5.0])).sum().backward()
    assert x.grad.tolist() == y.grad.tolist() == [3.0, 5.0]
    assert not np.shares_memory(x.grad.array, y.grad.array)


@pytest.mark.parametrize("create_graph", [False, True])
def test_a_gradient_to_start_from_is_copied_out_of_memory_that_others_write_to(create_graph):
    memory = np.ones(2)
    x, y = leaf(tg, [1.0, 2.0]), leaf(tg, [3.0, 4.0])
    z = x + y
    z.retain_grad()
    z.backward(tg.asarray(memory, copy=False), create_graph=create_graph)
    memory[:] = 5.0
    assert x.grad.tolist() == y.grad.tolist() == z.grad.tolist() == [1.0, 1.0]


def test_what_a_hook_or_a_function_gives_is_copied_out_of_memory_that_others_write_to():
    memory = np.zeros(2)

    def through_memory(gradient):
        memory[:] = gradient.numpy()
        return tg.asarray(memory, copy=False)

    class Same(tg.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1.0

        @staticmethod
        def backward(ctx, cotangent):
            return through_memory(cotangent)

    x, y, z = leaf(tg, [1.0, 2.0]), leaf(tg, [1.0, 2.0]), leaf(tg, [1.0, 2.0])
    x.register_hook(through_memory)
    x.sum().backward()
    (Same.apply(y) * 2.0).sum().backward()
    (Same.apply(z) * 3.0).sum().backward()
    assert (x.grad.tolist(), y.grad.tolist(), z.grad.tolist()) == ([1.0] * 2, [2.0] * 2, [3.0] * 2)


def test_a_leaf_that_stopped_requiring_grad_receives_nothing():
    def scenario(lib):
        x, y = leaf(lib, [1.0, 2.0]), leaf(lib, [3.0, 4.0])
        z = (x * y).sum()
        x.requires_grad_(False)
        z.backward()
        return x.grad, y.grad

    agree(scenario)


def test_a_rebound_leaf_keeps_the_value_that_was_recorded():
    x = tg.tensor([2.0, 3.0], requires_grad=True)
    y = (x * x).sum()
    with tg.no_grad():
        x += 100.0
    y.backward()
    np.testing.assert_allclose(x.grad.numpy(), [4.0, 6.0])


def test_a_pass_that_fails_half_way_leaves_every_gradient_as_it_was():
    x, y = tg.tensor([1.0, 2.0], requires_grad=True), tg.tensor([3.0, 4.0], requires_grad=True)
    (x * 2.0 + y * 3.0).sum().backward()
    before = x.grad, y.grad
    early = y * 5.0
    late = x * 7.0
    late.register_hook(lambda g: g[0])
    with pytest.raises(tg.errors.ShapeError):
        (late + early).sum().backward()
    assert x.grad is before[0]
    assert y.grad is before[1]


def test_results_repeat_bit_for_bit():
    def run():
        generator = np.random.default_rng(0)
        x = tg.asarray(generator.normal(size=(7, 7))).requires_grad_()
        y = x
        for _ in range(10):
            y = tg.sin(y @ x) + y * 0.1 + x
        y.sum().backward()
        return x.grad.numpy().tobytes()

    assert run() == run()


def test_a_long_chain_runs_without_recursion():
    x = tg.tensor(1.0, requires_grad=True)
    y = x
    for _ in range(50_000):
        y = y + 0.5
    y.backward()
    assert x.grad.item() == 1.0


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("way", ["retain_grad", "inputs", "grad"])
def test_a_failed_pass_leaves_retained_gradients_as_they_were(way, create_graph):
    x = leaf(tg, [1.0, 2.0])
    middle = x * 2.0
    y = middle * 3.0
    middle.register_hook(lambda gradient: failures.pop() if failures else None)
    failures = ["not a tensor"]
    y.retain_grad()

    def run():
        options = {"retain_graph": True, "create_graph": create_graph}
        if way == "grad":
            tg.autograd.grad(y.sum(), x, **options)
        else:
            tg.autograd.backward(y.sum(), inputs=[x, y] if way == "inputs" else None, **options)

    with pytest.raises(TypeError, match="Tensor or None from the hook"):
        run()
    assert y.grad is None
    run()
    assert y.grad.tolist() == [1.0, 1.0]
    run()
    assert y.grad.tolist() == [2.0, 2.0]
