"""RayCluster on a real Ray of one node, in short; what takes minutes is in test_ray_cluster.py."""

from pathlib import Path

import pytest
from tests.distributed import functions

import telegrad as tg
import telegrad.distributed.autograd as dist_autograd
from telegrad.distributed import RayCluster, rpc
from telegrad.errors import CallTimeout, WorkerLost
from telegrad.rpc.transport import parse_address

ray = pytest.importorskip("ray", reason="Ray is not installed")
pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]


def address():
    return rpc.current_worker().address


def test_actors_train_die_come_back_and_what_cant_be_placed_is_said():
    ray.init(
        address="local",
        num_cpus=2,
        object_store_memory=100 << 20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    try:
        with RayCluster(["ps"], tls=True) as cluster:
            before = rpc.get_worker_info("ps")
            x = tg.tensor([1.0, 2.0], requires_grad=True)
            with dist_autograd.context() as context_id:
                y = rpc.rpc_sync("ps", tg.square, (x,))
                dist_autograd.backward(context_id, [y.sum()])
                assert dist_autograd.get_gradients(context_id)[x].tolist() == [2.0, 4.0]
            with pytest.raises(WorkerLost, match="'ps' was lost"):
                rpc.rpc_sync("ps", functions.kill_yourself)
            (after,) = cluster.wait_for("ps", after=before.incarnation, timeout=120)
            assert (after.name, after.id) == ("ps", 1)
            assert rpc.rpc_sync("ps", functions.who) == "ps"
            socket = parse_address(rpc.rpc_sync("ps", address).split(",")[0]).path
            assert Path(socket).exists()
        assert not Path(socket).parent.exists()
        with pytest.raises(CallTimeout, match=r"room for 'big' .*'GPU': 64.*free are .*'CPU'"):
            RayCluster({"big": {"num_cpus": 1, "num_gpus": 64}}, start_timeout=0.1).start()
    finally:
        ray.shutdown()
