"""RayCluster on a real Ray of three nodes on this machine: `make test-ray`."""

import importlib
import os
import signal
import subprocess
import sys
import textwrap

import pytest
from tests.distributed import functions
from tests.rpc.neighbours import eventually

import telegrad as tg
import telegrad.distributed.autograd as dist_autograd
from telegrad.distributed import RayCluster, rpc
from telegrad.errors import CallTimeout, UnknownWorker, UsageError, WorkerLost

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def nodes():
    """Three raylets: the head and two with a resource that says so."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False})
    made.add_node(num_cpus=2, resources={"far": 2})
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture(scope="module")
def cluster(nodes):
    workers = {"ps": {"num_cpus": 1}, "far": {"num_cpus": 1, "resources": {"far": 1}}}
    with RayCluster(workers) as cluster:
        yield cluster


def changes_of(cluster):
    seen = []
    cluster.on_change(lambda change: seen.append((change.kind, change.worker.name)))
    return seen


def test_workers_are_actors_where_ray_placed_them(cluster):
    assert cluster.names == ["main", "ps", "far"]
    pids = {rpc.rpc_sync(name, functions.pid) for name in cluster.names}
    assert len(pids) == 3
    assert [info.id for info in cluster.wait_for()] == [0, 1, 2]
    assert rpc.rpc_sync("ps", rpc.rpc_sync, ("far", functions.who)) == "far"
    assert "running" in repr(cluster)


def test_gradients_cross_the_actors(cluster):
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    with dist_autograd.context() as context_id:
        y = rpc.rpc_sync("far", rpc.rpc_sync, ("ps", tg.square, (x,)))
        dist_autograd.backward(context_id, [y.sum()])
        assert dist_autograd.get_gradients(context_id)[x].tolist() == [2.0, 4.0]


def test_a_killed_actor_is_lost_at_once_and_comes_back_under_its_name(cluster):
    seen = changes_of(cluster)
    before = rpc.get_worker_info("far")
    with pytest.raises(WorkerLost, match="'far' was lost"):
        rpc.rpc_sync("far", functions.kill_yourself)
    (after,) = cluster.wait_for("far", after=before.incarnation, timeout=120)
    assert (after.name, after.id) == (before.name, before.id)
    assert seen[0] == ("lost", "far")
    assert seen[-1] == ("came", "far")
    assert eventually(lambda: rpc.rpc_sync("ps", _calls, ("far",)) == "far", 30)


def _calls(name):
    try:
        return rpc.rpc_sync(name, functions.who)
    except WorkerLost:
        return None


def test_a_stopped_actor_is_condemned_through_ray(cluster):
    before = rpc.get_worker_info("ps")
    pid = rpc.rpc_sync("ps", functions.pid)
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(WorkerLost, match="nothing was heard"):
        rpc.rpc_sync("ps", functions.who)
    cluster.wait_for("ps", after=before.incarnation, timeout=120)
    assert rpc.rpc_sync("ps", functions.pid) != pid


def test_a_worker_comes_late_and_is_removed(cluster):
    seen = changes_of(cluster)
    late = cluster.add("late", num_cpus=1)
    assert late.id == 3
    assert eventually(lambda: rpc.rpc_sync("ps", _calls, ("late",)) == "late", 30)
    with pytest.raises(UsageError, match="a worker named 'late' already, at unix:"):
        cluster.add("late")
    cluster.remove("late")
    assert seen == [("came", "late"), ("left", "late")]
    with pytest.raises(UnknownWorker, match="no worker 'late'"):
        rpc.rpc_sync("late", functions.who)
    with pytest.raises(UnknownWorker, match="no worker 'late' to remove; there are ps, far"):
        cluster.remove("late")
    with pytest.raises(UnknownWorker, match="no actor of worker 'late'"):
        cluster.actor("late")


def test_the_board_is_on_the_node_of_the_program_that_may_not_go(cluster):
    board = cluster._placement.board._actor_id.hex()
    where = importlib.import_module("ray._private.state").actors(board)["Address"]["NodeID"]
    assert where == ray.get_runtime_context().get_node_id()


def test_a_worker_of_a_node_that_goes_comes_back_on_another(nodes, cluster):
    node = nodes.add_node(num_cpus=1, resources={"brittle": 1})
    with RayCluster(
        {"x": {"num_cpus": 1, "resources": {"brittle": 1}}}, me="other", start_timeout=120
    ) as small:
        before = rpc.get_worker_info("x")
        nodes.add_node(num_cpus=1, resources={"brittle": 1})
        nodes.remove_node(node, allow_graceful=False)
        small.wait_for("x", after=before.incarnation, timeout=120)
        assert small.worker.rpc_sync("x", functions.who) == "x"


def test_what_ray_cant_place_is_said_with_what_it_has(nodes):
    wanted = RayCluster({"big": {"num_cpus": 1, "num_gpus": 64}}, start_timeout=1.0)
    with pytest.raises(CallTimeout, match=r"room for 'big' .*'GPU': 64.*free are .*'CPU'"):
        wanted.start()
    assert not wanted.is_running


DETACHED = textwrap.dedent(
    """
    import sys, ray
    from telegrad.distributed import RayCluster, rpc
    ray.init(address=sys.argv[1], log_to_driver=False)
    cluster = RayCluster(["keeper"], name="long", max_restarts=1).start()
    rpc.rpc_sync("keeper", exec, ("import os; os.environ['KEPT'] = 'yes'",))
    cluster.stop()
    print("left")
    """
)


def test_a_new_program_attaches_to_a_cluster_that_outlived_the_old_one(nodes):
    done = subprocess.run(
        [sys.executable, "-c", DETACHED, nodes.address], capture_output=True, text=True, timeout=200
    )
    assert "left" in done.stdout, done.stderr
    with pytest.raises(UsageError, match="no cluster named 'short' on this Ray"):
        RayCluster.attach("short")
    attached = RayCluster.attach("long", me="second")
    try:
        assert attached.names == ["second", "keeper"]
        assert attached.worker.rpc_sync("keeper", os.getenv, ("KEPT",)) == "yes"
        before = attached.worker.find("keeper").info.incarnation
        os.kill(attached.worker.rpc_sync("keeper", functions.pid), signal.SIGKILL)
        attached.wait_for("keeper", after=before, timeout=120)
        assert attached.worker.rpc_sync("keeper", os.getenv, ("KEPT",)) is None
    finally:
        attached.end()
    with pytest.raises(UsageError, match="no cluster named 'long'"):
        RayCluster.attach("long")


def test_workers_speak_tls_if_they_are_told_to(nodes):
    with RayCluster(["secure"], me="driver", tls=True) as small:
        # On one machine there is a nearer way, too.
        near, far = small.worker.address.split(",")
        assert near.startswith("unix://")
        assert far.startswith("tls://")
        assert small.worker.rpc_sync("secure", functions.who) == "secure"
        assert small.add("second").id == 2


def test_ray_of_another_version_is_refused(monkeypatch):
    monkeypatch.setattr(ray, "__version__", "1.13.0")
    with pytest.raises(UsageError, match=r"needs Ray 2\.60, got 1\.13\.0: pip install"):
        RayCluster(["a"])


def test_the_private_state_of_ray_is_where_it_is_looked_for(cluster):
    assert cluster._placement.state_of("ps") == "ALIVE"
    assert cluster._placement.state_of("nobody") == "DEAD"
