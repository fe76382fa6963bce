"""Large worlds: a hundred processes on this machine, a thousand workers in the simulation.

Not a comparison but a count: what starting, meeting, a pass and a loss take, so that what grows
faster than the world shows. ``python -m benchmarks world``; ``--quick`` runs small ones.
"""

import contextvars
import json
import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

import telegrad as tg
import telegrad.distributed.autograd as dist_autograd
from benchmarks.goals import Goal
from telegrad.distributed import LocalCluster, rpc
from telegrad.distributed.worker_autograd import attach_autograd
from telegrad.errors import PeerError
from telegrad.rpc.membership.board_roster import BoardRoster
from telegrad.rpc.membership.card import OPEN, Card
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.wire.frames import HELLO
from telegrad.testing.simulation import Faults, Simulation

__all__ = ["measure"]

PROCESSES = (10, 30, 100)
SIMULATED = (100, 300, 1000)
WAY = 0.0005  # Seconds of virtual time from one worker to another.


@dataclass
class Counts:
    """Rows of counts, by title of their column."""

    name: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    load: float = field(default_factory=lambda: os.getloadavg()[0])

    def add(self, **row: Any) -> None:
        self.rows.append(row)
        print(" | ".join(f"{title.replace('_', ' ')} {value}" for title, value in row.items()))

    def save(self, folder: Path) -> Path:
        """Write them as JSON; return where."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.json"
        path.write_text(json.dumps({"load": self.load, "rows": self.rows}, indent=1))
        return path


# Real processes.


def square(x: tg.Tensor) -> tg.Tensor:
    return x * x


def of_processes(sizes: tuple[int, ...]) -> Counts:
    """What a LocalCluster of so many workers takes."""
    counts = Counts("world_processes")
    for size in sizes:
        began = time.perf_counter()
        with LocalCluster(size, start_timeout=600.0) as cluster:
            started = time.perf_counter() - began
            workers = [psutil.Process(cluster.process(n).pid) for n in cluster.names[1:]]
            own = psutil.Process()
            idle = _of(workers)
            began = time.perf_counter()
            _star(cluster.names[1:])
            first = time.perf_counter() - began
            began = time.perf_counter()
            _star(cluster.names[1:])
            again = time.perf_counter() - began
            busy = _of(workers)
            began = time.perf_counter()
            info = cluster.add("late")
            late = time.perf_counter() - began
            assert info.id == size + 1
            threads, fds = own.num_threads(), own.num_fds()
            began = time.perf_counter()
        counts.add(
            workers=size,
            start_s=round(started, 2),
            MB_a_worker=idle["MB"],
            MB_after_a_pass=busy["MB"],
            threads_a_worker=busy["threads"],
            fds_a_worker=busy["fds"],
            threads_here=threads,
            fds_here=fds,
            first_star_ms=round(first * 1e3, 1),
            next_star_ms=round(again * 1e3, 1),
            late_join_s=round(late, 2),
            end_s=round(time.perf_counter() - began, 2),
        )
    return counts


def _of(processes: list[psutil.Process]) -> dict[str, float]:
    """Means over processes; memory that is shared counts for each by its part."""
    found = [(p.memory_full_info().pss, p.num_threads(), p.num_fds()) for p in processes]
    pss, threads, fds = (sum(column) / len(found) for column in zip(*found))
    return {"MB": round(pss / 2**20, 1), "threads": round(threads, 1), "fds": round(fds, 1)}


def _star(names: list[str]) -> None:
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    with dist_autograd.context() as context_id:
        futures = [rpc.rpc_async(name, square, (x,)) for name in names]
        total = sum((future.wait() for future in futures), start=tg.zeros(2))
        dist_autograd.backward(context_id, [total.sum()])
        gradient = dist_autograd.get_gradients(context_id)[x]
    assert gradient.tolist() == [2.0 * len(names), 4.0 * len(names)]


# The simulation.


def chain(x: tg.Tensor, place: int, size: int) -> tg.Tensor:
    y = x * 1.0
    if place + 1 == size:
        return y
    return rpc.rpc_sync(f"w{place + 1}", chain, (y, place + 1, size))


def tree(x: tg.Tensor, place: int, size: int) -> tg.Tensor:
    below = [each for each in (2 * place + 1, 2 * place + 2) if each < size]
    futures = [rpc.rpc_async(f"w{each}", tree, (x, each, size)) for each in below]
    return sum((future.wait() for future in futures), start=x * 1.0)


def star(x: tg.Tensor, place: int, size: int) -> tg.Tensor:
    futures = [rpc.rpc_async(f"w{each}", square, (x,)) for each in range(1, size)]
    return sum((future.wait() for future in futures), start=x * 1.0)


SHAPES: dict[str, Callable[[tg.Tensor, int, int], tg.Tensor]] = {
    "star": star,
    "tree": tree,
    "chain": chain,
}


def of_passes(sizes: tuple[int, ...]) -> Counts:
    """Messages and virtual time of a pass, and of one that loses a worker in the middle."""
    counts = Counts("world_passes")
    for size in sizes:
        for shape in SHAPES:
            counts.add(workers=size, shape=shape, **_pass(shape, size, None))
            lost = _pass(shape, size, f"w{size // 2}")
            counts.add(workers=size, shape=f"{shape}, one lost", **lost)
    return counts


def _pass(shape: str, size: int, victim: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    names = [f"w{place}" for place in range(size)]
    even = Faults(shortest=WAY, longest=WAY)
    with Simulation(names, seed=0, faults=even, on_start=attach_autograd) as simulation:

        def program() -> None:
            x = tg.tensor([1.0], requires_grad=True)
            with dist_autograd.context() as context_id:
                y = SHAPES[shape](x, 0, size)
                found["forward_messages"] = _sent(simulation, 0)
                found["forward_ms"] = round(simulation.now * 1e3, 1)
                place, now = len(simulation.trace), simulation.now
                if victim is not None:
                    simulation.crash(victim)
                try:
                    dist_autograd.backward(context_id, [y.sum()])
                    assert victim is None
                except PeerError:
                    assert victim is not None
                found["backward_messages"] = _sent(simulation, place)
                found["backward_ms"] = round((simulation.now - now) * 1e3, 1)

        simulation.run("w0", lambda: contextvars.copy_context().run(program))
    return found


def _sent(simulation: Simulation, since: int) -> int:
    """How many frames were sent, without greetings."""
    words = [line.split() for line in simulation.trace[since:]]
    sent = [each[2] for each in words if each[3:] == ["sent"]]
    return sum(1 for each in sent if int(each.split(".")[0]) != HELLO)


# Meeting.


class CountingBoard:
    """A board in this process that counts what it is asked."""

    pace = 3600.0

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.operations = self.read_texts = 0

    def post(self, text: str) -> None:
        self.operations += 1
        self.texts.append(text)

    def read(self, start: int) -> list[str]:
        self.operations += 1
        self.read_texts += len(self.texts) - start
        return self.texts[start:]

    def close(self) -> None:
        """Nothing is held."""


def of_meetings(sizes: tuple[int, ...]) -> Counts:
    """What it takes to enter an open world on a board, for all and for the last."""
    counts = Counts("world_meetings")
    for size in sizes:
        board, key = CountingBoard(), ClusterKey.fresh()
        with Simulation(["one"], seed=0) as simulation:
            worker = simulation.worker("one")
            began = time.process_time()
            for number in range(size):
                entered = time.process_time()
                roster = BoardRoster(board, key)
                name = f"w{number}"
                rank = roster.choose_rank(name)
                roster.enter(worker, Card(name, rank, OPEN, f"unix:///{name}", number + 1), 1.0)
                roster.close()
                last = time.process_time() - entered
        counts.add(
            workers=size,
            board_operations=board.operations,
            texts_on_the_board=len(board.texts),
            texts_read=board.read_texts,
            all_s=round(time.process_time() - began, 2),
            the_last_ms=round(last * 1e3, 1),
        )
    return counts


def measure(quick: bool) -> list[Counts]:
    """All of them."""
    # A LocalCluster has a socket and, once called, two paths a worker.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    simulated, processes = ((10, 20), (2, 4)) if quick else (SIMULATED, PROCESSES)
    # The processes first: the simulation leaves its threads behind, idle.
    return [of_processes(processes), of_meetings(simulated), of_passes(simulated)]
