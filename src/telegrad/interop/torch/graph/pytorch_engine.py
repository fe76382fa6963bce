"""PyTorch's engine, run on the calling thread.

By default PyTorch hands a device's nodes to one thread for each device. That costs two wakeups a
run, more than most runs on small tensors, and makes all passes of a process take turns. It also
loses the calling thread's context variables (a worker's context, the enclosing passes, telegrad's
modes), so remote calls in hooks and checkpoints would be made outside of them. On the calling
thread, a device's nodes run as the CPU's do. Streams don't change: each node runs on the stream of
its forward operation.
"""

from typing import Any

import torch

_engine: Any = torch.autograd.Variable._execution_engine
_is_multithreaded: Any = torch._C._is_multithreading_enabled
_set_multithreaded: Any = torch._C._set_multithreading_enabled


def run_backward(*args: Any, **options: Any) -> Any:
    """Call ``run_backward`` of PyTorch's engine, on this thread alone."""
    before = _is_multithreaded()
    _set_multithreaded(False)
    try:
        return _engine.run_backward(*args, **options)
    finally:
        _set_multithreaded(before)
