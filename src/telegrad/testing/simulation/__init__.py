"""A cluster in one process, on virtual time, over a network that a seed makes as bad as you like.

The workers are the real ones (`telegrad.rpc.worker.Worker`) and run the same code as over sockets;
only what carries them is simulated. One seed gives one run: the same trace, byte for byte.
"""

from telegrad.testing.simulation.faults import Faults
from telegrad.testing.simulation.simulation import Simulation
from telegrad.testing.simulation.strand import SimulatedCrash

__all__ = ["Faults", "SimulatedCrash", "Simulation"]
