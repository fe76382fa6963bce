"""Arrays travel as (dtype, shape) and raw bytes."""

import subprocess
import sys

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from telegrad.errors import ProtocolViolation
from telegrad.rpc.calls.service import open_message
from telegrad.rpc.security.introduction import Limits
from telegrad.rpc.wire import arrays
from telegrad.rpc.wire.codec import Codec

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


@pytest.fixture(params=[0, 4096])
def inline(request, monkeypatch):
    """The size below which arrays stand in the header."""
    monkeypatch.setattr(arrays, "_INLINE_BELOW", request.param or 1)
    monkeypatch.setattr(arrays, "_MOST_INLINE", request.param)
    return request.param


decode = msgspec.msgpack.Decoder(list[arrays.Descriptor]).decode


def sent(content, buffers):
    """Return the descriptors of arrays as they arrive."""
    return decode(msgspec.msgpack.encode(arrays.describe_all(content, buffers)))


def there_and_back(array):
    buffers = []
    descriptors = sent([array], buffers)
    copies = [memoryview(bytearray(buffer)) for buffer in buffers]
    (back,), used = arrays.build_all(descriptors, copies, 0, 64)
    assert used == len(buffers)
    return back


def built(code, shape, data, most_dimensions=4):
    (array,), _ = arrays.build_all([arrays.Descriptor(code, data, shape)], [], 0, most_dimensions)
    return array


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3, 4)])
def test_every_plain_dtype_and_shape_comes_back(dtype, shape, inline):
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    rng = np.random.default_rng(0)
    array = np.frombuffer(rng.integers(0, 2, size, np.uint8).tobytes(), dtype).reshape(shape)
    back = there_and_back(array)
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.tobytes() == array.tobytes()


@pytest.mark.parametrize("size", [4, 40])
def test_non_contiguous_arrays_come_back_by_value(size):
    array = np.arange(size * size, dtype=np.float64).reshape(size, size)
    for view in (array.T, array[::2, ::-1], np.broadcast_to(array[0], (5, size))):
        assert np.array_equal(there_and_back(view), view)


def test_what_arrives_can_be_written(inline):
    back = there_and_back(np.zeros(3))
    back[0] = 1
    assert back[0] == 1


@pytest.mark.parametrize("count", [1, 4, 5, 16, 17, 1000, 100_000])
def test_arrays_in_a_header_are_bounded_together(count):
    for nbytes in (max(0, 65536 // count - 1), 65536 // count, 16383, 16384):
        buffers = []
        array = np.zeros(nbytes, np.uint8)
        descriptors = arrays.describe_all([array] * count, buffers)
        assert sum(len(data) for _, data, _ in descriptors if data is not None) <= 64 << 10
        assert len(buffers) in (0, count)


def test_many_small_arrays_come_back_whether_or_not_they_are_in_the_header():
    content = [np.full(n, float(n)) for n in range(300)]
    buffers = []
    descriptors = sent(content, buffers)
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
    code=st.one_of(st.integers(-2, 16), st.integers(-5, 2**64), st.text(max_size=3)),
    shape=st.lists(st.integers(-2, 2**64), max_size=6),
    size=st.integers(0, 64),
)
def test_a_descriptor_that_does_not_fit_its_bytes_is_refused(code, shape, size):
    try:
        array = built(code, shape, bytearray(size))
    except ProtocolViolation:
        return
    assert array.nbytes == size
    assert array.ndim <= 4


def test_negative_dimensions_that_multiply_to_the_right_size_are_refused():
    with pytest.raises(ProtocolViolation, match="does not describe a buffer of 16 bytes"):
        built(arrays.CODES[np.dtype(float)], [-1, -2], bytearray(16))


@pytest.mark.parametrize("data", [10**12, True, "text", 1.5, [1] * 16, {"a": 1}])
def test_what_stands_in_a_descriptor_must_be_bytes(data):
    descriptors = [[10, data, [2]]]
    with pytest.raises(ProtocolViolation, match="a malformed header came: Expected"):
        Codec().unseal(msgspec.msgpack.encode([None, None, descriptors]), [], Limits())
    with pytest.raises(ProtocolViolation, match="a malformed service message came: Expected"):
        open_message(msgspec.msgpack.encode(["name", None, descriptors]), [], 4)


def test_a_buffer_that_did_not_come_is_a_violation():
    descriptors = [arrays.Descriptor(10, None, [2])] * 2
    with pytest.raises(ProtocolViolation, match="does not describe a buffer of no bytes"):
        arrays.build_all(descriptors, [bytearray(4)], 0, 4)


def test_items_of_no_size_are_refused_since_their_number_is_not_bounded():
    with pytest.raises(ProtocolViolation, match="plain numbers, got 'S0'"):
        built("S0", [10**12], b"")


@pytest.mark.parametrize("code", [-1, 0, 99, "f8", None])
def test_an_unknown_dtype_code_is_refused(code):
    with pytest.raises(ProtocolViolation, match="expected the dtype of plain numbers"):
        built(code, [2], bytearray(16))


FORGED_NAMES = ["M8[s/0]", "m8[7D/0]", "<M8[0s]", "(2,", "f8,f8", "O", "<f8 ", "float64", "<U0", 5]


def test_dtypes_that_no_array_has_are_refused_and_harm_nobody():
    """In a process of its own: NumPy dies when it reads the first of them."""
    script = f"""
from telegrad.errors import ProtocolViolation
from telegrad.rpc.wire import arrays
for name in {FORGED_NAMES!r}:
    try:
        arrays.build_all([arrays.Descriptor(name, bytearray(9), [1])], [], 0, 4)
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
    [descriptor] = sent([there], [])
    assert descriptor.code == there.dtype.str
    assert built(descriptor.code, descriptor.shape, descriptor.data).dtype == there.dtype


def test_no_array_stands_for_a_dtype_that_has_none_by_its_code():
    """0 is no code: a sender tells by it that a dtype goes by its name."""
    assert 0 not in arrays.CODES.values()
