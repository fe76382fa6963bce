"""What bench_gpu runs, on both workers: tensors of a device, PyTorch's through either library."""

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

from benchmarks.libraries import Library
from benchmarks.measuring import Work

__all__ = ["DEVICE", "ECHOES", "PEER", "add", "echo", "one_process", "works"]

PEER = "server"
DEVICE = "cuda:0"
ECHOES = {
    "3 × 3": (36, 10),
    "64 KB": (1 << 16, 10),
    "1 MB": (1 << 20, 10),
    "16 MB": (1 << 24, 5),
    "64 MB": (1 << 26, 3),
    "256 MB": (1 << 28, 2),
}
"""How many bytes, and how many calls a round."""
_LAYERS, _FEATURES, _HEADS, _BATCH, _LENGTH = 4, 1024, 16, 8, 512


def noop() -> None:
    """Do nothing."""


def echo(x: Any) -> Any:
    """Give back what came."""
    return x


def add(x: Any, y: Any) -> Any:
    """One operation on two tensors."""
    return x + y


def double(x: Any) -> Any:
    """One operation on one tensor."""
    return x + x


@cache
def _layers(stage: int) -> Any:
    import torch

    torch.manual_seed(stage)
    layers = [
        torch.nn.TransformerEncoderLayer(
            _FEATURES, _HEADS, 4 * _FEATURES, dropout=0.0, batch_first=True
        )
        for _ in range(_LAYERS)
    ]
    return torch.nn.Sequential(*layers).to(DEVICE)


def second_stage(x: Any) -> Any:
    """The layers that live on the server."""
    return _layers(2)(x)


def works(lib: Library) -> Iterator[tuple[str, tuple[Work, int]]]:
    """What is measured, with the calls a round; each call ends when the device has ended it."""
    import torch

    call = lib.rpc.rpc_sync
    yield "call without arguments", (partial(call, PEER, noop), 50)
    for name, (nbytes, repeat) in ECHOES.items():
        x = torch.rand(nbytes // 4, device=DEVICE)
        if not torch.equal(call(PEER, echo, (x,)), x):
            raise AssertionError(f"expected an equal tensor back from the echo of {name}")
        yield f"echo of {name}", (_synchronised(partial(call, PEER, echo, (x,))), repeat)
        del x
    yield "context, call, backward with 3 × 3", (_small_step(lib), 10)
    yield "the same with 16 MB", (_large_step(lib), 3)
    yield "transformer in two stages", (_transformer(lib, 1), 1)
    yield "the same in 4 micro-batches", (_transformer(lib, 4), 1)


def _synchronised(run: Callable[[], Any]) -> Work:
    import torch

    def work() -> None:
        run()
        torch.cuda.synchronize()

    return work


def _small_step(lib: Library) -> Work:
    import torch

    x, y = (torch.ones(3, 3, device=DEVICE, requires_grad=True) for _ in range(2))

    def run() -> Any:
        with lib.autograd.context() as context_id:
            z = lib.rpc.rpc_sync(PEER, add, (x, y))
            lib.autograd.backward(context_id, [z.sum()])
            return lib.autograd.get_gradients(context_id)

    return _synchronised(run)


def _large_step(lib: Library) -> Work:
    import torch

    # As on the CPU: the gradient of a plain sum is one number, spread without memory.
    x = torch.ones(1 << 22, device=DEVICE, requires_grad=True)
    by = torch.linspace(0, 1, 1 << 22, device=DEVICE)

    def run() -> Any:
        with lib.autograd.context() as context_id:
            y = lib.rpc.rpc_sync(PEER, double, (x,))
            lib.autograd.backward(context_id, [y @ by])
            return lib.autograd.get_gradients(context_id)

    return _synchronised(run)


def _data() -> Any:
    import torch

    torch.manual_seed(0)
    return torch.randn(_BATCH, _LENGTH, _FEATURES, device=DEVICE)


def _transformer(lib: Library, micro_batches: int) -> Work:
    """Half of the layers here, half on the server; with micro-batches both may work at once."""
    first, parts = _layers(1), _data().chunk(micro_batches)

    def run() -> Any:
        with lib.autograd.context() as context_id:
            futures = [lib.rpc.rpc_async(PEER, second_stage, (first(part),)) for part in parts]
            losses = [(y * y).mean() for y in (future.wait() for future in futures)]
            lib.autograd.backward(context_id, losses)
            return lib.autograd.get_gradients(context_id)

    return _synchronised(run)


def one_process(micro_batches: int) -> Work:
    """The same layers in one process, without any call."""
    import torch

    model, parts = torch.nn.Sequential(_layers(1), _layers(2)), _data().chunk(micro_batches)

    def run() -> None:
        model.zero_grad()
        torch.autograd.backward([(y * y).mean() for y in map(model, parts)])

    return _synchronised(run)
