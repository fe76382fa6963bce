"""What a worker's options say of names that are not among them, and how they travel."""

import msgspec
import numpy as np
import pytest
from tests.rpc.neighbours import eventually, neighbours

from telegrad.distributed import LocalCluster, rpc
from telegrad.errors import UsageError
from telegrad.rpc.options import Options


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("num_worker_threads", ": use handlers=;"),
        ("init_method", ": workers meet at MASTER_ADDR and MASTER_PORT of the environment"),
        ("_transports", ": the way to another worker is found, leave it out;"),
        ("timeout", ": use rpc_timeout=;"),
        ("device_map", ": use device_maps=;"),
        ("colour", ";"),
    ],
)
def test_an_option_that_there_is_not_is_refused_with_the_nearest_and_with_all(name, way):
    with pytest.raises(TypeError) as told:
        Options(**{name: 1})
    said = str(told.value)
    assert said.startswith(f"Options() has no option {name!r}{way}")
    assert "there are rpc_timeout, lost_after, spin, " in said


@pytest.mark.parametrize(
    "start",
    [
        lambda options: LocalCluster(["ps"], options=options),
        lambda options: rpc.init_rpc("alone", rank=0, world_size=1, options=options),
    ],
    ids=["LocalCluster", "init_rpc"],
)
def test_options_that_are_a_dict_are_refused_before_anything_starts(start):
    with pytest.raises(UsageError, match=r"expected options=rpc\.Options\(.*\), got a dict"):
        start({"rpc_timeout": 3.0})


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"segments": "off"}, "expected segments of True or False, got 'off'"),
        ({"strict": None}, "expected strict of True or False, got None"),
        ({"in_flight_bytes": "4 GiB"}, "in_flight_bytes of at least 1048576, got '4 GiB'"),
        ({"in_flight_bytes": None}, "in_flight_bytes of at least 1048576, got None"),
        ({"in_flight_bytes_of_peer": float("nan")}, "of_peer of at least 1048576, got nan"),
        ({"bytes_per_second_of_peer": "1"}, "second_of_peer of at least 1048576, got '1'"),
        ({"host": 7}, "a name or an address of this machine as host, got 7"),
        ({"device_maps": 3}, "expected device_maps like .*, by the name of a worker, got 3"),
        ({"device_maps": {"cuda:0": "cuda:1"}}, "device_maps like .*got {'cuda:0': 'cuda:1'}"),
        ({"profiled_by": 3}, r"names of workers as profiled_by, got 3: write profiled_by=\["),
        ({"profiled_by": "t"}, r"workers as profiled_by, got 't': write profiled_by=\['t'\]"),
    ],
)
def test_an_option_of_another_type_is_refused_before_anything_starts(option, said):
    with pytest.raises(UsageError, match=said):
        Options(**option)


def test_numbers_that_mean_what_is_asked_for_are_taken_and_travel():
    options = Options(segments=0, strict=np.bool_(True), in_flight_bytes=4e9)
    assert (options.segments, options.strict, options.in_flight_bytes) == (False, True, 4 * 10**9)
    assert msgspec.json.decode(msgspec.json.encode(options), type=Options) == options


@pytest.mark.parametrize("name", ["lost_after", "join_timeout"])
def test_no_time_at_all_is_refused(name):
    with pytest.raises(UsageError, match=f"expected {name} of more than 0 seconds, got 0"):
        Options(**{name: 0})


def test_options_are_the_same_after_a_journey():
    options = Options(spin=0, strict=True, device_maps={"b": {"cuda:0": "cuda:1"}})
    data = msgspec.json.encode(options)
    assert msgspec.json.decode(data, type=Options) == options
    assert Options() != options


@pytest.mark.parametrize("given", [-1, 0.5, "4 GiB"])
def test_a_bound_on_device_segments_is_a_number_of_bytes(given):
    with pytest.raises(UsageError, match=f"device_segments of 0 bytes or more, got {given!r}"):
        Options(device_segments=given)
    assert Options(device_segments=0).device_segments == 0


@pytest.mark.parametrize("name", ["segment_pool", "device_segments"])
def test_a_pool_has_no_bytes_or_more(name):
    assert getattr(Options(**{name: 0}), name) == 0
    for wrong in (-1, 1.5, "1 GiB"):
        with pytest.raises(UsageError, match=rf"expected {name} of 0 bytes or more, got"):
            Options(**{name: wrong})


def test_a_worker_keeps_as_much_shared_memory_as_it_is_told():
    for kept in (0, 8 << 20):
        with neighbours("a", "b", options=Options(segment_pool=kept)) as (a, _):
            large = np.ones(1 << 20)
            assert a.rpc_sync("b", np.sum, (large,)) == 1 << 20
            pool = a.host.segment_pool
            assert eventually(lambda pool=pool, kept=kept: (pool.trim(), pool.resident)[1] <= kept)
