"""``detect_anomaly``: errors that show the forward line of a failing or NaN-producing operation."""

from typing import Any

from telegrad.arrays import backend_of, backend_of_type
from telegrad.errors import AnomalyError
from telegrad.graph import Bundle
from telegrad.tensors import Tensor
from telegrad.tensors.recording.modes import ModeScope, SetAtOnce


class detect_anomaly(ModeScope):
    """Remember where each operation was recorded, and stop a backward pass at the first NaN.

    Around the forward pass, it makes errors of the backward pass name the line that recorded the
    operation; around the backward pass, it looks for NaN. Both cost time: use it for debugging.

    Arguments:
        check_nan: Whether to look for NaN.

    Raises:
        AnomalyError: In a backward pass, at the first gradient that contains NaN.

    Examples:
        >>> x = tg.tensor([1.0], requires_grad=True)
        >>> with tg.autograd.detect_anomaly():
        ...     tg.exp(x * tg.nan).sum().backward()
        Traceback (most recent call last):
            ...
        telegrad.errors.AnomalyError: ExpBackward gave NaN as gradient 0 of 1; ...
    """

    __slots__ = ()

    def __init__(self, check_nan: bool = True) -> None:
        super().__init__(anomaly=True, check_nan=check_nan)


class set_detect_anomaly(SetAtOnce):
    """Turn anomaly detection on or off at once; as a context manager, restore it at the end.

    Arguments:
        mode: Whether to detect anomalies.
        check_nan: Whether to look for NaN.

    Examples:
        >>> with tg.autograd.set_detect_anomaly(False):
        ...     y = tg.tensor([1.0]) * 2
    """

    __slots__ = ()

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        super().__init__(anomaly=mode, check_nan=mode and check_nan)


def refuse_nan(node: Any, contributions: Any) -> None:
    """Raise AnomalyError if a node that has run gave a gradient that contains NaN."""
    for i, contribution in enumerate(contributions):
        parts = contribution if type(contribution) is Bundle else (contribution,)
        if any(map(_has_nan, parts)):
            raise AnomalyError(
                f"{node.name()} gave NaN as gradient {i} of {len(contributions)}; see the note for "
                "where it was recorded (if that was under detect_anomaly)"
            )


def _has_nan(value: Any) -> bool:
    raw = value.array if isinstance(value, Tensor) else value
    if backend_of_type(type(raw)) is None and not hasattr(raw, "__array_namespace__"):
        # None, or another framework's gradient. That framework looks for NaN itself, except in a
        # gradient that stays on a device on its way to another worker.
        return bool(getattr(raw, "is_cuda", False)) and bool(raw.isnan().any())
    xp = backend_of(raw)
    return bool(xp.any(xp.isnan(raw)))
