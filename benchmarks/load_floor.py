"""What a machine allows bench_load: bare sockets, msgspec and NumPy or PyTorch, without telegrad.

One thread serves all trainers, by epoll; a trainer sends, sleeps until its answer is there, and
opens it. The messages carry the arrays of bench_load's work, and both sides do its arithmetic; but
nothing is looked up, checked, recorded or committed, and nothing has a deadline or can be lost.

A lone trainer is measured twice: it sleeps until its answer is there, or both sides look for a
moment before they sleep, as telegrad's workers do. What many trainers reach beside that lone one
tells what the machine allows of "the rate of many ÷ the best rate of fewer".

A torch add and a torch step are the same by hand with PyTorch's tensors: raw bytes in, a tensor
over them, the operations, a backward pass of PyTorch's engine on each side, raw bytes out. What
they cost beside NumPy's is PyTorch's own price, which telegrad with torch tensors pays as well.

    python -m benchmarks.load_floor
"""

import multiprocessing
import os
import select
import socket
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import numpy as np
import torch

from benchmarks.bench_load import COUNTS, WORKS
from benchmarks.distributed_work import SIZE

__all__ = ["measure"]

SECONDS = 1.0
_LEAD_TIME = 0.5  # Seconds until all trainers have begun.
_SPIN = 250e-6  # Seconds that a side looks for bytes before it sleeps, where it does.
_ROOM = 1 << 16
_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode


class Arithmetic(NamedTuple):
    """What one library of arrays does for the work."""

    packed: Callable[[Any], list[Any]]
    opened: Callable[[list[Any]], Any]
    weight: Callable[[], Any]
    forward: Callable[[Any, Any], Any]
    """The server's, of what came and the weight: what is sent, with what the backward needs."""
    backward: Callable[[Any, Any], Any]
    """The server's, of that and the gradient that came: the weight's gradient."""
    start: Callable[[Any], Any]
    """The trainer's, of what came: the gradient of its sum."""


def _packed(array: Any) -> list[Any]:
    return [array.dtype.str, array.tobytes(), array.shape]


def _opened(parts: Any) -> Any:
    dtype, data, shape = parts
    return np.ndarray(shape, dtype, bytearray(data))


def _forward(x: Any, weight: Any) -> Any:
    y = np.tanh(x @ weight)
    return y, (x, y)


def _backward(saved: Any, gradient: Any) -> Any:
    x, y = saved
    return x.T @ (gradient * (1 - y * y))


def _start(y: Any) -> Any:
    y.sum()
    return np.ones_like(y)


def _torch_packed(tensor: Any) -> list[Any]:
    array = tensor.detach().numpy()
    return [array.dtype.str, array.tobytes(), array.shape]


_DTYPES = {"<f4": torch.float32, "<f8": torch.float64}


def _torch_opened(parts: Any) -> Any:
    dtype, data, shape = parts
    return torch.frombuffer(bytearray(data), dtype=_DTYPES[dtype]).view(shape)


def _torch_forward(x: Any, weight: Any) -> Any:
    y = torch.tanh(x @ weight)
    return y, (y, weight)


def _torch_backward(saved: Any, gradient: Any) -> Any:
    y, weight = saved
    return torch.autograd.grad(y, weight, gradient)[0]


def _torch_start(y: Any) -> Any:
    y.requires_grad_()
    return torch.autograd.grad(y.sum(), y)[0]


_NUMPY = Arithmetic(
    _packed,
    _opened,
    lambda: np.ones((SIZE, SIZE), np.float32),
    _forward,
    _backward,
    _start,
)
_TORCH = Arithmetic(
    _torch_packed,
    _torch_opened,
    lambda: torch.ones(SIZE, SIZE, requires_grad=True),
    _torch_forward,
    _torch_backward,
    _torch_start,
)


def _arithmetic(what: str) -> tuple[Arithmetic, str]:
    """Return whose arithmetic a work is in, and its name without that."""
    return (_TORCH if what.startswith("torch ") else _NUMPY), what.removeprefix("torch ")


def _looked(poll: Callable[[float], Any], spins: bool) -> Any:
    """Return what a poll finds, after looking for a moment if this side `spins`."""
    end = time.perf_counter() + _SPIN if spins else 0.0
    while time.perf_counter() < end:
        if found := poll(0):
            return found
        os.sched_yield()
    return poll(-1)


def _serve(library: Arithmetic, links: dict[int, socket.socket], spins: bool) -> None:
    torch.set_num_threads(1)
    packed, opened, weight = library.packed, library.opened, library.weight()
    saved: dict[int, Any] = {}

    def answer(what: str, *arrays: Any) -> Any:
        if what == "no-op":
            return None
        if what == "add":
            return packed(opened(arrays[0]) + opened(arrays[1]))
        if what == "forward":
            y, saved[fd] = library.forward(opened(arrays[0]), weight)
            return packed(y)
        return library.backward(saved.pop(fd), opened(arrays[0])).shape

    poll = select.epoll()
    for fd in links:
        poll.register(fd, select.EPOLLIN)
    while True:
        for fd, _ in _looked(poll.poll, spins):
            request = links[fd].recv(_ROOM)
            if not request:
                return
            links[fd].send(_encode(answer(*_decode(request))))


def _work(what: str, link: socket.socket, spins: bool) -> Callable[[], object]:
    library, what = _arithmetic(what)
    packed, opened = library.packed, library.opened
    poll = select.poll()
    poll.register(link, select.POLLIN)

    def call(*request: Any) -> Any:
        link.send(_encode(request))
        if spins:
            _looked(poll.poll, spins)
        return _decode(link.recv(_ROOM))

    if what == "no-op":
        return lambda: call(what)
    if what == "add":
        x, y = opened(_packed(np.arange(9.0).reshape(3, 3))), opened(_packed(np.ones((3, 3))))
        return lambda: opened(call(what, packed(x), packed(y)))
    batch = opened(_packed(np.ones((32, SIZE), np.float32)))

    def step() -> None:
        y = opened(call("forward", packed(batch)))
        call("backward", packed(library.start(y)))

    return step


def _train(
    what: str, link: socket.socket, spins: bool, begin: float, place: int, counts: Any
) -> None:
    torch.set_num_threads(1)
    run, count = _work(what, link, spins), 0
    for _ in range(100):
        run()
    time.sleep(max(0.0, begin - time.time()))
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        run()
        count += 1
    counts[place] = count


def measure(what: str, count: int, spins: bool = False) -> float:
    """Calls or steps a second, over `count` trainers."""
    context = multiprocessing.get_context("fork")
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(count)]
    counts = context.Array("q", count)
    links = {there.fileno(): there for there, _ in pairs}
    library = _arithmetic(what)[0]
    server = context.Process(target=_serve, args=(library, links, spins), daemon=True)
    server.start()
    begin = time.time() + _LEAD_TIME
    trainers = [
        context.Process(target=_train, args=(what, here, spins, begin, place, counts), daemon=True)
        for place, (_, here) in enumerate(pairs)
    ]
    for trainer in trainers:
        trainer.start()
    for trainer in trainers:
        trainer.join()
    server.kill()
    server.join()
    return sum(counts) / SECONDS


_ALL = (*WORKS, "torch add", "torch step")

if __name__ == "__main__":
    print(f"| trainers | {', /s | '.join(_ALL)}, /s |\n|---{'|---' * len(_ALL)}|")
    for count, spins in [(1, True), *((count, False) for count in COUNTS)]:
        best = [max(measure(what, count, spins) for _ in range(3)) for what in _ALL]
        said = f"{count}, looking before it sleeps" if spins else str(count)
        print(f"| {said} | {' | '.join(f'{rate:.0f}' for rate in best)} |", flush=True)
