"""Arrays travel as (dtype, shape) and raw bytes."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from telegrad.errors import ProtocolViolation
from telegrad.rpc.wire import arrays, kinds, slots

DTYPES = [
    "?",
    "i1",
    "i2",
    "i4",
    "i8",
    "u1",
    "u2",
    "u4",
    "u8",
    "f2",
    "f4",
    "f8",
    "c8",
    "c16",
    ">f4",
    "M8[ns]",
    "m8[s]",
    "S5",
    "U3",
]


class Holder:
    def __init__(self, array):
        self.array = array


kinds.register(
    Holder, lambda it: ([it.array], None), lambda parts, _: Holder(*parts), tag="tests.Holder"
)


def there_and_back(array, inline=4096):
    buffers = []
    descriptor = arrays.describe(array, buffers, inline)
    copies = [memoryview(bytearray(buffer)) for buffer in buffers]
    (back,), used = arrays.build_all([descriptor], copies, 0, 64)
    assert used == len(buffers) == (array.nbytes >= inline)
    return back


@pytest.mark.parametrize("inline", [0, 4096])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3, 4)])
def test_every_plain_dtype_and_shape_comes_back(dtype, shape, inline):
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    rng = np.random.default_rng(0)
    array = np.frombuffer(rng.integers(0, 2, size, np.uint8).tobytes(), dtype).reshape(shape)
    back = there_and_back(array, inline)
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.tobytes() == array.tobytes()


@pytest.mark.parametrize("size", [4, 40])
def test_non_contiguous_arrays_come_back_by_value(size):
    array = np.arange(size * size, dtype=np.float64).reshape(size, size)
    for view in (array.T, array[::2, ::-1], np.broadcast_to(array[0], (5, size))):
        assert np.array_equal(there_and_back(view), view)


@pytest.mark.parametrize("inline", [0, 4096])
def test_what_arrives_can_be_written(inline):
    back = there_and_back(np.zeros(3), inline)
    back[0] = 1
    assert back[0] == 1


@pytest.mark.parametrize("count", [1, 16, 17, 1000, 100_000])
def test_arrays_in_a_header_are_bounded_together(count):
    assert count * arrays.inline_below(count) <= 64 << 10


def test_many_small_arrays_come_back_whether_or_not_they_are_in_the_header():
    content = [np.full(n, float(n)) for n in range(300)]
    buffers = []
    descriptors = arrays.describe_all(content, buffers)
    assert 0 < len(buffers) < 300
    copies = [memoryview(bytearray(buffer)) for buffer in buffers]
    back, used = arrays.build_all(descriptors, copies, 0, 4)
    assert used == len(buffers)
    assert all(map(np.array_equal, back, content))


@pytest.mark.parametrize(
    "array",
    [np.array([object()]), np.zeros(2, [("a", "f4")]), np.zeros(2, [("a", "S0")])["a"]],
    ids=["objects", "structures", "items of no size"],
)
def test_what_no_name_describes_is_not_raw(array):
    assert not arrays.is_raw(array)


@given(
    descriptor=st.one_of(
        st.lists(
            st.one_of(st.integers(-5, 2**64), st.text(max_size=3), st.none(), st.floats()),
            max_size=6,
        ),
        st.tuples(
            st.integers(-2, 16),
            st.none(),
            st.lists(st.integers(-2, 2**64), max_size=6),
            st.text(max_size=3),
        ),
    ),
    size=st.integers(0, 64),
)
def test_a_descriptor_that_does_not_fit_its_bytes_is_refused(descriptor, size):
    try:
        array = arrays.build(descriptor, bytearray(size), 4)
    except ProtocolViolation:
        return
    assert array.nbytes == size
    assert array.ndim <= 4


def test_negative_dimensions_that_multiply_to_the_right_size_are_refused():
    with pytest.raises(ProtocolViolation, match="does not describe a buffer of 16 bytes"):
        arrays.build([arrays.describe(np.zeros(1), [], 9)[0], None, [-1, -2]], bytearray(16), 4)


@pytest.mark.parametrize("data", [10**12, True, "text", 1.5, [1] * 16, {"a": 1}])
def test_what_stands_in_a_descriptor_must_be_bytes(data):
    with pytest.raises(ProtocolViolation, match="does not describe a buffer of no bytes"):
        arrays.build_all([[10, data, [2]]], [], 0, 4)
    with pytest.raises(ProtocolViolation, match="does not describe a buffer of no bytes"):
        slots.build_slots([[10, data, [2]]], [], 0, 4, None)
    with pytest.raises(ProtocolViolation):
        slots.build_slots([["tests.Holder", None, [[10, data, [2]]]]], [], 0, 4, None)


def test_a_buffer_that_did_not_come_is_a_violation():
    with pytest.raises(ProtocolViolation, match="don't fit the 1 buffers of the frame"):
        slots.build_slots([[10, None, [2]], [10, None, [2]]], [bytearray(8)], 0, 4, None)


def test_items_of_no_size_are_refused_since_their_number_is_not_bounded():
    with pytest.raises(ProtocolViolation, match="plain numbers, got 'S0'"):
        arrays.build([arrays.NAMED, None, [10**12], "S0"], b"", 4)


@pytest.mark.parametrize("code", [-1, 99, "f8", None, True])
def test_an_unknown_dtype_code_is_refused(code):
    with pytest.raises(ProtocolViolation, match="does not describe"):
        arrays.build([code, None, [2]], bytearray(16), 4)


FORGED_NAMES = ["M8[s/0]", "m8[7D/0]", "<M8[0s]", "(2,", "f8,f8", "O", "<f8 ", "float64", "<U0", 5]


def test_dtypes_that_no_array_has_are_refused_and_harm_nobody():
    """In a process of its own: NumPy dies when it reads the first of them."""
    script = f"""
from telegrad.errors import ProtocolViolation
from telegrad.rpc.wire import arrays
for name in {FORGED_NAMES!r}:
    try:
        arrays.build([arrays.NAMED, None, [1], name], bytearray(8), 4)
    except ProtocolViolation:
        print(repr(name))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [*map(repr, FORGED_NAMES)]


@pytest.mark.parametrize(
    "name", ["M8", "m8[7D]", "M8[2147483647as]", ">M8[Y]", "S9", ">U7", "g", "G", ">i2", ">c16"]
)
def test_every_dtype_of_plain_items_goes_by_its_name(name):
    there = np.zeros(3, name)
    buffers = []
    descriptor = arrays.describe(there, buffers, 0)
    back = arrays.build(descriptor, bytearray(buffers[0]), 4)
    assert back.dtype == there.dtype
