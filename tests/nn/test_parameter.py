"""Parameters: leaves that keep their class where PyTorch's do."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from tests.nn import remote

import telegrad as tg
from telegrad import nn
from telegrad.autograd import forward_ad
from telegrad.distributed import LocalCluster, rpc
from telegrad.distributed import autograd as distributed_autograd
from telegrad.errors import DTypeError, GradientError


def test_a_parameter_is_a_leaf_that_requires_grad() -> None:
    p = nn.Parameter(tg.ones(2))
    assert isinstance(p, tg.Tensor)
    assert p.is_leaf
    assert p.requires_grad
    assert not nn.Parameter(np.ones(2), requires_grad=False).requires_grad
    assert repr(p).startswith("Parameter containing:\ntensor(")


def test_what_is_computed_from_a_parameter_is_a_tensor() -> None:
    p = nn.Parameter(tg.ones(2))
    for value in (p * 2, p.detach(), p.clone(), p[0]):
        assert type(value) is tg.Tensor


def test_a_parameter_does_not_follow_the_data_it_was_made_from() -> None:
    data = np.ones(2)
    p = nn.Parameter(data)
    data[0] = 5
    assert p.detach().numpy()[0] == 1


def test_integers_are_refused() -> None:
    with pytest.raises(DTypeError, match="int64"):
        nn.Parameter(tg.tensor([1, 2]))


def test_copies_and_pickles_are_parameters() -> None:
    for flag in (True, False):
        p = nn.Parameter(np.arange(3.0), requires_grad=flag)
        for other in (copy.copy(p), copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
            assert type(other) is nn.Parameter
            assert other.requires_grad is flag
            np.testing.assert_array_equal(other.detach().numpy(), p.detach().numpy())


def test_an_update_under_no_grad_keeps_it_a_leaf() -> None:
    p = nn.Parameter(np.ones(2))
    with tg.no_grad():
        p -= 0.5
        p.copy_(p * 2)
    assert p.is_leaf
    assert p.requires_grad
    np.testing.assert_array_equal(p.detach().numpy(), [1.0, 1.0])


@pytest.mark.processes
def test_a_module_keeps_its_parameters_on_another_worker_and_gradients_come_back() -> None:
    model = nn.Linear(2, 2)
    x = tg.ones((1, 2))
    with LocalCluster(["other"]):
        assert rpc.rpc_sync("other", remote.kinds, (model,)) == ["Parameter", "Parameter"]
        with distributed_autograd.context() as context:
            loss = rpc.rpc_sync("other", remote.apply, (model, x)).sum()
            distributed_autograd.backward(context, [loss])
            found = distributed_autograd.get_gradients(context)
            np.testing.assert_array_equal(found[model.weight].numpy(), np.ones((2, 2)))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_parameter_with_a_history_or_tangents_is_not_copied_without_them(copied: Any) -> None:
    changed = nn.Parameter([1.0], requires_grad=False)
    changed *= tg.ones(1).requires_grad_()
    with pytest.raises(GradientError, match="a leaf or a constant to copy or pickle"):
        copied(changed)
    with forward_ad.dual_level():
        dual = nn.Parameter([1.0], requires_grad=False)
        dual *= forward_ad.make_dual(tg.ones(1), tg.ones(1))
        with pytest.raises(GradientError, match="without tangents to copy or pickle"):
            copied(dual)
