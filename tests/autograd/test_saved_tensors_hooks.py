"""Packing saved values: what hooks see, and that nothing else changes."""

import weakref

import numpy as np
import pytest
from tests.autograd.beside_torch import agree, leaf

import telegrad as tg
from telegrad.autograd import Function, forward_ad, grad
from telegrad.autograd.graph import disable_saved_tensors_hooks, saved_tensors_hooks
from telegrad.errors import GradientError


def test_values_go_to_disk_and_back(tmp_path):
    x = tg.tensor(np.linspace(0.0, 1.0, 5), requires_grad=True)
    written = []

    def pack(tensor):
        path = tmp_path / f"{len(written)}.npy"
        np.save(path, tensor.numpy())
        written.append(path)
        return path

    def unpack(path):
        return tg.asarray(np.load(path))

    with saved_tensors_hooks(pack, unpack):
        y = (tg.exp(x) * tg.sin(x)).sum()
    (found,) = grad(y, x)
    assert len(written) == 4
    expected = np.exp(x.detach().numpy()) * (
        np.sin(x.detach().numpy()) + np.cos(x.detach().numpy())
    )
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


def test_hooks_replace_the_values_that_rules_read():
    def scenario(lib):
        x = leaf(lib, [1.0, 2.0])
        hooks = lib.autograd.graph.saved_tensors_hooks(lambda t: t * 10.0, lambda t: t)
        with hooks:
            y = x * x
        y.sum().backward()
        return x.grad

    agree(scenario)


def test_the_innermost_pair_counts():
    def scenario(lib):
        pair = lib.autograd.graph.saved_tensors_hooks
        x = leaf(lib, [1.0, 2.0])
        with pair(lambda t: t * 10.0, lambda t: t):
            with pair(lambda t: t * 3.0, lambda t: t):
                y = x * x
            z = x * x
        (y + z).sum().backward()
        return x.grad

    agree(scenario)


def test_values_saved_by_a_function_are_packed_too():
    def scenario(lib):
        class Square(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(ctx, gradient):
                (x,) = ctx.saved_tensors
                return gradient * 2.0 * x

        x = leaf(lib, [1.0, 2.0])
        with lib.autograd.graph.saved_tensors_hooks(lambda t: t * 5.0, lambda t: t):
            y = Square.apply(x)
        y.sum().backward()
        return x.grad

    agree(scenario)


def test_packed_values_keep_their_history_at_second_order():
    def scenario(lib):
        x = leaf(lib, [0.3, 0.6])
        with lib.autograd.graph.saved_tensors_hooks(lambda t: t.detach(), lambda t: t):
            y = (lib.exp(x) * lib.sin(x)).sum()
            (first,) = lib.autograd.grad(y, x, create_graph=True)
        return first, lib.autograd.grad(first.sum(), x)

    agree(scenario)


def test_packed_values_keep_their_tangents():
    x = tg.tensor([0.3, 0.6], dtype=tg.float64, requires_grad=True)
    results = []
    for scope in (saved_tensors_hooks(lambda t: t.numpy(), tg.asarray), tg.enable_grad()):
        with forward_ad.dual_level(), scope:
            dual = forward_ad.make_dual(x, tg.tensor([1.0, 2.0], dtype=tg.float64))
            (found,) = grad((tg.exp(dual) * tg.sin(dual)).sum(), dual)
            results.append(forward_ad.unpack_dual(found).tangent.tolist())
    np.testing.assert_allclose(results[0], results[1])


def test_a_result_that_carries_a_tangent_is_packed_once():
    x = tg.tensor([0.3, 0.6], requires_grad=True)
    packed = []
    with (
        forward_ad.dual_level(),
        saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t),
    ):
        out = tg.exp(forward_ad.make_dual(x, tg.tensor([1.0, 2.0])))
        values = [t.tolist() for t in packed]
    assert values.count(out.tolist()) == 1


def test_hooks_can_be_turned_off_inside():
    packed = []
    with saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        x = tg.tensor(2.0, requires_grad=True)
        with disable_saved_tensors_hooks():
            x * x
        assert not packed
        x * x
        assert len(packed) == 2


def test_a_freed_graph_drops_what_was_packed():
    class Content:
        pass

    contents = weakref.WeakSet()
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    values = {}

    def pack(tensor):
        content = Content()
        contents.add(content)
        values[id(content)] = tensor
        return content

    with saved_tensors_hooks(pack, lambda content: values[id(content)]):
        y = (x * x).sum()
    assert len(contents) == 2
    y.backward()
    assert len(contents) == 0


def test_unpack_must_give_back_what_pack_received():
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    with saved_tensors_hooks(lambda t: t, lambda t: t[:1]):
        y = (x * x).sum()
    with pytest.raises(GradientError, match=r"that multiply saved, of shape \(2,\).*got shape \(1"):
        y.backward()
    with saved_tensors_hooks(lambda t: t, lambda t: t.numpy()):
        y = (x * x).sum()
    with pytest.raises(
        GradientError, match=r"Tensor from .* got ndarray; wrap it with telegrad.as"
    ):
        y.backward()
    assert x.grad is None


def test_hooks_must_be_functions():
    with pytest.raises(GradientError, match="expected a function as unpack_hook"):
        saved_tensors_hooks(lambda t: t, None)


def test_a_function_of_several_results_packs_each_once():
    class Pair(Function):
        @staticmethod
        def forward(ctx, x):
            a, b = x * 2.0, x * 3.0
            ctx.save_for_backward(x, a, b)
            return a, b

        @staticmethod
        def backward(ctx, da, db):
            x, a, b = ctx.saved_tensors
            return da * a / x + db * b / x

    packed = []
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    with saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        a, b = Pair.apply(x)
    assert [t.tolist() for t in packed] == [[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]]
    (a + b).sum().backward()
    assert x.grad.tolist() == [5.0, 5.0]


def test_a_packed_value_does_not_change_with_the_memory_it_came_from():
    memory = np.array([2.0, 3.0])
    x = tg.tensor([1.0, 1.0], dtype=tg.float64, requires_grad=True)
    with saved_tensors_hooks(lambda value: value, lambda value: value):
        y = x * tg.asarray(memory, copy=False)
    memory[:] = 100.0
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 3.0]
