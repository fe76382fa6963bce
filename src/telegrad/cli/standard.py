"""The three standard streams: each is there, however this process was started.

`telegrad … >&-` closes one. Its number then belongs to the next file that is opened, which could
be the cluster's key, and `sys` has None in its place.
"""

import os
import sys
from typing import Final

_STREAMS: Final = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def fill_standard_streams() -> None:
    """Let the null device stand for each standard stream that is closed."""
    for number, (name, mode) in enumerate(_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free, and those below are taken: this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            # As long as the process.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
