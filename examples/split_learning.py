"""Two parties train one model: one has the images and the lower layers, the other the labels.

Each is a program of its own. The party with the images sits behind a firewall: it listens nowhere,
dials the other one, and is called over the connection that it opened. Images and labels never leave
their party; what crosses is what the lower layers compute, and its gradient. Both run in strict
mode: no pickle, no code, and of all functions only those that `parties` exposes. The losses are
compared with those of one process, and it is tried that neither images nor the other party's memory
can be had.

    python examples/split_learning.py [--quick]

On two machines, each with MASTER_ADDR and MASTER_PORT of the party with the labels, and the key:

    python examples/split_learning.py --labels
    python examples/split_learning.py --images
"""

import argparse
import contextlib
import logging
import os
import socket
import subprocess
import sys

import numpy as np
import parties

import telegrad as tg
from telegrad import nn
from telegrad.data import digits
from telegrad.distributed import autograd, rpc
from telegrad.errors import Refused

BATCH = 100
LONGEST = 600
"""Seconds that the parties wait for each other."""


def batches(steps):
    """The same random rows each time."""
    rng = np.random.default_rng(0)
    for _ in range(steps):
        yield rng.integers(0, parties.TRAINING, BATCH)


def first_head():
    tg.manual_seed(2)
    return parties.Head()


def in_one_process(labels, steps):
    """The losses of the same training without parties."""
    images = tg.tensor(digits()[0].reshape(-1, 64).astype(np.float64))
    tg.manual_seed(1)
    model = nn.Sequential(parties.Body(), first_head())
    optimizer = tg.optim.SGD(model.parameters(), lr=parties.RATE)
    for rows in batches(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[rows]), tg.tensor(labels[rows]))
        loss.backward()
        optimizer.step()
        yield loss.item()


def refusals():
    """What a curious party tries, and whether it was refused."""
    tries = {
        "a function of Python's": lambda: rpc.rpc_sync("images", eval, ("1 + 1",)),
        "the images' file": lambda: rpc.rpc_sync("images", digits),
        "code of its own": lambda: rpc.rpc_sync("images", lambda: parties._party),
    }
    for what, attempt in tries.items():
        try:
            attempt()
        except Refused:
            yield what, True
        else:
            yield what, False


def images_party():
    """Serve what the lower layers compute until the other party has finished."""
    parties.serve()
    options = rpc.Options(strict=True, listen=False)
    # What it refuses the other party prints. In earnest keep the log, and that of telegrad.audit.
    logging.getLogger("telegrad.rpc").setLevel(logging.ERROR)
    rpc.init_rpc("images", rank=1, world_size=2, options=options)
    rpc.shutdown(timeout=LONGEST)


def train(labels, steps):
    """Be the party with the labels: the losses, how many are named rightly, what was refused."""
    head = first_head()
    losses = []
    rpc.init_rpc("labels", rank=0, world_size=2, options=rpc.Options(strict=True))
    try:
        for rows in batches(steps):
            with autograd.context() as context_id:
                hidden = rpc.rpc_sync("images", parties.hidden, (rows,))
                loss = nn.functional.cross_entropy(head(hidden), tg.tensor(labels[rows]))
                autograd.backward(context_id, [loss])
                found = autograd.get_gradients(context_id)
                with tg.no_grad():
                    for parameter in head.parameters():
                        parameter -= parties.RATE * found[parameter]
                rpc.rpc_sync("images", parties.descend, (context_id,))
            losses.append(loss.item())
        others = np.arange(parties.TRAINING, len(labels))
        with tg.no_grad():
            named = np.argmax(head(rpc.rpc_sync("images", parties.hidden, (others,))).numpy(), 1)
        return losses, np.mean(named == labels[others]), dict(refusals())
    finally:
        rpc.shutdown(timeout=LONGEST)


@contextlib.contextmanager
def images_here():
    """Have the other party run on this machine, for so long."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    with subprocess.Popen([sys.executable, __file__, "--images"]) as images:
        yield
    if images.returncode:
        sys.exit(f"expected that the party with the images ends well, got {images.returncode}")


def main(steps, other_party):
    labels = digits()[1].astype(np.int64)
    with other_party:
        losses, right, tried = train(labels, steps)
    alone = list(in_one_process(labels, steps))
    furthest = max(abs(a - b) for a, b in zip(losses, alone, strict=True))
    print(f"{steps} steps of two parties, loss {losses[0]:.3f} → {losses[-1]:.3f}")
    print(f"{right:.1%} of {len(labels) - parties.TRAINING} held-out digits named rightly")
    print(f"losses differ from those of one process by at most {furthest:.2g}")
    print(f"refused: {', '.join(what for what, refused in tried.items() if refused)}")
    if furthest > 1e-9 or not all(tried.values()):
        sys.exit("expected the losses of one process, and that everything else is refused")
    if not losses[-1] < losses[0] / 2:
        sys.exit("expected less than half of the first loss at the end")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer steps")
    party = parser.add_mutually_exclusive_group()
    party.add_argument("--images", action="store_true", help="be the party with the images")
    party.add_argument("--labels", action="store_true", help="be the one with the labels alone")
    given = parser.parse_args()
    if given.images:
        images_party()
    else:
        elsewhere = contextlib.nullcontext() if given.labels else images_here()
        main(40 if given.quick else 400, elsewhere)
