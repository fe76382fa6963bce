"""Rules warn of nothing, and leave NumPy's settings as they were."""

import warnings
from contextvars import Context
from typing import Any

import numpy as np
import pytest

from telegrad.arrays import silence, silent


def slope(x: Any, *, scale: float) -> Any:
    """The slope of the square root."""
    return scale / np.sqrt(x)


@pytest.mark.parametrize("is_known", [True, False], ids=["set at once", "by errstate"])
def test_a_rule_warns_of_nothing_where_values_raise(
    monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    if not is_known:
        monkeypatch.setattr(silence, "_silence", Context())
    quiet = silent(slope)
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        assert quiet(np.zeros(2), scale=1.0).tolist() == [np.inf, np.inf]
        with pytest.raises(FloatingPointError, match="divide by zero"):
            slope(np.zeros(2), scale=1.0)


def test_a_rule_that_raises_leaves_the_settings_as_they_were() -> None:
    with np.errstate(all="raise"):
        before = np.geterr()
        with pytest.raises(TypeError):
            silent(slope)(np.zeros(2))
        assert np.geterr() == before
