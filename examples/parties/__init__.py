"""What the two parties of `split_learning.py` let each other call, and nothing else.

Each imports this module; `@rpc.expose` marks what the other may call in strict mode. Arguments come
from a party that is not trusted, so they are checked.
"""

import numpy as np

import telegrad as tg
from telegrad import nn
from telegrad.data import digits
from telegrad.distributed import autograd, rpc

__all__ = ["HIDDEN", "RATE", "TRAINING", "Body", "Head", "descend", "judge", "loss", "serve"]

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


class _LabelsParty:
    def __init__(self):
        tg.manual_seed(2)
        self.head = Head()
        self.labels = digits()[1].astype(np.int64)


_party = []
"""What this process serves as the party with the labels; empty on the other one."""


@rpc.expose
def serve():
    """Begin to be the party with the labels."""
    _party[:] = [_LabelsParty()]


def _rows(rows):
    rows = np.asarray(rows)
    if rows.ndim != 1 or rows.dtype.kind != "i" or not ((rows >= 0) & (rows < 1797)).all():
        raise ValueError("expected the numbers of digits")
    return rows


@rpc.expose
def loss(hidden, rows):
    """Give the loss of a batch; neither labels nor predictions leave this party."""
    (party,) = _party
    labels = tg.tensor(party.labels[_rows(rows)])
    return nn.functional.cross_entropy(party.head(hidden), labels)


@rpc.expose
def descend(context_id):
    """Take a step of descent with this party's gradients of a pass."""
    (party,) = _party
    found = autograd.get_gradients(context_id)
    with tg.no_grad():
        for parameter in party.head.parameters():
            parameter -= RATE * found[parameter]


@rpc.expose
def judge(hidden, rows):
    """Say how many of a batch are named rightly."""
    (party,) = _party
    with tg.no_grad():
        named = np.argmax(party.head(hidden).numpy(), axis=1)
    return int((named == party.labels[_rows(rows)]).sum())
