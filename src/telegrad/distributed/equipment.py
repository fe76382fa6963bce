"""What every worker gets when it starts: the one place where higher layers are attached to RPC.

Whatever starts a worker (init_rpc, LocalCluster and its children, the simulated cluster) calls
`equip` before the first call can come.
"""

from telegrad.distributed import travelling
from telegrad.distributed.carrying import Carrier
from telegrad.distributed.recording import Recorder
from telegrad.rpc.worker import Worker

__all__ = ["equip"]


def equip(worker: Worker) -> None:
    """Attach the layers above RPC to a new worker."""
    travelling.register()
    recorder = Recorder(worker)
    recorder.carrier = Carrier(recorder)
    worker.install(recorder)
