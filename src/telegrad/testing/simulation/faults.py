"""How bad the simulated network is, and where a worker crashes."""

from typing import Literal

import msgspec

CrashPoint = Literal["before send", "during execution", "before answer"]


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """How bad a simulated network is: times in virtual seconds, probabilities for each frame.

    A connection is a stream: what was sent arrives once and in order, or the connection breaks.

    Arguments:
        shortest: The shortest time that a frame takes.
        longest: The longest time that a frame takes.
        lag: The longest time that a request may wait for a thread.
        breaks: How likely a connection breaks at a frame: it and all later ones are lost.

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
