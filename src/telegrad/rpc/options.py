"""The options of a worker, as arguments; none comes from the environment."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from telegrad.errors import UsageError
from telegrad.rpc.timeouts import seconds

# With less there would be no room for telegrad's own messages.
_FEWEST_BYTES: Final = 1 << 20
# Options of PyTorch's, and what to write instead.
_FAMILIAR: Final = {
    "num_worker_threads": "use handlers=",
    "init_method": "workers meet at MASTER_ADDR and MASTER_PORT of the environment, leave it out",
    "devices": "a worker may use all it has, leave it out",
    "_transports": "the way to another worker is found, leave it out",
    "_channels": "the way to another worker is found, leave it out",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Options of a worker, by keyword; the defaults are in brackets.

    Arguments:
        rpc_timeout: Seconds until an unanswered call without its own timeout fails; 0 means
            never (60).
        lost_after: Seconds of silence after which a peer is lost (10).
        spin: Seconds to look for an answer before sleeping, 0 turns it off (250e-6). Where each
            worker of this machine has a processor, a worker looks as long as its waits take, up to
            2 ms.
        segments: Whether large arrays may go through shared memory (True).
        segment_pool: How many bytes of shared memory this worker keeps for the next large arrays
            (1 GiB); those unused for ten seconds go back to the system anyway.
        unix_sockets: Whether workers on one host may use them, else TCP on loopback (True).
        host: The address by which others reach this machine, if it has several.
        tls: Whether workers speak TLS with those of other machines: True, False, or None to do so
            where workers of several machines meet (None). Without ``telegrad keygen`` certificates
            each mints its own by the cluster's key. Workers of one machine use Unix sockets anyway.
        listen: Whether others may dial this worker (True). One that does not listen, behind a
            firewall say, dials every worker that does; they call it over the connections that it
            opened. Two that don't listen can't call each other.
        strict: No pickle, exposed functions only (False).
        join_timeout: Seconds for all workers to come together (60).
        in_flight_bytes: How many bytes of requests this worker holds at once, in all (16 GiB).
        in_flight_bytes_of_peer: And of each peer, which also bounds a single message (8 GiB).
        handlers: How many requests this worker serves side by side, not counting those that wait
            for a Future (256).
        handlers_of_peer: And of each peer (three quarters of `handlers`).
        calls_of_peer: How many calls of each peer this worker has at once, running or waiting; more
            are refused (100,000).
        bytes_per_second_of_peer: How fast each peer may send requests, shared memory included; a
            faster one waits (as fast as it can).
        device_maps: By the name of a worker, which device there takes the tensors of each device
            here, as ``{"b": {"cuda:0": "cuda:1"}}``; a device without an entry maps to the device
            of the same name.
        profiled_by: The names of the workers that may profile this one while it is strict (none).
        device_segments: How many bytes of each device this worker may keep for tensors on their way
            to workers of the same host (4 GiB); tensors that find no room go through the host's
            memory, and with 0 all do, as they do between hosts.

    Raises:
        UsageError: If an option is out of range.
        TypeError: If there is no such option.

    Examples:
        >>> rpc.Options(rpc_timeout=300, strict=True).rpc_timeout
        300.0
    """

    rpc_timeout: float = 60.0
    lost_after: float = 10.0
    spin: float = 250e-6
    segments: bool = True
    segment_pool: int = 1 << 30
    unix_sockets: bool = True
    host: str | None = None
    tls: bool | None = None
    listen: bool = True
    strict: bool = False
    join_timeout: float = 60.0
    in_flight_bytes: int = 16 << 30
    in_flight_bytes_of_peer: int = 8 << 30
    handlers: int = 256
    handlers_of_peer: int | None = None
    calls_of_peer: int = 100_000
    bytes_per_second_of_peer: float | None = None
    device_maps: dict[str, dict[str, str]] = field(default_factory=dict)
    profiled_by: Sequence[str] = ()
    device_segments: int = 4 << 30

    if not TYPE_CHECKING:  # or a type checker would take every name for known

        def __new__(cls, *_: Any, **options: Any) -> "Options":
            # Checked before the generated __init__, whose error would not list the options.
            for name in options:
                if name not in cls.__dataclass_fields__:
                    raise _unexpected(name)
            return object.__new__(cls)

    def __post_init__(self) -> None:
        for name in ("rpc_timeout", "spin", "lost_after", "join_timeout"):
            object.__setattr__(self, name, seconds(getattr(self, name), name))
        for name in ("segments", "unix_sockets", "listen", "strict"):
            # Others are told of the options, and take no other type for a bool or an int.
            object.__setattr__(self, name, _flag(name, getattr(self, name)))
        for name in ("in_flight_bytes", "in_flight_bytes_of_peer"):
            object.__setattr__(self, name, int(_bytes(name, getattr(self, name))))
        if (rate := self.bytes_per_second_of_peer) is not None:
            _bytes("bytes_per_second_of_peer", rate)
        if self.tls not in (None, True, False):
            raise UsageError(f"expected tls of True, False or None, got {self.tls!r}")
        if not isinstance(self.host, str | None):
            raise UsageError(
                f"expected a name or an address of this machine as host, got {self.host!r}"
            )
        _check_device_maps(self.device_maps)
        if isinstance(self.profiled_by, str) or not isinstance(self.profiled_by, Iterable):
            one = self.profiled_by if isinstance(self.profiled_by, str) else "trainer0"
            raise UsageError(
                f"expected the names of workers as profiled_by, got {self.profiled_by!r}: write "
                f"profiled_by=[{one!r}]"
            )
        object.__setattr__(self, "profiled_by", tuple(self.profiled_by))
        for name in ("segment_pool", "device_segments"):
            given = getattr(self, name)
            if not isinstance(given, int) or given < 0:
                raise UsageError(f"expected {name} of 0 bytes or more, got {given!r}")
        of_peer = 1 if self.handlers_of_peer is None else self.handlers_of_peer
        counts = {"handlers": self.handlers, "handlers_of_peer": of_peer}
        for name, count in {**counts, "calls_of_peer": self.calls_of_peer}.items():
            if type(count) is not int or count < 1:
                raise UsageError(f"expected {name} of at least 1, got {count!r}")
        for name in ("lost_after", "join_timeout"):
            if not getattr(self, name):
                raise UsageError(
                    f"expected {name} of more than 0 seconds, got {getattr(self, name)}"
                )


def _flag(name: str, given: object) -> bool:
    if given not in (True, False):
        raise UsageError(f"expected {name} of True or False, got {given!r}")
    return bool(given)


def _bytes(name: str, given: object) -> float:
    if not isinstance(given, (int, float)) or not _FEWEST_BYTES <= given < math.inf:
        raise UsageError(f"expected {name} of at least {_FEWEST_BYTES}, got {given!r}")
    return given


def _check_device_maps(given: object) -> None:
    maps = [*given.values()] if isinstance(given, dict) else [None]
    for each in maps:
        if not isinstance(each, dict) or not all(
            isinstance(name, str) for name in {*each.values()}
        ):
            raise UsageError(
                'expected device_maps like {"b": {"cuda:0": "cuda:1"}}, by the name of a worker, '
                f"got {given!r}"
            )


def given_options(options: Any) -> Options:
    """Return the options that a user gave, or the defaults; raise for anything else."""
    if options is None:
        return Options()
    if not isinstance(options, Options):
        raise UsageError(
            f"expected options=rpc.Options(rpc_timeout=...), got a {type(options).__name__}"
        )
    return options


def _unexpected(name: str) -> TypeError:
    names = [each.name for each in fields(Options)]
    nearest = "".join(get_close_matches(name, names, 1))
    way = _FAMILIAR.get(name) or (nearest and f"use {nearest}=")
    said = f"Options() has no option {name!r}" + (f": {way}" if way else "")
    return TypeError(f"{said}; there are {', '.join(names)}")
