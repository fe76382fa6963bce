"""Tensors of a device between two processes, telegrad's and PyTorch's: `python -m benchmarks gpu`.

Both processes use one device. telegrad comes twice: as it is, and with `device_segments=0`, where
tensors go through pinned memory of the host as they do between hosts. PyTorch has device maps. A
column has the transformer's layers in one process. Where there is no GPU nothing is measured.
"""

from functools import partial

from benchmarks.alone import alone, in_turns, watched
from benchmarks.gpu_work import PEER, one_process, works
from benchmarks.libraries import library
from benchmarks.measuring import Samples, sample
from benchmarks.tables import Table

__all__ = ["measure", "measure_side"]

OURS = ("telegrad", "telegrad, through the host")
ALONE = "one process"
GOALS = {
    "echo of 1 MB": 1.4,
    "echo of 16 MB": 1.4,
    "echo of 64 MB": 2,
    "echo of 256 MB": 20,
    "context, call, backward with 3 × 3": 1.5,
    "the same with 16 MB": 1.3,
    "transformer in two stages": 1.1,
    "the same in 4 micro-batches": 1.1,
}


def measure_side(side: str, rounds: int) -> Samples:
    """The seconds of each round of each work, on one side."""
    if side == ALONE:
        return {"transformer in two stages": sample(one_process(), rounds)}
    if side == "PyTorch":
        from benchmarks.torch_cluster import TorchCluster

        workers, lib = TorchCluster([PEER], device=0), library("torch")
    else:
        from telegrad.distributed import LocalCluster
        from telegrad.distributed.rpc import Options

        options = Options() if side == OURS[0] else Options(device_segments=0)
        workers, lib = LocalCluster([PEER], options=options), library("telegrad-torch")
    found: Samples = {}
    with workers:
        for name, (run, repeat) in watched(works(lib)):
            found[name] = sample(run, rounds, repeat)
    return found


def measure(quick: bool) -> list[Table]:
    """All of it, as one table; no table without a GPU."""
    try:
        import torch
    except ImportError:
        print("skipped: PyTorch is not installed")
        return []
    if not torch.cuda.is_available():
        print("skipped: there is no CUDA device here")
        return []
    turns, rounds = (1, 3) if quick else (3, 8)
    table = Table("gpu", OURS, ("PyTorch", ALONE))
    print(f"{torch.cuda.get_device_name(0)}, PyTorch {torch.__version__}\n", flush=True)
    measured = partial(_measured, rounds)
    found = in_turns("two processes, one device", [table.sides] * turns, measured)
    print(table.header(), flush=True)
    for work in found[OURS[0]]:
        samples = {side: found[side][work] for side in table.sides if work in found[side]}
        table.add(work, samples, goal=GOALS.get(work))
    return [table]


def _measured(rounds: int, side: str) -> Samples:
    return alone(measure_side, side, rounds)
