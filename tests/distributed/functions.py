"""What the workers of the tests' clusters run; importable, so that it goes by name."""

import contextvars
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
from tests.rpc.inside import resting

from telegrad.distributed import rpc

GATE = threading.Event()


def who():
    return rpc.get_worker_info().name


def pid():
    return os.getpid()


def bounce(other, depth):
    me = rpc.get_worker_info().name
    return 0 if depth == 0 else 1 + rpc.rpc_sync(other, bounce, (me, depth - 1))


def stop_yourself():
    os.kill(os.getpid(), signal.SIGSTOP)
    # Another thread may take the signal, and this one go on for a moment: it must not answer.
    threading.Event().wait()


def kill_yourself():
    os.kill(os.getpid(), signal.SIGKILL)


def hold():
    GATE.wait()


def busy(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def resources():
    """Return (threads at work, descriptors, segments in use) of this process.

    Threads that rest in the pool or wait for a request are not at work: whether a worker has one
    depends on the moment. Nor do segments that lie ready count as in use.
    """
    host = rpc.current_worker().host
    process = psutil.Process()
    idle = resting(host) + host.idle_leads()
    pool = host.segment_pool
    in_use = len(pool) - len(pool.free())
    return process.num_threads() - idle, process.num_fds(), in_use


def meet(names):
    """Open this worker's links to all of these.

    On a thread of its own, which knows nothing of the request (without Python's lock a new one
    would): what a handler calls its caller with goes over the caller's link.
    """
    with ThreadPoolExecutor(1) as thread:
        for name in names:
            thread.submit(contextvars.Context().run, rpc.rpc_sync, name, who).result()


def counts():
    return rpc.current_worker().references.counts()


def leave_a_fork_and_die():
    """Die, while a forked process keeps the sockets open for a while."""
    if os.fork() == 0:
        time.sleep(8)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)
