"""Pickling with holes: sends any object, with the values that have slots taken out of the stream.

A hole is an out-of-band buffer of pickle protocol 5: the stream says "the next one", and the
values are filled in from the list of slots. An object met twice has one slot. Functions and classes
that can't be imported by name are sent by value (cloudpickle).

Only between authenticated workers, and never in strict mode: unpickling runs what the stream says.
"""

import copyreg
import dataclasses
import inspect
import io
import pickle
import sys
from collections.abc import Iterator
from functools import partial
from importlib.util import MAGIC_NUMBER
from types import CodeType, CoroutineType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import cloudpickle
import numpy as np

from telegrad.errors import ProtocolViolation, Unserializable
from telegrad.rpc.wire import kinds
from telegrad.rpc.wire.script import NO_NAMES, Names, is_named
from telegrad.rpc.wire.slots import RawBuffer, has_slot

_PROTOCOL: Final = 5
# Writable: unpickling wraps the value of a read-only hole in a memoryview.
_HOLE: Final = pickle.PickleBuffer(bytearray())
_MOST_PATH_STEPS: Final = 64
# A flag of CPython's types: not made by a class statement.
_IMMUTABLE: Final = 1 << 8
# The length of cloudpickle's reduction of a named object; that of a class by value has six items.
_BY_NAME: Final = 2


def _filled(value: Any) -> Any:
    """Stand for a hole in the stream: unpickling passes it the value of the hole."""
    return value


def _give_out(slots: list[Any], buffer: pickle.PickleBuffer) -> None:
    if buffer is not _HOLE:
        slots.append(RawBuffer(buffer.raw()))


def _reduce_module(module: ModuleType) -> Any:
    """Return a part of a native module that can't be imported, as ``torch._C._functions``."""
    parent, _, name = module.__name__.rpartition(".")
    if module.__name__ not in sys.modules and parent in sys.modules:
        whole = sys.modules[parent]
        if getattr(whole, name, None) is module:
            return getattr, (whole, name)
    return _CLOUDPICKLES[ModuleType](module)


_CLOUDPICKLES: Final = cloudpickle.Pickler.dispatch_table
_BYTECODE: Final = MAGIC_NUMBER, f"{sys.version_info.major}.{sys.version_info.minor}"


def _reduce_code(code: CodeType) -> Any:
    return _code, (_BYTECODE, *_CLOUDPICKLES[CodeType](code)[1])


def _code(bytecode: tuple[bytes, str], *parts: Any) -> CodeType:
    """Return code that was sent; the bytecode of another Python could end this process."""
    if bytecode != _BYTECODE:
        raise Unserializable(
            f"expected code for Python {_BYTECODE[1]}, which runs here, got code for {bytecode[1]}:"
            " a function or class that goes by value needs the same Python on both workers; put "
            "it into a module that both import, so that it goes by name"
        )
    return CodeType(*parts)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    dispatch_table = _CLOUDPICKLES.new_child({ModuleType: _reduce_module, CodeType: _reduce_code})

    def __init__(self, file: io.BytesIO, script: Names) -> None:
        self.slots: list[Any] = []
        self._script = script
        # Not a method of this object: the cycle would keep all pickled objects until collected.
        super().__init__(file, _PROTOCOL, partial(_give_out, self.slots))

    def reducer_override(self, obj: Any) -> Any:
        if not has_slot(obj):
            if (
                self._script
                and isinstance(obj, (FunctionType, type))
                and is_named(obj, self._script)
            ):
                # By its name, as pickle does it.
                return NotImplemented
            reduced = super().reducer_override(obj)
            is_by_value = reduced is not NotImplemented and len(reduced) > _BY_NAME
            if is_by_value and isinstance(obj, type) and obj.__flags__ & _IMMUTABLE:
                # Native code. Sent by value it would fail at the receiver, with an obscure error.
                raise pickle.PicklingError(
                    f"the class {obj.__qualname__} of {obj.__module__} is not written in Python, "
                    "and its module has no such name"
                )
            return reduced
        # Check here, where an error can still name the path to the object.
        kinds.check(obj)
        self.slots.append(obj)
        # A new tuple each time: a shared one would be memoised, and so have only one hole.
        return _filled, (_HOLE,)


def dumps(value: Any, name: str, script: Names = NO_NAMES) -> tuple[bytes, list[Any]]:
    """Return the stream and the slots.

    Errors call the value `name`; `script` has the script's names that the receiver knows, too.
    """
    file = io.BytesIO()
    pickler = _Pickler(file, script)
    try:
        pickler.dump(value)
    except Exception as error:
        path, culprit = _find_culprit(value, name, script)
        if isinstance(culprit, CoroutineType):
            raise Unserializable(
                f"{path} can't be sent: a coroutine of {culprit.__qualname__} belongs to its "
                "process; send the function and its arguments, and the worker runs it"
            ) from error
        raise Unserializable(
            f"{path} can't be sent: {type(culprit).__qualname__} can't be pickled ({error})"
        ) from error
    return file.getvalue(), pickler.slots


def loads(stream: Any, slots: list[Any]) -> Any:
    """Return the object, its holes filled with the slots."""
    rest: Iterator[Any] = iter(slots)
    value = pickle.loads(stream, buffers=rest)
    if next(rest, rest) is not rest:
        raise ProtocolViolation(f"expected holes for {len(slots)} slots, the stream has fewer")
    return value


def _travels(value: Any, script: Names) -> bool:
    try:
        _Pickler(io.BytesIO(), script).dump(value)
    except Exception:
        return False
    return True


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    kind: Any = type(value)
    if isinstance(value, dict):
        for key, item in value.items():
            yield " (a key)", key
            yield f"[{key!r}]", item
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield f"[{index}]", item
    elif isinstance(value, (set, frozenset)):
        for item in value:
            yield " (an item)", item
    elif isinstance(value, FunctionType):
        for name, item in _captured(value).items():
            yield f" (its {name})", item
    elif isinstance(value, MethodType):
        yield " (its object)", value.__self__
    elif isinstance(value, partial):
        yield from ((".func", value.func), (".args", value.args), (".keywords", value.keywords))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield f".{field.name}", getattr(value, field.name, None)
    elif hasattr(value, "__dict__") and not isinstance(value, (type, np.ndarray)):
        for key, item in vars(value).items():
            yield f".{key}", item
    elif kind.__reduce__ is object.__reduce__:
        for name in copyreg._slotnames(kind):  # type: ignore[attr-defined]
            if hasattr(value, name):
                yield f".{name}", getattr(value, name)


def _captured(function: FunctionType) -> dict[str, Any]:
    try:
        variables = inspect.getclosurevars(function)
    except ValueError:
        # One of them is not bound yet.
        return {}
    return {**variables.nonlocals, **variables.globals}


def _find_culprit(value: Any, path: str, script: Names) -> tuple[str, Any]:
    """Descend to the innermost part that can't be pickled; slow, only for the error's text."""
    seen = {id(value)}
    for _ in range(_MOST_PATH_STEPS):
        for step, child in _children(value):
            if id(child) not in seen and not _travels(child, script):
                seen.add(id(child))
                path, value = path + step, child
                break
        else:
            return path, value
    return path, value
