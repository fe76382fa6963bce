"""What a user of references is told when a value does not come."""

import collections
import threading

import numpy as np
import pytest
from tests.rpc import simulated
from tests.rpc.inside import writing
from tests.rpc.neighbours import eventually, neighbours

from telegrad.errors import CallTimeout, NotInitialized, UsageError, WorkerLost
from telegrad.rpc.current import current_worker
from telegrad.rpc.options import Options

GATE = threading.Event()


@pytest.fixture
def gate():
    GATE.clear()
    yield GATE
    GATE.set()


class Box:
    def open(self):
        GATE.wait(20)
        return 5


def late():
    """A value that comes when the gate opens; the workers of these tests share a process."""
    GATE.wait(20)
    return 1


def too_late_itself():
    raise CallTimeout("the shelf did not answer")


def fetch_within(reference, timeout):
    return reference.to_here(timeout=timeout)


def test_a_fetch_that_takes_too_long_names_reference_owner_and_time(gate):
    with neighbours("a", "b", "c") as (a, _, _):
        reference = a.remote("b", late)
        said = (
            rf"the value of {reference!r} did not come from worker 'b' within 0\.05 s: .*timeout="
        )
        for _ in range(2):
            with pytest.raises(CallTimeout, match=said) as caught:
                reference.to_here(timeout=0.05)
            assert caught.value.__suppress_context__
            assert eventually(reference.confirmed_by_owner)
        with pytest.raises(CallTimeout, match="of 'b'> did not come from worker 'b'") as caught:
            a.rpc_sync("c", fetch_within, (reference, 0.05))
        assert "raised on worker 'c'" in caught.value.__notes__[0]
        gate.set()
        assert reference.to_here() == 1


def test_the_owner_is_told_the_same_of_its_own_value(gate):
    with neighbours("a") as (a,):
        reference = a.remote("a", late)
        with pytest.raises(CallTimeout, match=rf"the value of {reference!r} did not come from"):
            reference.to_here(timeout=0.05)
        gate.set()
        assert reference.to_here(timeout=10) == 1


@pytest.mark.parametrize("owner", ["a", "b"])
def test_a_fetch_with_a_timeout_of_zero_waits_without_end(gate, owner):
    with neighbours("a", "b") as (a, _):
        reference = a.remote(owner, late)
        opening = threading.Timer(0.05, gate.set)
        opening.start()
        assert reference.to_here(timeout=0) == 1
        opening.join()


def test_the_default_timeout_is_named_where_none_was_given(gate):
    with neighbours("a", "b", options=Options(rpc_timeout=0.5)) as (a, _):
        reference = a.remote("b", late, timeout=60)
        with pytest.raises(CallTimeout, match=r"within 0\.5 s"):
            reference.to_here()
        GATE.set()  # The workers' end waits for what still runs.


def test_a_method_that_takes_too_long_is_named(gate):
    with neighbours("a", "b") as (a, _):
        reference = a.remote("b", Box)
        with pytest.raises(CallTimeout, match=rf"the result of open\(\) of {reference!r} did not"):
            reference.rpc_sync(timeout=0.05).open()
        with pytest.raises(CallTimeout, match=rf"open\(\) of {reference!r}"):
            reference.rpc_async(timeout=0.05).open().wait()
        GATE.set()  # The workers' end waits for what still runs.


@pytest.mark.parametrize("verb", ["rpc_async", "remote"])
def test_a_method_that_was_not_taken_in_time_is_named(verb):
    with neighbours("a", "b") as (a, _):
        reference = a.remote("b", Box)
        assert eventually(reference.confirmed_by_owner)
        link = a.peers.get("b").outgoing
        with writing(link):
            result = getattr(reference, verb)(timeout=0.05).open()
            with pytest.raises(CallTimeout, match=rf"did not take .open\(\) of {reference!r}"):
                result.wait() if verb == "rpc_async" else result.to_here()


@pytest.mark.parametrize("owner", ["a", "b"])
def test_a_timeout_that_was_raised_in_making_the_value_keeps_its_words(owner):
    with (
        neighbours("a", "b") as (a, _),
        pytest.raises(CallTimeout, match=r"^the shelf did not answer"),
    ):
        a.remote(owner, too_late_itself).to_here()


def test_a_lost_owner_is_named_with_the_reference_and_what_to_do():
    with neighbours("a", "b") as (a, b):
        reference = a.remote("b", simulated.Counter, (5,))
        assert reference.rpc_sync().add(1) == 6
        b.close()
        said = rf"{reference!r} leads to no value: .*'?b'?.*make it again with remote\(\)"
        for _ in range(2):
            with pytest.raises(WorkerLost, match=said):
                reference.to_here()
            with pytest.raises(WorkerLost, match=said):
                reference.rpc_sync().add(1)


def test_after_shutdown_a_workers_own_value_is_said_to_have_gone_with_it():
    with neighbours("a") as (a,):
        own = a.make_rref(5)
    with pytest.raises(NotInitialized, match="worker 'a' has shut down, and the value of"):
        own.to_here()


def test_methods_of_the_value_are_not_looked_for_on_the_reference():
    with neighbours("a") as (a,):
        own = a.make_rref([1])
        with pytest.raises(AttributeError, match=r"a method rref\.rpc_sync\(\)\.append\(\.\.\.\)"):
            own.append(2)
        with pytest.raises(AttributeError, match=r"of its value write to_here\(\)\.shape, or"):
            _ = own.shape
        with pytest.raises(AttributeError, match=r"has no attribute '_append'$"):
            _ = own._append
        assert not hasattr(own, "append")


@pytest.mark.parametrize("name", ["get", "result", "value", "wait"])
def test_the_verbs_of_futures_are_said_to_be_to_here(name):
    with neighbours("a") as (a,):
        own = a.make_rref({"x": 1})
        with pytest.raises(AttributeError, match=rf"no attribute '{name}': write to_here\(\), or"):
            getattr(own, name)


@pytest.mark.parametrize("to", ["a", "b"])
@pytest.mark.parametrize("wrong", [{"args": (threading.Lock(),)}, {"timeout": "1"}])
def test_a_reference_that_could_not_be_asked_for_leaves_nothing_behind(to, wrong):
    with neighbours("a", "b") as (a, _):
        with pytest.raises(UsageError):
            a.remote(to, len, **wrong)
        assert eventually(lambda: not any(a.references.counts().values()))


def test_a_reference_of_another_worker_of_this_process_is_refused():
    with neighbours("a", "b") as (a, b):
        reference = b.make_rref(1)
        with pytest.raises(UsageError, match="belongs to another worker of this process"):
            a.rpc_sync("b", simulated.fetch, (reference,))


def make_too_large():
    return current_worker().make_rref(1), np.ones(1 << 20)


def test_a_reference_in_an_answer_that_is_too_large_is_taken_back():
    with neighbours("a", "b", options=Options(in_flight_bytes_of_peer=2 << 20)) as (a, b):
        with pytest.raises(UsageError, match="more than the 2097152 that a takes"):
            a.rpc_sync("b", make_too_large)
        assert eventually(lambda: not any(b.references.counts().values()))


class FlushedMeanwhile(collections.deque):
    """What finalizers noted; another thread takes it all when one is about to take the last."""

    references = None

    def popleft(self):
        if len(self) == 1 and self.references is not None:
            references, self.references = self.references, None
            references.flush()
        return super().popleft()


def test_references_are_given_back_though_two_threads_do_it_at_once():
    with neighbours("a", "b") as (a, b):
        handles = [a.remote("b", abs, (-k,)) for k in range(3)]
        assert [handle.to_here() for handle in handles] == [0, 1, 2]
        noted = a.references._released = FlushedMeanwhile()
        noted.extend((False, handle._fork) for handle in handles)
        noted.references = a.references
        a.references.flush()
        assert eventually(lambda: b.references.counts()["owned"] == 0)


def test_backward_of_a_reference_on_a_worker_without_autograd_says_what_starts_one_with():
    with neighbours("a", "b") as (a, _):
        reference = a.remote("b", int)
        with pytest.raises(UsageError, match="'a' was started without autograd: start it with"):
            reference.backward()
