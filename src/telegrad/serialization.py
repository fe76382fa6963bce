"""Saving and loading tensors by name, in the safetensors format.

The format contains numbers and no code; PyTorch and others read it. A file is written under another
name and put in place when complete, so a crash leaves the old file or the new one. A file is read
and checked as a whole before anything is returned. It has a digest of its numbers, so an altered
file is refused (files of other programs have none, and only their form is checked).
"""

import contextlib
import errno
import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from telegrad.arrays.devices import placed
from telegrad.arrays.host import in_host_memory
from telegrad.errors import GradientError, UsageError
from telegrad.tensors import Tensor, wrap
from telegrad.tensors.describe import kind_of

__all__ = ["load", "save"]

_DIGEST = "telegrad.blake2b"
_PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PK\x03\x04")
"""How pickles begin, including PyTorch's zipped ones."""
_DTYPES = frozenset(
    np.dtype(code) for code in ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"]
)
"""The dtypes that both the format and tensors have; float16, for instance, no tensor has."""


def save(state_dict: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write tensors (or NumPy arrays) by name; the file appears when complete, or not at all.

    The format is safetensors.

    Raises:
        UsageError: If this is no mapping from names to tensors, or the path can't be a file.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     tg.save({"weight": tg.ones(2)}, f"{folder}/model.safetensors")
        ...     print(tg.load(f"{folder}/model.safetensors"))
        {'weight': tensor([1., 1.])}
    """
    from safetensors.numpy import save as to_bytes

    if not isinstance(state_dict, Mapping):
        raise UsageError(
            f"expected a mapping from names to tensors to save, got {type(state_dict).__name__}; "
            "for a module, save its state_dict()"
        )
    arrays = {name: _array(name, value) for name, value in state_dict.items()}
    content = to_bytes(arrays, metadata={"format": "np", _DIGEST: _digest(arrays)})
    target = Path(path)
    if target.is_symlink():
        # The link stays, and its target is written.
        target = Path(os.path.realpath(target))
    if target.is_dir():
        raise IsADirectoryError(
            errno.EISDIR, "expected the name of a file to save in, got a directory", str(target)
        )
    if target.exists() and not target.is_file():
        raise UsageError(
            f"expected the name of a file to save in, got {str(target)!r}, which is none: it would "
            "be replaced"
        )
    # A part of the name shows where it belongs; with all of it, it might be too long.
    aside = target.with_name(f".{target.name[:50]}.{secrets.token_hex(8)}")
    try:
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except OSError as error:
        # The error names the target, since the user does not know the temporary file.
        raise type(error)(error.errno, _why(error, target), str(target)) from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileNotFoundError):
            os.chmod(aside, target.stat().st_mode & 0o777)
        os.replace(aside, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(aside)
        raise


def _why(error: OSError, target: Path) -> str:
    if isinstance(error, FileNotFoundError):
        return f"expected an existing directory to save in, got {str(target.parent)!r}"
    return os.strerror(error.errno or 0)


def load(path: str | os.PathLike[str], device: Any = "cpu") -> dict[str, Tensor]:
    """Return the tensors of a file by name; one that is cut short, altered or a pickle is refused.

    `device`: where the tensors are to be, wherever they were when they were saved.

    Raises:
        UsageError: If the file is not a whole safetensors file with the numbers that were saved.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     tg.save(tg.nn.Linear(2, 1).state_dict(), f"{folder}/model.safetensors")
        ...     print(sorted(tg.load(f"{folder}/model.safetensors")))
        ['bias', 'weight']
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load as from_bytes

    content = Path(path).read_bytes()
    if content.startswith(_PICKLES):
        raise UsageError(
            f"expected a safetensors file, got a pickle in {os.fspath(path)!r}, which could run "
            "code; write it again with telegrad.save or safetensors.torch.save_file"
        )
    try:
        arrays = from_bytes(content)
        metadata = _metadata(content)
    except KeyError as error:
        raise _lacked(error.args[0], path) from error
    except (SafetensorError, ValueError) as error:
        raise UsageError(
            f"expected a whole safetensors file, got one that is cut short or damaged in "
            f"{os.fspath(path)!r}: {error}"
        ) from error
    for array in arrays.values():
        if array.dtype not in _DTYPES:
            raise _lacked(array.dtype.name, path)
    expected = metadata.get(_DIGEST)
    if expected is not None and expected != _digest(arrays):
        raise UsageError(
            f"expected the numbers that were saved, got others in {os.fspath(path)!r}: the file "
            "was altered since telegrad.save wrote it"
        )
    return {name: wrap(placed(np.array(array), device)) for name, array in sorted(arrays.items())}


def _lacked(dtype: Any, path: str | os.PathLike[str]) -> UsageError:
    return UsageError(
        f"expected dtypes that telegrad has, got {dtype} in {os.fspath(path)!r}; write it again "
        "with such tensors as float32"
    )


def _array(name: Any, value: Any) -> Any:
    if not isinstance(name, str):
        raise UsageError(f"expected names as keys of what is saved, got {name!r}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise UsageError(f"expected a name that UTF-8 can write, got {name!r}") from None
    if name == "__metadata__":
        raise UsageError(f"expected another name than {name!r}, which the format keeps for itself")
    if not isinstance(value, (Tensor, np.ndarray, np.generic)):
        raise UsageError(
            f"expected a Tensor or NumPy array under {name!r}, got {kind_of(value)}; the "
            "format holds numbers by name and nothing else; an optimiser's state can be pickled"
        )
    if isinstance(value, Tensor) and value.is_dual:
        raise GradientError(
            f"expected a tensor without tangents under {name!r}, got one that carries some, which "
            "the format can't hold; use detach() to leave them behind on purpose"
        )
    own = in_host_memory(value.array) if isinstance(value, Tensor) else value
    array = np.asarray(own, order="C")
    if array.dtype.newbyteorder("=") not in _DTYPES:
        raise UsageError(
            f"expected real numbers of a dtype that telegrad has under {name!r}, got "
            f"{array.dtype}; save complex numbers as their real and imaginary parts"
        )
    # The format has one byte order, in which the numbers are written and digested.
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def _digest(arrays: Mapping[str, Any]) -> str:
    found = hashlib.blake2b(digest_size=32)
    for name in sorted(arrays):
        array = arrays[name]
        found.update(json.dumps([name, array.dtype.str, list(array.shape)]).encode())
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


def _metadata(content: bytes) -> dict[str, str]:
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    metadata: dict[str, str] = header.get("__metadata__") or {}
    return metadata
