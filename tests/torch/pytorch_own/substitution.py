"""PyTorch's own tests of its RPC and distributed autograd, with telegrad in their place.

The test classes are those inside of the installed torch package; nothing of them is copied. Before
they are imported, ``torch.distributed.rpc``, ``.autograd``, ``.nn`` and ``.optim`` are replaced by
stand-ins of telegrad, so whatever they name is telegrad's.
"""

import importlib
import importlib.util
import sys
import types
import unittest
from typing import Any

import torch
import torch.distributed

import telegrad.torch.autograd
import telegrad.torch.optim
import telegrad.torch.rpc as rpc
from telegrad.torch import nn
from telegrad.torch.rpc import options

_PACKAGE = "torch.testing._internal.distributed"
CLASSES = {
    "DistAutogradTest": "rpc.dist_autograd_test",
    "TensorPipeAgentDistAutogradTest": "rpc.dist_autograd_test",
    "DistOptimizerTest": "rpc.dist_optimizer_test",
    "RpcTest": "rpc.rpc_test",
    "TensorPipeAgentRpcTest": "rpc.rpc_test",
    "ParameterServerTest": "rpc.examples.parameter_server_test",
    "ReinforcementLearningRpcTest": "rpc.examples.reinforcement_learning_rpc_test",
    "RemoteModuleTest": "nn.api.remote_module_test",
    "ThreeWorkersRemoteModuleTest": "nn.api.remote_module_test",
    "DdpUnderDistAutogradTest": "ddp_under_dist_autograd_test",
    "DdpComparisonTest": "ddp_under_dist_autograd_test",
}
"""The classes whose tests can be run here, and the modules they are in."""
_SIZES = {"DdpUnderDistAutogradTest": 6}
"""How many workers a class needs, if not as many as the others."""
WITH_GROUPS = {"DdpUnderDistAutogradTest", "DdpComparisonTest"}
"""Those with process groups, which ``--quick`` leaves out: where a replicated module is the last to
hold a group, PyTorch's ProcessGroupGloo waits for its threads without giving the interpreter up,
which they may need to end. That is seen in one of twenty runs.
"""


def substitute() -> None:
    """Puts telegrad where the tests look for PyTorch's modules."""
    if importlib.util.find_spec("expecttest") is None:
        # PyTorch's base class of tests needs it for expectations that none of these have.
        stub = types.ModuleType("expecttest")
        stub.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stub
    # What the tests share with others of PyTorch's is not about RPC: it keeps PyTorch's own.
    importlib.import_module("torch.testing._internal.common_distributed")
    sys.modules.pop("torch.testing._internal.dist_utils", None)
    # The tests of remote modules import two private names of PyTorch's as well.
    remote_module = types.ModuleType("remote_module")
    vars(remote_module).update(
        RemoteModule=nn.RemoteModule,
        _RemoteModule=nn.RemoteModule,
        _REMOTE_MODULE_PICKLED_ATTRIBUTES=(),
    )
    modules: dict[str, types.ModuleType] = {
        "rpc": rpc,
        "rpc.api": rpc.api,
        "rpc.backend_registry": rpc.backend_registry,
        "rpc.constants": rpc.constants,
        "rpc.functions": rpc.functions,
        "rpc.internal": rpc.internal,
        "rpc.options": options,
        "autograd": telegrad.torch.autograd,
        "nn": nn,
        "nn.api": nn,
        "nn.api.remote_module": remote_module,
        "optim": telegrad.torch.optim,
    }
    for name, module in modules.items():
        sys.modules[f"torch.distributed.{name}"] = module
        if "." not in name:
            setattr(torch.distributed, name, module)


def _script_if_possible(function: Any, *args: Any, **kwargs: Any) -> Any:
    """TorchScript knows PyTorch's references alone: a function of others stays as it is."""
    try:
        return _script(function, *args, **kwargs)
    except RuntimeError:
        return function


_script = torch.jit.script


class Fixture:
    """What the tests ask of the backend that they run with."""

    file_name: str
    rank: int
    world_size = 4

    @property
    def rpc_backend(self) -> Any:
        return rpc.BackendType.TENSORPIPE

    @property
    def rpc_backend_options(self) -> Any:
        return rpc.TensorPipeRpcBackendOptions(init_method=self.init_method)

    @property
    def init_method(self) -> str:
        return f"file://{self.file_name}"

    file_init_method = init_method

    def setup_fault_injection(self, faulty_messages: Any, messages_to_delay: Any) -> None:
        return

    def get_shutdown_error_regex(self) -> str:
        return ".*"

    def get_timeout_error_regex(self) -> str:
        return "RPC ran for more than"


def load() -> dict[str, type]:
    """The classes, made for telegrad, by name."""
    substitute()
    torch.jit.script = _script_if_possible  # type: ignore[assignment]
    try:
        from torch.testing._internal.common_utils import TestCase

        made: dict[str, type] = {}
        for name, module in CLASSES.items():
            found = getattr(importlib.import_module(f"{_PACKAGE}.{module}"), name)
            size = _SIZES.get(name, Fixture.world_size)
            made[name] = type(name, (Fixture, found, TestCase), {"world_size": size})
    finally:
        torch.jit.script = _script
    return made


def names_of(cls: type) -> list[str]:
    """The tests of a class, in the order of their names."""
    return sorted(name for name in dir(cls) if name.startswith("test"))
