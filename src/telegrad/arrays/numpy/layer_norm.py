"""Layer norm and its pull-back, as NumPy does them best.

``rules/normalization.py`` states the formulas. Here the axes are folded to rows, sums along rows
are products (``rows.py``), and a result is made in one piece of memory: fresh memory takes
longer to get than to fill.
"""

from typing import Any

import numpy as np

from telegrad.arrays.numpy.rows import row_dots, row_sums
from telegrad.arrays.scratch import scratch

__all__ = ["layer_norm", "layer_norm_pull"]


def layer_norm(x: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, Any, Any]:
    """Return the value, what was scaled by `weight`, and the scale of each row before that."""
    rows = x.reshape(-1, weight.size)
    width = x.dtype.type(weight.size)
    normal = rows - row_sums(rows) / width
    scale = 1 / np.sqrt(row_dots(normal, normal) / width + eps)
    normal *= scale
    value = normal * weight.reshape(-1)
    value += bias.reshape(-1)
    ones = (1,) * weight.ndim
    return (
        value.reshape(x.shape),
        normal.reshape(x.shape),
        scale.reshape(x.shape[: -weight.ndim] + ones),
    )


def layer_norm_pull(g: Any, products: Any, weight: Any, normal: Any, scale: Any) -> Any:
    """Return the argument's gradient from `g`, that of the value, and `products`, g * normal."""
    line = weight.reshape(-1)
    share = line / line.dtype.type(line.size)
    rows = g.reshape(-1, line.size)
    result = rows * line
    result -= np.dot(rows, share)[:, None]
    along = np.dot(products.reshape(rows.shape), share)[:, None]
    part = scratch("layer_norm_pull", normal.size, normal.dtype).reshape(rows.shape)
    result -= np.multiply(normal.reshape(rows.shape), along, out=part)
    result *= scale.reshape(-1, 1)
    return result.reshape(g.shape)
