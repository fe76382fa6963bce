"""What a machine allows bench_load: bare sockets, msgspec and NumPy, without telegrad.

One thread serves all trainers, by epoll; a trainer sends, sleeps until its answer is there, and
opens it. The messages carry the arrays of bench_load's work, and both sides do its arithmetic; but
nothing is looked up, checked, recorded or committed, and nothing has a deadline or can be lost.

A lone trainer is measured twice: it sleeps until its answer is there, or both sides look for a
moment before they sleep, as telegrad's workers do. What many trainers reach beside that lone one
tells what the machine allows of "the rate of many ÷ the best rate of fewer".

    python -m benchmarks.load_floor
"""

import multiprocessing
import os
import select
import socket
import time
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from benchmarks.bench_load import COUNTS, WORKS
from benchmarks.distributed_work import SIZE

__all__ = ["measure"]

SECONDS = 1.0
_LEAD_TIME = 0.5  # Seconds until all trainers have begun.
_SPIN = 250e-6  # Seconds that a side looks for bytes before it sleeps, where it does.
_ROOM = 1 << 16
_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode


def _packed(array: Any) -> list[Any]:
    return [array.dtype.str, array.tobytes(), array.shape]


def _opened(parts: Any) -> Any:
    dtype, data, shape = parts
    return np.ndarray(shape, dtype, bytearray(data))


def _looked(poll: Callable[[float], Any], spins: bool) -> Any:
    """Return what a poll finds, after looking for a moment if this side `spins`."""
    end = time.perf_counter() + _SPIN if spins else 0.0
    while time.perf_counter() < end:
        if found := poll(0):
            return found
        os.sched_yield()
    return poll(-1)


def _serve(links: dict[int, socket.socket], spins: bool) -> None:
    weight = np.ones((SIZE, SIZE), np.float32)
    saved: dict[int, Any] = {}

    def answer(what: str, *arrays: Any) -> Any:
        if what == "no-op":
            return None
        if what == "add":
            return _packed(_opened(arrays[0]) + _opened(arrays[1]))
        if what == "forward":
            x = _opened(arrays[0])
            saved[fd] = x, np.tanh(x @ weight)
            return _packed(saved[fd][1])
        x, y = saved.pop(fd)
        gradient = x.T @ (_opened(arrays[0]) * (1 - y * y))
        return gradient.shape

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
        x, y = np.arange(9.0).reshape(3, 3), np.ones((3, 3))
        return lambda: _opened(call(what, _packed(x), _packed(y)))
    batch = np.ones((32, SIZE), np.float32)

    def step() -> None:
        y = _opened(call("forward", _packed(batch)))
        y.sum()
        call("backward", _packed(np.ones_like(y)))

    return step


def _train(
    what: str, link: socket.socket, spins: bool, begin: float, place: int, counts: Any
) -> None:
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
    server = context.Process(target=_serve, args=(links, spins), daemon=True)
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


if __name__ == "__main__":
    print("| trainers | no-op, /s | add, /s | step, /s |\n|---|---|---|---|")
    for count, spins in [(1, True), *((count, False) for count in COUNTS)]:
        best = [max(measure(what, count, spins) for _ in range(3)) for what in WORKS]
        said = f"{count}, looking before it sleeps" if spins else str(count)
        print(f"| {said} | {' | '.join(f'{rate:.0f}' for rate in best)} |", flush=True)
