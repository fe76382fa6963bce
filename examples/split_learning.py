"""Two parties train one model: one has the images and the lower layers, the other the labels.

Images and labels never leave their party; what crosses is what the lower layers compute, and its
gradient. Both run in strict mode: no pickle, no code, and of all functions only those that
`parties` exposes. The losses are compared with those of one process, and it is tried that neither
labels nor the other party's memory can be had.

    python examples/split_learning.py [--quick]
"""

import argparse
import sys

import numpy as np
import parties

import telegrad as tg
from telegrad import nn
from telegrad.data import digits
from telegrad.distributed import LocalCluster, autograd, rpc
from telegrad.errors import Refused

BATCH = 100


def batches(steps):
    """The same random rows each time."""
    rng = np.random.default_rng(0)
    for _ in range(steps):
        yield rng.integers(0, parties.TRAINING, BATCH)


def first_body():
    tg.manual_seed(1)
    return parties.Body()


def in_one_process(images, steps):
    """The losses of the same training without parties."""
    body = first_body()
    tg.manual_seed(2)
    model = nn.Sequential(body, parties.Head())
    optimizer = tg.optim.SGD(model.parameters(), lr=parties.RATE)
    labels = digits()[1].astype(np.int64)
    for rows in batches(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[rows]), tg.tensor(labels[rows]))
        loss.backward()
        optimizer.step()
        yield loss.item()


def refusals():
    """What a curious party tries, and whether it was refused."""
    tries = {
        "a function of Python's": lambda: rpc.rpc_sync("labels", eval, ("1 + 1",)),
        "the labels' file": lambda: rpc.rpc_sync("labels", digits),
        "code of its own": lambda: rpc.rpc_sync("labels", lambda: parties._party),
    }
    for what, attempt in tries.items():
        try:
            attempt()
        except Refused:
            yield what, True
        else:
            yield what, False


def main(steps):
    images = tg.tensor(digits()[0].reshape(-1, 64).astype(np.float64))
    body = first_body()
    losses = []
    with LocalCluster(["labels"], me="images", options=rpc.Options(strict=True)):
        rpc.rpc_sync("labels", parties.serve)
        for rows in batches(steps):
            with autograd.context() as context_id:
                loss = rpc.rpc_sync("labels", parties.loss, (body(images[rows]), rows))
                autograd.backward(context_id, [loss])
                found = autograd.get_gradients(context_id)
                with tg.no_grad():
                    for parameter in body.parameters():
                        parameter -= parties.RATE * found[parameter]
                rpc.rpc_sync("labels", parties.descend, (context_id,))
            losses.append(loss.item())
        others = np.arange(parties.TRAINING, 1797)
        with tg.no_grad():
            right = rpc.rpc_sync("labels", parties.judge, (body(images[others]), others))
        tried = dict(refusals())
    alone = list(in_one_process(images, steps))
    furthest = max(abs(a - b) for a, b in zip(losses, alone, strict=True))
    print(f"{steps} steps of two parties, loss {losses[0]:.3f} → {losses[-1]:.3f}")
    print(f"{right / len(others):.1%} of {len(others)} held-out digits named rightly")
    print(f"losses differ from those of one process by at most {furthest:.2g}")
    print(f"refused: {', '.join(what for what, refused in tried.items() if refused)}")
    if furthest > 1e-9 or not all(tried.values()):
        sys.exit("expected the losses of one process, and that everything else is refused")
    if not losses[-1] < losses[0] / 2:
        sys.exit("expected less than half of the first loss at the end")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer steps")
    main(steps=40 if parser.parse_args().quick else 400)
