"""Samples that whole families share: elementwise functions of one and of two values."""

from collections.abc import Callable, Mapping

from tests.rules.samples.sample import Draw, Sample, complex_normal, normal, sample

__all__ = ["of_one", "of_two"]

Domain = Callable[..., Draw]


def of_one(
    draw: Domain = normal,
    *,
    complex_draw: Domain | None = None,
    without: Mapping[str, str] | None = None,
) -> tuple[Sample, ...]:
    """For an elementwise function of one value: plain, 0-d, zero-size and, if defined, complex."""
    made = (
        sample("plain", draw(2, 3), without=without),
        sample("0-d", draw(), without=without),
        sample("zero-size", draw(0, 3), without=without),
    )
    if complex_draw is None:
        return made
    return (*made, sample("complex", complex_draw(2, 2), without=without))


def of_two(
    first: Domain = normal,
    second: Domain = normal,
    *,
    is_complex: bool = False,
    without: Mapping[str, str] | None = None,
) -> tuple[Sample, ...]:
    """For an elementwise function of two values: with every way of broadcasting."""
    made = (
        sample("plain", first(2, 3), second(2, 3), without=without),
        sample("broadcast right", first(2, 3), second(3), without=without),
        sample("broadcast both", first(2, 1), second(1, 3), without=without),
        sample("broadcast 0-d", first(), second(2, 2), without=without),
        sample("0-d", first(), second(), without=without),
        sample("zero-size", first(0, 3), second(3), without=without),
    )
    if not is_complex:
        return made
    return (
        *made,
        sample("complex", complex_normal(2, 2), complex_normal(2, 2), without=without),
        sample("complex beside real", complex_normal(2, 2), second(2), without=without),
    )
