"""First values for parameters, with the names and formulas of ``torch.nn.init``.

Each function fills a tensor in place and gives it back. `generator` is where random numbers come
from; without it, the generator of the process.
"""

import math
from typing import Any

import numpy as np

from telegrad.errors import ShapeError, UsageError
from telegrad.ops.filled import full
from telegrad.ops.random import Generator, rand, randn
from telegrad.tensors import Tensor
from telegrad.tensors.recording.modes import no_grad

__all__ = [
    "calculate_gain",
    "constant_",
    "kaiming_normal_",
    "kaiming_uniform_",
    "normal_",
    "ones_",
    "orthogonal_",
    "trunc_normal_",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
]

_GAINS = {
    "linear": 1.0,
    "conv2d": 1.0,
    "sigmoid": 1.0,
    "tanh": 5.0 / 3,
    "relu": math.sqrt(2.0),
    "selu": 0.75,
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Return the factor that keeps the variance through an activation.

    `param` is the slope of a leaky relu.

    Raises:
        UsageError: If the activation is not known.

    Examples:
        >>> tg.nn.init.calculate_gain("tanh")
        1.6666666666666667
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity not in _GAINS:
        raise UsageError(
            f"expected one of leaky_relu, {', '.join(_GAINS)} as nonlinearity, got {nonlinearity!r}"
        )
    return _GAINS[nonlinearity]


def _fill(tensor: Tensor, values: Any) -> Tensor:
    with no_grad():
        return tensor.copy_(values)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill a tensor with one value, and return it.

    Examples:
        >>> tg.nn.init.constant_(tg.empty(2), 7.0)
        tensor([7., 7.])
    """
    return _fill(tensor, full((), val, dtype=tensor.dtype))


def zeros_(tensor: Tensor) -> Tensor:
    """Fill a tensor with zeros, and return it.

    Examples:
        >>> tg.nn.init.zeros_(tg.ones(2))
        tensor([0., 0.])
    """
    return constant_(tensor, 0.0)


def ones_(tensor: Tensor) -> Tensor:
    """Fill a tensor with ones, and return it.

    Examples:
        >>> tg.nn.init.ones_(tg.empty(2))
        tensor([1., 1.])
    """
    return constant_(tensor, 1.0)


def uniform_(
    tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Fill a tensor with values from `a` to `b`, all equally likely; so are both complex parts.

    Arguments:
        tensor: The tensor to fill.
        a: The smallest value.
        b: The largest value.
        generator: The stream to draw from; that of the process by default.

    Examples:
        >>> tg.nn.init.uniform_(tg.empty(2, 3)).shape
        (2, 3)
    """
    if tensor.dtype.kind == "c":
        part = tensor.array.real.dtype
        pairs = rand((*tensor.shape, 2), generator=generator, dtype=part) * (b - a) + a
        return _fill(tensor, pairs.numpy().view(tensor.dtype)[..., 0])
    drawn = rand(tensor.shape, generator=generator, dtype=tensor.dtype)
    return _fill(tensor, drawn * (b - a) + a)


def normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Fill a tensor from the normal distribution.

    The other arguments are those of ``uniform_``.

    Arguments:
        mean: Its mean.
        std: Its standard deviation.

    Examples:
        >>> tg.nn.init.normal_(tg.empty(2, 3), std=0.02).shape
        (2, 3)
    """
    drawn = randn(tensor.shape, generator=generator, dtype=tensor.dtype)
    return _fill(tensor, drawn * std + mean)


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Fill a tensor from the normal distribution, restricted to values from `a` to `b`.

    Arguments:
        tensor: The tensor to fill.
        mean: The mean of the whole distribution.
        std: Its standard deviation.
        a: The lower bound.
        b: The upper bound.
        generator: The stream to draw from; that of the process by default.

    Raises:
        UsageError: If `std` is not above 0, or `a` not below `b`.

    Examples:
        >>> tg.max(tg.nn.init.trunc_normal_(tg.empty(100), b=0.5)) <= 0.5
        tensor(True)
    """
    from scipy.special import ndtr, ndtri

    if not std > 0:
        raise UsageError(f"expected std above 0 in trunc_normal_, got {std}")
    # Far above the mean, shares are too close to 1 to differ; far below, they are close to 0.
    side = -std if a > mean else std
    low, high = sorted((float(ndtr((a - mean) / side)), float(ndtr((b - mean) / side))))
    if not (a < b and low < high):
        raise UsageError(
            f"expected a below b in trunc_normal_, and some of the normal distribution of mean "
            f"{mean} and std {std} between them, got a={a} and b={b}"
        )
    drawn = rand(tensor.shape, generator=generator, dtype=np.float64).numpy()
    values = ndtri(drawn * (high - low) + low) * side + mean
    return _fill(tensor, np.clip(values, a, b))


def _fans(tensor: Tensor) -> tuple[int, int]:
    """Return how many values each output reads, and how many outputs read each value."""
    if tensor.ndim < 2:
        raise ShapeError(
            f"expected a weight with at least two axes, got shape {tensor.shape}: the fan of "
            "others is not defined"
        )
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def xavier_uniform_(
    tensor: Tensor, gain: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Fill a tensor uniformly, so that the variance neither grows nor shrinks, averaged both ways.

    Arguments:
        tensor: The tensor to fill.
        gain: The factor that ``calculate_gain`` returns.
        generator: The stream to draw from; that of the process by default.

    Raises:
        ShapeError: If the tensor has fewer than two axes.

    Examples:
        >>> tg.nn.init.xavier_uniform_(tg.empty(2, 3)).shape
        (2, 3)
    """
    bound = gain * math.sqrt(6.0 / max(sum(_fans(tensor)), 1))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill a tensor normally, so that the variance neither grows nor shrinks, averaged both ways.

    The arguments are those of ``xavier_uniform_``.

    Raises:
        ShapeError: If the tensor has fewer than two axes.

    Examples:
        >>> tg.nn.init.xavier_normal_(tg.empty(2, 3)).shape
        (2, 3)
    """
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / max(sum(_fans(tensor)), 1)), generator)


def _kaiming(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise UsageError(f"expected 'fan_in' or 'fan_out' as mode, got {mode!r}")
    fan = _fans(tensor)[mode == "fan_out"]
    # If nothing is read, there is nothing to draw, and any scale will do.
    return calculate_gain(nonlinearity, a) / math.sqrt(max(fan, 1))


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Fill a tensor uniformly, so that the variance stays with this activation.

    Arguments:
        tensor: The tensor to fill.
        a: The slope of the activation below zero.
        mode: "fan_in" keeps the variance forward, "fan_out" backward.
        nonlinearity: The activation, as ``calculate_gain`` knows it.
        generator: The stream to draw from; that of the process by default.

    Raises:
        ShapeError: If the tensor has fewer than two axes.
        UsageError: If the mode or the activation is not known.

    Examples:
        >>> tg.nn.init.kaiming_uniform_(tg.empty(2, 3), nonlinearity="relu").shape
        (2, 3)
    """
    bound = math.sqrt(3.0) * _kaiming(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Fill a tensor normally, so that the variance stays with this activation.

    The arguments are those of ``kaiming_uniform_``.

    Raises:
        ShapeError: If the tensor has fewer than two axes.
        UsageError: If the mode or the activation is not known.

    Examples:
        >>> tg.nn.init.kaiming_normal_(tg.empty(2, 3), nonlinearity="relu").shape
        (2, 3)
    """
    return normal_(tensor, 0.0, _kaiming(tensor, a, mode, nonlinearity), generator)


def orthogonal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill a tensor (all axes but the first folded) with orthonormal rows or columns.

    Arguments:
        tensor: The tensor to fill.
        gain: What they are multiplied by.
        generator: The stream to draw from; that of the process by default.

    Raises:
        ShapeError: If the tensor has fewer than two axes.

    Examples:
        >>> w = tg.nn.init.orthogonal_(tg.empty(2, 3))
        >>> tg.abs(tg.round(w @ w.mT))
        tensor([[1., 0.],
                [0., 1.]])
    """
    if tensor.ndim < 2:
        raise ShapeError(f"expected at least two axes in orthogonal_, got shape {tensor.shape}")
    rows, columns = tensor.shape[0], math.prod(tensor.shape[1:])
    drawn = randn((rows, columns), generator=generator, dtype=np.float64).numpy()
    q, r = np.linalg.qr(drawn.T if rows < columns else drawn)
    # With the signs of R's diagonal, all rotations are equally likely.
    q = q * np.where(np.diag(r) < 0, -1.0, 1.0)
    return _fill(tensor, (q.T if rows < columns else q).reshape(tensor.shape) * gain)
