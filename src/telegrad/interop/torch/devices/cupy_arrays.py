"""Convert CuPy arrays, which hold telegrad's own tensors on a device, to torch tensors and back.

Both libraries use the same memory through DLPack: nothing is copied. Each has a current stream,
usually the device's default one; where the two differ, one stream waits for the other on the
device, and memory is not reused before both are done with it.

Dtypes that DLPack or PyTorch may lack are converted as signed integers of the same size.
"""

import sys
from functools import cache
from importlib.util import find_spec
from typing import Any

import msgspec
import numpy as np
import torch
import torch.utils.dlpack

from telegrad.arrays.cupy import is_cupy
from telegrad.errors import DeviceError, DTypeError, ProtocolViolation
from telegrad.interop.torch.devices.runtime import runtime

_external_stream: Any = torch.cuda.ExternalStream
_from_dlpack: Any = torch.utils.dlpack.from_dlpack


class Own(msgspec.Struct, array_like=True, frozen=True):
    """Facts about a telegrad Tensor that the torch tensor carrying it does not have."""

    dtype: str
    history: int = 0
    is_parameter: bool = False


def can_carry(array: Any) -> bool:
    """Tell whether this is a CuPy array and PyTorch can use its device."""
    return is_cupy(array) and _has_cuda()


@cache
def _has_cuda() -> bool:
    return torch.cuda.is_available()


def as_torch(array: Any) -> torch.Tensor:
    """Return a torch tensor over an array's memory, or over a copy if that is not contiguous."""
    dense = array if array.flags.c_contiguous else _copied_where_it_is(array)
    if dense.dtype.kind in "bu":
        dense = dense.view(f"int{8 * dense.dtype.itemsize}")
    if not dense.size:
        dtype = getattr(torch, dense.dtype.name)
        return torch.empty(dense.shape, dtype=dtype, device=f"cuda:{array.device.id}")
    made: torch.Tensor = _from_dlpack(dense)
    return made


def _copied_where_it_is(array: Any) -> Any:
    # CuPy copies to the current device, not to the array's.
    with array.device:
        return array.copy()


def copied(tensor: torch.Tensor) -> Any:
    """Return the values of a CUDA tensor as a CuPy array with memory of its own.

    Shared memory would be unsafe: unlike on the host, a change of saved values would go unseen.
    """
    if find_spec("cupy") is None:
        raise DeviceError(
            f"expected CuPy, which serves telegrad's tensors on {tensor.device}, to be installed; "
            "install cupy, or call .cpu() first"
        )
    name = str(tensor.dtype).removeprefix("torch.")
    # Not np.dtype(name): other packages register more names there.
    if not hasattr(np, name):
        raise DTypeError(
            f"expected a torch tensor of a dtype that CuPy has, got {tensor.dtype}; convert it "
            "first, e.g. with .float()"
        )
    plain = tensor.detach().resolve_conj().resolve_neg().clone()
    return as_array(plain.view(torch.int8) if name == "bool" else plain, Own(name), "this one")


def as_array(tensor: torch.Tensor, own: Own, frm: str) -> Any:
    """Return an array over the memory of a received tensor: CuPy's, or NumPy's on the CPU."""
    dtype = _checked(own.dtype, tensor, frm)
    if not tensor.is_cuda:
        array = tensor.numpy()
        return array if array.dtype == dtype else array.view(dtype)
    # Imported here: this process may not have needed CuPy before the sender used it.
    import cupy

    index = tensor.device.index or 0
    with cupy.cuda.Device(index):
        if not tensor.numel():
            return cupy.empty(tuple(tensor.shape), dtype)
        array = cupy.from_dlpack(tensor)
        stream = cupy.cuda.get_current_stream().ptr
    if stream != runtime().stream(index):
        tensor.record_stream(_external_stream(stream, index))
    return array if array.dtype == dtype else array.view(dtype)


def _checked(name: str, tensor: torch.Tensor, frm: str) -> "np.dtype[Any]":
    try:
        dtype = np.dtype(name)
    except TypeError:
        dtype = np.dtype(object)
    if dtype.kind in "biufc" and dtype.itemsize == tensor.dtype.itemsize:
        return dtype
    raise ProtocolViolation(
        f"worker {frm!r} sent a tensor of {tensor.dtype} as one of {name[:40]!r}"
    )


def let_cupy_wait(index: int, stream: int | None = None) -> None:
    """Make CuPy's current stream wait, on the device, for a PyTorch stream (default: current)."""
    cupy = sys.modules.get("cupy")
    if cupy is None:
        return
    with cupy.cuda.Device(index):
        own = cupy.cuda.get_current_stream().ptr
    other = runtime().stream(index) if stream is None else stream
    if own != other:
        there = _external_stream(other, index) if other else torch.cuda.default_stream(index)
        mine = _external_stream(own, index) if own else torch.cuda.default_stream(index)
        mine.wait_stream(there)
