"""Tensors on another device: names, errors, and that derivatives follow."""

import sys

import pytest

import telegrad as tg
from telegrad import nn
from telegrad.arrays import devices
from telegrad.errors import DeviceError


@pytest.mark.parametrize("device", ["mars", "cuda:-1", "cuda:x", "cpu:0", 3.5])
def test_what_is_no_device_is_refused_with_what_is_one(device):
    with pytest.raises(DeviceError, match=r"'cpu', 'cuda' or one such as 'cuda:0', got"):
        tg.ones(2).to(device=device)


MOVES = {
    "to": lambda: tg.ones(2).to("cuda"),
    "cuda": lambda: tg.ones(2).cuda(1),
    "zeros": lambda: tg.zeros(3, device="cuda"),
    "tensor": lambda: tg.tensor(1.0, device="cuda"),
    "randn": lambda: tg.randn(2, device="cuda"),
    "Linear": lambda: nn.Linear(2, 1, device="cuda"),
    "module": lambda: nn.Linear(2, 1).cuda(),
}


@pytest.mark.parametrize("name", MOVES)
def test_without_cupy_it_is_named(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(
        DeviceError, match=r"expected CuPy, which serves arrays on 'cuda(:1)?'.*pip"
    ):
        MOVES[name]()
    assert devices.device_names() == ["cpu"]


def test_the_cpu_is_where_tensors_are():
    x = tg.ones(2)
    assert x.device == "cpu"
    assert x.to("cpu") is x.cpu() is x.to_device("cpu") is x
    model = nn.Linear(2, 1)
    assert model.to("cpu") is model.cpu() is model
    assert tg.asarray(x, device="cpu") is x
    assert tg.zeros(2, device="cpu").tolist() == [0.0, 0.0]
