"""A worker's path to itself: without a wire, but everything is copied as if there were one."""

import math
from typing import TYPE_CHECKING

from telegrad.rpc.endpoint import Endpoint
from telegrad.rpc.security.introduction import Limits
from telegrad.rpc.wire.frames import WAITING, Frame

if TYPE_CHECKING:
    from telegrad.rpc.worker import Worker


class Loopback(Endpoint):
    """Both ends in one. A call whose caller waits without a timeout runs on the caller's thread."""

    def __init__(self, worker: "Worker") -> None:
        super().__init__(worker.info, Limits(), 0.0, math.inf)
        self._worker = worker

    def send(self, frame: Frame, deadline: float = math.inf) -> bool:
        """Deliver the frame at once."""
        if self.closed:
            raise ConnectionError("the worker has shut down")
        frame.buffers = [memoryview(bytearray(buffer)) for buffer in frame.buffers]
        # Read before `receive`, which may change it.
        waits = frame.flags & WAITING
        task = self._worker.receive(self, frame)
        if task is not None:
            if waits:
                task()
            else:
                self._worker.host.serve(self, task)
        return True

    def close(self) -> None:
        """Deliver nothing more."""
        self.closed = True
