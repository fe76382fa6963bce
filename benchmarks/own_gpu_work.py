"""What bench_gpu runs with telegrad's own tensors, which are CuPy's arrays on a device."""

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

from benchmarks.gpu_work import DEVICE, ECHOES, PEER, add, echo
from benchmarks.measuring import Work

__all__ = ["forget_torch", "own_works"]


def forget_torch() -> None:
    """Have this process, which has just begun, do as if PyTorch were not installed."""
    sys.modules["torch"] = None  # type: ignore[assignment]


def own_works() -> Iterator[tuple[str, tuple[Work, int]]]:
    """What is measured, with the calls a round; each call ends when the device has ended it."""
    import cupy

    import telegrad as tg
    from telegrad.distributed import autograd, rpc

    def synchronised(run: Any) -> Work:
        def work() -> None:
            run()
            cupy.cuda.Device().synchronize()

        return work

    for name, (nbytes, repeat) in ECHOES.items():
        x = tg.asarray(cupy.arange(nbytes // 4, dtype=cupy.float32))
        found = rpc.rpc_sync(PEER, echo, (x,))
        if found.device != DEVICE or not bool((found == x).all()):
            raise AssertionError(f"expected an equal tensor back from the echo of {name}")
        yield f"echo of {name}", (synchronised(partial(rpc.rpc_sync, PEER, echo, (x,))), repeat)
        del x, found
    a, b = (tg.ones(3, 3, device=DEVICE).requires_grad_() for _ in range(2))

    def step() -> Any:
        with autograd.context() as context_id:
            z = rpc.rpc_sync(PEER, add, (a, b))
            autograd.backward(context_id, [z.sum()])
            return autograd.get_gradients(context_id)

    yield "context, call, backward with 3 × 3", (synchronised(step), 10)
