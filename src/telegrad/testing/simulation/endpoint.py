"""One end of a simulated connection."""

import math
from typing import TYPE_CHECKING

from telegrad.rpc.endpoint import Endpoint
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.security.introduction import Limits
from telegrad.rpc.wire.frames import ANSWER, CALL, SERVICE, Frame
from telegrad.testing.simulation.inbox import Inbox

if TYPE_CHECKING:
    from telegrad.testing.simulation.host import SimulatedHost


class SimulatedEndpoint(Endpoint):
    """Sends copies of its frames to the `other` end, through the simulation."""

    def __init__(self, host: "SimulatedHost", peer: WorkerInfo, lost_after: float) -> None:
        super().__init__(peer, Limits(), host.now(), lost_after)
        self.host = host
        self.other: SimulatedEndpoint
        self.anteroom = self.inbox = Inbox(self)
        self.last_arrival = 0.0
        self.is_broken = False

    def __repr__(self) -> str:
        return f"{self.host.worker.name}>{self.peer.name}"

    def send(self, frame: Frame, deadline: float = math.inf) -> bool:
        """Send a frame, or crash here if that was asked for."""
        if frame.kind in (CALL, SERVICE):
            self.host.reach("before send")
        elif frame.kind == ANSWER:
            self.host.reach("before answer")
        self.host.check_alive()
        if self.closed:
            raise ConnectionError(f"the connection to {self.peer.name} is closed")
        frame.buffers = tuple(bytes(buffer) for buffer in frame.buffers)
        self.host.simulation.post(self, frame)
        return True

    def close(self) -> None:
        """Give up the path; the other end notices after a while."""
        if not self.closed:
            self.closed = True
            self.host.simulation.hang_up(self)
