"""What happens to a worker that telegrad has lost: Ray notices it too, or has to be told.

If it was stopped, or its node is stuck, it is alive for Ray. Then it is condemned: Ray has to end
it and start another life of it.
"""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from telegrad.distributed.cluster.on_ray.placement import Placement

_log = logging.getLogger("telegrad.cluster")
_DOUBT: Final = 3.0  # Seconds that Ray has to see that a lost worker's process has ended.
_PAUSE: Final = 0.1


def judge(ray: Any, placement: Placement, name: str, is_over: Callable[[], bool]) -> bool:
    """Wait for Ray to notice that a worker has died; condemn it if Ray calls it alive.

    The wait ends when `is_over` says that the worker is back or the cluster has ended. Return
    whether Ray has given the worker up.
    """
    end = time.monotonic() + _DOUBT
    while time.monotonic() < end:
        state, actor = placement.state_of(name), placement.actors.get(name)
        if actor is None or is_over():
            return False
        if state == "DEAD":
            return True
        if state != "ALIVE":
            # It is being restarted, which may take any time.
            end = time.monotonic() + _DOUBT
        time.sleep(_PAUSE)
    _log.warning("worker %r is lost, but alive for Ray: it is started anew", name)
    with suppress(ray.exceptions.RayError):
        ray.kill(actor, no_restart=False)
    return False
