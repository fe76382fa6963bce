"""Devices, by PyTorch's names: where an array is, and how its numbers get elsewhere.

"cpu" is the host's memory, "cuda" the current CUDA device and "cuda:1" the second one; arrays there
are CuPy's, which is imported when such a device is first named.

Invariant: an array is where it was asked to be, or a DeviceError says why not.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from telegrad.arrays.cupy import is_cupy
from telegrad.arrays.host import in_host_memory
from telegrad.errors import DeviceError

CPU: Final = "cpu"
_CUDA: Final = re.compile(r"cuda(?::([0-9]+))?")
_PINNED_FROM: Final = 1 << 20
"""Bytes; for less, getting pinned memory takes longer than it saves."""


def device_of(array: Any) -> Any:
    """Return where an array is, by telegrad's names or, for other libraries, by their own."""
    return f"cuda:{array.device.id}" if is_cupy(array) else array.device


def device_names() -> list[str]:
    """Return all devices that this process can use."""
    try:
        return [CPU, *(f"cuda:{i}" for i in range(_cupy("cuda").cuda.runtime.getDeviceCount()))]
    except DeviceError:
        return [CPU]


def named(device: Any) -> str:
    """Return the full name of a device, "cpu" or "cuda:0"; DeviceError if it does not exist."""
    said = f"cuda:{device.id}" if is_cupy(device) else str(device)
    if said == CPU:
        return CPU
    found = _CUDA.fullmatch(said)
    if found is None:
        raise DeviceError(
            f"expected the device 'cpu', 'cuda' or one such as 'cuda:0', got {device!r}"
        )
    cupy = _cupy(said)
    number = cupy.cuda.Device().id if found[1] is None else int(found[1])
    count = cupy.cuda.runtime.getDeviceCount()
    if number >= count:
        raise DeviceError(f"expected one of this process's {count} CUDA devices, got {said!r}")
    return f"cuda:{number}"


def placed(array: Any, device: Any) -> Any:
    """Return an array with the same numbers on a device; itself where it is there already."""
    # The common case first; and other libraries have names of their own, unknown to `named`.
    if str(device) == str(device_of(array)):
        return array
    name = named(device)
    if name == device_of(array):
        return array
    if name == CPU:
        return in_host_memory(array)
    cupy = _cupy(name)
    with _explained(cupy, name, array):
        given = _settled(cupy, array) if is_cupy(array) else np.asarray(array)
        with cupy.cuda.Device(int(name[5:])):
            made = cupy.asarray(given)
            # So that it is there for whichever stream uses it.
            cupy.cuda.get_current_stream().synchronize()
            return made


def _settled(cupy: Any, array: Any) -> Any:
    """Return an array as CuPy takes it to another device.

    Dense, or CuPy refuses it; and computed, since the other device's stream does not wait for it.
    """
    with array.device:
        dense = cupy.ascontiguousarray(array)
        cupy.cuda.get_current_stream().synchronize()
        return dense


def staged(array: Any) -> np.ndarray[Any, Any]:
    """Return the numbers in host memory, ready to be sent: large arrays in pinned memory."""
    if type(array) is np.ndarray or not is_cupy(array) or array.nbytes < _PINNED_FROM:
        return in_host_memory(array)
    import cupyx  # Here, as in `_cupy`.

    with _explained(_cupy("cuda"), device_of(array), array):
        out: np.ndarray[Any, Any] = cupyx.empty_pinned(array.shape, array.dtype)
        array.get(out=out)
        return out


def _cupy(device: str) -> Any:
    """Return CuPy, if there is a device that it can use."""
    try:
        # Here: CuPy need not be installed, and takes seconds to import.
        import cupy
    except ImportError as error:
        raise DeviceError(
            f"expected CuPy, which serves arrays on {device!r}, got none: install it (pip install "
            "cupy-cuda12x, or that of your CUDA), or use the device 'cpu'"
        ) from error
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise DeviceError(f"expected a CUDA device for {device!r}, got none ({error})") from error
    if not count:
        raise DeviceError(f"expected a CUDA device for {device!r}, got none")
    return cupy


@contextmanager
def _explained(cupy: Any, device: str, array: Any) -> Iterator[None]:
    """Turn what CuPy raises of a device into a DeviceError."""
    try:
        yield
    except cupy.cuda.memory.OutOfMemoryError as error:
        raise DeviceError(
            f"expected room on {device!r} for an array of shape {tuple(array.shape)} and "
            f"{array.dtype}, got none; free memory there, or use another device ({error})"
        ) from error
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise DeviceError(
            f"expected the device {device!r} to take an array of shape {tuple(array.shape)} and "
            f"{array.dtype}, got an error: {error}"
        ) from error
