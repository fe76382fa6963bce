"""PyTorch's workers on this machine, a process each: the peer of ``LocalCluster`` in benchmarks.

Like its children, they end when this process does: each watches its standard input. They have
PyTorch's default transport, which polls shared memory without pause; over its sockets alone calls
and steps took four times as long.
"""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any

__all__ = ["TorchCluster"]

# PyTorch's workers deadlock when a chain of calls is deeper than their pool; the default is 16.
# Calls were no slower with more threads than with the default.
_THREADS = 32


def _join(names: Sequence[str], rank: int, port: int, device: int) -> None:
    import torch
    from torch.distributed import rpc

    torch.set_num_threads(1)
    options = rpc.TensorPipeRpcBackendOptions(
        num_worker_threads=_THREADS, init_method=f"tcp://127.0.0.1:{port}"
    )
    if device >= 0:
        for name in names:
            if name != names[rank]:
                options.set_device_map(name, {device: device})
    rpc.init_rpc(  # type: ignore[no-untyped-call]
        names[rank], rank=rank, world_size=len(names), rpc_backend_options=options
    )


def _end_with_parent() -> None:
    os.read(0, 1)
    os._exit(1)


def serve(names: str, rank: str, port: str, device: str) -> None:
    """Be a worker until all leave."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    from torch.distributed import rpc

    _join(names.split(","), int(rank), int(port), int(device))
    rpc.shutdown()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class TorchCluster:
    """In a `with` statement: a process for each name, and the calling process as one more.

    `device`: the index of the CUDA device whose tensors go to the same device everywhere; -1: none.
    """

    def __init__(self, names: Sequence[str], *, me: str = "main", device: int = -1) -> None:
        self._device = device
        self._names = [me, *names]
        self._processes: list[subprocess.Popen[Any]] = []

    def __enter__(self) -> "TorchCluster":
        port = _free_port()
        code = "import sys; from benchmarks.torch_cluster import serve; serve(*sys.argv[1:])"
        for rank in range(1, len(self._names)):
            arguments = [",".join(self._names), str(rank), str(port), str(self._device)]
            command = [sys.executable, "-W", "ignore", "-c", code, *arguments]
            self._processes.append(subprocess.Popen(command, stdin=subprocess.PIPE))
        _join(self._names, 0, port, self._device)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        from torch.distributed import rpc

        rpc.shutdown(graceful=kind is None)
        for process in self._processes:
            if kind is not None:
                process.kill()
            process.wait(60)
