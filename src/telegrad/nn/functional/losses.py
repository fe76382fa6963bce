"""Losses: how far a prediction is from its target, as one number unless asked otherwise."""

import math
from typing import Any

import numpy as np

from telegrad.arrays.host import for_numpy, in_host_memory
from telegrad.errors import DTypeError, GradientError, ShapeError, UsageError
from telegrad.ops.activations import softplus
from telegrad.ops.arguments import check_real
from telegrad.ops.magnitude import abs as absolute
from telegrad.ops.manipulation import reshape
from telegrad.ops.reductions import mean as mean_of
from telegrad.ops.reductions import sum as sum_of
from telegrad.ops.selection import where
from telegrad.ops.softmax import log_softmax
from telegrad.tensors import Tensor, wrap
from telegrad.tensors.describe import kind_of, way_in


def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Return the squared difference.

    Arguments:
        input: The values.
        target: What the values should be.
        reduction: "mean" (the default), "sum" or "none".

    Examples:
        >>> tg.nn.functional.mse_loss(tg.tensor([1.0, 2.0]), tg.tensor([1.0, 4.0]))
        tensor(2.)
    """
    _check_equal("mse_loss", input, target)
    difference = input - target
    return reduced(difference * difference, reduction)


def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0
) -> Tensor:
    """Return half the squared difference, continued as a straight line beyond `delta`.

    The other arguments are those of ``mse_loss``.

    Arguments:
        delta: Where it becomes straight.

    Raises:
        UsageError: If delta is not positive.

    Examples:
        >>> tg.nn.functional.huber_loss(tg.tensor([0.0, 0.0]), tg.tensor([1.0, 4.0]))
        tensor(2.)
    """
    if delta <= 0:
        raise UsageError(f"expected a positive delta in huber_loss, got {delta}")
    _check_equal("huber_loss", input, target)
    difference = input - target
    if delta == math.inf:
        return reduced(difference * difference * 0.5, reduction)
    size = absolute(difference)
    inside = size < delta
    # Zero where it is not used: the slope would be 0 times an infinite difference, which is NaN.
    near = where(inside, difference, 0.0)
    return reduced(where(inside, near * near * 0.5, (size - 0.5 * delta) * delta), reduction)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Return the cross entropy of ``sigmoid(input)`` and a target from 0 to 1, without overflow.

    The other arguments are those of ``mse_loss``.

    Arguments:
        weight: How much each element counts.
        pos_weight: How much a target of 1 counts.

    Examples:
        >>> logits, target = tg.tensor([0.0, 2.0]), tg.tensor([1.0, 1.0])
        >>> tg.nn.functional.binary_cross_entropy_with_logits(logits, target)
        tensor(0.41)
    """
    name = "binary_cross_entropy_with_logits"
    _check_equal(name, input, target)
    check_real(input, name)
    _check_stretches(name, "weight", weight, input)
    _check_stretches(name, "pos_weight", pos_weight, input)
    target = _floating(target, input.dtype)
    ones = 1 if pos_weight is None else (_floating(pos_weight, input.dtype) - 1) * target + 1
    loss = (1 - target) * input + softplus(-input) * ones
    return reduced(loss if weight is None else loss * _floating(weight, input.dtype), reduction)


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Return the cross entropy of ``softmax(input)`` and a target.

    Arguments:
        input: The values; classes are on axis 1, or on axis 0 of a vector.
        target: The class of each item, or, with the input's shape, probabilities.
        weight: How much each class counts.
        ignore_index: The class of items that don't count.
        reduction: "mean" (the default), "sum" or "none".
        label_smoothing: Which share of each target is spread over all classes.

    Raises:
        ShapeError: If the target is neither classes nor probabilities.
        UsageError: If an option is out of range.

    Examples:
        >>> tg.nn.functional.cross_entropy(tg.tensor([[2.0, 0.0], [0.0, 2.0]]), tg.tensor([0, 1]))
        tensor(0.1269)
    """
    _check_tensors("cross_entropy", input, target)
    axis = 0 if input.ndim == 1 else 1
    if not 0 <= label_smoothing <= 1:
        raise UsageError(f"expected label_smoothing from 0 to 1, got {label_smoothing}")
    _check_classes("cross_entropy", input)
    logs = log_softmax(input, axis=axis)
    if target.dtype.kind == "f":
        if target.shape != input.shape:
            raise ShapeError(
                f"expected classes as integers, or probabilities of shape {input.shape}, as "
                f"target of cross_entropy, got {target.dtype} of shape {target.shape}; for "
                "classes use target.long()"
            )
        if ignore_index >= 0:
            raise UsageError(
                f"expected classes as target of cross_entropy with ignore_index={ignore_index}, "
                "got probabilities, of which none can be ignored"
            )
        return _by_probabilities(logs, target, weight, reduction, label_smoothing, axis)
    return _by_classes(
        "cross_entropy", logs, target, weight, ignore_index, reduction, label_smoothing
    )


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Return minus the log-probability, from `input`, of each item's class.

    The other arguments are those of ``cross_entropy``.

    Arguments:
        input: Log-probabilities; classes are on axis 1, or on axis 0 of a vector.
        target: The class of each item.

    Examples:
        >>> tg.nn.functional.nll_loss(tg.log_softmax(tg.tensor([[2.0, 0.0]])), tg.tensor([0]))
        tensor(0.1269)
    """
    _check_tensors("nll_loss", input, target)
    _check_classes("nll_loss", input)
    check_real(input, "nll_loss")
    return _by_classes("nll_loss", input, target, weight, ignore_index, reduction, 0.0)


def _by_classes(
    name: str,
    logs: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    smoothing: float,
) -> Tensor:
    axis = 0 if logs.ndim == 1 else 1
    count = logs.shape[axis]
    classes = _checked_classes(name, logs, target, ignore_index, axis)
    by_class = _raw_weights(name, weight, count, logs.dtype)
    counted = classes != ignore_index
    safe = np.where(counted, classes, 0)
    of_item = by_class[safe] * counted
    # The weight of each log-probability: a constant, so only one product is recorded.
    share = np.zeros(logs.shape, logs.dtype)
    at = np.expand_dims(safe, axis)
    np.put_along_axis(share, at, np.expand_dims(of_item * (1 - smoothing), axis), axis)
    if smoothing:
        along = by_class.reshape(-1, *(1,) * (logs.ndim - axis - 1))
        share += along * (smoothing / count) * np.expand_dims(counted, axis)
    if not np.isfinite(for_numpy(logs.array)).all():
        # What weighs nothing must not count: 0 times minus infinity would be NaN.
        logs = where(wrap(share != 0), logs, 0.0)
    if reduction == "none":
        return -sum_of(logs * wrap(share), axis=axis)
    if reduction == "mean":
        total = of_item.sum(dtype=logs.dtype)
        if not total:
            # The mean of nothing is NaN, with a gradient of zeros.
            return sum_of(logs * wrap(np.zeros_like(share))) + np.nan
        share /= total
    elif reduction != "sum":
        reduced(logs, reduction)  # which refuses it
    return -sum_of(logs * wrap(share))


def _checked_classes(
    name: str, logs: Tensor, target: Tensor, ignore_index: int, axis: int
) -> np.ndarray[Any, Any]:
    classes = in_host_memory(target.array)
    if classes.dtype.kind not in "iu":
        raise DTypeError(f"expected integers as classes in {name}, got {target.dtype}")
    if classes.shape != logs.shape[:axis] + logs.shape[axis + 1 :]:
        raise ShapeError(
            f"expected a target of shape {logs.shape[:axis] + logs.shape[axis + 1 :]} for input "
            f"of shape {logs.shape} in {name}, got {target.shape}"
        )
    count = logs.shape[axis]
    wrong = (classes != ignore_index) & ((classes < 0) | (classes >= count))
    if wrong.any():
        raise UsageError(
            f"expected classes from 0 to {count - 1} (or ignore_index {ignore_index}) for input of "
            f"shape {logs.shape} in {name}, got {classes[wrong][0]}"
        )
    return classes


def _raw_weights(
    name: str, weight: Tensor | None, count: int, dtype: np.dtype[Any]
) -> np.ndarray[Any, Any]:
    """Return the weights of the classes as an array; they must be constants."""
    if weight is None:
        return np.ones(count, dtype)
    if weight.requires_grad or weight.is_dual:
        raise GradientError(
            f"expected a constant weight of classes in {name}, got one that is differentiated; "
            "take its detach(), or give the target as probabilities"
        )
    _check_class_weights(name, weight, count)
    return in_host_memory(weight.to(dtype).array)


def _by_probabilities(
    logs: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: str,
    smoothing: float,
    axis: int,
) -> Tensor:
    count = logs.shape[axis]
    if smoothing:
        target = target * (1 - smoothing) + smoothing / count
    _check_class_weights("cross_entropy", weight, count)
    shares = logs * target
    if weight is not None:
        along = reshape(weight.to(logs.dtype), (-1, *(1,) * (logs.ndim - axis - 1)))
        shares = shares * along
    return reduced(-sum_of(shares, axis=axis), reduction)


def _check_class_weights(name: str, weight: Tensor | None, count: int) -> None:
    if weight is not None and weight.shape != (count,):
        raise ShapeError(f"expected weight of shape ({count},) in {name}, got {weight.shape}")


def reduced(loss: Tensor, reduction: str) -> Tensor:
    """Return the loss as asked for: "mean", "sum" or "none"."""
    if reduction == "mean":
        return mean_of(loss)
    if reduction == "sum":
        return sum_of(loss)
    if reduction == "none":
        return loss
    raise UsageError(f"expected 'mean', 'sum' or 'none' as reduction, got {reduction!r}")


def _check_tensors(name: str, input: Any, target: Any) -> None:
    if not (isinstance(input, Tensor) and isinstance(target, Tensor)):
        stranger = target if isinstance(input, Tensor) else input
        raise UsageError(
            f"expected Tensors as input and target of {name}, got {kind_of(input)} and "
            f"{kind_of(target)}; wrap it in {way_in(stranger, 'telegrad.tensor')}"
        )


def _check_classes(name: str, input: Tensor) -> None:
    if not input.ndim:
        raise ShapeError(f"expected an input with an axis of classes in {name}, got shape ()")


def _check_stretches(name: str, what: str, weight: Tensor | None, input: Tensor) -> None:
    """Raise unless weights broadcast to the input; the input must not be stretched to them."""
    if weight is None:
        return
    try:
        fits = np.broadcast_shapes(weight.shape, input.shape) == input.shape
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(
            f"expected {what} of a shape that broadcasts to the input's, {input.shape}, in {name}, "
            f"got {weight.shape}"
        )


def _check_equal(name: str, input: Tensor, target: Tensor) -> None:
    _check_tensors(name, input, target)
    if input.shape != target.shape:
        raise ShapeError(
            f"expected input and target of one shape in {name}, got {input.shape} and "
            f"{target.shape}"
        )
    for x in (input, target):
        if x.dtype.kind == "c":
            raise DTypeError(
                f"expected real numbers in {name}, got {x.dtype}, whose squares may be negative; "
                "take real(x) or abs(x), or write (abs(x - y) ** 2).mean()"
            )
    if target.dtype.kind != "f":
        check_real(input, name)


def _floating(x: Tensor, dtype: np.dtype[Any]) -> Tensor:
    """Return `x` as real numbers: ``1 - x`` of unsigned integers would wrap around."""
    return x if x.dtype.kind == "f" else x.to(dtype)
