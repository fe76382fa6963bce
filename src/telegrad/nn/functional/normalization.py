"""Layer and batch normalisation."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from telegrad.arrays.host import for_numpy
from telegrad.errors import ShapeError, UsageError
from telegrad.ops.arguments import check_real
from telegrad.ops.manipulation import reshape
from telegrad.rules.normalization import LAYER_NORM, NORMALIZE
from telegrad.tensors import Tensor, apply_several


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Return the values with the last axes brought to mean 0 and variance 1, scaled and shifted.

    Arguments:
        input: The values.
        normalized_shape: The lengths of these axes.
        weight: The scale.
        bias: The shift.
        eps: Added where something is divided by, so that it is never by zero.

    Raises:
        ShapeError: If the shapes don't fit.

    Examples:
        >>> tg.nn.functional.layer_norm(tg.tensor([1.0, 3.0]), (2,))
        tensor([-1.,  1.])
    """
    check_real(input, "layer_norm")
    shape = tuple(normalized_shape)
    if input.shape[input.ndim - len(shape) :] != shape or not shape:
        raise ShapeError(
            f"expected an input whose last axes are {shape} (normalized_shape) in layer_norm, got "
            f"shape {input.shape}"
        )
    for name, value in (("weight", weight), ("bias", bias)):
        if value is not None and value.shape != shape:
            raise ShapeError(f"expected {name} of shape {shape} in layer_norm, got {value.shape}")
    if weight is not None and bias is not None and weight.dtype == bias.dtype == input.dtype:
        return apply_several(LAYER_NORM, input, weight, bias, eps=eps)[0]
    axes = tuple(range(input.ndim - len(shape), input.ndim))
    out: Tensor = apply_several(NORMALIZE, input, axes=axes, eps=eps)[0]
    if weight is not None:
        out = out * weight
    return out if bias is None else out + bias


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Return the values with each channel (axis 1) brought to mean 0 and variance 1.

    In training, the batch's own mean and variance are taken, and move the running ones by
    `momentum`; otherwise the running ones are taken.

    Arguments:
        input: (item, channel, …).
        running_mean: (channel,), or None.
        running_var: (channel,), or None.
        weight: The scale.
        bias: The shift.
        training: Whether the batch's own mean and variance count.
        momentum: How far the running ones move.
        eps: Added where something is divided by, so that it is never by zero.

    Raises:
        ShapeError: If the shapes don't fit.
        UsageError: If it is not training and there is no running mean or variance.

    Examples:
        >>> tg.nn.functional.batch_norm(tg.tensor([[1.0], [3.0]]), None, None, training=True)
        tensor([[-1.],
                [ 1.]])
    """
    check_real(input, "batch_norm")
    if input.ndim < 2:
        raise ShapeError(f"expected axes (item, channel, …) in batch_norm, got {input.shape}")
    channels = input.shape[1]
    given = {
        "running_mean": running_mean,
        "running_var": running_var,
        "weight": weight,
        "bias": bias,
    }
    for name, value in given.items():
        if value is not None and value.shape != (channels,):
            raise ShapeError(
                f"expected {name} of shape ({channels},) for an input of shape {input.shape} in "
                f"batch_norm, got {value.shape}"
            )
    along = (1, channels, *(1,) * (input.ndim - 2))
    if training:
        out = _by_batch(input, running_mean, running_var, momentum, eps)
    else:
        if running_mean is None or running_var is None:
            raise UsageError("expected running_mean and running_var outside of training, got None")
        spread = reshape(running_var + eps, along) ** 0.5
        out = (input - reshape(running_mean, along)) / spread
    if weight is not None:
        out = out * reshape(weight, along)
    return out if bias is None else out + reshape(bias, along)


def _by_batch(
    input: Tensor, mean: Tensor | None, var: Tensor | None, momentum: float, eps: float
) -> Tensor:
    axes = (0, *range(2, input.ndim))
    if not input.size:
        # There is nothing to learn from: the running ones stay as they are.
        return input.clone()
    count = input.size // input.shape[1]
    if count <= 1:
        raise UsageError(
            f"expected more than one value a channel to train batch_norm, got {input.shape}"
        )
    out: Tensor
    out, scale = apply_several(NORMALIZE, input, axes=axes, eps=eps)
    if mean is not None:
        _move(mean, np.mean(for_numpy(input.array), axis=axes), momentum)
    if var is not None:
        # The batch's variance, from the scale; the running one is without bias.
        own = np.maximum(1 / np.square(for_numpy(scale.array)).reshape(-1) - eps, 0)
        _move(var, own * (count / (count - 1)), momentum)
    return out


def _move(running: Tensor, value: Any, momentum: float) -> None:
    old = for_numpy(running.array)
    # Not ``old + momentum * (value - old)``, where a much smaller value would be lost.
    running.array = ((1 - momentum) * old + momentum * value).astype(old.dtype, copy=False)
