"""How bad the simulated network is, and where a worker crashes."""

from typing import Literal

import msgspec

__all__ = ["CrashPoint", "Faults"]

CrashPoint = Literal["before send", "during execution", "before answer"]


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """Times in virtual seconds, probabilities for each frame.

    A frame takes between `shortest` and `longest`; with `reorder` each takes its own time, without
    it frames of one path stay in order.
    """

    shortest: float = 0.0001
    longest: float = 0.002
    reorder: bool = False
    drop: float = 0.0
    duplicate: float = 0.0
