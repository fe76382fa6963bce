"""One test in four processes: forked from one that has imported everything, each fresh.

Nothing a test leaves behind reaches the next one. A process whose part has ended stays until all
have told how theirs went: its worker may be what another's part is about. A group whose processes
have not all ended at the deadline is killed, by the ids of its processes, and says where each was.
"""

import contextlib
import faulthandler
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
import unittest
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Group", "Outcome"]

_FORK = multiprocessing.get_context("fork")
_GRACE = 2.0
"""Seconds for the others to end after one has failed."""


class Outcome(NamedTuple):
    """How a test went: "passed", "failed" or "skipped", why, and in how many seconds."""

    test: str
    result: str
    reason: str
    seconds: float


class Group:
    """The processes of one test."""

    def __init__(self, cls: type, method: str, deadline: float) -> None:
        self.test = f"{cls.__name__}.{method}"
        self._began = time.monotonic()
        self._deadline = self._began + deadline
        self._directory = tempfile.mkdtemp(prefix="pytorch-own-")
        self._told: dict[int, tuple[str, str]] = {}
        self._pipes: dict[int, Connection] = {}
        self._processes = []
        self._is_let_go = False
        for rank in range(cls.world_size):  # type: ignore[attr-defined]
            here, there = _FORK.Pipe()
            process = _FORK.Process(
                target=_run, args=(cls, method, rank, self._directory, deadline, there)
            )
            process.start()
            there.close()
            self._pipes[rank] = here
            self._processes.append(process)

    def sources(self) -> list[int | Connection]:
        """What becomes ready when one of the processes ends, or tells how its part went."""
        alive = [rank for rank, process in enumerate(self._processes) if process.is_alive()]
        ends = [self._processes[rank].sentinel for rank in alive]
        return [*ends, *(self._pipes[rank] for rank in alive if rank not in self._told)]

    def patience(self) -> float:
        """Seconds until it has to be looked at, whatever happens."""
        return max(0.0, min(self._deadline - time.monotonic(), 0.5))

    def outcome(self) -> Outcome | None:
        """How it went, once that is known; ends what is left of it."""
        for rank, pipe in self._pipes.items():
            if rank not in self._told and pipe.poll():
                try:
                    self._told[rank] = pipe.recv()
                except EOFError:
                    continue
        alive = [rank for rank, process in enumerate(self._processes) if process.is_alive()]
        has_failed = any(result == "failed" for result, _ in self._told.values())
        if has_failed or self._told.keys() >= set(alive):
            self._let_go(has_failed)
        if alive and time.monotonic() < self._deadline:
            return None
        hung = [rank for rank, process in enumerate(self._processes) if process.is_alive()]
        result, reason = self._judge(hung)
        self.end()
        return Outcome(self.test, result, reason, time.monotonic() - self._began)

    def _let_go(self, has_failed: bool) -> None:
        """Tells all to end, once; if one has failed, the others have a moment for it."""
        if self._is_let_go:
            return
        self._is_let_go = True
        if has_failed:
            self._deadline = min(self._deadline, time.monotonic() + _GRACE)
        for pipe in self._pipes.values():
            with contextlib.suppress(OSError):
                pipe.send(None)

    def _judge(self, hung: list[int]) -> tuple[str, str]:
        reasons = []
        for rank, process in enumerate(self._processes):
            told, why = self._told.get(rank, ("", ""))
            if rank in hung:
                reasons.append(
                    f"rank {rank} did not end in time\n{why}\n{self._stack(rank, process.pid)}"
                )
            elif told == "failed":
                reasons.append(f"rank {rank}: {why}\n{self._output(rank)}")
            elif not told and process.exitcode != 0:
                reasons.append(f"rank {rank} exited with {process.exitcode}\n{self._output(rank)}")
        if reasons:
            return "failed", "\n".join(reasons)
        skips = [why for told, why in self._told.values() if told == "skipped"]
        return ("skipped", skips[0]) if skips else ("passed", "")

    def _output(self, rank: int) -> str:
        return Path(self._directory, f"output{rank}").read_text()[-3000:]

    def _stack(self, rank: int, pid: int | None) -> str:
        if pid is not None:
            os.kill(pid, signal.SIGUSR1)
        time.sleep(0.2)
        return self._output(rank)

    def end(self) -> None:
        """Ends its processes, whatever they are doing."""
        for process in self._processes:
            if process.is_alive():
                process.kill()
            process.join()
        for pipe in self._pipes.values():
            pipe.close()
        shutil.rmtree(self._directory, ignore_errors=True)


def _run(
    cls: type, method: str, rank: int, directory: str, deadline: float, group: Connection
) -> None:
    output = os.open(os.path.join(directory, f"output{rank}"), os.O_CREAT | os.O_WRONLY, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    # Sockets and keys go with the group, however its processes end.
    tempfile.tempdir = directory
    os.environ.pop("XDG_RUNTIME_DIR", None)
    case = cls(method)
    case.rank = rank
    case.file_name = os.path.join(directory, "meeting")
    try:
        getattr(case, method)()
    except unittest.SkipTest as skip:
        group.send(("skipped", str(skip)))
    except SystemExit as leaving:
        group.send(_result_of_exit(leaving.code))
    except BaseException:
        group.send(("failed", traceback.format_exc()))
    else:
        group.send(("passed", ""))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    group.poll(deadline)
    # As a test's process of PyTorch's would: without waiting for threads that it left behind.
    os._exit(0)


def _result_of_exit(code: Any) -> tuple[str, str]:
    """What a test means that leaves its process; PyTorch's have a code for each reason to skip."""
    from torch.testing._internal.common_distributed import TEST_SKIPS

    skips = {skip.exit_code: skip.message for skip in TEST_SKIPS.values()}
    if code in skips:
        return "skipped", skips[code]
    return ("failed", f"exit {code}") if code else ("passed", "")


def wait_for_any(groups: list[Group]) -> None:
    """Returns when one of the groups has something to tell."""
    wait([each for group in groups for each in group.sources()], min(g.patience() for g in groups))
