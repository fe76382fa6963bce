"""A program written for torch.distributed.rpc, moved to telegrad by its imports alone.

Two trainers share a model whose first half lives on a server. Everything below the imports is as it
was: processes are spawned, meet at MASTER_ADDR, call, differentiate over workers and step PyTorch's
optimisers.

    python examples/torch_two_imports.py [--quick]
"""

import argparse
import os
import socket

import torch
import torch.multiprocessing as mp
from torch import nn

# These three lines said torch.distributed.autograd, torch.distributed.rpc and
# torch.distributed.optim.
import telegrad.torch.autograd as dist_autograd
import telegrad.torch.rpc as rpc
from telegrad.torch.optim import DistributedOptimizer

WORLD = ["server", "trainer0", "trainer1"]


class Encoder(nn.Module):
    """The half of the model that lives on the server."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(8, 32), nn.Tanh())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)

    def parameter_rrefs(self) -> list[rpc.RRef]:
        """References to its parameters, for the optimiser."""
        return [rpc.RRef(parameter) for parameter in self.parameters()]


def train(rank: int, steps: int, encoder: rpc.RRef) -> list[float]:
    """Trains on data of its own; returns the losses."""
    torch.manual_seed(rank)
    x = torch.randn(64, 8)
    y = x.square().sum(1, keepdim=True) / 8
    head = nn.Linear(32, 1)
    parameters = encoder.rpc_sync().parameter_rrefs() + [rpc.RRef(p) for p in head.parameters()]
    optimizer = DistributedOptimizer(torch.optim.SGD, parameters, lr=0.05)
    losses = []
    for _ in range(steps):
        with dist_autograd.context() as context_id:
            hidden = encoder.rpc_async().forward(x)
            loss = nn.functional.mse_loss(head(hidden.wait()), y)
            dist_autograd.backward(context_id, [loss])
            optimizer.step(context_id)
        losses.append(loss.item())
    return losses


def run(rank: int, steps: int) -> None:
    """One process."""
    rpc.init_rpc(WORLD[rank], rank=rank, world_size=len(WORLD))
    if rank == 0:
        encoder = rpc.remote("server", Encoder)
        calls = [
            rpc.rpc_async(name, train, args=(i, steps, encoder)) for i, name in enumerate(WORLD[1:])
        ]
        print(f"{steps} steps of {len(calls)} trainers, half of their model on the server")
        for name, losses in zip(WORLD[1:], torch.futures.wait_all(calls)):
            print(f"{name}: loss {losses[0]:.4f} at first, {losses[-1]:.4f} at last")
            assert losses[-1] < losses[0] / 2
    rpc.shutdown()


def main() -> None:
    """Starts the processes, as the program did before."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few steps only")
    steps = 20 if parser.parse_args().quick else 300
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        os.environ["MASTER_PORT"] = str(probe.getsockname()[1])
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    mp.spawn(run, args=(steps,), nprocs=len(WORLD))


if __name__ == "__main__":
    main()
