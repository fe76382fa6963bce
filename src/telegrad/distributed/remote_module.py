"""A module that lives on another worker and is called like a local one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from telegrad.distributed.survival.resident import Resident
from telegrad.errors import UsageError
from telegrad.nn.module import Module
from telegrad.rpc.calls.call import Call
from telegrad.rpc.current import current_worker
from telegrad.rpc.references.rref import RRef
from telegrad.tensors.torch_hints import advises, without_advice

_MADE_THERE = "its numbers are on its worker: give dtype= among the arguments of its class"


@advises(
    "RemoteModule",
    {
        "named_parameters": "write parameters() for references, state_dict() for names and values",
        "weight": "write state_dict()['weight'] for a copy, parameters() for references",
        "bias": "write state_dict()['bias'] for a copy, parameters() for references",
        **dict.fromkeys(("to", "double", "float"), _MADE_THERE),
    },
)
class RemoteModule:
    """A module created on another worker, as ``module_cls(*args, **kwargs)``, which runs there.

    Arguments:
        remote_device: The worker's name or, as PyTorch writes it, ``"name/cpu"`` or
            ``"name/cuda:0"``: then the module is moved there, and takes tensors of that device.
        module_cls: The class of the module.
        args: The positional arguments of the class.
        kwargs: The keyword arguments of the class.

    Raises:
        UsageError: If an argument has the wrong type, or the class does not make a module.

    Examples:
        >>> from telegrad.distributed import RemoteModule
        >>> model = RemoteModule("ps", tg.nn.Linear, (3, 2))
        >>> model(tg.ones(4, 3)).shape, len(model.parameters())
        ((4, 2), 2)
    """

    def __init__(
        self,
        remote_device: str,
        module_cls: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        name, _, device = remote_device.partition("/")
        self.on = name
        self.device = device or "cpu"
        made_already = hasattr(module_cls, "parameters") and not isinstance(module_cls, type)
        if made_already or not callable(module_cls):
            raise UsageError(
                f"expected the class of a module, such as nn.Linear, to make on {name!r}, got a "
                f"{type(module_cls).__name__} itself; its arguments follow as args and kwargs"
            )
        if not isinstance(args, tuple | list | None):
            raise UsageError(
                f"expected args as a tuple, got {type(args).__name__}; one argument alone is "
                "written with a comma: (x,)"
            )
        self._class_name = getattr(module_cls, "__qualname__", type(module_cls).__qualname__)
        made = (module_cls, tuple(args or ()), dict(kwargs or {}), device)
        self._rref: RRef | None = current_worker().rpc_sync(name, _make, made)
        self.resident: Resident | None = None
        """The resident behind this module, if its worker keeps it by name."""

    @classmethod
    def of(cls, resident: Resident) -> "RemoteModule":
        """Return a module that a worker keeps by name (`rpc.keep`).

        When the worker restarts, this refers to its new module, from the next context on: within
        one context it always refers to the same module.
        """
        if not isinstance(resident, Resident):
            raise UsageError(
                f"expected a resident, as rpc.keep gives it, got a {type(resident).__name__}"
            )
        made = cls.__new__(cls)
        made.on, made.device, made._rref, made.resident = resident.worker, "cpu", None, resident
        return made

    @property
    def module_rref(self) -> RRef:
        """The RRef to the module."""
        if self._rref is not None:
            return self._rref
        assert self.resident is not None, "one of the two"
        return self.resident.rref()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module on its worker; return the result."""
        return current_worker().rpc_sync(self.on, _forward, (self.module_rref, args, kwargs))

    def forward_async(self, *args: Any, **kwargs: Any) -> Call:
        """Start the module on its worker; return the future of the result."""
        return current_worker().rpc_async(self.on, _forward, (self.module_rref, args, kwargs))

    def parameters(self) -> list[RRef]:
        """Return RRefs to the module's parameters, in the module's order."""
        found: list[RRef] = current_worker().rpc_sync(self.on, _parameters, (self.module_rref,))
        return found

    remote_parameters = parameters

    def get_module_rref(self) -> RRef:
        """Return the RRef to the module."""
        return self.module_rref

    def train(self, mode: bool = True) -> "RemoteModule":
        """Set the module's training mode; return this module."""
        current_worker().rpc_sync(self.on, _set_training, (self.module_rref, mode))
        return self

    def eval(self) -> "RemoteModule":
        """Set the module to evaluation mode; return this module."""
        return self.train(False)

    def state_dict(self) -> Any:
        """Return the module's state, copied here."""
        return self.module_rref.rpc_sync().state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> Any:
        """Load a state into the module."""
        return self.module_rref.rpc_sync().load_state_dict(state)

    def __dir__(self) -> list[str]:
        return without_advice(self, super().__dir__())

    def __repr__(self) -> str:
        if self.resident is not None:
            return f"RemoteModule(on={self.on!r}, {self.resident!r})"
        return f"RemoteModule({self._class_name}, on={self.on!r}, {self._rref!r})"


def _make(module_class: Callable[..., Any], args: Any, kwargs: Any, device: str) -> RRef:
    module = module_class(*args, **kwargs)
    if not (callable(module) and hasattr(module, "parameters")):
        raise UsageError(
            f"expected a class whose instances can be called and have parameters(), as modules "
            f"have, got one that makes a {type(module).__name__}; use rpc.remote for other objects"
        )
    if device:
        module.to(device)
    if isinstance(module, Module):
        # autograd.gradients and autograd.draw show these names.
        for path, parameter in module.named_parameters():
            parameter.ensure_meta().name = f"{type(module).__name__}.{path}"
    return current_worker().make_rref(module)


def _forward(module: RRef, args: Any, kwargs: Any) -> Any:
    return module.local_value()(*args, **kwargs)


def _parameters(module: RRef) -> list[RRef]:
    worker = current_worker()
    return [worker.make_rref(parameter) for parameter in module.local_value().parameters()]


def _set_training(module: RRef, mode: bool) -> None:
    module.local_value().train(mode)
