"""A simulator written with JAX on one worker, a PyTorch policy on another, trained end to end.

A mass on a spring with friction is to be steered to a target. The simulator steps through time with
`lax.scan`; the policy sees the state now and then and gives a force. One backward pass runs through
all of it: PyTorch, the wire, JAX, the wire, again and again. The first gradients are compared with
those of one process.

    python examples/jax_simulator.py [--quick]
"""

import argparse
import sys

import torch
from jax import lax
from jax import numpy as jnp

from telegrad.distributed import LocalCluster, RemoteModule, autograd, rpc
from telegrad.distributed.optim import DistributedOptimizer
from telegrad.jax import from_jax

DECISIONS, SUBSTEPS, BATCH = 6, 20, 16


@from_jax
def simulate(state, force, world):
    """The state after some small steps with one force."""

    def step(now, _):
        position, speed = now
        pull = force - world["spring"] * jnp.sin(position) - world["friction"] * speed
        speed = speed + 0.02 * pull
        return (position + 0.02 * speed, speed), None

    return lax.scan(step, state, None, length=SUBSTEPS)[0]


def make_policy():
    """Runs on the policy's worker."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))


def loss_of(policy, simulator, positions, targets):
    """How far from their targets the masses end, and how fast; a little for the forces."""
    state = (positions, torch.zeros(BATCH))
    world = {"spring": torch.tensor(1.5), "friction": torch.tensor(0.4)}
    effort = 0.0
    for _ in range(DECISIONS):
        force = policy(torch.stack([*state, targets], dim=1))[:, 0]
        state = simulator(state, force, world)
        effort = effort + force.square().mean()
    return (state[0] - targets).square().mean() + state[1].square().mean() + 1e-3 * effort


def gradients_of(module, context_id):
    """The gradients of the policy's parameters, on its worker."""
    found = autograd.get_gradients(context_id)
    return [found[parameter] for parameter in module.local_value().parameters()]


def main(steps):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    positions, targets = torch.randn(BATCH), torch.randn(BATCH) * 0.5
    alone = make_policy()
    loss_of(alone, simulate, positions, targets).backward()
    losses = []
    with LocalCluster(["simulator", "policy"]):
        policy = RemoteModule("policy", make_policy)
        optimizer = DistributedOptimizer(torch.optim.Adam, policy.parameters(), lr=0.05)

        def simulator(*args):
            return rpc.rpc_sync("simulator", simulate, args)

        for step in range(steps):
            with autograd.context() as context_id:
                loss = loss_of(policy, simulator, positions, targets)
                autograd.backward(context_id, [loss])
                if step == 0:
                    asked = (policy.get_module_rref(), context_id)
                    theirs = rpc.rpc_sync("policy", gradients_of, asked)
                optimizer.step(context_id)
            losses.append(loss.item())
    pairs = zip(alone.parameters(), theirs, strict=True)
    difference = max((p.grad - g).abs().max().item() for p, g in pairs)
    print(f"{DECISIONS} decisions a run, {SUBSTEPS} steps of the simulator for each")
    print(f"loss {losses[0]:.4f} → {losses[-1]:.4f} after {steps} steps of training")
    print(f"gradients differ from one process by at most {difference:.2g}")
    if difference > 1e-5 or not losses[-1] < losses[0] / 2:
        sys.exit("expected the same gradients, and less than half of the first loss at the end")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer steps")
    main(steps=25 if parser.parse_args().quick else 150)
