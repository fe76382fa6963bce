"""A convolutional network on a parameter server, and two trainers that don't wait for each other.

A program for torch.distributed.rpc, moved by its imports. With PyTorch it fails: a trainer's step
changes the weights that the other one's backward pass has saved. Here each pass keeps the weights
that its forward has seen, so every gradient is exact and no trainer takes a lock.

    python examples/torch_two_trainers.py [--quick]
"""

import argparse
import os
import socket
from functools import cache

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.multiprocessing as mp
from torch import nn

# These three lines said torch.distributed.autograd, torch.distributed.rpc and
# torch.distributed.optim.
import telegrad.torch.autograd as dist_autograd
import telegrad.torch.rpc as rpc
from telegrad.data import digits
from telegrad.torch.optim import DistributedOptimizer

WORLD = ["server", "trainer0", "trainer1"]
BATCH, HELD_OUT = 32, 360


class Network(nn.Module):
    """All of the model, on the server."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(256, 10),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images)

    def parameter_rrefs(self) -> list[rpc.RRef]:
        """References to its parameters, for the optimisers of the trainers."""
        return [rpc.RRef(parameter) for parameter in self.parameters()]


@cache
def the_network() -> Network:
    """The one network of this process: all trainers ask for it."""
    return Network()


def forward(images: torch.Tensor) -> torch.Tensor:
    return the_network()(images)


def parameter_rrefs() -> list[rpc.RRef]:
    return the_network().parameter_rrefs()


def load() -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = digits()
    pixels = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8)
    return pixels / pixels.max(), torch.tensor(labels, dtype=torch.int64)


def train(rank: int, steps: int) -> list[float]:
    """Trains on a half of the digits; returns the losses."""
    images, labels = (each[HELD_OUT:][rank::2] for each in load())
    generator = torch.Generator().manual_seed(rank)
    parameters = rpc.rpc_sync("server", parameter_rrefs)
    optimizer = DistributedOptimizer(torch.optim.SGD, parameters, lr=0.05)
    losses = []
    for _ in range(steps):
        chosen = torch.randint(len(images), (BATCH,), generator=generator)
        with dist_autograd.context() as context_id:
            scores = rpc.rpc_sync("server", forward, args=(images[chosen],))
            loss = nn.functional.cross_entropy(scores, labels[chosen])
            dist_autograd.backward(context_id, [loss])
            optimizer.step(context_id)
        losses.append(loss.item())
    return losses


def run(rank: int, steps: int) -> None:
    """One process; the server's also starts the trainers and looks at what they reached."""
    torch.set_num_threads(1)
    rpc.init_rpc(WORLD[rank], rank=rank, world_size=len(WORLD))
    if rank == 0:
        print(f"{steps} steps of each of two trainers, their network on the server")
        calls = [rpc.rpc_async(name, train, args=(i, steps)) for i, name in enumerate(WORLD[1:])]
        for name, losses in zip(WORLD[1:], torch.futures.wait_all(calls)):
            print(f"{name}: loss {losses[0]:.3f} at first, {losses[-1]:.3f} at last")
        images, labels = (each[:HELD_OUT] for each in load())
        with torch.no_grad():
            found = the_network().eval()(images).argmax(1)
        right = (found == labels).float().mean().item()
        print(f"{right:.1%} of {HELD_OUT} held-out digits named rightly")
        assert right > (0.4 if steps < 100 else 0.93)
    rpc.shutdown()


def main() -> None:
    """Starts the processes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few steps only")
    steps = 40 if parser.parse_args().quick else 400
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        os.environ["MASTER_PORT"] = str(probe.getsockname()[1])
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    mp.spawn(run, args=(steps,), nprocs=len(WORLD))


if __name__ == "__main__":
    main()
