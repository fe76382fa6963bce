"""What an entry of the table of samples is made of; ``samples/__init__.py`` states the format."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = [
    "CHECKS",
    "Draw",
    "Entry",
    "Sample",
    "between",
    "complex_normal",
    "constant",
    "distinct",
    "normal",
    "positive",
    "sample",
    "truths",
    "whole",
]

Draw = Callable[[np.random.Generator], Any]
"""Makes one input: a NumPy array, in float64 or complex128 where it carries a derivative."""

CHECKS = ("numpy", "reverse", "forward", "second", "float32", "strict", "torch")
"""What a sample may be excused from, by name."""


@dataclass(frozen=True)
class Sample:
    """One call of a primitive."""

    label: str
    draws: tuple[Draw, ...]
    options: Mapping[str, Any]
    without: Mapping[str, str]
    prepare: Callable[..., tuple[Any, ...]] | None
    finish: Callable[..., Any] | None

    def inputs(self, seed: int = 7) -> tuple[Any, ...]:
        """The inputs: the same on every call."""
        rng = np.random.default_rng(seed)
        return tuple(draw(rng) for draw in self.draws)


def sample(
    label: str,
    *draws: Draw,
    without: Mapping[str, str] | None = None,
    prepare: Callable[..., tuple[Any, ...]] | None = None,
    finish: Callable[..., Any] | None = None,
    **options: Any,
) -> Sample:
    """A sample; the format is stated in ``samples/__init__.py``."""
    unknown = set(without or {}) - set(CHECKS)
    if unknown:
        raise ValueError(f"expected checks out of {CHECKS} in without, got {sorted(unknown)}")
    return Sample(label, draws, options, dict(without or {}), prepare, finish)


@dataclass(frozen=True)
class Entry:
    """All that the tests know about one primitive."""

    samples: tuple[Sample, ...]
    numpy: str | Callable[..., Any] | None = None
    torch: str | Callable[..., Any] | None = None
    no_numpy: str = ""
    no_torch: str = ""
    labels: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        labels = [each.label for each in self.samples]
        if len(set(labels)) != len(labels):
            raise ValueError(f"expected each label once, got {labels}")
        if self.torch is None and not self.no_torch:
            raise ValueError(
                "expected a PyTorch twin, or no_torch with the reason why there is none"
            )
        object.__setattr__(self, "labels", frozenset(labels))


def normal(*shape: int) -> Draw:
    """Normal draws; a primitive with kinks takes ``distinct`` or ``between`` instead."""
    return lambda rng: np.asarray(rng.normal(size=shape))


def complex_normal(*shape: int) -> Draw:
    """Complex numbers with normal real and imaginary parts."""
    return lambda rng: np.asarray(rng.normal(size=shape) + 1j * rng.normal(size=shape))


def between(low: float, high: float, *shape: int) -> Draw:
    """Uniform draws from an interval."""
    return lambda rng: np.asarray(rng.uniform(low, high, size=shape))


def positive(*shape: int) -> Draw:
    """Draws away from zero, for logarithms, roots and divisors."""
    return between(0.4, 2.5, *shape)


def distinct(*shape: int) -> Draw:
    """Values at least 0.1 from each other and from zero, in random order: no ties, no kinks."""

    def draw(rng: np.random.Generator) -> Any:
        count = int(np.prod(shape, dtype=int))
        steps = rng.permutation(count) - (count - 1) / 2 + 0.25
        return np.asarray(steps * 0.3).reshape(shape)

    return draw


def whole(low: int, high: int, *shape: int) -> Draw:
    """Integers from low to high - 1: an input without a derivative."""
    return lambda rng: np.asarray(rng.integers(low, high, size=shape))


def truths(*shape: int) -> Draw:
    """Truth values, at least one of each where there is room."""

    def draw(rng: np.random.Generator) -> Any:
        count = int(np.prod(shape, dtype=int))
        return np.asarray(rng.permutation(count) % 2 == 0).reshape(shape)

    return draw


def constant(value: Any) -> Draw:
    """This very value."""
    return lambda rng: np.array(value)
