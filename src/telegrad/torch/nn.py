"""A replacement for ``torch.distributed.nn``: modules on other workers.

A `RemoteModule` is an ``nn.Module`` whose ``forward`` runs on the worker that owns the module. In
remote calls it is sent as a reference, so every worker that receives it calls the same module.
Methods that PyTorch refuses on a RemoteModule (``parameters``, ``to``, hooks, …) raise PyTorch's
errors here; ``remote_parameters`` returns references to the parameters.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch import nn
from torch.distributed.remote_device import _remote_device

from telegrad.errors import NotInitialized
from telegrad.torch import rpc as rpc

__all__ = ["RemoteModule"]


def _refused(name: str, instead: str = "") -> Callable[..., NoReturn]:
    """Return a method that raises PyTorch's error."""

    def refuse(self: nn.Module, *args: Any, **kwargs: Any) -> NoReturn:
        raise ValueError(f"Method ``{name}`` not supported for RemoteModule{instead}")

    return refuse


# fmt: off
_REFUSED = (
    "add_module", "apply", "bfloat16", "buffers", "children", "cpu", "cuda", "double", "extra_repr",
    "float", "half", "ipu", "load_state_dict", "modules", "named_buffers", "named_children",
    "named_modules", "named_parameters", "register_backward_hook", "register_buffer",
    "register_forward_hook", "register_forward_pre_hook", "register_parameter", "requires_grad_",
    "share_memory", "state_dict", "to", "type", "xpu", "zero_grad",
)
# fmt: on


class RemoteModule(nn.Module):
    """A module created on another worker, as ``module_cls(*args, **kwargs)``, which runs there.

    Tensor arguments of a call are moved to the module's device. Without a device map for the
    worker, results return through the CPU.

    Arguments:
        remote_device: A worker and one of its devices, as ``"trainer0/cuda:0"`` or
            ``"rank:1/cpu"``, or the worker alone for its CPU.
        module_cls: The class of the module.
        args: The positional arguments of the class.
        kwargs: The keyword arguments of the class.

    Raises:
        NotInitialized: If ``init_rpc`` was not called.
        ValueError: If `remote_device` is not valid, or a TorchScript interface is given.
    """

    on: str | int
    """The name of the worker, or its rank."""
    device: str
    is_device_map_set: bool
    is_scriptable: bool
    module_rref: rpc.RRef

    def __init__(
        self,
        remote_device: str,
        module_cls: Callable[..., nn.Module],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        _module_interface_cls: Any = None,
    ) -> None:
        super().__init__()
        self._place(remote_device, _module_interface_cls)
        made = (module_cls, tuple(args or ()), dict(kwargs or {}), self.device)
        self.module_rref = rpc.remote(self.on, _make, made)

    @staticmethod
    def init_from_module_rref(
        remote_device: str, module_rref: rpc.RRef, _module_interface_cls: Any = None
    ) -> "RemoteModule":
        """Make a RemoteModule for a module that already exists.

        Arguments:
            remote_device: The module's worker and device, as for the class.
            module_rref: An RRef to the module.
            _module_interface_cls: Not supported: TorchScript knows only PyTorch's own RRefs.
        """
        remote_module = RemoteModule.__new__(RemoteModule)
        nn.Module.__init__(remote_module)
        remote_module._place(remote_device, _module_interface_cls)
        remote_module.module_rref = module_rref
        return remote_module

    def _place(self, remote_device: str, interface: Any) -> None:
        if not rpc._is_current_rpc_agent_set():
            raise NotInitialized("RemoteModule only works in RPC. Call init_rpc first.")
        if interface is not None:
            raise ValueError(
                "TorchScript knows PyTorch's own references alone: leave out _module_interface_cls"
            )
        place = _remote_device(remote_device)
        on = place.rank() if place.worker_name() is None else place.worker_name()
        if on is None:
            raise ValueError(
                f"expected a worker and its device, like 'trainer0/cpu', got {remote_device!r}"
            )
        self.on = on
        self.device = str(place.device())
        agent = rpc._get_current_rpc_agent()
        self.is_device_map_set = bool(agent._get_device_map(agent.get_worker_info(on)))
        self.is_scriptable = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module on its worker; return its result."""
        return rpc.rpc_sync(self.module_rref.owner(), _forward, self._call(args, kwargs))

    def forward_async(self, *args: Any, **kwargs: Any) -> Any:
        """Start the module on its worker; return a future of its result."""
        return rpc.rpc_async(self.module_rref.owner(), _forward, self._call(args, kwargs))

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        return self.module_rref, self.device, self.is_device_map_set, args, kwargs

    def remote_parameters(self, recurse: bool = True) -> list[rpc.RRef]:
        """Return RRefs to the module's parameters, in the module's order."""
        found: list[rpc.RRef] = self._ask(_parameters, recurse)
        return found

    def _ask(self, function: Callable[..., Any], option: bool) -> Any:
        # The owner may differ from `on`, which `init_from_module_rref` takes from its caller.
        return rpc.rpc_sync(self.module_rref.owner(), function, (self.module_rref, option))

    def get_module_rref(self) -> rpc.RRef:
        """Return the RRef to the module."""
        return self.module_rref

    def train(self, mode: bool = True) -> "RemoteModule":
        """Set the module's training mode; return this RemoteModule."""
        self._ask(_set_training, mode)
        return self

    def eval(self) -> "RemoteModule":
        """Set the module to evaluation mode; return this RemoteModule."""
        return self.train(False)

    def __reduce__(self) -> Any:
        # Pickling the RRef counts it in a remote call, and raises its error in a plain pickle.
        return _arrived, (self.on, self.device, self.module_rref)

    def __repr__(self) -> str:
        return f"RemoteModule({self.on!r}, {self.device!r}, {self.module_rref})"

    parameters: Any = _refused("parameters", ". Please use ``remote_parameters`` instead.")


for _name in _REFUSED:
    setattr(RemoteModule, _name, _refused(_name))


def _arrived(on: str | int, device: str, module_rref: rpc.RRef) -> RemoteModule:
    place = f"rank:{on}/{device}" if isinstance(on, int) else f"{on}/{device}"
    return RemoteModule.init_from_module_rref(place, module_rref)


# Functions that run on the module's worker.


def _make(module_cls: Callable[..., Any], args: Any, kwargs: Any, device: str) -> nn.Module:
    module = module_cls(*args, **kwargs)
    if not isinstance(module, nn.Module):
        raise ValueError(
            "Expect `module_cls(*args, **kwargs)` returns an instance of <class nn.Module>, "
            f"but it returns an instance of {type(module)}."
        )
    return module.to(device)


def _forward(module: rpc.RRef, device: str, is_device_map_set: bool, args: Any, kwargs: Any) -> Any:
    found = module.local_value()
    if torch.device(device).type == "cpu":
        return found(*args, **kwargs)
    args = [_on(device, value) for value in args]
    kwargs = {name: _on(device, value) for name, value in kwargs.items()}
    result = found(*args, **kwargs)
    if is_device_map_set:
        return result
    if isinstance(result, (tuple, list)):
        return tuple(_on("cpu", each) for each in result)
    return _on("cpu", result)


def _on(device: str, value: Any) -> Any:
    return value.to(device) if isinstance(value, torch.Tensor) else value


def _parameters(module: rpc.RRef, recurse: bool) -> list[rpc.RRef]:
    return [rpc.RRef(parameter) for parameter in module.local_value().parameters(recurse)]


def _set_training(module: rpc.RRef, mode: bool) -> None:
    module.local_value().train(mode)
