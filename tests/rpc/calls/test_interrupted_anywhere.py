"""Ctrl-C at every place of a call where it can come: afterwards all goes on, and nothing is lost.

Python looks for signals when a function begins, a loop turns or a call has returned: the search
interrupts a call at the first such place, then another at the second, and so on to the end.
"""

import contextlib
import dis
import functools
import itertools
import linecache
import pathlib
import sys
import threading

import numpy as np
import pytest
from tests.rpc import simulated
from tests.rpc.inside import (
    claim_reads,
    followers,
    is_being_written,
    is_spinning,
    leave_reads,
    writing_for_a_moment,
)
from tests.rpc.neighbours import eventually, neighbours

from telegrad import rpc
from telegrad.errors import WorkerLost
from telegrad.rpc.interruption import is_busy
from telegrad.rpc.options import Options

SEARCHED = str(pathlib.Path(rpc.__file__).parent)
CALLS = {"CALL", "CALL_KW", "CALL_FUNCTION_EX"}
ANOTHER = -1
"""Stands for the id of another thread."""
LARGE = np.arange(1 << 15)


@functools.cache
def places(code):
    """The offsets at which an interrupt is raised: what comes after an instruction that looks.

    After a call it is raised as if in the call itself, so what comes next must be of the same line:
    of the next one, the handlers may be others.
    """
    found = set()
    for before, after in itertools.pairwise(dis.get_instructions(code)):
        if before.opname in ("JUMP_BACKWARD", "POP_JUMP_BACKWARD_IF_TRUE"):
            found.add(before.argval)
        elif before.opname == "RESUME" or (before.opname in CALLS and not after.starts_line):
            found.add(after.offset)
    return found


class Interrupt:
    """Raises KeyboardInterrupt at the place of that number on the way of this thread."""

    def __init__(self, number):
        self.left = number
        self.where = self.line = None

    def __enter__(self):
        self.before = sys.gettrace()
        # Python 3.12 sees only by this that opcodes are wanted at all.
        sys._getframe().f_trace_opcodes = True
        sys.settrace(self.begin)

    def __exit__(self, *_):
        sys.settrace(self.before)

    def begin(self, frame, event, arg):
        if self.where is not None or not frame.f_code.co_filename.startswith(SEARCHED):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self.go_on

    def go_on(self, frame, event, arg):
        if event == "opcode" and self.where is None and frame.f_lasti in places(frame.f_code):
            self.left -= 1
            if not self.left:
                self.line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
                self.where = f"{frame.f_code.co_qualname}, line {frame.f_lineno}"
                raise KeyboardInterrupt
        return self.go_on


def call(worker):
    assert worker.rpc_sync("b", simulated.who, timeout=5) == "b"


def fetch_much(worker):
    assert (worker.rpc_sync("b", np.arange, (LARGE.size,), timeout=5) == LARGE).all()


def follow(worker):
    """Call while another thread reads, which then leaves the reading to this one."""
    link, is_over = worker.peers.get("b").outgoing, threading.Event()

    def lead():
        assert eventually(lambda: followers(link) > 0 or is_over.is_set())
        link.give_up_read()

    assert eventually(lambda: claim_reads(link, ANOTHER))
    leader = threading.Thread(target=lead)
    leader.start()
    try:
        call(worker)
    finally:
        is_over.set()
        leader.join()


def queue(worker):
    """Call while another thread writes, and have its turn."""
    with writing_for_a_moment(worker.peers.get("b").outgoing):
        call(worker)


def read_for_another(worker):
    """Call, and read the answer that another thread waits for as well, and a callback."""
    link, outcome = worker.peers.get("b").outgoing, []
    assert eventually(lambda: claim_reads(link, ANOTHER))
    try:
        answer = worker.rpc_async("b", simulated.who, timeout=0)
        following = answer.then(lambda done: done.value())
        sleeps = threading.Thread(target=lambda: outcome.append(outcome_of(following)), daemon=True)
        sleeps.start()
        assert eventually(lambda: followers(link) > 0)
    finally:
        leave_reads(link)
    try:
        call(worker)
    finally:
        # As whoever leaves the reading does.
        link.offer_read()
        sleeps.join(10)
        # It may be told of the interrupt, too, but it wakes.
        assert outcome in (["b"], [KeyboardInterrupt], [WorkerLost])


def outcome_of(call):
    try:
        return call.wait()
    except BaseException as error:
        return type(error)


traced = pytest.mark.skipif(
    sys.version_info >= (3, 13), reason="this Python does not show a tracer every instruction"
)


@traced
@pytest.mark.parametrize("work", [call, fetch_much, follow, queue, read_for_another])
def test_a_call_may_be_interrupted_anywhere(work):
    with neighbours("a", "b", options=Options(lost_after=300.0, segments=False)) as (a, _):
        call(a)
        for number in itertools.count(1):
            interrupt = Interrupt(number)
            with contextlib.suppress(KeyboardInterrupt), interrupt:
                work(a)
            if interrupt.where is None:
                break
            with contextlib.suppress(WorkerLost):
                call(a)
            call(a)
            link = a.peers.get("b").outgoing
            assert eventually(lambda link=link: not link.calls.open), interrupt.where
            assert eventually(lambda link=link: not is_being_written(link)), interrupt.where
            assert eventually(lambda: not is_spinning()), interrupt.where
            assert not is_busy(), interrupt.where
        work(a)
        assert number > 50


@traced
@pytest.mark.parametrize("work", [call, follow, queue])
def test_a_small_call_may_be_interrupted_and_the_connection_stays(work):
    """With it would go all references to the other worker's values, a whole model's say.

    It ends only where nobody knows who has just got the lock of those who write.
    """
    claim = "is_ours = self._write.acquire(False)"
    with neighbours("a", "b", options=Options(lost_after=300.0, segments=False)) as (a, _):
        call(a)
        for number in itertools.count(1):
            link = a.peers.get("b").outgoing
            is_interrupted, interrupt = False, Interrupt(number)
            try:
                with interrupt:
                    work(a)
            except KeyboardInterrupt:
                is_interrupted = True
            if interrupt.where is None:
                break
            assert is_interrupted, interrupt.where
            with contextlib.suppress(WorkerLost):
                call(a)
            call(a)
            stays = a.peers.get("b").outgoing is link
            assert stays or interrupt.line == claim, interrupt.where
        assert number > 50
