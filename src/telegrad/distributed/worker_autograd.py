"""The distributed autograd of one worker: its parts, and how they are connected.

All code that starts a worker (init_rpc, LocalCluster and its processes, the simulated cluster)
calls `attach_autograd` before the first call can arrive. Only here are the layers above RPC
attached to a worker.
"""

from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any, Final

from telegrad.autograd.recomputation import SecondRun
from telegrad.distributed.autograd import _backward_here
from telegrad.distributed.contexts import tensor_kind
from telegrad.distributed.contexts.context import Contexts
from telegrad.distributed.contexts.dual_levels import LevelRegistry
from telegrad.distributed.contexts.leases import Leases
from telegrad.distributed.contexts.recomputation import apart
from telegrad.distributed.contexts.recorder import Recorder
from telegrad.distributed.current import ATTACHED
from telegrad.distributed.passes.commit import PassCommit
from telegrad.distributed.passes.coordinator import PassCoordinator
from telegrad.distributed.passes.gradient_codec import GradientCodec
from telegrad.distributed.tools.event_log import EventLog
from telegrad.rpc.wire import kinds
from telegrad.rpc.worker import Worker

FRAMEWORKS: Final = {"torch": "telegrad.interop.torch.framework"}
"""The module to import when a framework's first value is met; by name, since it is in a higher
layer."""


class WorkerAutograd:
    """Owns the contexts, levels, recorder, coordinator, commit and leases of one worker."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.contexts = Contexts(worker.name, self._take_over)
        self.levels = LevelRegistry(worker)
        self.leases = Leases(worker, self.contexts)
        self.recorder = Recorder(worker, self.contexts, self.levels, self.leases, _backward_here)
        self.commit = PassCommit(worker, self.contexts, self.leases)
        codec = GradientCodec(worker, self.recorder, self.levels)
        self.coordinator = PassCoordinator(worker, self.contexts, self.commit, codec)
        self.event_log = EventLog(worker)

    def _take_over(self, *pass_: Any) -> None:
        # A method, since the coordinator needs the contexts and so is made after them.
        self.coordinator.take_over(*pass_)


def attach_autograd(worker: Worker) -> None:
    """Attach the layers above RPC to a new worker."""
    tensor_kind.register()
    SecondRun.scope = apart
    for framework, module in FRAMEWORKS.items():
        kinds.register_lazily(framework, partial(import_module, module))
    kinds.register_lazily("cupy", _load_carrier)
    made = WorkerAutograd(worker)
    worker.attached[ATTACHED] = made
    worker.install(made.recorder)


def _load_carrier() -> None:
    """Make CuPy's arrays travel as PyTorch's tensors do, if PyTorch is installed."""
    with suppress(ImportError):
        import_module(FRAMEWORKS["torch"])
