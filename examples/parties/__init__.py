"""What the party with the images lets the one with the labels call, and nothing else.

`split_learning.py` is the program of both; `@rpc.expose` marks what may be called in strict mode.
Arguments come from a party that is not trusted, so they are checked.
"""

import numpy as np

import telegrad as tg
from telegrad import nn
from telegrad.data import digits
from telegrad.distributed import autograd, rpc

__all__ = ["HIDDEN", "RATE", "TRAINING", "Body", "Head", "descend", "hidden", "serve"]

HIDDEN, RATE = 24, 0.5
TRAINING = 1400
"""How many of the digits are trained with; the others judge."""


class Body(nn.Module):
    """The lower layers, of the party that has the images."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, HIDDEN, dtype=tg.float64)

    def forward(self, x):
        return tg.tanh(self.layer(x))


class Head(nn.Module):
    """The upper layer, of the party that has the labels."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(HIDDEN, 10, dtype=tg.float64)

    def forward(self, hidden):
        return self.layer(hidden)


class _ImagesParty:
    def __init__(self):
        tg.manual_seed(1)
        self.body = Body()
        self.images = tg.tensor(digits()[0].reshape(-1, 64).astype(np.float64))


_party = []
"""What this process serves as the party with the images; empty on the other one."""


def serve():
    """Begin to be the party with the images."""
    _party[:] = [_ImagesParty()]


def _rows(rows):
    rows = np.asarray(rows)
    if rows.ndim != 1 or rows.dtype.kind != "i" or not ((rows >= 0) & (rows < 1797)).all():
        raise ValueError("expected the numbers of digits")
    return rows


@rpc.expose
def hidden(rows):
    """Give what the lower layers make of some images; the images don't leave this party."""
    (party,) = _party
    return party.body(party.images[_rows(rows)])


@rpc.expose
def descend(context_id):
    """Take a step of descent with this party's gradients of a pass."""
    (party,) = _party
    found = autograd.get_gradients(context_id)
    with tg.no_grad():
        for parameter in party.body.parameters():
            parameter -= RATE * found[parameter]
