"""Module: a part of a model, made of parameters, buffers and other modules.

They are its ordinary attributes, in the order in which they were first set: an attribute that is a
Parameter is one of its parameters, one that is a Module is one of its children. Nothing is
registered a second time, so nothing can disagree. Only buffers (tensors that belong to the state
but are not trained) need to be declared, by ``register_buffer``.
"""

from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np

from telegrad.errors import UsageError
from telegrad.graph import Handle
from telegrad.nn.parameter import Parameter
from telegrad.nn.state import KeyReport, collect_state, restore_state
from telegrad.nn.torch_names import METHODS
from telegrad.ops.filled import zeros_like
from telegrad.tensors import Tensor
from telegrad.tensors.torch_hints import advises, without_advice


@advises("Module", METHODS)
class Module:
    """A part of a model; subclasses set attributes in ``__init__`` and write ``forward``.

    Examples:
        >>> class Scale(tg.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.factor = tg.nn.Parameter(tg.tensor(2.0))
        ...
        ...     def forward(self, x):
        ...         return x * self.factor
        >>> Scale()(tg.ones(2)).tolist(), [name for name, _ in Scale().named_parameters()]
        ([2.0, 2.0], ['factor'])
    """

    training: bool = True
    _buffer_names: dict[str, bool] | None = None
    """The names of buffers, with whether each belongs to the state dict; None before the first."""
    _pre_hooks: dict[int, Callable[..., Any]] | None = None
    _hooks: dict[int, Callable[..., Any]] | None = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the result; subclasses write this, users call the module itself."""
        raise NotImplementedError(f"{type(self).__name__} has no forward method yet")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._pre_hooks:
            for hook in list(self._pre_hooks.values()):
                changed = hook(self, args)
                if changed is not None:
                    args = changed if isinstance(changed, tuple) else (changed,)
        result = self.forward(*args, **kwargs)
        if self._hooks:
            for hook in list(self._hooks.values()):
                changed = hook(self, args, result)
                if changed is not None:
                    result = changed
        return result

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call ``hook(module, args)`` before ``forward``; it may return other arguments."""
        if self._pre_hooks is None:
            self._pre_hooks = {}
        return Handle(self._pre_hooks, hook)

    def register_forward_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call ``hook(module, args, result)`` after ``forward``; it may return another result."""
        if self._hooks is None:
            self._hooks = {}
        return Handle(self._hooks, hook)

    def __dir__(self) -> list[str]:
        return without_advice(self, super().__dir__())

    # Its parts

    def __setattr__(self, name: str, value: Any) -> None:
        old = self.__dict__.get(name)
        if isinstance(old, Parameter):
            advice = (
                "wrap it in nn.Parameter, or change the value in place with copy_ under no_grad"
            )
            _check(value, Parameter, f"{name!r} of {type(self).__name__}", advice)
        if isinstance(old, Module):
            advice = "give it another name, or delete the module first"
            _check(value, Module, f"{name!r} of {type(self).__name__}", advice)
        if self._buffer_names is not None and name in self._buffer_names:
            if isinstance(value, Parameter):
                del self._buffer_names[name]
            _check(value, Tensor, f"buffer {name!r} of {type(self).__name__}")
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        if self._buffer_names is not None:
            self._buffer_names.pop(name, None)
        object.__delattr__(self, name)

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Make `param` an attribute; the name may be computed."""
        _check(param, Parameter, repr(name))
        setattr(self, _checked(name, self), param)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Make a tensor part of the state that is not trained.

        Arguments:
            name: The attribute that it becomes.
            tensor: The values; None for none yet.
            persistent: Whether it is in ``state_dict``.
        """
        _check(tensor, Tensor, f"buffer {name!r}")
        if isinstance(tensor, Parameter):
            raise UsageError(
                f"expected a Tensor as buffer {name!r}, got a Parameter, which would be trained; "
                "pass its detach(), or set it as an attribute"
            )
        setattr(self, _checked(name, self), tensor)
        if self._buffer_names is None:
            self._buffer_names = {}
        self._buffer_names[name] = persistent

    def add_module(self, name: str, module: "Module | None") -> None:
        """Make `module` a child under this name."""
        _check(module, Module, repr(name))
        setattr(self, _checked(name, self), module)

    register_module = add_module

    def own_parameters(self) -> dict[str, Parameter]:
        """Return the parameters of this module itself, by name."""
        return {name: v for name, v in vars(self).items() if isinstance(v, Parameter)}

    def own_buffers(self, persistent_only: bool = False) -> dict[str, Tensor]:
        """Return the buffers of this module itself, by name."""
        found = {}
        for name, persistent in (self._buffer_names or {}).items():
            value = self.__dict__.get(name)
            if value is not None and (persistent or not persistent_only):
                found[name] = value
        return found

    def own_modules(self) -> dict[str, "Module"]:
        """Return the modules directly in this one, by name; one may have several names."""
        return {name: v for name, v in vars(self).items() if isinstance(v, Module)}

    def named_children(self) -> Iterator[tuple[str, "Module"]]:
        """Return the modules directly in this one, each once, with their names."""
        seen: set[Module] = set()
        for name, module in self.own_modules().items():
            if module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator["Module"]:
        """Return the modules directly in this one."""
        for _, module in self.named_children():
            yield module

    def named_modules(
        self, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, "Module"]]:
        """Return this module and all inside it, with their paths."""
        seen: set[Module] = set()
        stack: list[tuple[str, Module, tuple[Module, ...]]] = [(prefix, self, ())]
        while stack:
            path, module, around = stack.pop()
            if module in seen and remove_duplicate:
                continue
            if module in seen and module in around:
                raise UsageError(
                    f"expected modules without a circle, but the {type(module).__name__} at "
                    f"{path!r} is inside itself; keep what leads back in a tuple, which is no part"
                )
            seen.add(module)
            yield path, module
            around = (*around, module)
            parts = reversed(module.own_modules().items())
            stack.extend((f"{path}.{name}" if path else name, part, around) for name, part in parts)

    def modules(self) -> Iterator["Module"]:
        """Return this module and all inside it, each once."""
        # Like named_modules but without paths, and so quicker: zero_grad calls this in every step.
        seen: set[Module] = set()
        stack = [self]
        while stack:
            module = stack.pop()
            if module not in seen:
                seen.add(module)
                yield module
                stack += [v for v in vars(module).values() if isinstance(v, Module)][::-1]

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Return all parameters with their paths, each once.

        Arguments:
            prefix: What paths begin with.
            recurse: Whether those of the modules inside are among them.
            remove_duplicate: Whether one that is there under several paths is given once.
        """
        yield from self._named(Module.own_parameters, prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Return all parameters, each once."""
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Return all buffers with their paths, each once; see ``named_parameters``."""
        yield from self._named(Module.own_buffers, prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Return all buffers, each once."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def _named(
        self,
        own: Callable[["Module"], dict[str, Any]],
        prefix: str,
        recurse: bool,
        remove_duplicate: bool,
    ) -> Iterator[tuple[str, Any]]:
        seen: set[Tensor] = set()
        modules = self.named_modules(prefix, remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, value in own(module).items():
                if value in seen and remove_duplicate:
                    continue
                seen.add(value)
                yield (f"{path}.{name}" if path else name), value

    # Its state

    def state_dict(self, prefix: str = "") -> dict[str, Tensor]:
        """Return all parameters and persistent buffers by path; later steps don't show."""
        return collect_state(self, prefix)

    def load_state_dict(self, state_dict: Any, strict: bool = True) -> KeyReport:
        """Take over the values; a state that does not fit is an error and changes nothing.

        Unless strict, keys that are missing or unexpected are only reported.
        """
        return restore_state(self, state_dict, strict)

    def train(self, mode: bool = True) -> Self:
        """Put this module and all inside it in training mode."""
        if not isinstance(mode, bool):
            raise UsageError(f"expected True or False as training mode, got {mode!r}")
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """Put this module and all inside it in evaluation mode."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Have all parameters trained, or none."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or make them zero."""
        for module in self.modules():
            # Without names, to be quick; it does no harm to meet a shared parameter twice.
            for value in vars(module).values():
                if isinstance(value, Parameter) and value.grad is not None:
                    value.grad = None if set_to_none else zeros_like(value.grad)

    def apply(self, function: Callable[["Module"], Any]) -> Self:
        """Call ``function(module)`` for all modules inside, and then for this one."""
        for child in self.children():
            child.apply(function)
        function(self)
        return self

    def to(self, *where: Any, dtype: Any = None, device: Any = None) -> Self:
        """Move the values to another floating dtype or device; the parameters stay the same.

        Arguments:
            *where: A dtype or a device, or both.
            dtype: The dtype, by name; buffers of integers keep theirs.
            device: The device, by name, such as "cuda".
        """
        return self._move([*self.parameters(), *self.buffers()], where, dtype, device)

    def cuda(self, device: Any = "cuda") -> Self:
        """Move the values to a CUDA device, by its name or number: the current one."""
        return self.to(device=f"cuda:{device}" if isinstance(device, int) else device)

    def cpu(self) -> Self:
        """Move the values to the CPU."""
        return self.to(device="cpu")

    def _move(self, tensors: list[Tensor], where: tuple[Any, ...], dtype: Any, device: Any) -> Self:
        # All are moved before any is replaced: if one can't be, the module stays as it was.
        moved = [_moved(tensor, where, dtype, device) for tensor in tensors]
        for tensor, value in zip(tensors, moved):
            gradient = tensor.grad
            tensor.array = value.array
            if gradient is not None:
                tensor.grad = _moved(gradient, where, dtype, device)
        return self

    def double(self) -> Self:
        """Turn all real floating values into float64; complex ones stay, as in PyTorch."""
        return self._as_real(np.float64)

    def float(self) -> Self:
        """Turn all real floating values into float32; complex ones stay, as in PyTorch."""
        return self._as_real(np.float32)

    def _as_real(self, dtype: Any) -> Self:
        tensors = [x for x in (*self.parameters(), *self.buffers()) if x.dtype.kind == "f"]
        return self._move(tensors, (), dtype, None)

    # How it looks

    def extra_repr(self) -> str:
        """Return what ``repr`` shows of this module itself; subclasses write it."""
        return ""

    def __repr__(self) -> str:
        own = self.extra_repr()
        # A module under several names is shown under each: in a sequence it is called twice.
        parts = self.own_modules().items()
        lines = [f"({name}): {child!r}".replace("\n", "\n  ") for name, child in parts]
        if not lines:
            return f"{type(self).__name__}({own})"
        inside = "\n  ".join(([own] if own else []) + lines)
        return f"{type(self).__name__}(\n  {inside}\n)"


def _check(value: Any, kind: type, what: str, advice: str = "") -> None:
    """Raise unless a value is None or of this kind."""
    if value is not None and not isinstance(value, kind):
        got = f"{type(value).__name__}; {advice}".removesuffix("; ")
        raise UsageError(f"expected a {kind.__name__} or None as {what}, got {got}")


def _checked(name: str, module: Module) -> str:
    if not isinstance(name, str) or not name or "." in name:
        raise UsageError(f"expected a name without dots, got {name!r}; dots separate the modules")
    if name not in vars(module) and hasattr(module, name):
        raise UsageError(
            f"{type(module).__name__} already has an attribute {name!r}: choose another"
        )
    return name


def _moved(tensor: Tensor, where: tuple[Any, ...], dtype: Any, device: Any) -> Tensor:
    bare = tensor.detach()
    moved = bare.to(*where, dtype=dtype, device=device)
    if moved.dtype != bare.dtype and bare.dtype.kind not in "fc":
        # Counters and indices keep their dtype; only the device applies to them.
        return bare.to(device=moved.device)
    if moved.dtype.kind not in "fc" and bare.dtype.kind in "fc":
        raise UsageError(f"expected a real or complex dtype for a module, got {moved.dtype}")
    return moved
