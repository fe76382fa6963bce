"""An embedding table on another worker: only the rows that a batch needs travel.

The table lives on the worker "store"; the classifier over it here. Every step asks the store for
the vectors of a batch's words, and the gradient goes back to those rows. In the end both halves
are compared with the same model, trained in one process.

    python examples/remote_embedding.py [--quick]
"""

import argparse
import sys

import numpy as np

import telegrad as tg
from telegrad import nn, optim
from telegrad.distributed import LocalCluster, RemoteModule, autograd, rpc
from telegrad.distributed.optim import DistributedOptimizer

WORDS, WIDTH, LENGTH, BATCH = 5000, 32, 12, 64


def sentences(rng, liking):
    """Random sentences, and whether their words are on the whole liked."""
    words = rng.integers(0, WORDS, (BATCH, LENGTH))
    labels = (liking[words].sum(axis=1) > 0).astype(np.int64)
    return tg.tensor(words), tg.tensor(labels)


def loss_of(vectors, head, labels):
    """The loss of a batch, from its words' vectors, and how many sentences are named rightly."""
    scores = head(vectors.mean(axis=1))
    rightly = float((scores.detach().numpy().argmax(axis=1) == labels.numpy()).mean())
    return nn.functional.cross_entropy(scores, labels), rightly


def main(steps):
    tg.manual_seed(0)
    head = nn.Linear(WIDTH, 2)
    liking = np.random.default_rng(1).standard_normal(WORDS)
    with LocalCluster(["store"]):
        table = RemoteModule("store", nn.Embedding, (WORDS, WIDTH))
        twin_table, twin_head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, 2)
        twin_table.load_state_dict(table.state_dict())
        twin_head.load_state_dict(head.state_dict())

        parameters = [*table.parameters(), *map(rpc.RRef, head.parameters())]
        optimizer = DistributedOptimizer(optim.Adam, parameters, lr=0.03)
        rng = np.random.default_rng(2)
        for step in range(steps):
            words, labels = sentences(rng, liking)
            with autograd.context() as context_id:
                loss, rightly = loss_of(table(words), head, labels)
                autograd.backward(context_id, [loss])
                optimizer.step(context_id)
            if step % max(1, steps // 6) == 0 or step == steps - 1:
                print(f"step {step:>4}: loss {loss.item():.4f}, {rightly:.0%} of new sentences")
        trained = table.state_dict()["weight"].numpy()

    # The same in one process.
    optimizer = optim.Adam([*twin_table.parameters(), *twin_head.parameters()], lr=0.03)
    rng = np.random.default_rng(2)
    for _ in range(steps):
        words, labels = sentences(rng, liking)
        optimizer.zero_grad()
        loss_of(twin_table(words), twin_head, labels)[0].backward()
        optimizer.step()
    difference = np.abs(trained - twin_table.weight.detach().numpy()).max()
    print(f"table of {WORDS} words beside one process: differs by at most {difference:.2g}")
    if difference > 1e-5:
        sys.exit("expected a difference of at most 1e-5")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer steps")
    main(10 if parser.parse_args().quick else 150)
