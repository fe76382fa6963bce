"""Remote calls in PyTorch's profiles: what its own tests don't see."""

import gc
import threading
import time
import weakref

import pytest
import torch
from tests.rpc.neighbours import eventually
from torch.autograd import profiler_legacy
from torch.autograd.profiler import record_function
from torch.autograd.profiler_util import FunctionEvent

import telegrad.torch.autograd as dist_autograd
import telegrad.torch.rpc as rpc
from telegrad import profiler
from telegrad.errors import UsageError
from telegrad.interop.torch import profile as recordings
from telegrad.rpc.current import current_worker


def names_in(profile):
    return [event.name for event in profile.function_events]


def multiplied(x):
    return x * 3


def test_a_call_is_an_event_and_what_ran_for_it_is_under_its_name(alone):
    with profiler_legacy.profile() as recorded:
        rpc.rpc_sync("alone", multiplied, (torch.ones(2),))
    key = "rpc_sync#multiplied(alone -> alone)"
    names = names_in(recorded)
    assert names.count(key) == 1
    assert names.count(f"{key}#remote_op: aten::mul") == 1
    (product,) = [event for event in recorded.function_events if "aten::mul" in event.name]
    (call,) = [event for event in recorded.function_events if event.name == key]
    assert product.is_remote
    assert not call.is_remote
    assert call.time_range.start <= product.time_range.start
    assert product.time_range.end <= call.time_range.end


def test_what_a_thread_serves_while_it_waits_is_not_in_its_own_profile(alone):
    # A call to oneself runs on this very thread.
    with profiler_legacy.profile() as recorded, record_function("around"):
        torch.sub(torch.ones(2), 1)
        rpc.rpc_sync("alone", multiplied, (torch.ones(2),))
        torch.sub(torch.ones(2), 1)
    names = names_in(recorded)
    assert "aten::mul" not in names
    assert names.count("aten::sub") == 2
    (around,) = [event for event in recorded.function_events if event.name == "around"]
    subtractions = [event for event in recorded.function_events if event.name == "aten::sub"]
    assert all(event.cpu_parent is around for event in subtractions)


def called_again(x):
    return rpc.rpc_sync("alone", multiplied, (x,)) + 1


@rpc.functions.async_execution
def called_later(x):
    return rpc.rpc_async("alone", multiplied, (x,)).then(lambda done: done.wait() + 1)


@pytest.mark.parametrize(("outer", "mode"), [(called_again, "sync"), (called_later, "async")])
def test_calls_of_a_handler_are_under_the_name_of_its_call(alone, outer, mode):
    with profiler_legacy.profile() as recorded:
        assert rpc.rpc_sync("alone", outer, (torch.ones(2),)).tolist() == [4, 4]
    key = f"rpc_sync#{outer.__name__}(alone -> alone)#remote_op: "
    nested = f"{key}rpc_{mode}#multiplied(alone -> alone)"
    names = names_in(recorded)
    assert names.count(nested) == 1
    assert names.count(f"{nested}#remote_op: aten::mul") == 1


async def awaited(x):
    return await rpc.rpc_async("alone", multiplied, (x,))._call


def test_an_async_handler_is_shown_as_a_call(alone):
    with profiler_legacy.profile() as recorded:
        assert rpc.rpc_async("alone", awaited, (torch.ones(1),)).wait().tolist() == [3]
    assert "rpc_async#awaited(alone -> alone)" in names_in(recorded)


def fails(x):
    raise KeyError(x)


def test_a_call_that_fails_is_shown_and_fails_as_without_a_profile(alone):
    gate = rpc.RRef(threading.Event())
    with profiler_legacy.profile() as recorded:
        with pytest.raises(KeyError, match="lost"):
            rpc.rpc_sync("alone", fails, ("lost",))
        with pytest.raises(KeyError, match="lost"):
            rpc.rpc_async("alone", fails, ("lost",)).wait()
        with pytest.raises(RuntimeError, match="did not answer 'wait'"):
            gate.rpc_sync(timeout=0.05).wait(20)
    gate.local_value().set()
    names = names_in(recorded)
    assert "rpc_sync#fails(alone -> alone)" in names
    assert "rpc_async#fails(alone -> alone)" in names
    assert "rpc_sync#wait(alone -> alone)" in names


def test_a_failed_call_that_was_profiled_keeps_nobody_alive(alone):
    class Watched:
        pass

    def call():
        watched = Watched()
        seen.append(weakref.ref(watched))
        with profiler_legacy.profile(), pytest.raises(KeyError):
            rpc.rpc_async("alone", fails, ("lost",)).wait()

    seen: list[weakref.ref[Watched]] = []
    call()
    assert eventually(lambda: gc.collect() >= 0 and seen[0]() is None)


def test_gradients_are_those_without_a_profile(alone):
    def gradient():
        x = torch.arange(3.0, requires_grad=True)
        with dist_autograd.context() as context_id:
            loss = (rpc.rpc_sync("alone", called_later, (x,)) * x).sum()
            dist_autograd.backward(context_id, [loss])
            return dist_autograd.get_gradients(context_id)[x].tolist()

    plain = gradient()
    with profiler_legacy.profile() as recorded:
        assert gradient() == plain == [1, 7, 13]
    names = names_in(recorded)
    assert "torch::distributed::autograd::backward" in names
    assert "torch::distributed::autograd::RecvRpcBackward" in names


def is_profiled():
    return torch.autograd._profiler_enabled()


def test_handlers_are_recorded_for_callers_with_a_profile_alone(alone):
    assert not rpc.rpc_async("alone", is_profiled).wait()
    with profiler_legacy.profile():
        assert rpc.rpc_sync("alone", is_profiled)
        assert rpc.rpc_async("alone", is_profiled).wait()
        assert rpc.remote("alone", is_profiled).to_here()
        unseen = []
        other = threading.Thread(target=lambda: unseen.append(rpc.rpc_sync("alone", is_profiled)))
        other.start()
        other.join()
        assert unseen == [False]
    assert not rpc.rpc_sync("alone", is_profiled)


def test_profiles_of_two_threads_show_the_calls_of_their_own(alone):
    def record(name):
        with profiler_legacy.profile() as recorded:
            rpc.rpc_sync("alone", getattr(torch, name), (torch.ones(2),))
        found[name] = names_in(recorded)

    found: dict[str, list[str]] = {}
    threads = [threading.Thread(target=record, args=(name,)) for name in ("sin", "cos")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for mine, other in (("sin", "cos"), ("cos", "sin")):
        assert f"rpc_sync#aten::{mine}(alone -> alone)#remote_op: aten::{mine}" in found[mine]
        assert not any(other in name for name in found[mine])


def test_a_call_that_has_not_ended_is_left_out(alone):
    gate = rpc.RRef(threading.Event())
    with profiler_legacy.profile() as recorded:
        late = gate.rpc_async().wait(20)
    gate.local_value().set()
    assert late.wait()
    assert not any("rpc_async#wait" in name for name in names_in(recorded))


def test_a_value_that_stays_there_is_shown_when_it_is_there(alone):
    with profiler_legacy.profile() as recorded:
        made = rpc.remote("alone", multiplied, (torch.ones(2),))
        made._get_profiling_future().wait()
    names = names_in(recorded)
    assert "rpc_remote#multiplied(alone -> alone)" in names
    assert "rpc_remote#multiplied(alone -> alone)#remote_op: aten::mul" in names
    assert made.to_here().tolist() == [3, 3]
    # What was recorded went with the box that it was in.
    del made
    assert eventually(lambda: rpc._rref_context_get_debug_info()["num_owner_rrefs"] == "0")


def test_a_reference_that_no_profile_saw_says_so(alone):
    made = rpc.remote("alone", multiplied, (torch.ones(2),))
    with pytest.raises(RuntimeError, match="make it inside of `with profile"):
        made._get_profiling_future()


def test_options_of_the_profile_hold_over_there(alone):
    with profiler_legacy.profile(record_shapes=True, with_stack=True) as recorded:
        rpc.rpc_sync("alone", multiplied, (torch.ones(2, 3),))
    (product,) = [event for event in recorded.function_events if "aten::mul" in event.name]
    assert product.input_shapes[0] == [2, 3]
    assert any("multiplied" in line for line in product.stack)


def test_a_profile_of_the_newer_kind_shows_passes_and_no_calls(alone):
    x = torch.ones(2, requires_grad=True)
    with torch.profiler.profile() as recorded, dist_autograd.context() as context_id:
        loss = rpc.rpc_sync("alone", multiplied, (x,)).sum()
        dist_autograd.backward(context_id, [loss])
    names = [event.name for event in recorded.events()]
    assert "torch::distributed::autograd::backward" in names
    assert not any("rpc_sync" in name for name in names)


def test_a_profile_that_was_left_elsewhere_is_forgotten(alone):
    def leave():
        with pytest.raises(RuntimeError):
            recorded.__exit__(None, None, None)

    recorded = profiler_legacy.profile()
    recorded.__enter__()
    other = threading.Thread(target=leave)
    other.start()
    other.join()
    torch.autograd._disable_profiler_legacy()
    assert not rpc.rpc_sync("alone", is_profiled)
    assert recordings.THREAD.recording is None


def test_events_of_a_worker_whose_clock_differs_are_put_into_the_call():
    span = recordings.CallSpan("call", 0)
    event = FunctionEvent(
        id=1, name="op", thread=1, start_us=0.25, end_us=0.5, is_legacy=True, node_id=1
    )
    while time.time_ns() / 1e3 < span._begin + 10:
        pass
    span.stop()
    span.add((span._begin - 3.6e9, [event]))
    call, remote = span.events(0.0, 1)
    assert call.time_range.start < remote.time_range.start
    assert remote.time_range.end < call.time_range.end
    before = remote.time_range.start - 0.25 - call.time_range.start
    after = call.time_range.end - remote.time_range.end
    assert before == pytest.approx(after, abs=1)
    assert remote.name == "call#remote_op: op"


# What a worker serves.


def test_a_worker_is_profiled_by_one_kind_of_profile_at_a_time(alone):
    served = rpc._server_process_global_profile()
    with profiler.profile(), pytest.raises(UsageError, match="got one at 'alone'"):
        served.__enter__()
    with served:
        rpc.rpc_sync("alone", multiplied, (torch.ones(2),))
        with pytest.raises(UsageError, match="expected no profile to be on"):
            profiler.profile().__enter__()
    assert "aten::mul" in names_in(served)
    assert current_worker().observer is None


def test_a_profile_of_a_worker_is_left_where_it_was_entered(alone):
    served = rpc._server_process_global_profile()
    with pytest.raises(UsageError, match="leave it once, where it was entered"):
        served.__exit__(None, None, None)
    with served, pytest.raises(RuntimeError, match="not reentrant"):
        served.__enter__()


def test_a_profile_that_is_not_enabled_records_nothing(alone):
    with rpc._server_process_global_profile(enabled=False):
        assert not rpc.rpc_async("alone", is_profiled).wait()
    assert current_worker().observer is None
