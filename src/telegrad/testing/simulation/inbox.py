"""What has arrived at one end of a simulated connection and was not read yet.

A worker whose budget is used up stops reading from a peer that sends more, as over sockets
(`telegrad.rpc.driver.admission`): frames stay here, in their order, until there is room or the
request at their head has waited too long and is refused.
"""

import collections
from typing import TYPE_CHECKING

from telegrad.rpc.protocol.budget import COUNTED_FROM
from telegrad.rpc.wire.frames import CALL, REFUSED, SERVICE, Frame

if TYPE_CHECKING:
    from telegrad.testing.simulation.endpoint import SimulatedEndpoint

__all__ = ["Inbox"]


class Inbox:
    """The frames of one endpoint."""

    def __init__(self, endpoint: "SimulatedEndpoint") -> None:
        self._endpoint = endpoint
        self._frames: collections.deque[Frame] = collections.deque()
        self._until: float | None = None

    def arrive(self, frame: Frame) -> None:
        """Read the frame, after those that came before it."""
        self._frames.append(frame)
        if len(self._frames) == 1:
            self.read()

    def read(self) -> None:
        """Read what there is room for."""
        host = self._endpoint.host
        while self._frames and not self._endpoint.closed and host.is_alive:
            frame = self._frames[0]
            if not self._admit(frame):
                return
            self._frames.popleft()
            self._until = None
            host.simulation.handle(self._endpoint, frame)

    def _admit(self, frame: Frame) -> bool:
        """Say whether the frame may be read; one that waited too long is read as refused."""
        nbytes = len(frame.header) + sum(map(len, frame.buffers))
        if frame.kind not in (CALL, SERVICE) or nbytes < COUNTED_FROM:
            return True
        host = self._endpoint.host
        if host.worker.budget.admit(self._endpoint.peer.name, nbytes):
            frame.cost = nbytes
            return True
        now = host.now()
        if self._until is None:
            self._until = now + host.worker.options.lost_after / 2
            host.simulation.at(self._until, host, "too full", self.read)
        if now < self._until:
            return False
        frame.kind, frame.header, frame.buffers = REFUSED, bytes((frame.kind,)), ()
        return True
