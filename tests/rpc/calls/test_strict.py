"""What a strict worker does not do, whatever a peer that has the key asks for."""

import numpy as np
import pytest
from tests.rpc.neighbours import neighbours

from telegrad.distributed import remote_module
from telegrad.distributed.optim import local_optimizer
from telegrad.errors import Refused
from telegrad.rpc.options import Options
from telegrad.rpc.references.rref import RRef, call_method
from telegrad.rpc.wire.functions import expose

STRICT = Options(strict=True)


class Account:
    def __init__(self, balance):
        self.balance = balance

    @expose
    def deposit(self, amount):
        self.balance += amount
        return self.balance

    def close(self):
        self.balance = 0

    @property
    def audit(self):
        raise AssertionError("a property was run because a peer named it")


class Savings(Account):
    pass


@expose
def open_account(balance):
    return Savings(balance)


@expose
def ones(count):
    return np.ones(count)


@pytest.fixture
def strict():
    with neighbours("a", "b", options=STRICT) as workers:
        yield workers


def test_a_strict_worker_serves_the_exposed_methods_of_a_value(strict):
    account = strict[0].remote("b", open_account, (5,))
    assert account.rpc_sync().deposit(2) == 7
    assert account.remote().deposit(1).to_here() == 8


@pytest.mark.parametrize("name", ["close", "audit", "missing"])
def test_a_strict_worker_serves_no_other_method_of_a_value(strict, name):
    account = strict[0].remote("b", open_account, (5,))
    with pytest.raises(Refused, match=f"method '{name}' of Savings is not served in strict mode"):
        getattr(account.rpc_sync(), name)()
    assert account.rpc_sync().deposit(0) == 5


def test_a_strict_worker_writes_no_file_for_a_peer_that_refers_to_an_array(strict, tmp_path):
    array = strict[0].remote("b", ones, (3,))
    with pytest.raises(Refused, match="method 'tofile' of ndarray"):
        array.rpc_sync().tofile(str(tmp_path / "written"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "args"), [("__reduce_ex__", (2,)), ("__getattribute__", ("__class__",))]
)
def test_no_attribute_of_a_value_leads_out_of_a_strict_worker(strict, name, args):
    """Kept there by `remote`, each result was a value to ask on: down to `eval`."""
    number = strict[0].remote("b", open_account, (5,))
    with pytest.raises(Refused, match=name):
        strict[0].remote("b", call_method, (number, name, args, {})).to_here()


@pytest.mark.parametrize(
    "function",
    [
        remote_module._make,
        remote_module._forward,
        local_optimizer.make,
        local_optimizer.make_scheduler,
        local_optimizer.call,
    ],
)
def test_a_strict_worker_serves_nothing_that_calls_what_a_peer_names(strict, function):
    account: RRef = strict[0].remote("b", open_account, (5,))
    with pytest.raises(Refused, match=f"{function.__name__}' is not served in strict mode"):
        strict[0].rpc_sync("b", function, (account, "close"))
