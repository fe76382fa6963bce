"""How bad the simulated network is, and where a worker crashes."""

from typing import Literal

import msgspec

CrashPoint = Literal["before send", "during execution", "before answer"]


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """How bad a simulated network is: times in virtual seconds, probabilities for each frame.

    A connection is a stream: what was sent comes once and in order, or the connection breaks.

    Arguments:
        shortest: How long a frame takes at least.
        longest: And at most.
        lag: How long a request that came may wait for a thread, at most.
        breaks: How likely a connection breaks at a frame: that one and all after it are lost.

    Examples:
        >>> from telegrad.testing.simulation import Faults, Simulation
        >>> with Simulation(["a", "b"], seed=1, faults=Faults(lag=0.5)) as simulation:
        ...     print(simulation.run("a", lambda: simulation.worker("a").rpc_sync("b", abs, (-3,))))
        3
    """

    shortest: float = 0.0001
    longest: float = 0.002
    lag: float = 0.0
    breaks: float = 0.0
