"""How a thread that serves a request spins for an answer that it waits for, before it sleeps.

The law of this file:

1. While a thread spins it keeps the lead and its place among the running requests. So where a
   handler's call is answered soon, nothing is handed over, and no set of descriptors changes.
2. A leading thread watches for other peers' requests, too, and does not even begin to spin if some
   have been received already: then another thread leads. So no peer waits for the spinning to end.
3. Before the thread sleeps it gives up the lead, and its request is counted no more: the answer
   that it waits for may need that place.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from telegrad.rpc.driver.handlers import serving
from telegrad.rpc.driver.spin import Spinning

if TYPE_CHECKING:
    from telegrad.rpc.driver.host import SocketHost
    from telegrad.rpc.driver.lead import Lead


class Lookout(Spinning):
    """The spinning of a link's reader, whose thread sleeps if it finds nothing."""

    def __init__(self, host: "SocketHost") -> None:
        super().__init__(host.options.spin, host.spare_processors)
        self._host = host

    def about_to_sleep(self) -> None:
        """Give up the lead, and stop counting this thread's request."""
        self._host.about_to_sleep()

    def spin(self, look: Callable[[int], Any]) -> Any:
        """Return the first true result of `look` within the time, else a false value."""
        lead = serving.lead
        if lead is None or not lead.is_mine():
            found = super().spin(look)
        else:
            found = self._spin_leading(look, lead)
        if not found:
            self.about_to_sleep()
        return found

    def _spin_leading(self, look: Callable[[int], Any], lead: "Lead") -> Any:
        if not lead.keeps_others():
            came = super().spin(lambda timeout: look(timeout) or lead.has_work())
            found = came and look(0)
            if found or not came:
                return found
        # Other peers have sent something: another thread serves them.
        self.about_to_sleep()
        return super().spin(look)
