"""A call or a result as a header and raw buffers, and back.

Three forms, the cheapest that fits:

- FLAT: every argument is an atom, a list of atoms or has a slot; no pickling at all (FLAT_TUPLE:
  a result that is a tuple of such items);
- PICKLE: anything else, pickled with holes;
- PLAIN: in strict mode, nested containers without pickle.

Encoding and decoding have two steps each, so that an interceptor can look at the slots and replace
them in between: `pack_call`/`pack_result`, then `seal`; `unseal`, then `open_call`/`open_result`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from telegrad.errors import ProtocolViolation, Refused, Unserializable, UsageError
from telegrad.rpc.security.introduction import Limits
from telegrad.rpc.wire import arrays, function_names, functions, kinds, pickler, plain
from telegrad.rpc.wire.arrays import CODES, Descriptor
from telegrad.rpc.wire.codes import CodeCache
from telegrad.rpc.wire.frames import Buffer
from telegrad.rpc.wire.header_check import check_header
from telegrad.rpc.wire.script import NO_NAMES, Names, script_name
from telegrad.rpc.wire.slots import Entry, build_slots, describe_slots, has_slot

_FLAT, _FLAT_TUPLE, _PICKLE, _PLAIN = range(4)
_ATOMS: Final = frozenset((type(None), bool, int, float, str, bytes))
# Longer text and bytes are pickled, so that they are sent in a buffer and not in the header.
_LARGEST_FLAT_BYTES: Final = 4096
# More items are pickled: the header, whose size is bounded, stays small.
_MOST_FLAT_ITEMS: Final = 256
_ARRAY: Final = np.ndarray
# Types whose values always have a slot; filled as they are met.
_slotted: set[type] = {_ARRAY}
_are_slotted: Final = _slotted.issuperset


class Parcel(msgspec.Struct, gc=False):
    """A value taken apart, before it is sealed. An interceptor may replace items of `slots`.

    `rest` is (form, items, where, names) of a `Sealed`, without trailing defaults.
    """

    function: str | bytes | None
    slots: list[Any]
    rest: tuple[Any, ...] = ()
    stream: bytes | None = None
    code: bytes | None = None


class Sealed(msgspec.Struct, array_like=True, gc=False):
    """The header of a call or of a result; the fields that most need come first, and it ends there.

    `function` is a name, or a digest and perhaps the code, or None. Without `entries` all slots are
    arrays; without `items` every item has a slot, else `where` says which items have one.
    """

    function: str | tuple[bytes, bytes | None] | None
    extra: Any
    arrays: list[Descriptor]
    entries: list[Entry] | None = None
    references: list[list[Any]] | None = None
    form: int = _FLAT
    items: Any = None
    where: tuple[int, ...] = ()
    names: dict[str, Any] | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Sealed).decode


def _flat(
    function: str | bytes | None,
    items: Sequence[Any],
    form: int = _FLAT,
    names: dict[str, Any] | None = None,
    code: bytes | None = None,
) -> Parcel | None:
    """Return a parcel of the items, with None in place of slots; None if they are not flat."""
    if len(items) > _MOST_FLAT_ITEMS:
        return None
    slots = list(items)
    rest: tuple[Any, ...] = ()
    if form or names:
        rest = (form, [None] * len(slots), list(range(len(slots))), names)
    if slots and not _are_slotted(map(type, slots)):
        left, where = slots, []
        lists: list[list[Any]] = []
        slots = []
        for place, item in enumerate(left):
            type_ = type(item)
            if type_ in _ATOMS:
                if (type_ is str or type_ is bytes) and len(item) > _LARGEST_FLAT_BYTES:
                    return None
            elif type_ is list:
                lists.append(item)
            else:
                if type_ not in _slotted:
                    if not has_slot(item):
                        return None
                    _slotted.add(type_)
                slots.append(item)
                where.append(place)
                left[place] = None
        if lists and not _are_flat_lists(lists, len(left)):
            return None
        rest = (form, left, where, names)
    for item in slots:
        if type(item) is _ARRAY and item.dtype not in CODES and not arrays.is_raw(item):
            return None
    if len(slots) > 1 and len(set(map(id, slots))) < len(slots):
        # A value is here twice and must arrive as one object, as a pickle ensures.
        return None
    return Parcel(function, slots, rest, None, code)


class Codec:
    """Encodes and decodes for one worker. `strict`: no pickle, exposed functions only.

    `script` has the script's names that all workers of the cluster know, since they run it, too.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
        self.script = NO_NAMES
        self._resolve = functions.resolve_exposed if strict else function_names.resolve_name
        self.nothing = self.seal(self.pack_result(None), None)[0]

    def pack_call(
        self, function: Any, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None
    ) -> Parcel:
        """Take a call apart."""
        if type(args) is not tuple:
            args = _by_place(args)
        names = None if kwargs is None else _by_name(kwargs)
        reference: str | bytes | None = function_names.importable_name(function)
        code = None
        if reference is None:
            reference, code = self._reference_by_value(function)
            if reference is None:
                call = (function, tuple(args), names or {})
                stream, slots = pickler.dumps(call, "(func, args)", self.script)
                return Parcel(None, slots, (_PICKLE,), stream)
        if not names or _are_flat(names.values()):
            parcel = _flat(reference, args, _FLAT, names, code)
            if parcel is not None:
                return parcel
        return self._nested_call(reference, args, names or {}, code)

    def _reference_by_value(self, function: Any) -> tuple[str | bytes | None, bytes | None]:
        """Return the reference and the code of a function that can't be imported by name.

        No reference if it holds slots: then it is sent with its arguments.
        """
        if self.strict:
            raise Refused(
                f"{function!r} can't be imported by name, and strict mode sends no code: "
                "define it at the top of a module that every worker imports, not of the "
                "script itself, and mark it with @rpc.expose"
            )
        if self.script:
            name = script_name(function, self.script)
            if name is not None:
                return name, None
        return functions.code_of(function, self.script) or (None, None)

    def pack_result(self, value: Any) -> Parcel:
        """Take a result apart."""
        if type(value) is tuple:
            parcel = _flat(None, value, _FLAT_TUPLE)
        else:
            parcel = _flat(None, (value,))
        return parcel or self._nested_result(value)

    def _nested_call(
        self, function: str | bytes, args: Sequence[Any], names: dict[str, Any], code: bytes | None
    ) -> Parcel:
        """Take a call apart that is not flat."""
        if self.strict:
            slots: list[Any] = []
            tree = plain.dump(tuple(args), "args", slots)
            named = {k: plain.dump(v, f"kwargs[{k!r}]", slots) for k, v in names.items()}
            return Parcel(function, slots, (_PLAIN, tree, (), named or None))
        stream, slots = _dump_call(args, names, self.script)
        return Parcel(function, slots, (_PICKLE,), stream, code)

    def _nested_result(self, value: Any) -> Parcel:
        """Take a result apart that is not flat."""
        if self.strict:
            slots: list[Any] = []
            tree = plain.dump(value, "result", slots)
            return Parcel(None, slots, (_PLAIN, tree))
        stream, slots = pickler.dumps(value, "result", self.script)
        return Parcel(None, slots, (_PICKLE,), stream)

    def seal(
        self,
        parcel: Parcel,
        extra: Any,
        export: Callable[[Any], list[Any]] | None = None,
    ) -> tuple[bytes, list[Buffer]]:
        """Return header and buffers; `export` gives the descriptor of a reference."""
        buffers: list[Buffer] = []
        if parcel.stream is not None:
            buffers.append(parcel.stream)
        rest = parcel.rest
        function: Any = parcel.function
        if type(function) is bytes:
            function = (function, parcel.code)
        # Encoded as a `Sealed` would be, without making one.
        head: tuple[Any, ...] = (function, extra)
        if not parcel.slots:
            head += ((), None, None)
        else:
            try:
                head += describe_slots(parcel.slots, buffers, export)
            except Unserializable:
                refuse_by_place(parcel)
                raise
        try:
            return _encode(head + rest), buffers
        except (OverflowError, UnicodeEncodeError):
            # An integer beyond 64 bits or a lone surrogate: rare, so detected by trying.
            if rest and rest[0] in (_FLAT, _FLAT_TUPLE):
                nested = self._nested(parcel)
                rest = nested.rest
                if nested.stream is not None:
                    buffers.insert(0, nested.stream)
        try:
            return _encode(head + rest), buffers
        except UnicodeEncodeError as error:
            raise Unserializable(
                f"strict mode sends only text that is valid Unicode: {error}"
            ) from error

    def _nested(self, parcel: Parcel) -> Parcel:
        """Return a flat parcel's value in a nested form, with the same slots."""
        form, items, where, names = parcel.rest
        for index, value in zip(where, parcel.slots, strict=True):
            items[index] = value
        if parcel.function is not None:
            return self._nested_call(parcel.function, items, names or {}, parcel.code)
        return self._nested_result(tuple(items) if form == _FLAT_TUPLE else items[0])

    def unseal(
        self,
        header: bytes | bytearray,
        buffers: Sequence[Buffer],
        limits: Limits,
        accept: Callable[[list[list[Any]]], list[Any]] | None = None,
    ) -> tuple[Sealed, list[Any]]:
        """Return the header and the slots' values, without unpickling anything yet."""
        if self.strict:
            check_header(header)
        try:
            sealed = _decode(header)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise ProtocolViolation(f"a malformed header came: {error}") from error
        first = 0
        if sealed.form:
            if not _FLAT <= sealed.form <= _PLAIN:
                raise ProtocolViolation(f"expected a form from 0 to 3, got {sealed.form}")
            if sealed.form == _PICKLE:
                if self.strict:
                    raise Refused("this worker is strict: it takes no pickle")
                first = 1
        content: list[Any] = []
        if sealed.arrays:
            content, first = arrays.build_all(sealed.arrays, buffers, first, limits.dimensions)
        if len(buffers) != first and (sealed.entries is None or len(buffers) < first):
            raise ProtocolViolation(f"expected {first} buffers in the frame, got {len(buffers)}")
        if sealed.entries is not None:
            # Accept all references at once, so that they are counted in few messages; and before
            # building values of kinds, which may fail: the sender would wait for ever to hear about
            # references that were not accepted.
            references = accept(sealed.references) if sealed.references and accept else ()
            raw, imports = buffers[first:], not self.strict
            content = build_slots(sealed.entries, content, references, raw, imports)
        return sealed, content

    def open_call(
        self,
        sealed: Sealed,
        slots: list[Any],
        buffers: Sequence[Buffer],
        codes: CodeCache | None = None,
    ) -> tuple[Any, Sequence[Any], Mapping[str, Any]]:
        """Return (function, args, kwargs); `codes` are the functions that the peer sent before."""
        reference = sealed.function
        if isinstance(reference, str):
            function = self._resolve(reference)
        elif reference is not None:
            function = self._received_function(reference, codes)
        elif sealed.form == _PICKLE:
            return pickler.loads(buffers[0], slots)  # type: ignore[no-any-return]
        else:
            raise ProtocolViolation("a call without a function came")
        if not sealed.form:
            args = slots if sealed.items is None else _fill(sealed, slots)
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
            items = slots if sealed.items is None else _fill(sealed, slots)
            if not items:
                raise ProtocolViolation("expected one result, got none")
            return items[0]
        if form == _FLAT_TUPLE:
            return tuple(slots if sealed.items is None else _fill(sealed, slots))
        if form == _PICKLE:
            return pickler.loads(buffers[0], slots)
        return plain.load(sealed.items, slots)

    def _received_function(
        self, reference: tuple[bytes, bytes | None], codes: CodeCache | None
    ) -> Any:
        if self.strict:
            raise Refused("this worker is strict: it takes no functions by value")
        digest, code = reference
        function = None if codes is None else codes.get(digest)
        if function is None:
            if code is None:
                raise ProtocolViolation("a function was named by a digest that never came")
            function = pickler.loads(code, [])
        if codes is not None and code is not None:
            codes.put(digest, function)
        return function


def refuse_by_place(parcel: Parcel) -> None:
    """Raise an error that names the place of a flat parcel's value that can't be sent."""
    name = "result" if parcel.function is None else "args"
    sealed = Sealed(None, None, [], None, None, *parcel.rest)
    places = sealed.where if parcel.rest else range(len(parcel.slots))
    for place, value in zip(places, parcel.slots):
        try:
            kinds.check(value)
        except Unserializable as error:
            where = name if sealed.form == _FLAT and name == "result" else f"{name}[{place}]"
            raise Unserializable(f"{where} can't be sent: {error}") from error


def _by_place(args: Any) -> Sequence[Any]:
    if args is None:
        return ()
    if not isinstance(args, (tuple, list)):
        raise UsageError(
            f"expected args as a tuple, got {type(args).__name__}; one argument alone is "
            "written with a comma: (x,)"
        )
    return args


def _by_name(kwargs: Any) -> dict[str, Any]:
    if not isinstance(kwargs, Mapping):
        raise UsageError(f"expected kwargs as a dict, got {type(kwargs).__name__}")
    for key in kwargs:
        if not isinstance(key, str):
            raise UsageError(f"expected names of arguments as the keys of kwargs, got {key!r:.100}")
    return dict(kwargs)


def _are_flat(values: Collection[Any]) -> bool:
    return not values or (
        len(values) <= _MOST_FLAT_ITEMS
        and _ATOMS.issuperset(map(type, values))
        and all(len(x) <= _LARGEST_FLAT_BYTES for x in values if isinstance(x, (str, bytes)))
    )


def _are_flat_lists(lists: list[list[Any]], others: int) -> bool:
    """Say whether all hold just atoms, few with the `others`, and no list is here twice."""
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
    if type(items) is not list or len(where) != len(slots):
        raise ProtocolViolation(f"expected a list with {len(slots)} holes, got {items!r}")
    try:
        for index, value in zip(where, slots):
            items[index] = value
    except IndexError:
        raise ProtocolViolation(f"a hole at {where} lies outside {len(items)} items") from None
    return items
