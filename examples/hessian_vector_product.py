"""Hessian-vector products across workers: the largest curvature of a loss, by power iteration.

The loss is computed from parameters here through a layer on one worker and a loss on another. Its
Hessian is never built: each iteration asks for its product with one vector, in two ways. Reverse
over reverse sends a second backward pass over the same wires; forward over reverse sends
a tangent along with the parameters and through the backward pass. Both are compared with the
Hessian that one process builds in full.

    python examples/hessian_vector_product.py [--quick]
"""

import argparse
import sys

import numpy as np

import telegrad as tg
from telegrad.autograd import forward_ad, functional
from telegrad.distributed import LocalCluster, autograd, rpc

SAMPLES, INPUTS, WIDTH = 40, 6, 5


def data():
    rng = np.random.default_rng(3)
    x = tg.tensor(rng.standard_normal((SAMPLES, INPUTS)))
    return x, tg.tensor(rng.standard_normal(SAMPLES))


def hidden(parameters):
    """The layer, which has the inputs."""
    w = tg.reshape(parameters[: INPUTS * WIDTH], (INPUTS, WIDTH))
    return tg.tanh(data()[0] @ w)


def misfit(activations, parameters):
    """The loss, which has the targets."""
    v = parameters[INPUTS * WIDTH :]
    return ((activations @ v - data()[1]) ** 2).mean()


def loss_over_workers(parameters):
    activations = rpc.rpc_sync("layer", hidden, (parameters,))
    return rpc.rpc_sync("loss", misfit, (activations, parameters))


def reverse_over_reverse(parameters, vector):
    p = tg.tensor(parameters, requires_grad=True)
    with autograd.context() as context_id:
        (gradient,) = autograd.grad(context_id, loss_over_workers(p), p, create_graph=True)
        along = (gradient * tg.tensor(vector)).sum()
        return autograd.grad(context_id, along, p)[0].numpy()


def forward_over_reverse(parameters, vector):
    p = tg.tensor(parameters, requires_grad=True)
    with forward_ad.dual_level(), autograd.context() as context_id:
        dual = forward_ad.make_dual(p, tg.tensor(vector))
        (gradient,) = autograd.grad(context_id, loss_over_workers(dual), dual, create_graph=True)
        return forward_ad.unpack_dual(gradient).tangent.detach().numpy()


def main(iterations):
    rng = np.random.default_rng(4)
    size = INPUTS * WIDTH + WIDTH
    parameters, vector = rng.standard_normal(size), rng.standard_normal(size)
    vector /= np.linalg.norm(vector)
    with LocalCluster(["layer", "loss"]):
        ways = [reverse_over_reverse(parameters, vector), forward_over_reverse(parameters, vector)]
        for i in range(iterations):
            product = reverse_over_reverse(parameters, vector)
            curvature = float(vector @ product)
            vector = product / np.linalg.norm(product)
            if i % max(1, iterations // 6) == 0 or i == iterations - 1:
                print(f"iteration {i:>4}: curvature {curvature:.9f}")

    start = np.random.default_rng(4)
    start.standard_normal(size)
    first = start.standard_normal(size)
    full = functional.hessian(lambda p: misfit(hidden(p), p))(tg.tensor(parameters)).numpy()
    expected = full @ (first / np.linalg.norm(first))
    difference = max(float(np.abs(way - expected).max()) for way in ways)
    eigenvalues = np.linalg.eigvalsh(full)
    largest = eigenvalues[np.abs(eigenvalues).argmax()]
    print(f"one process: products differ by at most {difference:.2g}")
    print(f"one process: largest curvature {largest:.9f}")
    if difference > 1e-12:
        sys.exit("expected a difference of at most 1e-12")
    if iterations >= 100 and abs(curvature - largest) > 1e-6:
        sys.exit("expected the largest curvature after so many iterations")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer iterations")
    main(12 if parser.parse_args().quick else 300)
