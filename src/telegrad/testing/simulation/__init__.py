"""A simulated cluster in one process, on virtual time, over a network as bad as you like.

The workers are the real ones (`telegrad.rpc.worker.Worker`) and run the same code as over sockets;
only their host is simulated. The same seed gives the same run, with the same trace byte for byte.
"""

from telegrad.testing.simulation.faults import Faults
from telegrad.testing.simulation.simulation import Simulation
from telegrad.testing.simulation.strand import SimulatedCrash

__all__ = ["Faults", "SimulatedCrash", "Simulation"]
