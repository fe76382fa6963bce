"""A call or a result as a header and raw buffers, and back.

Three forms, the cheapest that fits:

- FLAT: every argument is an atom, a list of atoms or has a slot; no pickling at all (FLAT_TUPLE: a
  result that is a tuple of such);
- PICKLE: anything else, pickled with holes;
- PLAIN: in strict mode, nested containers without pickle.

Encoding has two steps, and decoding too, so that an interceptor can look at the slots and replace
them in between: `pack_call`/`pack_result`, then `seal`; `unseal`, then `open_call`/`open_result`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from telegrad.errors import ProtocolViolation, Refused, Unserializable, UsageError
from telegrad.rpc.security.introduction import Limits
from telegrad.rpc.wire import arrays, function_names, functions, kinds, pickler, plain
from telegrad.rpc.wire.arrays import CODES
from telegrad.rpc.wire.codes import CodeCache
from telegrad.rpc.wire.frames import Buffer
from telegrad.rpc.wire.header_check import check_header
from telegrad.rpc.wire.script import NO_NAMES, Names, script_name
from telegrad.rpc.wire.slots import Reference, build_slots, describe_slots

__all__ = ["Codec", "Parcel", "Sealed", "refuse_by_place"]

_FLAT, _FLAT_TUPLE, _PICKLE, _PLAIN = range(4)
_ATOMS: Final = frozenset((type(None), bool, int, float, str, bytes))
# Longer text and bytes are pickled, so that they travel as a buffer and not in the header.
_LARGEST_FLAT_BYTES: Final = 4096
# More are pickled: the header, whose size is bounded, stays small.
_MOST_FLAT_ITEMS: Final = 256
_ARRAY: Final = np.ndarray
# Types whose values have a slot wherever they are; filled as they are met.
_slotted: set[type] = {_ARRAY}
# Items that are nothing but holes, by their number, and where those are. Nobody changes these.
_MANY: Final = 9
_NOTHING: Final[list[list[None]]] = [[None] * count for count in range(_MANY)]
_ALL_HOLES: Final = [list(range(count)) for count in range(_MANY)]


class Parcel(msgspec.Struct, gc=False):
    """A value taken apart, before it is sealed. An interceptor may replace items of `slots`."""

    function: str | bytes | None
    form: int
    items: Any
    where: list[int]
    names: dict[str, Any] | None
    stream: bytes | None
    slots: list[Any]
    code: bytes | None = None


class Sealed(msgspec.Struct, array_like=True, gc=False):
    """The header of a call or of a result. `function` is a name, a digest, or None."""

    function: Any
    code: bytes | None
    extra: Any
    # Lists, if the peer is honest. Not checked here: what reads them does, and it takes time.
    slots: Any
    form: int
    items: Any
    where: Any
    names: dict[str, Any] | None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Sealed).decode


def _flat(
    function: str | bytes | None,
    form: int,
    items: Sequence[Any],
    names: dict[str, Any] | None = None,
    code: bytes | None = None,
) -> Parcel | None:
    """Return a parcel of the items, with None where each has a slot; None if they are not flat."""
    count = len(items)
    if 0 < count < _MANY and _slotted.issuperset(map(type, items)):
        # The usual case: nothing but arrays and tensors.
        slots = list(items)
        for item in slots:
            if type(item) is _ARRAY and item.dtype not in CODES and not arrays.is_raw(item):
                return None
        if count > 1 and len(set(map(id, slots))) < count:
            # One is here twice and must arrive as one object: pickle does that.
            return None
        return Parcel(function, form, _NOTHING[count], _ALL_HOLES[count], names, None, slots, code)
    if count > _MOST_FLAT_ITEMS:
        return None
    rest = list(items)
    where: list[int] = []
    slots = []
    lists: list[list[Any]] = []
    for index, item in enumerate(rest):
        type_ = type(item)
        if type_ is _ARRAY:
            if item.dtype not in CODES and not arrays.is_raw(item):
                return None
        elif type_ in _ATOMS:
            if (type_ is bytes or type_ is str) and len(item) > _LARGEST_FLAT_BYTES:
                return None
            continue
        elif type_ is list:
            lists.append(item)
            continue
        elif kinds.find(type_) is None and not issubclass(type_, Reference):
            return None
        else:
            _slotted.add(type_)
        rest[index] = None
        where.append(index)
        slots.append(item)
    if len(slots) > 1 and len(set(map(id, slots))) < len(slots):
        return None
    if lists and not _are_flat_lists(lists, len(items)):
        return None
    return Parcel(function, form, rest, where, names, None, slots, code)


class Codec:
    """Encodes and decodes for one worker. `strict`: no pickle, exposed functions only.

    `script` names what of the script goes by name, since all workers of the cluster run it.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
        self.script = NO_NAMES
        self.nothing = self.seal(self.pack_result(None), None)[0]

    def pack_call(
        self, function: Any, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None
    ) -> Parcel:
        """Take a call apart."""
        if not isinstance(args, (tuple, list)):
            if args is not None:
                raise UsageError(
                    f"expected args as a tuple, got {type(args).__name__}; one argument alone is "
                    "written with a comma: (x,)"
                )
            args = ()
        reference: str | bytes | None = function_names.importable_name(function)
        code = None
        if reference is None:
            if self.strict:
                raise Refused(
                    f"{function!r} can't be imported by name, and strict mode sends no code: "
                    "define it at the top of a module that every worker imports, not of the "
                    "script itself, and mark it with @rpc.expose"
                )
            if self.script:
                reference = script_name(function, self.script)
            if reference is None:
                pair = functions.code_of(function, self.script)
                if pair is not None:
                    reference, code = pair
        names = None if kwargs is None else _by_name(kwargs)
        if reference is not None and (not names or _are_flat(names.values())):
            parcel = _flat(reference, _FLAT, args, names, code)
            if parcel is not None:
                return parcel
        if reference is not None:
            return self._nested_call(reference, args, names or {}, code)
        call = (function, tuple(args), names or {})
        stream, slots = pickler.dumps(call, "(func, args)", self.script)
        return Parcel(None, _PICKLE, None, [], None, stream, slots)

    def pack_result(self, value: Any) -> Parcel:
        """Take a result apart."""
        form = _FLAT
        items: Sequence[Any] = (value,)
        if type(value) is tuple:
            form, items = _FLAT_TUPLE, value
        return _flat(None, form, items) or self._nested_result(value)

    def _nested_call(
        self, function: str | bytes, args: Sequence[Any], names: dict[str, Any], code: bytes | None
    ) -> Parcel:
        """Take a call apart that is not flat."""
        if self.strict:
            slots: list[Any] = []
            tree = plain.dump(tuple(args), "args", slots)
            named = {k: plain.dump(v, f"kwargs[{k!r}]", slots) for k, v in names.items()}
            return Parcel(function, _PLAIN, tree, [], named or None, None, slots)
        stream, slots = _dump_call(args, names, self.script)
        return Parcel(function, _PICKLE, None, [], None, stream, slots, code)

    def _nested_result(self, value: Any) -> Parcel:
        """Take a result apart that is not flat."""
        if self.strict:
            slots: list[Any] = []
            tree = plain.dump(value, "result", slots)
            return Parcel(None, _PLAIN, tree, [], None, None, slots)
        stream, slots = pickler.dumps(value, "result", self.script)
        return Parcel(None, _PICKLE, None, [], None, stream, slots)

    def seal(
        self,
        parcel: Parcel,
        extra: Any,
        export: Callable[[Any], list[Any]] | None = None,
        known: bool = False,
    ) -> tuple[bytes, list[Buffer]]:
        """Return header and buffers. `known`: the peer has the function's code already."""
        buffers: list[Buffer] = []
        if parcel.stream is not None:
            buffers.append(parcel.stream)
        try:
            slots = describe_slots(parcel.slots, buffers, export) if parcel.slots else []
        except Unserializable:
            refuse_by_place(parcel)
            raise
        first = (parcel.function, None if known else parcel.code, extra, slots)
        try:
            # As a `Sealed` would be, which would have to be made.
            rest = (parcel.form, parcel.items, parcel.where, parcel.names)
            return _encode(first + rest), buffers
        except (OverflowError, UnicodeEncodeError):
            # An integer beyond 64 bits or a lone surrogate: rare, so found out by trying.
            if parcel.form in (_FLAT, _FLAT_TUPLE):
                nested = self._nested(parcel)
                rest = (nested.form, nested.items, [], nested.names)
                if nested.stream is not None:
                    buffers.insert(0, nested.stream)
        try:
            return _encode(first + rest), buffers
        except UnicodeEncodeError as error:
            raise Unserializable(
                f"strict mode sends only text that is valid Unicode: {error}"
            ) from error

    def _nested(self, parcel: Parcel) -> Parcel:
        """Return what a flat parcel has in a form that takes more, with the same slots."""
        items = list(parcel.items)
        for index, value in zip(parcel.where, parcel.slots, strict=True):
            items[index] = value
        if parcel.function is not None:
            return self._nested_call(parcel.function, items, parcel.names or {}, parcel.code)
        return self._nested_result(tuple(items) if parcel.form == _FLAT_TUPLE else items[0])

    def unseal(
        self,
        header: bytes | bytearray,
        buffers: Sequence[Buffer],
        limits: Limits,
        accept: Callable[[list[list[Any]]], list[Any]] | None = None,
    ) -> tuple[Sealed, list[Any]]:
        """Return the header and the slots' values; nothing was unpickled yet."""
        if self.strict:
            check_header(header)
        try:
            sealed = _decode(header)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise ProtocolViolation(f"a malformed header came: {error}") from error
        form = sealed.form
        first = 0
        if form != _FLAT:
            if not _FLAT <= form <= _PLAIN:
                raise ProtocolViolation(f"expected a form from 0 to 3, got {form}")
            if form == _PICKLE:
                if self.strict:
                    raise Refused("this worker is strict: it takes no pickle")
                first = 1
        if not sealed.slots and len(buffers) == first:
            return sealed, []
        imports = not self.strict
        return sealed, build_slots(sealed.slots, buffers, first, limits.dimensions, accept, imports)

    def open_call(
        self,
        sealed: Sealed,
        slots: list[Any],
        buffers: Sequence[Buffer],
        codes: CodeCache | None = None,
    ) -> tuple[Any, Sequence[Any], Mapping[str, Any]]:
        """Return (function, args, kwargs); `codes` are the functions that the peer sent before."""
        reference = sealed.function
        if type(reference) is str:
            if self.strict:
                function = functions.resolve_exposed(reference)
            else:
                function = function_names.resolve_name(reference)
        elif type(reference) is bytes:
            function = self._received_function(reference, sealed.code, codes)
        else:
            if sealed.form != _PICKLE:
                raise ProtocolViolation("a call without a function came")
            return pickler.loads(buffers[0], slots)  # type: ignore[no-any-return]
        if sealed.form == _FLAT:
            args = _fill(sealed, slots) if sealed.items or slots else []
            return function, args, sealed.names or {}
        if sealed.form == _PICKLE:
            args, kwargs = pickler.loads(buffers[0], slots)
            return function, args, kwargs
        kwargs = {key: plain.load(tree, slots) for key, tree in (sealed.names or {}).items()}
        return function, plain.load(sealed.items, slots), kwargs

    def open_result(self, sealed: Sealed, slots: list[Any], buffers: Sequence[Buffer]) -> Any:
        """Return the result."""
        form = sealed.form
        if form == _FLAT:
            items = sealed.items if not slots and type(sealed.items) is list else None
            return (items or _fill(sealed, slots))[0]
        if form == _FLAT_TUPLE:
            return tuple(_fill(sealed, slots))
        if form == _PICKLE:
            return pickler.loads(buffers[0], slots)
        return plain.load(sealed.items, slots)

    def _received_function(self, digest: bytes, code: bytes | None, codes: CodeCache | None) -> Any:
        if self.strict:
            raise Refused("this worker is strict: it takes no functions by value")
        function = None if codes is None else codes.get(digest)
        if function is None:
            if code is None:
                raise ProtocolViolation("a function was named by a digest that never came")
            function = pickler.loads(code, [])
        if codes is not None and code is not None:
            codes.put(digest, function)
        return function


def refuse_by_place(parcel: Parcel) -> None:
    """Raise with the place of the argument that can't be sent, where it is one of a flat parcel."""
    name = "result" if parcel.function is None else "args"
    for place, value in zip(parcel.where, parcel.slots):
        try:
            kinds.check(value)
        except Unserializable as error:
            where = name if parcel.form == _FLAT and name == "result" else f"{name}[{place}]"
            raise Unserializable(f"{where} can't be sent: {error}") from error


def _by_name(kwargs: Any) -> dict[str, Any]:
    if not isinstance(kwargs, Mapping):
        raise UsageError(f"expected kwargs as a dict, got {type(kwargs).__name__}")
    for key in kwargs:
        if not isinstance(key, str):
            raise UsageError(f"expected names of arguments as the keys of kwargs, got {key!r:.100}")
    return dict(kwargs)


def _are_flat(values: Collection[Any]) -> bool:
    return len(values) <= _MOST_FLAT_ITEMS and all(
        type(value) in _ATOMS
        and not (isinstance(value, (str, bytes)) and len(value) > _LARGEST_FLAT_BYTES)
        for value in values
    )


def _are_flat_lists(lists: list[list[Any]], others: int) -> bool:
    """Say whether all of them are of atoms, few with the `others`, and each is here once."""
    if len(lists) > 1 and len({id(each) for each in lists}) < len(lists):
        return False
    return others + sum(map(len, lists)) <= _MOST_FLAT_ITEMS and all(map(_are_flat, lists))


def _dump_call(
    args: Sequence[Any], kwargs: dict[str, Any], script: Names
) -> tuple[bytes, list[Any]]:
    try:
        return pickler.dumps((tuple(args), kwargs), "call", script)
    except Unserializable:
        pickler.dumps(tuple(args), "args", script)
        pickler.dumps(kwargs, "kwargs", script)
        raise


def _fill(sealed: Sealed, slots: list[Any]) -> list[Any]:
    items, where = sealed.items, sealed.where
    count = len(slots)
    if 0 < count < _MANY and where == _ALL_HOLES[count] and items == _NOTHING[count]:
        return slots
    if type(items) is not list or type(where) is not list or len(where) != len(slots):
        raise ProtocolViolation(f"expected a list with {len(slots)} holes, got {items!r}")
    try:
        for index, value in zip(where, slots):
            items[index] = value
    except (IndexError, TypeError):
        raise ProtocolViolation(f"a hole at {where} lies outside {len(items)} items") from None
    if not items and sealed.form == _FLAT:
        raise ProtocolViolation("expected one result, got none")
    return items
