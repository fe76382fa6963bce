"""Where telegrad's own tensors of a device arrive: by device maps, and not where there is none.

Apart from ``test_cupy.py``, whose last cluster has PyTorch hidden in this process until its end.
"""

import pytest
from tests.devices import CUDA, on_a_gpu
from tests.distributed import device_handlers as there

import telegrad as tg
from telegrad.autograd import forward_ad
from telegrad.distributed import LocalCluster, autograd, rpc
from telegrad.distributed.current import autograd_of
from telegrad.distributed.rpc import Options
from telegrad.errors import DeviceError

pytestmark = [*on_a_gpu, pytest.mark.processes]

TO_THE_CPU = Options(device_maps={"b": {CUDA: "cpu"}})


def test_a_device_map_says_where_tensors_arrive_and_gradients_return_all_the_same():
    one = tg.tensor([5.0, 7.0], device="cuda", requires_grad=True)
    with LocalCluster(["b"], options=TO_THE_CPU):
        assert rpc.rpc_sync("b", there.described, (one,))[1] == "cpu"
        with autograd.context() as context_id:
            y = rpc.rpc_sync("b", there.cube, (one,))
            assert y.device == "cpu"
            autograd.backward(context_id, [y.sum()])
            gradient = autograd.get_gradients(context_id)[one]
            assert gradient.device == CUDA
            assert gradient.tolist() == [75, 147]


LACKS = {
    "no such one": {"options": Options(device_maps={"b": {CUDA: "cuda:99"}})},
    "none at all": {"initializer": there.hide_devices},
}


@pytest.mark.parametrize("how", LACKS)
def test_a_device_that_the_other_side_lacks_is_refused_before_anything_is_recorded(how):
    said = r"expected a device that worker 'b' has \(cpu.*\), got 'cuda:(0|99)' for .* on cuda:0"
    with LocalCluster(["b"], **LACKS[how]):
        _refused(said, tg.ones(2, device="cuda").requires_grad_())


@pytest.mark.usefixtures("without_torch")
def test_without_pytorch_that_is_found_there():
    said = r"expected a device that this worker has \(cpu\), got 'cuda:0' for .* shape \(2,\)"
    with LocalCluster(["b"], initializer=there.hide_devices_and_torch):
        for value in (tg.ones(2, device="cuda"), tg.nn.Parameter(tg.ones(2, device="cuda"))):
            with pytest.raises(DeviceError, match=said) as caught:
                rpc.rpc_sync("b", there.same, (value,))
            assert any("on worker 'b'" in note for note in caught.value.__notes__)
        _refused(said, tg.ones(2, device="cuda").requires_grad_())


@pytest.mark.usefixtures("without_torch")
def test_without_pytorch_a_device_map_is_refused():
    said = r"expected no Options.device_maps\['b'\] for .* on cuda:0, got one, and PyTorch with"
    with LocalCluster(["b", "c"], options=TO_THE_CPU, initializer=there.forget_torch):
        _refused(said, tg.ones(2, device="cuda").requires_grad_())
        with forward_ad.dual_level():
            x = tg.ones(2, device="cuda")
            _refused(said, forward_ad.make_dual(x, tg.ones_like(x)))
        # There is none for this one.
        assert rpc.rpc_sync("c", there.same, (tg.ones(2, device="cuda"),)).device == CUDA


def test_a_device_map_says_where_tangents_arrive():
    with LocalCluster(["b"], options=TO_THE_CPU), forward_ad.dual_level():
        x = tg.tensor([5.0, 7.0], device="cuda")
        dual = forward_ad.make_dual(x, tg.ones_like(x))
        primal, tangent = forward_ad.unpack_dual(rpc.rpc_sync("b", there.cube, (dual,)))
        assert primal.device == tangent.device == "cpu"
        assert primal.tolist() == [125, 343]
        assert tangent.tolist() == [75, 147]


@pytest.fixture
def without_torch(monkeypatch):
    there.forget_torch(monkeypatch)


def _refused(said, value):
    with autograd.context() as context_id:
        with pytest.raises(DeviceError, match=said):
            rpc.rpc_sync("b", there.same, (value,))
        assert not autograd_of(rpc.current_worker()).contexts.get(context_id).sends
