"""What things say they are, at a prompt and in a notebook."""

import asyncio
import concurrent.futures
import logging
import operator
import os
import time

import pytest
from tests.interpreter import has_gone
from tests.rpc.neighbours import eventually

from telegrad import nn, optim, profiler
from telegrad.distributed import LocalCluster, RemoteModule, autograd, rpc
from telegrad.distributed.optim import DistributedOptimizer

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with LocalCluster(["ps", "other"]) as cluster:
        yield cluster


def test_a_call_says_what_runs_where_and_how_it_went():
    call = rpc.rpc_async("ps", time.sleep, (1000,))
    assert repr(call) == "<Call of sleep on 'ps': pending>"
    call = rpc.rpc_async("ps", operator.neg, (1,))
    call.wait()
    assert repr(call) == "<Call of neg on 'ps': done, a value of type int>"
    call = rpc.rpc_async("ps", operator.truediv, (1, 0))
    with pytest.raises(ZeroDivisionError):
        call.wait()
    assert repr(call) == "<Call of truediv on 'ps': failed with ZeroDivisionError>"


def test_completion_shows_what_a_program_may_call():
    shown = [name for name in dir(rpc.rpc_async("ps", abs, (1,))) if not name.startswith("_")]
    assert shown == [
        *("add_done_callback", "cancelled", "done", "exception", "result", "then", "to"),
        *("value", "wait"),
    ]


def test_calls_work_with_the_standard_librarys_waits():
    calls = [rpc.rpc_async(name, operator.neg, (i,)) for i, name in enumerate(["ps", "other"] * 4)]
    done, missing = concurrent.futures.wait(calls)
    assert sorted(each.result() for each in done) == [-i for i in reversed(range(8))]
    assert not missing
    calls = [rpc.rpc_async("ps", operator.neg, (i,)) for i in range(8)]
    found = [each.result() for each in concurrent.futures.as_completed(calls)]
    assert sorted(found) == [-i for i in reversed(range(8))]


def test_a_reference_says_what_it_refers_to():
    assert repr(rpc.RRef([1])).endswith(" of 'main' to list>")
    made = rpc.remote("ps", nn.Linear, (2, 3))
    assert repr(made).startswith("<user RRef 0x")
    assert repr(made).endswith(" of 'ps' to Linear>")
    assert repr(rpc.remote("ps", operator.neg, (2,))).endswith(" of 'ps' to the result of neg>")
    failed = rpc.remote("main", operator.truediv, (1, 0))
    with pytest.raises(ZeroDivisionError):
        failed.to_here()
    assert repr(failed).endswith(" of 'main', failed with ZeroDivisionError>")


def test_a_proxy_says_what_it_does():
    made = rpc.remote("ps", nn.Linear, (2, 3))
    assert repr(made.rpc_async()) == f"<rpc_async proxy of {made!r}>"
    assert repr(made.rpc_sync()).startswith("<rpc_sync proxy of <user RRef")
    assert repr(made.remote()).startswith("<remote proxy of <user RRef")


def test_a_remote_module_says_its_class():
    module = RemoteModule("ps", nn.Linear, (2, 3))
    assert repr(module).startswith("RemoteModule(Linear, on='ps', <user RRef 0x")


def test_an_optimiser_says_whose_parameters_it_steps():
    ps, other = (RemoteModule(name, nn.Linear, (2, 3)) for name in ("ps", "other"))
    some = [*ps.parameters(), other.parameters()[0]]
    optimizer = DistributedOptimizer(optim.SGD, some, lr=0.1)
    assert repr(optimizer) == "<DistributedOptimizer of SGD, parameters: 2 on 'ps', 1 on 'other'>"
    assert "<td>ps</td><td>2</td>" in optimizer._repr_html_()
    groups = [{"params": ps.parameters(), "lr": 0.1}, {"params": other.parameters(), "lr": 0.2}]
    optimizer = DistributedOptimizer(optim.SGD, groups)
    assert repr(optimizer).endswith("2 on 'ps', 2 on 'other'>")


def test_a_context_says_whether_it_is_open():
    context = autograd.context()
    assert repr(context) == "<context: not entered>"
    with context as context_id:
        assert repr(context) == f"<context {context_id}: open>"
    assert repr(context) == f"<context {context_id}: released>"


def test_a_profile_says_whom_it_watched():
    profile = profiler.profile()
    assert repr(profile) == "<profile: not entered>"
    with profile:
        assert repr(profile) == "<profile: recording>"
        assert profile._repr_html_() == "&lt;profile: recording&gt;"
        rpc.rpc_sync("ps", operator.neg, (1,))
    assert repr(profile).startswith("<profile of main, ps, other: ")
    assert "<th>handlers ms</th>" in profile._repr_html_()
    assert "<td>ps</td>" in profile._repr_html_()


def truediv_behind(gate):
    return operator.truediv(1, gate.local_value().wait())


def told(caplog):
    """What was logged of these calls: one that another test left may go in this, too."""
    return [record for record in caplog.records if "truediv" in record.getMessage()]


def test_a_failed_call_that_nobody_waits_for_is_logged_once_when_it_goes(caplog):
    with caplog.at_level(logging.ERROR):
        call = rpc.rpc_async("ps", operator.truediv, (1, 0))
        concurrent.futures.wait([call])
        assert not told(caplog)
        del call
        assert has_gone(lambda: len(told(caplog)) > 0)
    (record,) = told(caplog)
    assert record.name == "telegrad.rpc"
    assert record.getMessage() == ("a call failed and nobody waited for it: truediv on 'ps'")
    assert "raised on worker 'ps'" in caplog.text


@pytest.mark.parametrize("ask", ["wait", "result", "value", "exception"])
def test_a_failed_call_that_somebody_asked_is_not_logged(caplog, ask):
    call = rpc.rpc_async("ps", operator.truediv, (1, 0))
    concurrent.futures.wait([call])
    try:
        getattr(call, ask)()
    except ZeroDivisionError:
        pass
    del call
    assert not told(caplog)


def test_a_failed_call_whose_waiting_task_was_cancelled_is_not_logged(caplog):
    """Who cancels knows; the log would fill with calls that failed as their context ended."""
    gate = rpc.remote("ps", rpc.Future)

    async def give_up():
        call = rpc.rpc_async("ps", truediv_behind, (gate,))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(call, 0.001)
        return call

    call = asyncio.run(give_up())
    gate.rpc_sync().set_result(0)
    concurrent.futures.wait([call])
    del call
    assert not told(caplog)


def test_all_that_wait_all_waited_for_are_known(caplog):
    calls = [rpc.rpc_async("ps", operator.truediv, (1, 0)) for _ in range(3)]
    with pytest.raises(ZeroDivisionError):
        rpc.wait_all(calls)
    del calls
    assert not told(caplog)


def test_a_cluster_is_a_table_in_a_notebook(cluster):
    shown = cluster._repr_html_()
    assert "LocalCluster, running" in shown
    assert "<th>worker</th><th>id</th><th>process</th><th>state</th>" in shown
    assert f"<td>main</td><td>0</td><td>{os.getpid()}</td><td>up</td>" in shown
    assert f"<td>ps</td><td>1</td><td>{cluster.process('ps').pid}</td><td>up</td>" in shown
    idle = LocalCluster(["a"])
    assert "LocalCluster, not running" in idle._repr_html_()
    assert "<td>a</td><td></td><td></td><td>not up</td>" in idle._repr_html_()


def test_a_worker_that_was_lost_says_why_in_the_clusters_table(caplog):
    with LocalCluster(["gone"], me="starter") as cluster:
        cluster.process("gone").kill()
        assert eventually(lambda: "lost: " in cluster._repr_html_())
        assert "SIGKILL" in cluster._repr_html_()
