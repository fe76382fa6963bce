"""PyTorch's engine, run on the thread that asks for it.

For nodes of a device it has a thread of its own for each device, which it hands them to. That costs
two wakeups a run, more than most runs on small tensors; all passes of a process take turns there;
and what is current here (a worker's context, the passes around a hook's call, telegrad's modes) is
not current on those threads, so hooks and checkpoints that make calls would make them outside of
it. On this thread it is for a device as it is for the CPU. Streams are the same: each node runs on
the one that its forward part ran on.
"""

from typing import Any

import torch

_engine: Any = torch.autograd.Variable._execution_engine
_is_multithreaded: Any = torch._C._is_multithreading_enabled
_set_multithreaded: Any = torch._C._set_multithreading_enabled


def run_backward(*args: Any, **options: Any) -> Any:
    """Do what the method of PyTorch's engine of that name does, on this thread alone."""
    before = _is_multithreaded()
    _set_multithreaded(False)
    try:
        return _engine.run_backward(*args, **options)
    finally:
        _set_multithreaded(before)
