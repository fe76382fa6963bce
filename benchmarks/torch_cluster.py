"""PyTorch's workers on this machine, a process each: the peer of ``LocalCluster`` in benchmarks."""

import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from benchmarks.bench_rpc import TORCH_THREADS, free_port

__all__ = ["TorchCluster"]


def _join(names: Sequence[str], rank: int, port: int) -> None:
    import torch
    from torch.distributed import rpc

    torch.set_num_threads(1)
    rpc.init_rpc(
        names[rank],
        rank=rank,
        world_size=len(names),
        rpc_backend_options=rpc.TensorPipeRpcBackendOptions(
            num_worker_threads=TORCH_THREADS, init_method=f"tcp://127.0.0.1:{port}"
        ),
    )


def serve(names: str, rank: str, port: str) -> None:
    """Be a worker until all leave."""
    from torch.distributed import rpc

    _join(names.split(","), int(rank), int(port))
    rpc.shutdown()


class TorchCluster:
    """In a `with` statement: a process for each name, and the calling process as one more."""

    def __init__(self, names: Sequence[str], *, me: str = "main") -> None:
        self._names = [me, *names]
        self._processes: list[subprocess.Popen[Any]] = []

    def __enter__(self) -> "TorchCluster":
        port = free_port()
        code = "import sys; from benchmarks.torch_cluster import serve; serve(*sys.argv[1:])"
        for rank in range(1, len(self._names)):
            arguments = [",".join(self._names), str(rank), str(port)]
            process = subprocess.Popen([sys.executable, "-W", "ignore", "-c", code, *arguments])
            self._processes.append(process)
        _join(self._names, 0, port)
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
