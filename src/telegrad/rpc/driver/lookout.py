"""How a thread that serves a request looks for the answer that it waits for, before it sleeps.

The law of this file:

1. While it looks it has what it had: the lead, and its place among the requests that run. So where
   a handler's call is answered soon, nothing is handed over, and no set of descriptors changes.
2. One that leads looks for what others send, too, and does not even begin where something of theirs
   lies here already: then another thread leads. So nobody waits for the end of the looking.
3. Before it sleeps it gives up what it has, and its request does not count any more: what it waits
   for may need its place.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from telegrad.rpc.driver.handlers import serving
from telegrad.rpc.driver.spin import Spinning

if TYPE_CHECKING:
    from telegrad.rpc.driver.host import SocketHost
    from telegrad.rpc.driver.lead import Lead


class Lookout(Spinning):
    """The spinning of a link's reader: what it does not find, its thread is about to sleep for."""

    def __init__(self, host: "SocketHost") -> None:
        super().__init__(host.options.spin, host.is_crowded)
        self._host = host

    def about_to_sleep(self) -> None:
        """Let others lead, and count the request of this thread no more."""
        self._host.about_to_sleep()

    def spin(self, look: Callable[[int], Any]) -> Any:
        """Return what a look finds within the time, something false if nothing came."""
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
        # Others have something, and do not wait for this thread.
        self.about_to_sleep()
        return super().spin(look)
