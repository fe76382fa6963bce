"""How bad the simulated network is, and where a worker crashes."""

from typing import Literal

import msgspec

__all__ = ["CrashPoint", "Faults"]

CrashPoint = Literal["before send", "during execution", "before answer"]


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """How bad a simulated network is: times in virtual seconds, probabilities for each frame.

    Arguments:
        shortest: How long a frame takes at least.
        longest: And at most.
        reorder: Whether each takes its own time; else frames of one path stay in order.
        drop: How likely a frame is lost.
        duplicate: How likely it comes twice.

    Examples:
        >>> from telegrad.testing.simulation import Faults, Simulation
        >>> with Simulation(["a", "b"], seed=1, faults=Faults(duplicate=0.5)) as simulation:
        ...     print(simulation.run("a", lambda: simulation.worker("a").rpc_sync("b", abs, (-3,))))
        3
    """

    shortest: float = 0.0001
    longest: float = 0.002
    reorder: bool = False
    drop: float = 0.0
    duplicate: float = 0.0
