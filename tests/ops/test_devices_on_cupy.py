"""Tensors that go to a CUDA device and back, and their derivatives."""

import pytest
from tests.devices import CUDA, cupy, on_a_gpu

import telegrad as tg
from telegrad.autograd import forward_ad, functional
from telegrad.errors import DeviceError

pytestmark = on_a_gpu


def there_and_back(x):
    return ((x.to("cuda") ** 3).cpu() * x).sum()


def plain(x):
    return (x**3 * x).sum()


def test_what_goes_to_a_device_and_back_keeps_history_and_tangents():
    x = tg.tensor([1.0, -2.0, 0.5], dtype=tg.float64)
    t = tg.ones(3, dtype=tg.float64)
    assert functional.grad(there_and_back)(x).tolist() == functional.grad(plain)(x).tolist()
    for each in (functional.jvp, functional.hvp, functional.vhp):
        found, expected = (each(f, x, t)[1].tolist() for f in (there_and_back, plain))
        assert found == pytest.approx(expected)
    hessian = functional.hessian(there_and_back)(x)
    assert hessian.device == "cpu"
    assert hessian.tolist() == functional.hessian(plain)(x).tolist()


def test_gradients_of_complex_tensors_come_back_as_they_are():
    x = tg.tensor([1 + 2j, 3 - 1j], requires_grad=True)
    y = x.cuda()
    assert y.device == CUDA
    (abs(y.cpu()) ** 2).sum().backward()
    assert x.grad.tolist() == pytest.approx([2 + 4j, 6 - 2j])
    assert x.grad.device == "cpu"


def test_a_leaf_on_the_device_has_its_gradient_there():
    x = tg.tensor([1.0, 2.0], device="cuda", requires_grad=True)
    (x.cpu() * tg.tensor([3.0, 4.0])).sum().backward()
    assert x.grad.device == CUDA
    assert x.grad.tolist() == [3.0, 4.0]


def test_a_tangent_is_where_its_tensor_is():
    with forward_ad.dual_level():
        x = forward_ad.make_dual(tg.tensor([1.0, 2.0]), tg.tensor([1.0, 0.5]))
        primal, tangent = forward_ad.unpack_dual(x.to("cuda") * 2)
        assert primal.device == tangent.device == CUDA
        assert tangent.tolist() == [2.0, 1.0]


def test_whatever_makes_tensors_makes_them_on_the_device():
    tg.manual_seed(5)
    here = [tg.rand(3), tg.randn(2, 2), tg.randint(0, 9, (4,)), tg.permutation(5)]
    tg.manual_seed(5)
    there = [
        tg.rand(3, device="cuda"),
        tg.randn(2, 2, device=CUDA),
        tg.randint(0, 9, (4,), device="cuda"),
        tg.permutation(5, device="cuda"),
    ]
    for one, other in zip(here, there):
        assert isinstance(other.array, cupy.ndarray)
        assert other.tolist() == one.tolist()
    made = [
        *(tg.zeros(2, device=CUDA), tg.ones(2, device=CUDA), tg.full((2,), 3.0, device=CUDA)),
        *(tg.eye(2, device=CUDA), tg.arange(3, device=CUDA), tg.linspace(0, 1, 3, device=CUDA)),
        *(tg.tensor([1, 2], device=CUDA), tg.bernoulli(0.5, (3,), device=CUDA)),
        *(tg.zeros_like(there[0]), tg.rand_like(there[0]), tg.randn_like(there[1])),
        tg.full((2,), tg.tensor(2.0), device=CUDA),
        tg.asarray(here[0], device=CUDA),
    ]
    assert {x.device for x in made} == {CUDA}
    assert tg.__array_namespace_info__().devices()[:2] == ["cpu", CUDA]


def test_values_are_assigned_across_devices():
    here, there = tg.tensor([1.0, 2.0]), tg.tensor([3.0, 4.0], device="cuda")
    there.copy_(here)
    assert there.device == CUDA
    assert there.tolist() == [1.0, 2.0]
    here.copy_(there * 2)
    assert here.device == "cpu"
    assert here.tolist() == [2.0, 4.0]


def test_a_device_that_is_not_there_and_one_without_room_are_named():
    count = cupy.cuda.runtime.getDeviceCount()
    with pytest.raises(DeviceError, match=f"{count} CUDA devices, got 'cuda:{count}'"):
        tg.ones(2).to(f"cuda:{count}")
    pool = cupy.get_default_memory_pool()
    # What other tests have freed could be given out again.
    pool.free_all_blocks()
    pool.set_limit(size=1 << 20)
    try:
        with pytest.raises(
            DeviceError, match=r"room on 'cuda:0' for an array of shape \(16777216,"
        ):
            tg.zeros(1 << 24, device="cuda")
    finally:
        pool.set_limit(size=0)
