"""Samples of ``rules/convolution.py``."""

from typing import Any

import numpy as np
from tests.rules.samples.sample import Entry, Sample, complex_normal, normal, sample

__all__ = ["SAMPLES"]

_PLAIN = {"strides": (1, 1), "pads": ((0, 0), (0, 0)), "dilations": (1, 1)}
_PADDED = {"strides": (1, 1), "pads": ((1, 1), (0, 1)), "dilations": (1, 1)}
_APART = {"strides": (2, 1), "pads": ((1, 0), (0, 0)), "dilations": (1, 2)}
_LINE = {"strides": (1,), "pads": ((2, 2),), "dilations": (1,)}


def _places(shape: Any, w_shape: Any, how: Any) -> list[Any]:
    """For each place of the result and of the kernel, the place of x, where it lies inside."""
    strides, pads, dilations = how["strides"], how["pads"], how["dilations"]
    counts = [
        (n + sum(pad) - d * (k - 1) - 1) // s + 1
        for n, k, s, pad, d in zip(shape[2:], w_shape[2:], strides, pads, dilations)
    ]
    found = []
    for out in np.ndindex(*counts):
        for inside in np.ndindex(*w_shape[2:]):
            at = tuple(
                o * s + k * d - pad[0]
                for o, s, k, d, pad in zip(out, strides, inside, dilations, pads)
            )
            if all(0 <= a < n for a, n in zip(at, shape[2:])):
                found.append((out, inside, at))
    return [counts, found]


_ALL = (slice(None), slice(None))


def _convolve(x: Any, w: Any, **how: Any) -> Any:
    counts, triples = _places(x.shape, w.shape, how)
    out = np.zeros((x.shape[0], w.shape[0], *counts), np.result_type(x, w))
    for place, inside, at in triples:
        out[(*_ALL, *place)] += x[(*_ALL, *at)] @ w[(*_ALL, *inside)].T
    return out


def _convolve_input(g: Any, w: Any, *, shape: Any, **how: Any) -> Any:
    out = np.zeros(shape, np.result_type(g, w))
    for place, inside, at in _places(shape, w.shape, how)[1]:
        out[(*_ALL, *at)] += g[(*_ALL, *place)] @ w[(*_ALL, *inside)]
    return out


def _convolve_weight(x: Any, g: Any, *, shape: Any, **how: Any) -> Any:
    out = np.zeros(shape, np.result_type(x, g))
    for place, inside, at in _places(x.shape, shape, how)[1]:
        out[(*_ALL, *inside)] += g[(*_ALL, *place)].T @ x[(*_ALL, *at)]
    return out


def _torch_convolve(torch: Any, x: Any, w: Any, *, strides: Any, pads: Any, dilations: Any) -> Any:
    flat = [width for pair in reversed(pads) for width in pair]
    x = torch.nn.functional.pad(x, flat)
    function = torch.nn.functional.conv1d if len(strides) == 1 else torch.nn.functional.conv2d
    return function(x, w, stride=strides, dilation=dilations)


_X, _W = (1, 1, 3, 4), (2, 1, 2, 2)


def _triple(kind: int) -> tuple[Sample, ...]:
    """The samples of one of the three functions: 0 the convolution, 1 by x, 2 by the kernel."""
    made = []
    cases = (
        ("plain", normal, _X, _W, _PLAIN),
        ("border", normal, _X, _W, _PADDED),
        ("apart", normal, _X, _W, _APART),
        ("many channels", normal, (1, 9, 1, 2), (1, 9, 1, 2), _PLAIN),
        ("one place axis, border beyond the kernel", normal, (2, 1, 3), (1, 1, 2), _LINE),
        ("zero-size", normal, (0, 1, 3, 4), _W, _PLAIN),
        ("complex", complex_normal, (1, 1, 2, 2), (1, 1, 2, 1), _PLAIN),
    )
    for label, draw, x, w, how in cases:
        out = _convolve(np.zeros(x), np.zeros(w), **how).shape
        shapes = ((x, w), (out, w), (x, out))[kind]
        extra = ({}, {"shape": x}, {"shape": w})[kind]
        made.append(sample(label, *(draw(*shape) for shape in shapes), **extra, **how))
    return tuple(made)


_no_twin = "PyTorch has its adjoints inside backward alone"

SAMPLES = {
    "convolve": Entry(_triple(0), numpy=_convolve, torch=_torch_convolve),
    "convolve_input": Entry(_triple(1), numpy=_convolve_input, no_torch=_no_twin),
    "convolve_weight": Entry(_triple(2), numpy=_convolve_weight, no_torch=_no_twin),
}
