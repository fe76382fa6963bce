"""A graph that passes from PyTorch to telegrad and back, in one process."""

import gc
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from tests.interpreter import IS_LOCKED, needs_lock

import telegrad as tg
from telegrad.errors import (
    AnomalyError,
    DeviceError,
    DTypeError,
    GradientError,
    GraphFreedError,
    LevelError,
    SavedValueChanged,
)
from telegrad.graph import reachable
from telegrad.interop.torch.bridge import GONE_OVER, Entry, entry_of
from telegrad.torch import from_torch, to_torch


def torch_leaf(*values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def own_leaf(*values):
    return tg.tensor(list(values), dtype=tg.float64, requires_grad=True)


def test_memory_is_shared_both_ways_but_goes_over_as_a_copy_without_pythons_lock():
    source = torch.zeros(3)
    tensor = from_torch(source)
    source[1] = 5
    assert tensor.tolist() == [0, 5, 0]
    leaf = own_leaf(1.0, 2.0)
    went_over = to_torch(leaf).detach().numpy()
    assert np.shares_memory(went_over, np.asarray(leaf.detach().array)) == IS_LOCKED


def test_a_tensor_over_torch_memory_that_runs_backwards_goes_back_as_a_copy():
    a = torch.arange(3.0)
    assert to_torch(from_torch(a)[::-1]).tolist() == [2, 1, 0]


def test_a_pass_of_telegrad_goes_on_in_torch():
    a, w = torch_leaf(1.0, 2.0), own_leaf(3.0, 4.0)
    (from_torch(a * 2) * w).sum().backward()
    assert a.grad.tolist() == [6, 8]
    assert w.grad.tolist() == [2, 4]


@pytest.mark.parametrize("create_graph", [False, True])
def test_a_value_that_went_over_twice_has_the_sum_of_both_gradients(create_graph):
    leaf = own_leaf(1.0, 2.0)
    computed = leaf * 1.0
    loss = sum((to_torch(x) * factor).sum() for x in (leaf, computed) for factor in (2.0, 3.0))
    from_torch(loss).backward(create_graph=create_graph)
    assert leaf.grad.tolist() == [10.0, 10.0]


def test_nan_is_found_in_a_pass_of_telegrad_that_goes_on_in_torch():
    x, a = own_leaf(0.0), torch_leaf(0.0)
    with tg.autograd.detect_anomaly():
        y = (tg.sqrt(x) * from_torch(a * 2)).sum()
        with pytest.raises(AnomalyError, match="SqrtBackward gave NaN"):
            y.backward()
    assert x.grad is None
    assert a.grad is None


def test_nan_is_found_in_a_pass_of_torch_that_goes_on_in_telegrad():
    x = own_leaf(0.0)
    with tg.autograd.detect_anomaly():
        y = (to_torch(tg.sqrt(x)) * 0.0).sum()
        with pytest.raises(AnomalyError, match="SqrtBackward gave NaN"):
            y.backward()
    assert x.grad is None


def test_what_a_graph_saved_before_it_went_over_is_not_changed_by_torch():
    leaf = own_leaf(1.0, 2.0)
    y = tg.exp(leaf)
    to_torch(y).mul_(0)
    part = y[:1]
    to_torch(part).mul_(0)
    y.sum().backward()
    np.testing.assert_allclose(leaf.grad.numpy(), np.exp([1.0, 2.0]))


@needs_lock
def test_what_a_graph_saved_after_it_went_over_and_torch_changed_raises():
    leaf = own_leaf(1.0, 2.0)
    y = leaf * 2
    went_over = to_torch(y)
    loss = (y * y).sum()
    went_over.mul_(3)
    with pytest.raises(SavedValueChanged):
        loss.backward()


def test_passes_of_many_threads_lose_no_gradient_of_a_torch_leaf():
    a = torch_leaf(1.0, 2.0)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: from_torch(a * 2).sum().backward(), range(200)))
    finally:
        sys.setswitchinterval(before)
    assert a.grad.tolist() == [400, 400]


@pytest.mark.parametrize("create_graph", [False, True])
def test_the_gradient_of_a_torch_leaf_has_the_layout_of_the_leaf(create_graph):
    a, b = torch.rand(3, 4).t().requires_grad_(), torch.rand(3, requires_grad=True)
    from_torch((a.sum() * b).sum()).backward(create_graph=create_graph)
    assert (a.grad.stride(), b.grad.stride()) == ((1, 4), (1,))
    if create_graph:
        (second,) = torch.autograd.grad(a.grad.sum(), b)
        assert second.tolist() == [12, 12, 12]
    else:
        torch.nn.utils.clip_grad_norm_([a, b], 0.1)


def test_a_pass_of_torch_goes_on_in_telegrad():
    a, w = torch_leaf(1.0, 2.0), own_leaf(3.0, 4.0)
    (to_torch(w * w) * a).sum().backward()
    assert a.grad.tolist() == [9, 16]
    assert w.grad.tolist() == [6, 16]


def mixed(a, w):
    """torch, telegrad, torch, telegrad, with a value that is used on both sides."""
    first = from_torch(a.sin())
    second = to_torch(first * w * first)
    return from_torch(second * a) * w


def alike(a, w):
    first = a.sin()
    return first * w * first * a * w


def test_a_graph_that_goes_over_many_times_has_the_gradient_of_one():
    a, w = torch_leaf(1.0, 2.0), own_leaf(3.0, 4.0)
    mixed(a, w).sum().backward()
    b, v = torch_leaf(1.0, 2.0), torch_leaf(3.0, 4.0)
    alike(b, v).sum().backward()
    assert a.grad.tolist() == pytest.approx(b.grad.tolist())
    assert w.grad.tolist() == pytest.approx(v.grad.tolist())


@pytest.mark.parametrize("which", ["backwards", "spread"])
def test_a_gradient_whose_memory_torch_can_not_have_enters_as_a_copy(which):
    x = torch_leaf(1.0, 2.0)
    given = tg.tensor([3.0, 4.0], dtype=tg.float64)
    gradient = {"backwards": given[::-1], "spread": tg.broadcast_to(given[0], (2,))}[which]
    from_torch(x * 2.0).backward(gradient)
    assert x.grad.tolist() == [2.0 * each for each in gradient.tolist()]


def test_tangents_of_two_levels_do_not_enter_torch():
    forward_ad = tg.autograd.forward_ad
    y = from_torch(torch_leaf(1.0) * 2.0)
    one = tg.ones(1, dtype=tg.float64)
    with forward_ad.dual_level(), forward_ad.dual_level():
        twice = forward_ad.make_dual(forward_ad.make_dual(one, one, level=0), one)
        with pytest.raises(LevelError, match=r"one level .* got those of 2: PyTorch's levels don"):
            y.backward(twice)


def test_the_same_started_by_torch():
    a, w = torch_leaf(1.0, 2.0), own_leaf(3.0, 4.0)
    to_torch(mixed(a, w)).sum().backward()
    b, v = torch_leaf(1.0, 2.0), torch_leaf(3.0, 4.0)
    alike(b, v).sum().backward()
    assert a.grad.tolist() == pytest.approx(b.grad.tolist())
    assert w.grad.tolist() == pytest.approx(v.grad.tolist())


def test_a_way_over_telegrad_from_one_piece_of_torchs_graph_to_another_keeps_the_graph():
    def program(a, over, back):
        w = a * a
        c = over(back(w) * 2.0)
        shared = c * c  # Leads to w over telegrad's graph.
        u, v = shared * 3.0 + w * 5.0, shared * 7.0
        return (back(u) * back(v)).sum()

    a, alone = torch_leaf(1.0, 2.0), torch_leaf(1.0, 2.0)
    program(a, to_torch, from_torch).backward()
    program(alone, lambda x: x, lambda x: x).backward()
    assert a.grad.tolist() == alone.grad.tolist()


def test_torch_adds_to_none_of_the_gradients_that_come_back_from_telegrad_in_place():
    def program(a, over, back):
        p, r = a * 2.0, a * 3.0
        other = p * p
        middle = back(p)
        middle.retain_grad()
        # The sum gives both, and what retains its gradient, one array.
        (over(middle + back(r)) + other).sum().backward()
        return a.grad.tolist(), middle.grad.tolist()

    a, alone = torch_leaf(2.0), torch_leaf(2.0)
    assert program(a, to_torch, from_torch) == program(alone, torch.clone, torch.clone)


def test_gradients_of_torch_leaves_share_their_memory_with_nothing():
    a, b = torch_leaf(1.0, 2.0), torch_leaf(3.0, 4.0)
    middle = from_torch(a)
    middle.retain_grad()
    start = tg.tensor([5.0, 6.0], dtype=tg.float64)
    (middle + from_torch(b)).backward(start)
    a.grad.zero_()
    assert b.grad.tolist() == middle.grad.tolist() == start.tolist() == [5.0, 6.0]


def test_gradients_of_leaves_of_telegrad_share_no_memory_that_torch_has_given_to_others():
    x, y, kept = own_leaf(1.0, 2.0), own_leaf(3.0, 4.0), []
    over = to_torch(x)
    over.register_hook(kept.append)
    from_torch(over + to_torch(y)).backward(tg.tensor([5.0, 6.0], dtype=tg.float64))
    assert not np.shares_memory(x.grad.numpy(), y.grad.numpy())
    kept[0].zero_()
    assert x.grad.tolist() == y.grad.tolist() == [5.0, 6.0]


def test_grad_leaves_every_leaf_untouched():
    a, w = torch_leaf(1.0, 2.0), own_leaf(3.0, 4.0)
    tg.autograd.grad(mixed(a, w).sum(), [w])
    torch.autograd.grad(to_torch(mixed(a, w)).sum(), [a])
    assert a.grad is None
    assert w.grad is None


def test_grad_through_torch_runs_no_hook_of_the_accumulation_of_a_leaf():
    a, w, seen = torch_leaf(1.0, 2.0), own_leaf(3.0, 4.0), []
    ((node, _),) = (w * 1.0).grad_fn.next_functions[:1]
    node.register_prehook(lambda gradients: seen.append(gradients))
    (found,) = tg.autograd.grad((w * from_torch(a * 2)).sum(), w)
    assert found.tolist() == [2, 4]
    assert seen == []


def test_backward_through_torch_to_chosen_inputs_leaves_others_untouched():
    a, w, v = torch_leaf(1.0, 2.0), own_leaf(3.0, 4.0), own_leaf(5.0, 6.0)
    (from_torch(a * 2) * w * v).sum().backward(inputs=[w])
    assert w.grad.tolist() == [10, 24]
    assert v.grad is None
    assert a.grad is None


def test_higher_orders_started_by_telegrad():
    a, w = torch_leaf(1.0, 2.0), own_leaf(3.0, 4.0)
    b, v = torch_leaf(1.0, 2.0), torch_leaf(3.0, 4.0)
    ours, theirs = mixed(a, w).sum(), alike(b, v).sum()
    for _ in range(3):
        (ours,) = tg.autograd.grad((ours * ours).sum(), [w], create_graph=True)
        (theirs,) = torch.autograd.grad((theirs * theirs).sum(), [v], create_graph=True)
        assert ours.tolist() == pytest.approx(theirs.tolist())


def test_higher_orders_started_by_torch():
    a, w = torch_leaf(1.0, 2.0), own_leaf(3.0, 4.0)
    b, v = torch_leaf(1.0, 2.0), torch_leaf(3.0, 4.0)
    ours, theirs = to_torch(mixed(a, w)).sum(), alike(b, v).sum()
    for _ in range(3):
        (ours,) = torch.autograd.grad((ours * ours).sum(), [a], create_graph=True)
        (theirs,) = torch.autograd.grad((theirs * theirs).sum(), [b], create_graph=True)
        assert ours.tolist() == pytest.approx(theirs.tolist())


def test_a_retained_graph_runs_twice_and_a_freed_one_says_so():
    a, w = torch_leaf(1.0, 2.0), own_leaf(3.0, 4.0)
    loss = (from_torch(a.sin()) * w).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    assert w.grad.tolist() == pytest.approx((2 * a.detach().sin()).tolist())
    with pytest.raises(GraphFreedError):
        loss.backward()
    shared = a.exp()
    first, second = from_torch(shared * shared), from_torch(shared.sin())
    first.sum().backward()
    with pytest.raises(GraphFreedError, match="PyTorch graph"):
        # Its own node was not freed, the exponential was.
        second.sum().backward()


def test_hooks_of_torch_see_complete_gradients_once():
    a = torch_leaf(1.0, 2.0)
    seen = []
    a.register_hook(lambda g: seen.append(g.tolist()))
    middle = a * 3
    middle.register_hook(lambda g: g * 10)
    (from_torch(middle) * 2).sum().backward()
    assert a.grad.tolist() == [60, 60]
    assert seen == [[60, 60]]


def test_a_hook_where_two_ways_into_torch_meet_changes_their_sum_once():
    a = torch_leaf(1.0, 2.0)
    middle = a * 3
    middle.register_hook(lambda g: g.clamp(max=4))
    (from_torch(middle * 2) * 1 + from_torch(middle * 3) * 1).sum().backward()
    assert a.grad.tolist() == [12, 12]


def test_under_no_grad_of_either_side_nothing_is_recorded():
    a, w = torch_leaf(1.0), own_leaf(2.0)
    with torch.no_grad():
        assert not from_torch(a).requires_grad
        assert not to_torch(w).requires_grad
    with tg.no_grad():
        assert not from_torch(a).requires_grad
        assert not to_torch(w).requires_grad


def test_nothing_is_left_of_a_mixed_graph():
    a, w = torch_leaf(1.0, 2.0), own_leaf(3.0, 4.0)
    loss = mixed(a, w).sum()
    node = weakref.ref(loss.node)
    loss.backward()
    del loss
    gc.collect()
    assert node() is None


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        ([1.0], DTypeError, "expected a torch tensor, got list"),
        (torch.ones(2, dtype=torch.bfloat16), DTypeError, "bfloat16"),
        (torch.eye(2).to_sparse(), DTypeError, "dense"),
        (torch.ones(2, device="meta"), DeviceError, "on the CPU or a CUDA device, got one on meta"),
    ],
    ids=["no tensor", "dtype", "layout", "device"],
)
def test_what_telegrad_cannot_hold_is_refused(value, error, words):
    with pytest.raises(error, match=words):
        from_torch(value)


def test_a_tensor_inside_of_a_function_transform_does_not_go_over():
    for transform in (torch.func.grad, torch.func.functionalize):
        with pytest.raises(GradientError, match="inside of a function transform"):
            transform(lambda value: to_torch(from_torch(value)).sum())(torch.ones(2))


def test_a_dual_tensor_does_not_go_over():
    with tg.autograd.forward_ad.dual_level():
        dual = tg.autograd.forward_ad.make_dual(own_leaf(1.0), tg.ones(1, dtype=tg.float64))
        with pytest.raises(GradientError, match="tangents"):
            to_torch(dual)
    levels = torch.autograd.forward_ad
    with levels.dual_level():
        theirs = levels.make_dual(torch.ones(1), torch.ones(1))
        with pytest.raises(GradientError, match=r"without a tangent, .* unpack_dual it first"):
            from_torch(theirs)


@pytest.mark.processes
def test_torch_is_imported_only_when_it_is_met():
    program = (
        "import sys, numpy, telegrad, telegrad.torch\n"
        "from telegrad.distributed import LocalCluster, autograd, rpc\n"
        "with LocalCluster(['b']), autograd.context() as c:\n"
        "    x = telegrad.tensor([1.0, 2.0], requires_grad=True)\n"
        "    y = rpc.rpc_sync('b', telegrad.multiply, (x, x))\n"
        "    autograd.backward(c, [y.sum()])\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.processes
def test_a_pass_over_workers_knows_of_a_graph_that_went_over_before_any_torch_tensor_was_sent():
    program = (
        "import telegrad, torch\n"
        "from telegrad.distributed import LocalCluster, autograd, rpc\n"
        "from telegrad.torch import from_torch\n"
        "x = torch.tensor([1.0, 2.0], requires_grad=True)\n"
        "with LocalCluster(['b']), autograd.context() as c:\n"
        "    own = from_torch(x * 3)\n"
        "    y = rpc.rpc_sync('b', telegrad.multiply, (own, own.detach()))\n"
        "    autograd.backward(c, [y.sum()])\n"
        "    assert autograd.get_gradients(c)[x].tolist() == [9.0, 18.0]\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        return value * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


@pytest.mark.parametrize("mode", [nullcontext, torch.no_grad, torch.inference_mode])
def test_an_entry_keeps_the_graph_behind_a_node_that_python_defines(mode):
    value = Doubled.apply(torch_leaf(1.0))
    with mode():
        entry = entry_of(value, keeps=False)
    # In some versions of PyTorch such a node does not keep it; one of its own in front does.
    assert entry.owner.next_functions == (entry.place,)


def test_what_went_over_is_known_for_as_long_as_a_graph_may_lead_there():
    went = from_torch(torch_leaf(1.0) * 2) * 3
    (entry,) = [each for each in reachable([went.node]) if isinstance(each, Entry)]
    key = entry.key
    assert GONE_OVER[key]() is entry
    del went, entry
    gc.collect()
    assert key not in GONE_OVER


@pytest.mark.parametrize("cotangent", [np.eye(2), tg.tensor(np.eye(2))])
def test_a_cotangent_enters_at_a_sparse_tensor_as_a_sparse_one(cotangent):
    """Also one that has lost its tangent, since its level has closed."""
    sparse = torch.eye(2, dtype=torch.float64).to_sparse().requires_grad_()
    (entered,) = entry_of(sparse, keeps=False).pull(cotangent)
    assert entered.is_sparse
    assert torch.equal(entered.to_dense(), torch.eye(2, dtype=torch.float64))
