"""Gradients of every order, tangents and sparse tensors between processes, on a real device.

Where segments lead, nothing of them goes to the host's memory, in none of the processes; and
without segments the numbers are the same.
"""

import random
from contextlib import contextmanager

import pytest
import torch
from tests.interop.torch.devices import device_handlers as there
from torch.autograd import forward_ad

from telegrad.distributed import LocalCluster, autograd, rpc
from telegrad.distributed.rpc import Options

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.processes,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

CUDA = "cuda:0"
WAYS = {
    "segments": Options(),
    "host": Options(device_segments=0),
    "between hosts": Options(device_segments=0, segments=False, unix_sockets=False),
}
SMALL, LARGE = 3, 1 << 18
"""How many numbers: the latter go in pieces where there are no segments."""


@pytest.fixture(scope="module", params=WAYS)
def cluster(request):
    """Two workers; what goes from a device to the host is noted, here and there."""
    with (
        pytest.MonkeyPatch.context() as patch,
        LocalCluster(["b", "c"], options=WAYS[request.param]),
    ):
        there.watch_the_host(patch)
        for name in ("b", "c"):
            rpc.rpc_sync(name, there.watch_the_host)
        yield request.param


def went_through_the_host():
    """What was noted since this was last asked, by all workers."""
    found = [rpc.rpc_sync(name, there.through_the_host) for name in ("b", "c")]
    return sum(found, there.through_the_host())


@pytest.fixture(autouse=True)
def _nothing_goes_through_the_host_where_segments_lead(cluster):
    went_through_the_host()
    yield
    found = went_through_the_host()
    assert cluster != "segments" or found == []


def test_what_goes_through_the_host_is_seen(cluster):
    for size in (SMALL, LARGE):
        rpc.rpc_sync("b", there.same, (torch.ones(size, device=CUDA),))
        assert len(went_through_the_host()) == (0 if cluster == "segments" else 2)


def small_integers(size, device=CUDA, dtype=torch.float64):
    """Such that every sum and product of the tests is exact, in whatever order it is made."""
    return (torch.arange(size, device=device) % 3).to(dtype)


def three_orders(y, leaves, grad):
    found = []
    for _ in range(3):
        gradients = grad([y.sum()], leaves)
        found += gradients
        y = gradients[0]
    return found


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("other", [CUDA, "cpu"])
@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.usefixtures("cluster")
def test_three_orders_over_two_workers_are_those_of_one_process(size, other, dtype):
    leaves = [small_integers(size, each, dtype).requires_grad_() for each in (CUDA, other)]
    plain = three_orders(
        there.scaled_cube(*leaves),
        leaves,
        lambda roots, inputs: torch.autograd.grad(roots, inputs, create_graph=True),
    )
    with autograd.context() as context_id:
        found = three_orders(
            rpc.rpc_sync("b", there.scaled_cube_on, ("c", *leaves)),
            leaves,
            lambda roots, inputs: autograd.grad(context_id, roots, inputs, create_graph=True),
        )
        assert len(found) == len(plain)
        for mine, expected in zip(found, plain):
            assert mine.device == expected.device
            assert mine.dtype is dtype
            assert torch.equal(mine, expected)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.usefixtures("cluster")
def test_random_programs_over_device_and_host_have_exact_second_derivatives(seed):
    for number in range(4):
        _compare(random.Random(100 * seed + number))


def _compare(chance):
    steps = [
        (chance.choice(["here", "b", "c"]), chance.choice(there.OPERATIONS), chance.random())
        for _ in range(chance.randint(3, 5))
    ]
    size = chance.choice([SMALL, LARGE])
    leaves = [small_integers(size, device).requires_grad_() for device in (CUDA, "cpu", CUDA)]
    plain = _orders(
        _run(steps, leaves, False),
        leaves,
        lambda roots, **options: torch.autograd.grad(roots, leaves, allow_unused=True, **options),
    )
    with autograd.context() as context_id:
        found = _orders(
            _run(steps, leaves, True),
            leaves,
            lambda roots, **options: autograd.grad(
                context_id, roots, leaves, allow_unused=True, **options
            ),
        )
        assert [each is None for each in found] == [each is None for each in plain]
        for mine, expected in zip(found, plain):
            if expected is not None:
                assert mine.device == expected.device
                assert torch.equal(mine, expected)


def _run(steps, leaves, is_distributed):
    values = list(leaves)
    for number, (where, name, place) in enumerate(steps):
        x, y = values[int(place * len(values))], values[number % len(values)]
        if where == "here" or not is_distributed:
            values.append(there.apply(name, x, y))
        else:
            values.append(rpc.rpc_sync(where, there.apply, (name, x, y)))
    return sum(value.to(CUDA) for value in values[3:])


def _orders(y, leaves, grad):
    first = grad([(y * y).sum()], create_graph=True)
    curved = [each.cpu().sum() for each in first if each is not None and each.requires_grad]
    second = grad([sum(curved)]) if curved else ()
    return [*first, *second]


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.usefixtures("cluster")
def test_tangents_of_values_and_of_gradients_are_those_of_one_process(size):
    leaf, by = small_integers(size).requires_grad_(), small_integers(size) + 1
    direction = torch.arange(size, device=CUDA).to(torch.float64) % 5
    with autograd.context() as context_id, forward_ad.dual_level():
        x = forward_ad.make_dual(leaf, direction)
        y = rpc.rpc_sync("b", there.scaled_cube_on, ("c", x, by))
        plain = there.scaled_cube(x, by)
        _compare_duals(y, plain)
        (found,) = autograd.grad(context_id, [y.sum()], [leaf])
        (expected,) = torch.autograd.grad(plain.sum(), leaf, retain_graph=True)
        _compare_duals(found, expected)
        y = rpc.rpc_sync("b", there.scaled_cube_on, ("c", x, by))
        (found,) = autograd.grad(context_id, [y.sum()], [leaf], create_graph=True)
        (expected,) = torch.autograd.grad(plain.sum(), leaf, create_graph=True)
        _compare_duals(found, expected)
        (found,) = autograd.grad(context_id, [_sum_of_both(found)], [leaf])
        (expected,) = torch.autograd.grad(_sum_of_both(expected), leaf)
        _compare_duals(found, expected)


def _sum_of_both(value):
    primal, tangent = forward_ad.unpack_dual(value)
    return primal.sum() + tangent.sum()


def _compare_duals(found, expected):
    for mine, other in zip(forward_ad.unpack_dual(found), forward_ad.unpack_dual(expected)):
        if mine is None or other is None:
            assert mine is other
            continue
        assert str(mine.device) == CUDA
        assert torch.equal(mine, other)


@contextmanager
def without_waiting(cluster):
    """Have PyTorch refuse, in this process, what waits for the device; where segments lead."""
    torch.cuda.set_sync_debug_mode("error" if cluster == "segments" else "default")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("create_graph", [False, True])
def test_gradients_that_a_pass_is_given_stay_on_the_device_and_nobody_waits(
    cluster, size, create_graph
):
    leaf, by = small_integers(size).requires_grad_(), small_integers(size) + 1
    weights = [small_integers(size) + number for number in range(2)]
    plain = [there.scaled_cube(leaf, by), leaf * 2]
    (expected,) = torch.autograd.grad(plain, leaf, weights)
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", there.scaled_cube_on, ("c", leaf, by))
        z = rpc.rpc_sync("c", there.apply, ("add", leaf * 0, leaf))
        with without_waiting(cluster):
            options = {"create_graph": create_graph, "retain_graph": True}
            (found,) = autograd.grad(context_id, [y, z], [leaf], weights, **options)
            autograd.backward(context_id, [y, z], grad_tensors=weights)
            for weight in weights:
                weight.fill_(-1)
        for mine in (found, autograd.get_gradients(context_id)[leaf]):
            assert str(mine.device) == CUDA
            assert torch.equal(mine, expected)


def test_a_step_waits_for_the_device_nowhere(cluster):
    leaves = [small_integers(SMALL).requires_grad_() for _ in range(2)]
    for number in range(5):
        # The first makes the segments.
        with without_waiting(cluster if number else "host"), autograd.context() as context_id:
            y = rpc.rpc_sync("b", there.apply, ("add", *leaves))
            autograd.backward(context_id, [y.sum()])
            found = autograd.get_gradients(context_id)
        assert [found[leaf].tolist() for leaf in leaves] == [[1] * SMALL, [2] * SMALL]


@pytest.mark.usefixtures("cluster")
def test_sparse_tensors_arrive_as_they_left():
    numbers = torch.arange(6.0, device=CUDA)
    places = torch.tensor([[0, 2, 0, 1, 2, 2], [1, 0, 1, 1, 1, 0]], device=CUDA)
    large = torch.arange(LARGE, device=CUDA).reshape(1, -1)
    for value in (
        torch.sparse_coo_tensor(places, numbers, (3, 2)),
        torch.sparse_coo_tensor(places, numbers, (3, 2)).coalesce(),
        torch.sparse_coo_tensor(places[:1], numbers.reshape(6, 1).bfloat16(), (3, 1)),
        torch.sparse_coo_tensor(places[:, :0], numbers[:0], (3, 2)),
        torch.sparse_coo_tensor(large, torch.rand(LARGE, 5, device=CUDA), (LARGE, 5)),
    ):
        found = rpc.rpc_sync("b", there.same, (value,))
        assert found.is_sparse
        assert str(found.device) == CUDA
        assert found.dtype is value.dtype
        assert found.shape == value.shape
        assert found.is_coalesced() == value.is_coalesced()
        assert torch.equal(found._indices(), value._indices())
        assert torch.equal(found._values(), value._values())


@pytest.mark.parametrize("rows", [SMALL + 1, LARGE])
@pytest.mark.usefixtures("cluster")
def test_sparse_gradients_of_an_embedding_are_those_of_one_process(rows):
    places = torch.tensor([1, rows - 1, 1, 2], device=CUDA).repeat(1 if rows < 9 else LARGE)
    weight = small_integers(4 * rows).reshape(rows, 4).requires_grad_()
    found = there.looked_up(weight, places)
    (expected,) = torch.autograd.grad((found * found).sum(), [weight])
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", there.looked_up, (weight, places))
        z = rpc.rpc_sync("c", there.looked_up_there, (rows, places))
        autograd.backward(context_id, [(y * y).sum() + (z * z).sum()])
        mine = autograd.get_gradients(context_id)[weight]
        theirs = rpc.rpc_sync("c", there.gradient_of_table, (context_id,))
    assert expected.is_sparse
    assert theirs.is_sparse
    for each in (mine, theirs):
        assert str(each.device) == CUDA
        assert torch.equal(each.to_dense(), expected.to_dense())
