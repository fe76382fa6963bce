"""The roads of docs/tour.md are the ones that programs take: each function is reached, in order."""

import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.rpc.neighbours import neighbours

import telegrad as tg
from telegrad.distributed import autograd
from telegrad.distributed.worker_autograd import attach_autograd
from telegrad.rpc.current import set_default_worker
from telegrad.rpc.options import Options

ROOT = Path(tg.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "tour.md"
STEP = re.compile(r"^\d+\. `([^`]+)` ", re.MULTILINE)


def road(title: str) -> list[str]:
    """The functions that the page names under a title."""
    text = PAGE.read_text()
    section = text.split(f"\n## {title}\n")[1].split("\n## ")[0]
    steps = STEP.findall(section)
    assert len(steps) >= 10
    return steps


class Trace:
    """The functions of telegrad that threads call, by thread, in the order of the calls."""

    def __init__(self) -> None:
        self.calls: dict[int, list[str]] = {}

    def __call__(self, frame: Any, event: str, argument: Any) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(f"{ROOT}/"):
            name = f"{path[len(str(ROOT)) + 1 :]}:{frame.f_code.co_qualname}"
            self.calls.setdefault(threading.get_ident(), []).append(name)

    def of(self, program: Callable[[], object]) -> list[list[str]]:
        """What runs of the program, on this thread and on those that began since."""
        self.calls.clear()
        sys.setprofile(self)
        try:
            program()
        finally:
            sys.setprofile(None)
        return [list(each) for each in list(self.calls.values())]


def check(title: str, threads: list[list[str]]) -> None:
    """Each step of the road is reached, on some thread after the steps before it there.

    Between threads there is no order: one may wait before the other begins, or after.
    """
    ways = {(0,) * len(threads)}
    for step in road(title):
        found = set()
        for at in ways:
            for i, calls in enumerate(threads):
                if step in calls[at[i] :]:
                    found.add((*at[:i], calls.index(step, at[i]), *at[i + 1 :]))
        assert found, f"{title}: {step} is not reached there"
        ways = found


def double(x: Any) -> Any:
    return x * 2


def pass_over(worker: Any, x: Any) -> Any:
    with autograd.context() as context_id:
        y = worker.rpc_sync("b", double, (x,))
        autograd.backward(context_id, [y.sum()])
        return autograd.get_gradients(context_id)[x]


@pytest.fixture
def traced():
    """A worker that knows another in this process, and a trace that sees the threads of both."""
    trace = Trace()
    threading.setprofile(trace)
    try:
        # Nobody looks after the connection meanwhile, and so takes the answer of a thread that is
        # slow to wait for it.
        with neighbours("a", "b", options=Options(lost_after=3600)) as workers:
            for worker in workers:
                attach_autograd(worker)
            set_default_worker(workers[0])
            try:
                yield workers[0], trace
            finally:
                set_default_worker(None)
    finally:
        threading.setprofile(None)


def test_the_road_of_a_local_backward() -> None:
    x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    check("A local backward", Trace().of(lambda: (tg.tanh(x) * x).sum().backward()))


def test_the_road_of_a_remote_call(traced) -> None:
    worker, trace = traced
    check("A remote call", trace.of(lambda: worker.rpc_sync("b", double, (3,))))


def test_the_road_of_a_distributed_pass(traced) -> None:
    worker, trace = traced
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    check("A distributed pass", trace.of(lambda: pass_over(worker, x)))


def test_the_road_of_a_torch_tensor(traced) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    worker, trace = traced
    x = torch.ones(2, requires_grad=True)
    check("A torch tensor through both", trace.of(lambda: pass_over(worker, x)))


def test_a_step_that_is_not_reached_is_found() -> None:
    with pytest.raises(AssertionError, match="is not reached there"):
        check("A local backward", [road("A local backward")[:-1]])
    with pytest.raises(AssertionError, match="is not reached there"):
        check("A local backward", [road("A local backward")[::-1]])
