"""Calls and results are taken apart and put together again, whatever is in them."""

import collections
import dataclasses
import functools
import operator
import sys
import threading
import types
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telegrad.errors import ProtocolViolation, Refused, TelegradError, Unserializable, UsageError
from telegrad.rpc.calls.future import Future
from telegrad.rpc.security.introduction import Limits
from telegrad.rpc.wire import functions, kinds, pickler
from telegrad.rpc.wire.codec import Codec, Sealed
from telegrad.rpc.wire.slots import Reference

LIMITS = Limits()
Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass
class Box:
    content: Any
    label: str = "box"

    def show(self):
        return self.content


class Pair:
    def __init__(self, x, y):
        self.x, self.y = x, y


kinds.register(Pair, lambda p: ([p.x, p.y], 0), lambda parts, _: Pair(*parts), tag="tests.Pair")


class Slotted:
    __slots__ = ("content", "unset")

    def __init__(self, content):
        self.content = content


LOOP: list = []
LOOP += [LOOP, threading.Lock()]


@functions.expose
def exposed(*args, **kwargs):
    return args, kwargs


def total(*args, **kwargs):
    return args, kwargs


def travel_call(function, args=(), kwargs=None, codec=None, other=None):
    codec = codec or Codec()
    other = other or codec
    header, buffers = codec.seal(codec.pack_call(function, args, kwargs), None)
    copies = [memoryview(bytearray(buffer)) for buffer in buffers]
    sealed, slots = other.unseal(header, copies, LIMITS)
    return other.open_call(sealed, slots, copies)


def travel(value, codec=None):
    codec = codec or Codec()
    header, buffers = codec.seal(codec.pack_result(value), None)
    copies = [memoryview(bytearray(buffer)) for buffer in buffers]
    sealed, slots = codec.unseal(header, copies, LIMITS)
    return codec.open_result(sealed, slots, copies)


ATOMS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.complex_numbers(allow_nan=False),
)
VALUES = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.text(max_size=3), inner, max_size=4),
        st.dictionaries(st.integers(), inner, max_size=4),
    ),
    max_leaves=12,
)


@settings(deadline=None, max_examples=60)
@given(value=VALUES, strict=st.booleans())
def test_values_keep_their_types_in_both_modes(value, strict):
    back = travel(value, Codec(strict=strict))
    assert back == value
    assert type(back) is type(value)


@settings(deadline=None, max_examples=40)
@given(args=st.lists(VALUES, max_size=3), kwargs=st.dictionaries(st.text(), VALUES, max_size=3))
def test_calls_keep_their_arguments_in_both_modes(args, kwargs):
    for codec in (Codec(), Codec(strict=True)):
        function, got, named = travel_call(exposed, args, kwargs, codec)
        assert function is exposed
        assert (list(got), dict(named)) == (args, kwargs)


def test_arrays_anywhere_have_a_slot_each():
    a, b, c, d = (np.full(2, float(n)) for n in range(4))
    value = {"list": [a, (b, {"deep": c})], "box": Box(d), "point": Point(1, 2)}
    parcel = Codec().pack_result(value)
    assert [slot[0] for slot in parcel.slots] == [0.0, 1.0, 2.0, 3.0]
    back = travel(value)
    assert isinstance(back["box"], Box)
    assert isinstance(back["point"], Point)
    assert np.array_equal(back["box"].content, d)


def test_an_array_in_a_closure_is_seen_at_every_call():
    weight = np.ones(3)

    def scale(x):
        return x * weight

    codec = Codec()
    for _ in range(2):
        parcel = codec.pack_call(scale, (2.0,), None)
        assert len(parcel.slots) == 1
        assert parcel.slots[0] is weight


def test_an_array_in_a_default_or_a_partial_is_seen():
    weight = np.ones(3)

    def scale(x, w=weight):
        return x * w

    assert any(slot is weight for slot in Codec().pack_call(scale, (), None).slots)
    part = functools.partial(operator.mul, weight)
    assert any(slot is weight for slot in Codec().pack_call(part, (1,), None).slots)


def test_very_many_arrays_are_pickled_and_not_compared_each_with_all_others():
    few, many = (tuple(np.full(1, i) for i in range(count)) for count in (100, 1000))
    assert Codec().pack_result(few).stream is None
    assert Codec().pack_result(many).stream is not None
    assert Codec().pack_call(total, many, None).stream is not None
    assert [array.item() for array in travel(many)] == list(range(1000))


def test_lists_of_atoms_are_not_pickled():
    x = np.ones(3)
    parcel = Codec().pack_call(total, ([], x, [1, "two", 3.0, None, b"5", True]), None)
    assert parcel.stream is None
    _, args, _ = travel_call(total, ([], x, [1, "two", 3.0, None, b"5", True]))
    assert args[0] == []
    assert args[2] == [1, "two", 3.0, None, b"5", True]
    assert [type(each) for each in args[2]] == [int, str, float, type(None), bytes, bool]


def test_one_list_twice_stays_one_list_and_two_equal_ones_stay_two():
    one = [1, 2]
    _, args, _ = travel_call(total, (one, one, [1, 2]))
    assert args[0] is args[1]
    assert args[2] is not args[0]


@pytest.mark.parametrize(
    "value", [[[1], 2], [(1, 2)], ["a" * 5000], list(range(300)), [1, 1 << 70], [np.float64(1.0)]]
)
def test_other_lists_arrive_as_they_were(value):
    _, (came,), _ = travel_call(total, (value,))
    assert came == value
    assert [type(each) for each in came] == [type(each) for each in value]


def test_many_lists_are_pickled_since_the_size_of_the_header_is_bounded():
    parcel = Codec().pack_call(total, tuple(["a" * 4000] * 100 for _ in range(3)), None)
    assert parcel.stream is not None


def test_one_array_twice_stays_one_array():
    a = np.ones(2)
    _, (x, y), _ = travel_call(total, (a, a))
    assert x is y
    assert len(Codec().pack_call(total, (a, [a]), None).slots) == 1


def test_two_equal_arrays_stay_two():
    _, (x, y), _ = travel_call(total, (np.ones(2), np.ones(2)))
    assert x is not y


def test_slots_replaced_on_the_way_out_arrive_replaced():
    codec = Codec()
    parcel = codec.pack_result([np.zeros(2), "rest"])
    parcel.slots[0] = np.ones(2)
    header, buffers = codec.seal(parcel, None)
    sealed, slots = codec.unseal(header, buffers, LIMITS)
    slots[0] = slots[0] * 5
    assert codec.open_result(sealed, slots, buffers)[0].tolist() == [5.0, 5.0]


class Named(Reference):
    def __init__(self, number):
        self.number = number


@pytest.mark.parametrize("size", [3, 5000])
def test_slots_of_every_sort_in_one_message_arrive_in_their_places(size):
    """Arrays and other buffers of all of them are in one frame; references come all at once."""
    raw = np.zeros(size, [("a", "i4")])
    pair = Pair(np.full(size, 1.0), np.full(size, 2.0))
    value = [Named(1), np.arange(size), raw, pair, Named(2), np.float32([5]), raw[:1].copy(), pair]
    codec, asked = Codec(), []

    def accept(fields):
        asked.append(fields)
        return [Named(number) for [number] in fields]

    parcel = codec.pack_result(value)
    header, buffers = codec.seal(parcel, None, lambda reference: [reference.number])
    copies = [memoryview(bytearray(buffer)) for buffer in buffers]
    sealed, slots = codec.unseal(header, copies, LIMITS, accept)
    one, ints, first, two_arrays, two, five, second, again = codec.open_result(
        sealed, slots, copies
    )
    assert asked == [[[1], [2]]]
    assert (one.number, two.number, five.tolist()) == (1, 2, [5])
    assert np.array_equal(ints, np.arange(size))
    assert (first.dtype, len(first), len(second)) == (raw.dtype, size, 1)
    assert (two_arrays.x[0], two_arrays.y[-1]) == (1, 2)
    assert again is two_arrays


def test_references_are_accepted_before_a_kind_is_made_which_may_fail():
    codec, asked = Codec(), []
    header = msgspec.msgpack.encode([None, None, [], [["tests.gone", 0, 0], [1, None, 0]], [[7]]])
    with pytest.raises(Unserializable, match=r"kind 'tests\.gone' came"):
        codec.unseal(header, [], LIMITS, lambda fields: asked.append(fields) or [Named(7)])
    assert asked == [[[7]]]


def test_object_arrays_and_other_exporters_of_buffers_travel():
    back = travel({"o": np.array([1, "a", None], dtype=object), "s": np.zeros(2, [("a", "i4")])})
    assert back["o"].tolist() == [1, "a", None]
    assert back["s"].dtype.names == ("a",)
    matrix = travel([np.ma.masked_array([1.0, 2.0], [True, False])])[0]
    assert matrix.mask.tolist() == [True, False]


def test_integers_beyond_64_bits_and_lone_surrogates_travel():
    assert travel(2**80) == 2**80
    assert travel("\ud800") == "\ud800"
    _, args, _ = travel_call(total, (2**70, np.ones(1)))
    assert args[0] == 2**70


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 1 << 20_000], ids=["+", "-", "huge"])
def test_strict_mode_sends_integers_of_any_size_alone_or_in_containers(number):
    strict = Codec(strict=True)
    assert travel(number, strict) == number
    for value in ((number, 1.0), [number]):
        assert travel(value, strict) == value
    _, args, named = travel_call(exposed, (number, np.ones(1)), {"n": number}, strict)
    assert (args[0], args[1].tolist(), named) == (number, [1.0], {"n": number})


@pytest.mark.parametrize("text", ["\ud800", ["\ud800"], (2**64, "\ud800")], ids=ascii)
def test_strict_mode_refuses_text_that_is_no_unicode(text):
    strict = Codec(strict=True)
    with pytest.raises(Unserializable, match="strict mode sends only text that is valid Unicode"):
        travel(text, strict)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        (("x" * 100_000,), None),
        ((), {"text": "x" * 100_000}),
        ((), {"data": b"x" * 100_000}),
        (("x" * 1000,) * 1000, None),
        ((), {f"k{i}": "x" * 1000 for i in range(1000)}),
    ],
    ids=["text", "text by name", "bytes by name", "many texts", "many texts by name"],
)
def test_long_text_does_not_travel_in_the_header_whose_size_is_bounded(args, kwargs):
    codec = Codec()
    header, _ = codec.seal(codec.pack_call(total, args, kwargs), None)
    assert len(header) < 1000
    _, came, named = travel_call(total, args, kwargs)
    assert (tuple(came), dict(named)) == (args, kwargs or {})


@pytest.mark.parametrize("value", [slice(1, None, 2), ..., [slice(None), ...], "x" * 5000])
def test_indices_and_long_text_travel_in_both_modes(value):
    for codec in (Codec(), Codec(strict=True)):
        assert travel(value, codec) == value


def test_functions_by_name_carry_no_code():
    parcel = Codec().pack_call(operator.add, (1, 2), None)
    assert parcel.function == "_operator:add"
    assert parcel.code is None


def test_a_lambda_goes_by_value_and_its_code_once():
    codec, other = Codec(), Codec()
    function, _, _ = travel_call(lambda x: x + 1, (), None, codec, other)
    assert function(1) == 2
    parcel = codec.pack_call(lambda x: x + 1, (), None)
    assert isinstance(parcel.function, bytes)
    with_code, _ = codec.seal(parcel, None)
    parcel.code = None
    without, _ = codec.seal(parcel, None)
    assert len(without) < len(with_code) // 2


@pytest.mark.parametrize("place", ["function", "argument", "class", "result"])
def test_code_of_another_python_is_never_run(place, monkeypatch):
    """Its bytecode is for another interpreter, which it may crash."""

    class Local:
        def show(self):
            return self

    codec = Codec()
    with monkeypatch.context() as patch:
        patch.setattr(pickler, "_BYTECODE", (b"", "3.9"), raising=False)
        sent = {
            "function": lambda: codec.pack_call(lambda: 1, (), None),
            "argument": lambda: codec.pack_call(len, ([lambda: 1],), None),
            "class": lambda: codec.pack_call(len, (Local,), None),
            "result": lambda: codec.pack_result(lambda: 1),
        }[place]()
    sealed, slots = codec.unseal(*codec.seal(sent, None), LIMITS)
    opened = codec.open_result if place == "result" else codec.open_call
    with pytest.raises(Unserializable, match=r"code for Python 3\.\d+, .* got code for 3\.9: "):
        opened(sealed, slots, codec.seal(sent, None)[1])


def test_a_digest_that_never_came_is_a_violation():
    codec = Codec()
    parcel = codec.pack_call(lambda: 1, (), None)
    parcel.code = None
    header, _ = codec.seal(parcel, None)
    sealed, slots = codec.unseal(header, [], LIMITS)
    with pytest.raises(ProtocolViolation, match="digest"):
        codec.open_call(sealed, slots, [])


def test_a_closure_that_changed_is_sent_anew():
    codec, count = Codec(), 0

    def show():
        return count

    first = codec.pack_call(show, (), None).function
    count = 1
    assert codec.pack_call(show, (), None).function != first


@pytest.mark.parametrize(
    ("args", "path"),
    [
        (({"x": threading.Lock()},), r"args\[0\]\['x'\]"),
        ((1, [2, threading.Lock()]), r"args\[1\]\[1\]"),
        ((Box(threading.Lock()),), r"args\[0\].content"),
        ((Slotted(threading.Lock()),), r"args\[0\].content"),
        (([{threading.Lock()}],), r"args\[0\]\[0\] \(an item\)"),
        (({(1, threading.Lock()): 2},), r"args\[0\] \(a key\)\[1\]"),
        ((functools.partial(len, threading.Lock()),), r"args\[0\].args\[0\]"),
        ((Box(threading.Lock()).show,), r"args\[0\] \(its object\).content"),
        ((LOOP,), r"args\[0\]\[1\]"),
    ],
)
def test_what_cannot_travel_is_named_by_its_path(args, path):
    with pytest.raises(Unserializable, match=path + " can't be sent: lock"):
        Codec().pack_call(total, args, None)


def test_what_a_function_captured_and_cannot_travel_is_named():
    lock = threading.Lock()

    def work(n):
        return work(n - 1) if n else lock

    with pytest.raises(Unserializable, match=r"^func \(its lock\) can't be sent: lock"):
        Codec().pack_call(work, (), None)


def test_a_function_with_a_variable_that_is_not_bound_yet_is_named_as_a_whole():
    lock = threading.Lock()

    def work():
        return lock, later

    with pytest.raises(Unserializable, match=r"^func can't be sent: function can't be pickled"):
        Codec().pack_call(work, (), None)
    later = None


def test_a_function_whose_module_was_replaced_goes_by_value(monkeypatch):
    for source in ("def f(): return 'old'", "def f(): return 'new'"):
        module = types.ModuleType("replaced_module")
        exec(source, vars(module))
        monkeypatch.setitem(sys.modules, "replaced_module", module)
        if source.endswith("'old'"):
            old = module.f
            assert Codec().pack_call(old, (), None).function == "replaced_module:f"
    assert isinstance(Codec().pack_call(old, (), None).function, bytes)
    function, _, _ = travel_call(old)
    assert function() == "old"


def test_a_future_is_refused_in_its_own_words():
    with pytest.raises(Unserializable, match=r"^args\[0\] can't be sent: Future .*send what wait"):
        Codec().pack_call(total, (Future(),), None)


def test_a_coroutine_is_refused_in_its_own_words():
    async def later():
        pass

    coroutine = later()
    with pytest.raises(Unserializable, match=r"^result can't be sent: a coroutine of .*later "):
        Codec().pack_result(coroutine)
    coroutine.close()


def test_a_native_class_without_a_name_is_refused_before_it_travels():
    with pytest.raises(Unserializable, match=r"be sent: .*list_iterator of builtins is not writ"):
        Codec().pack_result(type(iter([])))
    named = [type(None), type(travel_call), dict, Box]
    assert travel(named) == named


def test_a_keyword_that_cannot_travel_is_named_too():
    with pytest.raises(Unserializable, match=r"kwargs\['f'\]"):
        Codec().pack_call(total, (), {"f": threading.Lock()})


@pytest.mark.parametrize("strict", [True, False])
def test_no_positional_arguments_may_be_none_whatever_those_by_name_are(strict):
    codec = Codec(strict=strict)
    for named in (None, {"x": 1}, {"x": [1, 2]}):
        _, got, kwargs = travel_call(exposed, None, named, codec)
        assert (list(got), dict(kwargs)) == ([], named or {})


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    ("kwargs", "got"), [([1], "got list"), ("ab", "got str"), (np.ones(2), "got nd"), ({1: 2}, "1")]
)
def test_keywords_that_are_none_are_refused_before_anything_is_sent(kwargs, got, strict):
    with pytest.raises(UsageError, match=f"expected .*kwargs.*{got}"):
        Codec(strict=strict).pack_call(exposed, (), kwargs)


def test_strict_mode_refuses_what_needs_pickle_by_path():
    with pytest.raises(Unserializable, match=r"args\[0\]\['b'\].*strict mode.*Box"):
        Codec(strict=True).pack_call(exposed, ({"b": Box(1)},), None)
    with pytest.raises(Refused, match="strict mode sends no code"):
        Codec(strict=True).pack_call(lambda: 1, (), None)


def test_strict_mode_refuses_a_container_that_contains_itself():
    loop: list = []
    loop.append(loop)
    with pytest.raises(Unserializable, match="contains itself"):
        Codec(strict=True).pack_result(loop)


def nested(levels):
    outer: list = []
    for _ in range(levels - 1):
        outer = [outer]
    return outer


def deep_in_the_stack(function, frames):
    return function() if not frames else deep_in_the_stack(function, frames - 1)


def test_strict_mode_sends_containers_of_two_hundred_levels_and_no_more():
    codec = Codec(strict=True)
    assert travel(nested(200), codec) == nested(200)
    for levels, frames in ((201, 0), (200, sys.getrecursionlimit() - 300)):
        with pytest.raises(Unserializable, match="nested too deeply"):
            deep_in_the_stack(lambda levels=levels: codec.pack_result(nested(levels)), frames)


def test_a_container_of_more_levels_than_are_sent_is_a_violation():
    codec = Codec(strict=True)
    tree: list = [0]
    for _ in range(1000):
        tree = [0, tree]
    sealed, slots = Sealed(None, None, [], form=3, items=tree), []
    with pytest.raises(ProtocolViolation, match="nested"):
        codec.open_result(sealed, slots, [])


def test_a_strict_worker_takes_neither_pickle_nor_unexposed_functions():
    loose, strict = Codec(), Codec(strict=True)
    with pytest.raises(Refused, match="takes no pickle"):
        travel_call(total, ({"a": {1}},), None, loose, strict)
    with pytest.raises(Refused, match=r"@rpc\.expose"):
        travel_call(total, (1,), None, loose, strict)
    with pytest.raises(Refused, match="by value"):
        travel_call(lambda: 1, (), None, loose, strict)


def test_a_function_that_cannot_be_imported_there_says_so():
    codec = Codec()
    parcel = codec.pack_call(operator.add, (1, 2), None)
    parcel.function = "no_such_module:f"
    header, buffers = codec.seal(parcel, None)
    sealed, slots = codec.unseal(header, buffers, LIMITS)
    with pytest.raises(TelegradError, match="'no_such_module:f' can't be imported"):
        codec.open_call(sealed, slots, buffers)


@settings(deadline=None, max_examples=200)
@given(header=st.binary(max_size=60), buffers=st.lists(st.binary(max_size=20), max_size=3))
def test_random_headers_are_refused_and_nothing_else(header, buffers):
    codec = Codec(strict=True)
    with pytest.raises((ProtocolViolation, Refused)):
        sealed, slots = codec.unseal(header, buffers, LIMITS)
        codec.open_call(sealed, slots, buffers)


NAME = "tests.rpc.wire.test_codec:exposed"
ARRAY = msgspec.msgpack.decode(Codec().seal(Codec().pack_result(np.ones(2)), None)[0])[2]
FORGED = {
    "a form that there is not": ([[], None, None, 9], "a form from 0 to 3"),
    "a pickle without its bytes": ([[], None, None, 2], "expected 1 buffers"),
    "a pickle without its bytes for slots": ([[], [], None, 2], "expected 1 buffers"),
    "fewer holes than slots": ([ARRAY, None, None, 0, [None], []], "with 1 holes"),
    "items that are none": ([ARRAY, None, None, 0, 7, [0]], "with 1 holes"),
    "a hole beyond": ([ARRAY, None, None, 0, [None], [1]], "lies outside 1 items"),
    "a hole that is no place": ([ARRAY, None, None, 0, [None], ["0"]], "a malformed header"),
    "holes that are none": ([ARRAY, None, None, 0, [None], 0], "a malformed header"),
    "arrays that are none": ([7], "a malformed header"),
    "an array without its bytes": ([[[11, None, [2]]]], "does not describe a buffer of no bytes"),
    "slots that are none": ([[], 7], "a malformed header"),
    "a slot of no kind": ([[], [[-9, None, 0]]], "don't fit 0 arrays"),
    "a slot of fewer arrays than none": (
        [ARRAY, [["tests.Quantity", 0, -1]]],
        "a malformed header",
    ),
    "a slot without its array": ([[], [[0, None, 1]]], "don't fit 0 arrays"),
    "a slot without its reference": ([[], [[1, None, 0]]], "0 references"),
    "a slot without its bytes": ([[], [[2, None, 0]]], "0 other buffers"),
    "an array without a slot": ([ARRAY, []], "don't fit 1 arrays"),
}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (None, "a call without a function"),
        (7, "a malformed header"),
        (b"digest", "a malformed header"),
        ([b"digest"], "a malformed header"),
        (["name", b"code"], "a malformed header"),
        ([b"digest", "code"], "a malformed header"),
    ],
)
def test_a_call_of_no_function_is_a_violation(function, message):
    codec = Codec()
    with pytest.raises(ProtocolViolation, match=message):
        sealed, slots = codec.unseal(msgspec.msgpack.encode([function, None, []]), [], LIMITS)
        codec.open_call(sealed, slots, [])


@pytest.mark.parametrize("name", FORGED)
def test_a_header_that_contradicts_itself_is_a_violation(name):
    fields, message = FORGED[name]
    codec = Codec()
    with pytest.raises(ProtocolViolation, match=message):
        header = msgspec.msgpack.encode([NAME, None, *fields])
        sealed, slots = codec.unseal(header, [], LIMITS)
        codec.open_call(sealed, slots, [])


def test_bytes_that_no_slot_has_are_a_violation():
    codec = Codec()
    header, _ = codec.seal(codec.pack_call(exposed, (1,), None), None)
    with pytest.raises(ProtocolViolation, match="expected 0 buffers in the frame, got 1"):
        codec.unseal(header, [b"more"], LIMITS)


def test_a_slot_without_a_hole_in_the_pickle_is_a_violation():
    codec = Codec()
    parcel = codec.pack_result({"a": np.ones(1)})
    parcel.slots.append(np.zeros(1))
    header, buffers = codec.seal(parcel, None)
    sealed, slots = codec.unseal(header, buffers, LIMITS)
    with pytest.raises(ProtocolViolation, match="expected holes for 2 slots"):
        codec.open_result(sealed, slots, buffers)


@pytest.mark.parametrize("items", [[], None])
def test_an_answer_without_its_one_result_is_a_violation(items):
    with pytest.raises(ProtocolViolation, match="expected one result, got none"):
        Codec().open_result(Sealed(None, None, [], items=items), [], [])


@pytest.mark.parametrize("entry", [[], [77], ["0", 1], [6, 0], [6, None], [3, [0, 1]]])
def test_a_damaged_argument_by_name_is_a_violation(entry):
    codec = Codec(strict=True)
    header, buffers = codec.seal(codec.pack_call(exposed, ({"a": [1]},), {"k": [1]}), None)
    fields = msgspec.msgpack.decode(header)
    assert fields[-1] == {"k": [0, 1]}
    fields[-1] = {"k": entry}
    sealed, slots = codec.unseal(msgspec.msgpack.encode(fields), buffers, LIMITS)
    with pytest.raises(ProtocolViolation, match="expected"):
        codec.open_call(sealed, slots, buffers)


@pytest.mark.parametrize(
    ("items", "where", "slots"),
    [([], (), []), (7, (), []), ([None], (1,), [2.0]), ([None], (), [2.0])],
)
def test_a_damaged_result_is_a_violation(items, where, slots):
    sealed = Sealed(None, None, [], items=items, where=where)
    with pytest.raises(ProtocolViolation):
        Codec().open_result(sealed, slots, [])


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_damaged_headers_never_give_more_than_typed_errors(data):
    codec = Codec(strict=True)
    value = {"a": [1, 2.5, (np.ones(2), "x")], "b": None}
    header, buffers = codec.seal(codec.pack_call(exposed, (value, 3), {"k": [1]}), {"c": 1})
    damaged = bytearray(header)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        sealed, slots = codec.unseal(bytes(damaged), buffers, LIMITS)
        codec.open_call(sealed, slots, buffers)
    except TelegradError:
        pass
