"""Pieces of PyTorch's graph in one part of a pass run at the same time where that is worth it."""

import pytest
import torch
from tests.distributed.simulated import on_workers
from tests.interop.torch import handlers as handlers
from tests.interop.torch import test_programs as programs

from telegrad.distributed import autograd, rpc
from telegrad.distributed.passes import region_pool
from telegrad.interop.torch.framework import Torch
from telegrad.rpc.calls.future import Future


@pytest.fixture
def eager(monkeypatch):
    """Every piece is worth a thread; in a simulation none takes time."""
    monkeypatch.setattr(region_pool, "_LONG", 0.0)
    monkeypatch.setattr(Torch, "at_once", lambda self: 3)
    on_threads = []
    run = region_pool.RegionPool._run_on_thread
    monkeypatch.setattr(
        region_pool.RegionPool,
        "_run_on_thread",
        lambda self, node, g: (on_threads.append(node), run(self, node, g)),
    )
    return on_threads


class Meeting:
    """Two hooks that wait for each other."""

    both: Future[None]
    came = 0

    @classmethod
    def scale(cls, x, waits):
        y = x * handlers.parameter()
        if waits:
            y.register_hook(lambda gradient: cls.meet())
        return y

    @classmethod
    def meet(cls):
        cls.came += 1
        if cls.came == 2:
            cls.both.set_result(None)
        cls.both.wait(10)


def gradients_of(waiting):
    """The gradients of micro-batches; the hooks of those that wait meet."""
    Meeting.both, Meeting.came = Future(), 0
    xs = [torch.full((2,), float(i), requires_grad=True) for i in range(len(waiting))]
    with autograd.context() as context_id:
        ys = [rpc.rpc_sync("b", Meeting.scale, (x, w)) for x, w in zip(xs, waiting)]
        autograd.backward(context_id, [sum(y.sum() for y in ys)])
        found = autograd.get_gradients(context_id)
        parameters = rpc.rpc_sync("b", handlers.gradients, (context_id,))
        return [found[x].tolist() for x in xs], parameters["w"]


def test_micro_batches_of_one_message_run_side_by_side(eager):
    @on_workers("main", "b")
    def program():
        # The first to run, in the first pass, tells how long they take.
        gradients_of([False] * 3)
        found, parameter = gradients_of([True, True, False])
        assert found == [[2.0, 3.0]] * 3
        assert parameter == [0.0 + 1 + 2] * 2

    program()
    assert len(eager) == 2 + 3


def test_pieces_that_take_no_time_run_where_they_are(monkeypatch):
    monkeypatch.setattr(Torch, "at_once", lambda self: 3)
    monkeypatch.setattr(
        region_pool.RegionPool,
        "_run_on_thread",
        lambda *_: pytest.fail("a short piece got a thread"),
    )
    on_workers("main", "b")(lambda: gradients_of([False] * 3))()


def test_a_piece_that_fails_on_its_thread_fails_the_pass(eager, monkeypatch):
    def fail():
        raise LookupError("a hook that fails")

    @on_workers("main", "b")
    def program():
        gradients_of([False] * 3)
        monkeypatch.setattr(Meeting, "meet", fail)
        with pytest.raises(LookupError, match="a hook that fails") as caught:
            gradients_of([False, True, False])
        notes = "\n".join(caught.value.__notes__)
        assert "while the backward pass ran TorchRegionBackward" in notes
        assert "raised on worker 'b'" in notes

    program()
    assert len(eager) == 2 + 3


@pytest.mark.parametrize("seed", range(60))
def test_a_random_program_has_the_same_bits(seed, eager):
    results = []
    for schedule in (seed, seed + 1000):
        on_workers(*programs.WORKERS, seed=schedule)(
            lambda: results.append(programs.run_apart(seed))
        )()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Torch, "at_once", lambda self: 1)
        on_workers(*programs.WORKERS, seed=seed)(lambda: results.append(programs.run_apart(seed)))()
    assert results[0] == results[1] == results[2]
