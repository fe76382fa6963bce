"""The audit log: arrivals, refusals, departures, losses and calls, as one JSON object a line.

The lines go to the logger ``telegrad.audit``, at the level INFO, which is off unless a program
turns it on. docs/security.md has the events and fields, which are stable. Invariant: no argument,
result or key is logged, and texts that a peer chose are cut.
"""

import datetime
import json
import logging
from typing import Any, Final

_log: Final = logging.getLogger("telegrad.audit")
_LONGEST: Final = 500  # Characters of a text.


def audit(event: str, worker: str, **fields: Any) -> None:
    """Log that something happened at a worker; fields that are None are left out."""
    if not _log.isEnabledFor(logging.INFO):
        return
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    line: dict[str, Any] = {"time": now, "event": event, "worker": worker}
    for name, value in fields.items():
        if value is not None:
            line[name] = value[:_LONGEST] if isinstance(value, str) else value
    _log.info("%s", json.dumps(line))
