"""The hook that ``breakpoint()`` calls in a process that has a worker.

In a handler it opens a session; elsewhere it opens Python's own debugger, as usual. An existing
hook (pytest's, a notebook's) stays, and so does one that PYTHONBREAKPOINT names.
"""

import os
import pdb
import sys
from typing import Any

from telegrad.rpc.calls.request import current_request
from telegrad.rpc.debugger.session import Session


def install() -> None:
    """Handle ``breakpoint()`` in this process, unless another hook does."""
    if sys.breakpointhook is sys.__breakpointhook__ and not os.environ.get("PYTHONBREAKPOINT"):
        sys.breakpointhook = _stop


def _stop(*arguments: Any, **options: Any) -> None:
    frame = sys._getframe().f_back
    assert frame is not None, "somebody called breakpoint()"
    request = current_request.get()
    if request is None:
        pdb.Pdb().set_trace(frame)
    else:
        Session(request.worker, frame).set_trace(frame)
