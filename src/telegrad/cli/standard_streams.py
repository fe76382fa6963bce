"""Making sure that all three standard streams exist, however this process was started.

`telegrad … >&-` closes one. The next file that is opened then gets its number, and could be the
cluster's key, and `sys` has None in its place.
"""

import os
import sys
from typing import Final

_STREAMS: Final = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def fill_standard_streams() -> None:
    """Open the null device for each standard stream that is closed."""
    for number, (name, mode) in enumerate(_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            # It gets the lowest free number, which is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            # Open until the process ends.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
