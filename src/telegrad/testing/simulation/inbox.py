"""The inbox of a simulated endpoint: what has arrived there and was not read yet.

A request that the worker has no room for waits as over sockets (`telegrad.rpc.driver.admission`):
it is read, and waits in the anteroom until there is room, or until that has taken too long and it
is refused. A creation without room is not read, nor is what comes after it and may refer to it.
"""

import collections
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from telegrad.rpc.protocol.budget import COUNTED_FROM
from telegrad.rpc.wire.frames import CALL, CREATES, REFUSED, SERVICE, Frame

if TYPE_CHECKING:
    from telegrad.testing.simulation.endpoint import SimulatedEndpoint


class _Waiting(msgspec.Struct, eq=False):
    nbytes: int
    then: Callable[[bool], object]


class Inbox:
    """The frames of one endpoint, and its anteroom."""

    def __init__(self, endpoint: "SimulatedEndpoint") -> None:
        self._endpoint = endpoint
        self._frames: collections.deque[Frame] = collections.deque()
        self._waiting: collections.deque[_Waiting] = collections.deque()
        # When the first that waits has waited too long.
        self._until: float | None = None

    def arrive(self, frame: Frame) -> None:
        """Read the frame, after those that came before it."""
        self._frames.append(frame)
        if len(self._frames) == 1:
            self.read()

    def read(self) -> None:
        """Read what may be read, and answer those that wait for room."""
        host = self._endpoint.host
        self._answer()
        while self._frames and not self._endpoint.closed and host.is_alive:
            if not self._take(self._frames[0]):
                return
            host.simulation.handle(self._endpoint, self._frames.popleft())

    def _take(self, frame: Frame) -> bool:
        """Say whether a frame may be read; turn a creation that waited too long into a refusal."""
        nbytes = len(frame.header) + sum(map(len, frame.buffers))
        if frame.kind not in (CALL, SERVICE) or nbytes < COUNTED_FROM:
            return True
        if not self._waiting and self._admit(nbytes):
            frame.cost = nbytes
            return True
        if not frame.flags & CREATES:
            frame.waits = (nbytes, 0)
            return True
        if self._waiting or not self._is_late():
            return False
        frame.kind, frame.header, frame.buffers = REFUSED, bytes((frame.kind,)), ()
        return True

    def _admit(self, nbytes: int) -> bool:
        if self._endpoint.host.worker.budget.admit(self._endpoint.peer.name, nbytes):
            self._until = None
            return True
        return False

    def _is_late(self) -> bool:
        """Say whether the first that waits has waited too long."""
        host = self._endpoint.host
        if self._until is None:
            self._until = host.now() + host.worker.options.lost_after / 2
            host.simulation.at(self._until, host, "too full", self.read)
        if host.now() < self._until:
            return False
        self._until = None
        return True

    # The anteroom.

    def when_room(self, waits: tuple[int, int], then: Callable[[bool], object]) -> None:
        """Find room for a request that has arrived."""
        self._waiting.append(_Waiting(waits[0], then))
        self._answer()

    def announced(self, header: int, body: int, then: Callable[[bool], object]) -> None:
        """Find room for an announced request; nobody announces any here."""
        then(True)

    def given_up(self, header: int, body: int) -> None:
        """Note that an announced request does not come."""

    def _answer(self) -> None:
        while self._waiting and not self._endpoint.closed and self._endpoint.host.is_alive:
            is_admitted = self._admit(self._waiting[0].nbytes)
            if not is_admitted and not self._is_late():
                return
            self._waiting.popleft().then(is_admitted)
