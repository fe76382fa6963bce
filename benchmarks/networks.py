"""The small networks of bench_local, as functions of plain arrays or of any library's tensors."""

import numpy as np

__all__ = ["attend", "attention_data", "network", "weights"]


def weights(layers: int, width: int, batch: int):
    """A matrix and a bias for each layer, and a batch of data."""
    rng = np.random.default_rng(0)
    scale = np.float32(1 / np.sqrt(width))
    pairs = [
        (rng.standard_normal((width, width), np.float32) * scale, np.zeros(width, np.float32))
        for _ in range(layers)
    ]
    return pairs, rng.standard_normal((batch, width), np.float32)


def network(pairs, x, tanh):
    """A multi-layer perceptron."""
    for w, b in pairs:
        x = tanh(x @ w + b)
    return x


def attention_data():
    """A batch of sequences, 4 × 32 × 64, and the three matrices of a block of self-attention."""
    rng = np.random.default_rng(0)
    data = rng.standard_normal((4, 32, 64), np.float32)
    mats = [rng.standard_normal((64, 64), np.float32) * np.float32(0.125) for _ in range(3)]
    return data, mats


def attend(x, wq, wk, wv, softmax, scale):
    """A block of self-attention."""
    q, k, v = x @ wq, x @ wk, x @ wv
    return softmax((q @ k.mT) * scale) @ v
