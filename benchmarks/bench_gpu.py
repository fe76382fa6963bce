"""Tensors of a device between two processes, telegrad's and PyTorch's: `python -m benchmarks gpu`.

Both processes use one device. telegrad comes twice: as it is, and with `device_segments=0`, where
tensors go through pinned memory of the host as they do between hosts. PyTorch has device maps. A
column has the transformer's layers in one process. Where there is no GPU nothing is measured.

Then telegrad's own tensors, where CuPy is there: with PyTorch, by whose ways they go, and without.
"""

import importlib.util
from functools import partial

from benchmarks.alone import alone, in_turns, watched
from benchmarks.gpu_work import PEER, one_process, works
from benchmarks.libraries import library
from benchmarks.measuring import Samples, sample
from benchmarks.own_gpu_work import forget_torch, own_works
from benchmarks.tables import Table

__all__ = ["measure", "measure_own", "measure_side"]

OURS = ("telegrad", "telegrad, through the host")
ALONE = "one process"
OWN = ("own tensors", "own tensors, through the host", "own tensors, without PyTorch")
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
        return {
            "transformer in two stages": sample(one_process(1), rounds),
            "the same in 4 micro-batches": sample(one_process(4), rounds),
        }
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


def measure_own(side: str, rounds: int) -> Samples:
    """The same for telegrad's own tensors."""
    is_alone = side == OWN[2]
    if is_alone:
        forget_torch()
    from telegrad.distributed import LocalCluster
    from telegrad.distributed.rpc import Options

    options = Options(device_segments=0) if side == OWN[1] else Options()
    found: Samples = {}
    with LocalCluster([PEER], options=options, initializer=forget_torch if is_alone else None):
        for name, (run, repeat) in watched(own_works()):
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
    if importlib.util.find_spec("cupy") is None:
        print("\nskipped telegrad's own tensors: CuPy is not installed")
        return [table]
    own = Table("gpu-own", OWN, ())
    mine = in_turns("own tensors", [own.sides] * turns, partial(_measured_own, rounds))
    print(f"\n{own.header()}", flush=True)
    for work in mine[OWN[0]]:
        own.add(work, {side: mine[side][work] for side in own.sides})
    return [table, own]


def _measured(rounds: int, side: str) -> Samples:
    return alone(measure_side, side, rounds)


def _measured_own(rounds: int, side: str) -> Samples:
    return alone(measure_own, side, rounds)
