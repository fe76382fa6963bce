"""How torch tensors are sent: as raw buffers, like telegrad's own.

Dense tensors of every dtype and sparse COO tensors can be sent. A dtype that NumPy lacks is sent as
integers of the same size (bfloat16) or as bytes. A CUDA tensor goes through the CPU to the device
of the same name, unless ``devices/`` decides otherwise. A Parameter stays one. What arrives is a
new leaf with the same ``requires_grad``; in a context, ``framework.py`` adds a history.

A tensor whose memory has no gaps (transposed, or in the format channels_last) keeps the order of
its axes in memory; any other arrives contiguous.

Invariant: a tensor arrives with its values, shape, dtype and class, or sending it raised an error.
"""

from functools import partial
from typing import Any, Final

import numpy as np
import torch

from telegrad.errors import DeviceError, ProtocolViolation, Unserializable
from telegrad.interop.torch.devices.staging import to_host
from telegrad.interop.torch.modes import run_ordinarily
from telegrad.interop.torch.values.arrays import CPU, is_transformed
from telegrad.rpc.wire import kinds

_NATIVE: Final = frozenset(
    getattr(torch, name)
    for name in (
        *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    )
)
"""The dtypes that NumPy has too."""
_is_inferring: Any = torch.is_inference_mode_enabled
_is_transforming: Any = torch._C._are_functorch_transforms_active
_DENSE, _SPARSE = range(2)
_STRIDED: Final = torch.strided
_TYPES: Final = frozenset((torch.Tensor, torch.nn.Parameter))


def register() -> None:
    """Register torch tensors with the serialiser."""
    kinds.register(torch.Tensor, to_parts, from_parts, tag="torch.Tensor", check=check)
    kinds.register(
        torch.nn.Parameter, to_parts, parameter_from_parts, tag="torch.nn.Parameter", check=check
    )


def to_parts(
    tensor: torch.Tensor, device: str | None = None
) -> tuple[list["np.ndarray[Any, Any]"], Any]:
    """Return a tensor's arrays and the facts to rebuild it: often only its ``requires_grad``.

    `device`: the receiver's device, if the tensor is not on the CPU here.
    """
    requires_grad = tensor.requires_grad
    # Some transforms (functionalize) would show NumPy memory that holds no values.
    if type(tensor) in _TYPES and not is_transformed(tensor):
        try:
            plain = tensor.data if requires_grad else tensor
            array = plain.numpy()
            if array.flags.c_contiguous:
                return [array], requires_grad
            order, ordered = _in_memory_order(plain)
            facts: list[Any] = [_DENSE, requires_grad, None, None, list(ordered.shape), order]
            return [ordered.numpy()], facts if order else requires_grad
        except (TypeError, RuntimeError):
            pass  # Not dense, not on the CPU, or not of a NumPy dtype: trying is the fastest test.
    check(tensor)
    if _is_transforming():
        # Inside a transform, every tensor that PyTorch makes lacks data of its own.
        return run_ordinarily(partial(to_parts, tensor, device))
    # Waits for the work that is queued on the device's current stream.
    plain = to_host(tensor.detach())
    there = None if tensor.is_cpu else device or str(tensor.device)
    if plain.layout is torch.sparse_coo:
        indices, values = plain._indices(), plain._values()
        name, array = _raw(values)
        facts = [_SPARSE, requires_grad, there, name, list(values.shape)]
        return [indices.numpy(), array], [*facts, list(plain.shape), plain.is_coalesced()]
    order, ordered = _in_memory_order(plain)
    name, array = _raw(ordered)
    return [array], [_DENSE, requires_grad, there, name, list(ordered.shape), order]


def _in_memory_order(tensor: torch.Tensor) -> tuple[list[int], torch.Tensor]:
    """Return the order of a non-contiguous tensor's axes in memory, and it permuted to that."""
    if not tensor.is_contiguous():
        strides = tensor.stride()
        order = sorted(range(tensor.ndim), key=lambda axis: -strides[axis])
        ordered = tensor.permute(order)
        if ordered.is_contiguous():
            return order, ordered
    return [], tensor


def from_parts(parts: list["np.ndarray[Any, Any]"], facts: Any) -> torch.Tensor:
    """Return a tensor over the memory of the arrays, or on the device that it was sent to."""
    # The thread that reads the message may be in inference mode or in a transform.
    if _is_inferring() or _is_transforming():
        return run_ordinarily(partial(_built, parts, facts))
    return torch.from_numpy(parts[0]) if facts is False else _built(parts, facts)


def _built(parts: list["np.ndarray[Any, Any]"], facts: Any) -> torch.Tensor:
    if type(facts) is bool:
        made = torch.from_numpy(parts[0])
        return made.requires_grad_() if facts else made
    kind, requires_grad, device, name, shape, *rest = facts
    if kind == _DENSE:
        made = _tensor_over(parts[0], name, shape)
        if rest and rest[0]:
            made = _reordered(made, rest[0])
        if made._is_view():
            # PyTorch forbids in-place changes of a view that a Python node returns.
            made = made.detach()
    else:
        size, is_coalesced = rest
        made = torch.sparse_coo_tensor(
            torch.from_numpy(parts[0]),
            _tensor_over(parts[1], name, shape),
            size,
            device=CPU,
            is_coalesced=is_coalesced,
            check_invariants=True,
        )
    return (made if device is None else _placed(made, device)).requires_grad_(requires_grad)


def _reordered(tensor: torch.Tensor, order: Any) -> torch.Tensor:
    """Undo the permutation of `_in_memory_order`."""
    axes = list(range(tensor.ndim))
    if sorted(order) != axes:
        raise ProtocolViolation(
            f"expected the axes of a torch tensor of {tensor.ndim} in some order, got "
            f"{order!r:.200}"
        )
    return tensor.permute([order.index(axis) for axis in axes])


def _placed(tensor: torch.Tensor, device: str) -> torch.Tensor:
    try:
        return tensor.to(device)
    except (RuntimeError, AssertionError) as error:
        raise DeviceError(
            f"expected a device that this process has ({torch.cuda.device_count()} of CUDA), got "
            f"{device!r} for a torch tensor of shape {tuple(tensor.shape)} and {tensor.dtype}; "
            "name another one in the sender's device map (Options.device_maps), or send it as "
            f".cpu() ({error})"
        ) from error


def parameter_from_parts(parts: list["np.ndarray[Any, Any]"], facts: Any) -> torch.Tensor:
    value = from_parts(parts, facts)
    requires_grad = value.requires_grad
    return run_ordinarily(lambda: torch.nn.Parameter(value.detach(), requires_grad=requires_grad))


def _raw(dense: torch.Tensor) -> tuple[str | None, "np.ndarray[Any, Any]"]:
    """Return a dense tensor as an array, and its dtype's name if the array has another dtype."""
    plain = dense.clone() if dense._is_zerotensor() else dense.resolve_conj().resolve_neg()
    if plain.dtype in _NATIVE:
        return None, plain.contiguous().numpy()
    name = str(plain.dtype).removeprefix("torch.")
    if plain.dtype is torch.bfloat16:
        return name, plain.view(torch.uint16).contiguous().numpy()
    if plain.dtype.itemsize == 1:
        # PyTorch can't copy all of these dtypes itself.
        plain = plain.view(torch.uint8)
    return name, plain.contiguous().reshape(-1).view(torch.uint8).numpy()


def _tensor_over(array: "np.ndarray[Any, Any]", name: str | None, shape: list[int]) -> torch.Tensor:
    if name is None:
        return torch.from_numpy(array)
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ProtocolViolation(f"expected the name of a torch dtype, got {name!r}")
    if not array.size:
        if 0 not in shape:
            # Else `torch.empty` would return as much as the peer likes of this process's old data.
            raise ProtocolViolation(
                f"expected the items of a torch tensor of {shape!r:.200}, got none"
            )
        return torch.empty(shape, dtype=dtype, device=CPU)
    return torch.from_numpy(array).view(dtype).reshape(shape)


def is_dense(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor is plain, dense data, on any device."""
    is_plain = type(tensor) in _TYPES and tensor.layout is _STRIDED
    return is_plain and not (tensor.is_quantized or tensor.is_nested or is_transformed(tensor))


def check(tensor: torch.Tensor) -> None:
    """Raise Unserializable for a tensor that can't be sent."""
    kind = type(tensor)
    if (
        kind in _TYPES
        and tensor.dtype in _NATIVE
        and tensor.layout is _STRIDED
        and tensor.is_cpu
        and not (tensor.is_nested or is_transformed(tensor))
    ):
        return
    if kind not in _TYPES:
        raise Unserializable(
            f"expected a torch.Tensor or an nn.Parameter, got one of the subclass "
            f"{kind.__module__}.{kind.__qualname__}, which can't be sent; send "
            "tensor.as_subclass(torch.Tensor), or its parts"
        )
    layout = tensor.layout
    is_odd = tensor.is_quantized or tensor.is_nested
    if is_odd or (layout is not torch.strided and layout is not torch.sparse_coo):
        what = "quantized" if tensor.is_quantized else "nested" if tensor.is_nested else layout
        raise Unserializable(
            f"expected a dense or a sparse COO torch tensor, got a {what} one, which can't be "
            "sent; convert it with to_dense(), to_sparse_coo(), dequantize() or unbind() first"
        )
    if is_transformed(tensor):
        raise Unserializable(
            "expected a torch tensor with numbers of its own, got one inside of a function "
            "transform (torch.func), which can't be sent; make the call outside of the transform"
        )
    if not tensor.is_cpu and not tensor.is_cuda:
        raise Unserializable(
            f"expected a torch tensor of the CPU or a CUDA device, got one on {tensor.device}, "
            "which can't be sent; move it with .cpu() first"
        )
