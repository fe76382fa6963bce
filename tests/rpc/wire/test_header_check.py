"""Headers that are dear to decode: a strict worker refuses them before, and takes all others."""

import itertools
import random
import struct

import msgspec
import pytest

from telegrad.errors import ProtocolViolation
from telegrad.rpc.calls.service import open_message
from telegrad.rpc.security.introduction import Limits
from telegrad.rpc.wire import plain
from telegrad.rpc.wire.codec import Codec
from telegrad.rpc.wire.header_check import check_header

encode = msgspec.msgpack.encode
PRIME = (1 << 61) - 1
"""Whole numbers that differ by this have one hash."""


def colliding_tuples(count):
    numbers = [5 + k * PRIME for k in range(8)]
    found = list(itertools.islice(itertools.product(numbers, repeat=5), count))
    assert len({hash(each) for each in found}) == 1
    return found


def map_of(keys):
    return b"\xdf" + struct.pack(">I", len(keys)) + b"".join(encode(key) + b"\x01" for key in keys)


def test_many_empty_maps_are_refused_before_they_are_made():
    header = b"\xdd" + struct.pack(">I", 60 << 20) + b"\x80" * (60 << 20)
    with pytest.raises(ProtocolViolation, match=r"at most 268435456 bytes .* as arrays"):
        check_header(header)


@pytest.mark.parametrize("first", [(), ("honest",)])
def test_a_map_whose_keys_have_one_hash_is_refused_before_it_is_made(first):
    header = map_of([*first, *colliding_tuples(20_000)])
    with pytest.raises(ProtocolViolation, match="expected texts as the keys of a large map"):
        check_header(header)


def test_such_maps_are_found_wherever_they_are():
    hostile = map_of(colliding_tuples(2000))
    inside = (b"\x92\xa1x" + hostile, b"\x81\xa1x" + hostile, b"\xdc\x00\x01" + hostile)
    for header in inside:
        with pytest.raises(ProtocolViolation, match="expected texts"):
            check_header(header)


@pytest.mark.parametrize(
    "open_",
    [
        lambda header: Codec(strict=True).unseal(header, (), Limits()),
        lambda header: open_message(header, (), 64, strict=True),
    ],
)
def test_a_strict_worker_checks_calls_and_services(open_):
    with pytest.raises(ProtocolViolation, match="expected texts"):
        open_(b"\x93\xa1x" + map_of(colliding_tuples(2000)) + b"\x90")


def random_value(dice, depth):
    kind = dice.randrange(9 if depth else 6)
    if kind == 0:
        return dice.choice([None, True, False])
    if kind == 1:
        return dice.getrandbits(dice.randrange(64)) * dice.choice([1, -1]) // 2
    if kind == 2:
        return dice.random()
    if kind == 3:
        return "é" * dice.randrange(300)
    if kind == 4:
        return dice.randbytes(dice.choice([3, 300, 70_000]))
    if kind == 5:
        return msgspec.msgpack.Ext(7, dice.randbytes(dice.choice([1, 2, 4, 8, 16, 40, 300])))
    count = dice.choice([2, 14, 40])
    if kind == 6:
        return {f"{i}": random_value(dice, depth - 1) for i in range(count)}
    if kind == 7:
        return dict.fromkeys(range(dice.randrange(15)))
    return [random_value(dice, depth - 1) for _ in range(count)]


def test_what_workers_send_passes():
    # Of both lengths for which all is looked through; with the larger that takes long.
    maps = [{str(i): i for i in range(count)} for count in (70_000, *20 * [500])]
    for seed in range(300):
        last = maps[seed % len(maps)]
        header = encode([random_value(random.Random(seed), 3), bytes(4096), last])
        assert len(header) > 4096
        assert (b"\xde" if len(last) == 500 else b"\xdf") in header
        check_header(header)


@pytest.mark.parametrize("end", [5000, 9000, 12_345])
def test_a_header_that_breaks_off_is_a_violation(end):
    header = encode({str(i): i for i in range(70_000)})
    with pytest.raises(ProtocolViolation, match="a malformed header came"):
        check_header(header[:end])


def test_more_items_than_can_be_looked_at_are_refused():
    header = encode([{str(i): i for i in range(20)}, [0] * 2_500_000])
    with pytest.raises(ProtocolViolation, match="at most 2000000 items, got more"):
        check_header(header)


@pytest.mark.parametrize("kind", [set, frozenset, dict])
def test_sets_and_dicts_whose_keys_have_one_hash_are_refused(kind):
    honest = dict.fromkeys(range(1000))
    made = honest if kind is dict else kind(honest)
    tag, *_ = tree = plain.dump(made, "x", [])
    assert plain.load(tree, []) == made
    keys = [plain.dump(5 + k * PRIME, "x", []) for k in range(1000)]
    hostile = [tag, *(itertools.chain(*zip(keys, keys)) if kind is dict else keys)]
    with pytest.raises(ProtocolViolation, match="1000 of which many share one"):
        plain.load(hostile, [])
