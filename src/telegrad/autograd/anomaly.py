"""``detect_anomaly``: the forward line of a failing or NaN-producing operation, in the error."""

from collections.abc import Callable
from typing import Any

import numpy as np

from telegrad.errors import AnomalyError
from telegrad.tensors import Tensor
from telegrad.tensors.modes import Mode, ModeScope

__all__ = ["detect_anomaly", "set_detect_anomaly", "watcher"]


class detect_anomaly(ModeScope):
    """Remembers where each operation was recorded, and stops a backward pass at the first NaN.

    Around the forward pass it makes errors of the backward pass name the line that recorded the
    operation; around the backward pass it looks for NaN. Both cost time: for debugging only.
    """

    def __init__(self, check_nan: bool = True) -> None:
        super().__init__(anomaly=True, check_nan=check_nan)


class set_detect_anomaly(ModeScope):
    """``detect_anomaly`` by a flag."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        super().__init__(anomaly=mode, check_nan=mode and check_nan)


def watcher(mode: Mode) -> Callable[[Any, Any], None] | None:
    """What the engine calls after each node under `mode`, or None."""
    return _refuse_nan if mode.check_nan else None


def _refuse_nan(node: Any, contributions: Any) -> None:
    for i, contribution in enumerate(contributions):
        if contribution is None:
            continue
        raw = contribution.array if isinstance(contribution, Tensor) else contribution
        if np.isnan(np.asarray(raw)).any():
            raise AnomalyError(
                f"{node.name()} gave NaN as gradient {i} of {len(contributions)}; see the note for "
                "where it was recorded (if that was under detect_anomaly)"
            )
