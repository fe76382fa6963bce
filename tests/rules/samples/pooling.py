"""Samples of ``rules/pooling.py``."""

from typing import Any

import numpy as np
from tests.rules.samples.sample import Entry, distinct, normal, sample, whole

__all__ = ["SAMPLES"]

_PLAIN = {"sizes": (2, 2), "strides": (2, 2), "pads": ((0, 0), (0, 0)), "dilations": (1, 1)}
_OVERLAPPING = {"sizes": (2, 2), "strides": (1, 1), "pads": ((0, 0), (0, 0)), "dilations": (1, 1)}
_BORDER = {"sizes": (2, 2), "strides": (2, 1), "pads": ((1, 0), (1, 1)), "dilations": (1, 1)}


def _windows(x: Any, border: float, how: Any) -> Any:
    x = np.pad(x, ((0, 0), (0, 0), *how["pads"]), constant_values=border)
    view = np.lib.stride_tricks.sliding_window_view(x, how["sizes"], (2, 3))
    view = view[:, :, :: how["strides"][0], :: how["strides"][1]]
    return view.reshape(*view.shape[:4], np.prod(how["sizes"]))


def _pool_max(x: Any, **how: Any) -> Any:
    taken = _windows(x, -np.inf, how)
    return taken.max(-1), taken.argmax(-1)


def _pool_take(x: Any, which: Any, **how: Any) -> Any:
    return np.take_along_axis(_windows(x, 0, how), which[..., None], -1)[..., 0]


def _put(g: Any, which: Any, shape: Any, how: Any) -> Any:
    widths = ((0, 0), (0, 0), *how["pads"])
    out = np.zeros([n + sum(width) for n, width in zip(shape, widths)])
    for place in np.ndindex(g.shape):
        for i in range(how["sizes"][0] * how["sizes"][1]):
            if which is None or which[place] == i:
                row, column = divmod(i, how["sizes"][1])
                at = (place[2] * how["strides"][0] + row, place[3] * how["strides"][1] + column)
                out[(*place[:2], *at)] += g[place]
    inside = tuple(slice(width[0], width[0] + n) for n, width in zip(shape, widths))
    return out[inside]


def _torch_max(torch: Any, x: Any, *, sizes: Any, strides: Any, pads: Any, dilations: Any) -> Any:
    flat = [width for pair in reversed(pads) for width in pair]
    x = torch.nn.functional.pad(x, flat, value=-np.inf)
    return torch.nn.functional.max_pool2d(x, sizes, strides)


def _torch_sum(torch: Any, x: Any, *, sizes: Any, strides: Any, pads: Any, dilations: Any) -> Any:
    flat = [width for pair in reversed(pads) for width in pair]
    x = torch.nn.functional.pad(x, flat)
    return torch.nn.functional.avg_pool2d(x, sizes, strides, divisor_override=1)


def _first(xp: Any, *results: Any) -> Any:
    return results[0]


SAMPLES = {
    "pool_max": Entry(
        (
            sample("plain", distinct(1, 2, 2, 4), finish=_first, **_PLAIN),
            sample("overlapping", distinct(1, 1, 3, 3), finish=_first, **_OVERLAPPING),
            sample("border", distinct(1, 1, 3, 3), finish=_first, **_BORDER),
            sample("no images", distinct(0, 1, 2, 4), finish=_first, **_PLAIN),
        ),
        numpy=_pool_max,
        torch=_torch_max,
    ),
    "pool_take": Entry(
        (
            sample("plain", normal(1, 2, 2, 4), whole(0, 4, 1, 2, 1, 2), **_PLAIN),
            sample("overlapping", normal(1, 1, 3, 3), whole(0, 4, 1, 1, 2, 2), **_OVERLAPPING),
            sample("border", normal(1, 1, 3, 3), whole(0, 4, 1, 1, 2, 4), **_BORDER),
            sample("no images", normal(0, 1, 2, 4), whole(0, 4, 0, 1, 1, 2), **_PLAIN),
        ),
        numpy=_pool_take,
        no_torch="PyTorch names the place in the image, not in the window",
    ),
    "pool_put": Entry(
        (
            sample(
                "plain", normal(1, 2, 1, 2), whole(0, 4, 1, 2, 1, 2), shape=(1, 2, 2, 4), **_PLAIN
            ),
            sample(
                "overlapping",
                normal(1, 1, 2, 2),
                whole(0, 4, 1, 1, 2, 2),
                shape=(1, 1, 3, 3),
                **_OVERLAPPING,
            ),
            sample(
                "border", normal(1, 1, 2, 4), whole(0, 4, 1, 1, 2, 4), shape=(1, 1, 3, 3), **_BORDER
            ),
            sample(
                "no images",
                normal(0, 1, 1, 2),
                whole(0, 4, 0, 1, 1, 2),
                shape=(0, 1, 2, 4),
                **_PLAIN,
            ),
        ),
        numpy=lambda g, which, *, shape, **how: _put(g, which, shape, how),
        no_torch="PyTorch has it inside backward alone",
    ),
    "pool_sum": Entry(
        (
            sample("plain", normal(1, 2, 2, 4), **_PLAIN),
            sample("overlapping", normal(1, 1, 3, 3), **_OVERLAPPING),
            sample("border", normal(1, 1, 3, 3), **_BORDER),
            sample("no images", normal(0, 1, 2, 4), **_PLAIN),
        ),
        numpy=lambda x, **how: _windows(x, 0, how).sum(-1),
        torch=_torch_sum,
    ),
    "pool_spread": Entry(
        (
            sample("plain", normal(1, 2, 1, 2), shape=(1, 2, 2, 4), **_PLAIN),
            sample("overlapping", normal(1, 1, 2, 2), shape=(1, 1, 3, 3), **_OVERLAPPING),
            sample("border", normal(1, 1, 2, 4), shape=(1, 1, 3, 3), **_BORDER),
            sample("no images", normal(0, 1, 1, 2), shape=(0, 1, 2, 4), **_PLAIN),
        ),
        numpy=lambda g, *, shape, **how: _put(g, None, shape, how),
        no_torch="PyTorch has it inside backward alone",
    ),
}
