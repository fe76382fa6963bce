"""What every worker gets when it starts: the one place where higher layers are attached to RPC.

Whatever starts a worker (init_rpc, LocalCluster and its children, the simulated cluster) calls
`attach_autograd` before the first call can come.
"""

from functools import partial
from importlib import import_module
from typing import Final, NamedTuple

from telegrad.autograd.recomputation import SecondRun
from telegrad.distributed.contexts import tensor_kind
from telegrad.distributed.contexts.leases import Leases
from telegrad.distributed.contexts.recomputation import apart
from telegrad.distributed.contexts.recorder import Recorder
from telegrad.distributed.passes.coordinator import Carrier
from telegrad.distributed.passes.start import Runner
from telegrad.distributed.tools.event_log import EventLog
from telegrad.errors import UsageError
from telegrad.rpc.wire import kinds
from telegrad.rpc.worker import Worker

__all__ = ["WorkerAutograd", "attach_autograd", "autograd_of"]


FRAMEWORKS: Final = {"torch": "telegrad.interop.torch.framework"}
"""What is imported when a value of another framework is first met; by name, since that module is
in a higher layer."""


class WorkerAutograd(NamedTuple):
    """Distributed autograd on one worker."""

    recorder: Recorder
    carrier: Carrier
    leases: Leases
    runner: Runner
    recording: EventLog


def attach_autograd(worker: Worker) -> None:
    """Attach the layers above RPC to a new worker."""
    tensor_kind.register()
    SecondRun.scope = apart
    for framework, module in FRAMEWORKS.items():
        kinds.register_lazily(framework, partial(import_module, module))
    recorder = Recorder(worker)
    carrier = Carrier(recorder)
    runner = Runner(worker, carrier)
    recorder.contexts.take_over = runner.take_over
    recorder.autograd = WorkerAutograd(
        recorder, carrier, Leases(recorder), runner, EventLog(worker)
    )
    worker.install(recorder)


def autograd_of(worker: Worker) -> WorkerAutograd:
    """What `attach_autograd` attached to a worker."""
    recorder = worker.interceptor
    if not isinstance(recorder, Recorder):
        raise UsageError(
            f"worker {worker.name!r} was started without distributed autograd: start it with "
            "init_rpc or LocalCluster"
        )
    attached: WorkerAutograd = recorder.autograd
    return attached
