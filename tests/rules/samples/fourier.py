"""Samples of ``rules/fourier.py``."""

from typing import Any

from tests.rules.samples.sample import Entry, Sample, complex_normal, normal, sample

__all__ = ["SAMPLES"]

_NOTHING = {"torch": "PyTorch's transforms fail where there is nothing to transform"}


def _transforms(draw: Any) -> tuple[Sample, ...]:
    """One axis and several, cut and padded, and each norm."""
    return (
        sample("one axis", draw(2, 5), s=(5,), axes=(1,), norm="backward"),
        sample("two axes", draw(2, 3), s=(2, 3), axes=(0, 1), norm="ortho"),
        sample("axes exchanged", draw(4, 3), s=(3, 4), axes=(1, 0), norm="forward"),
        sample("cut", draw(6), s=(4,), axes=(0,), norm="backward"),
        sample("padded", draw(3), s=(5,), axes=(0,), norm="forward"),
        sample("one element", draw(1), s=(1,), axes=(0,), norm="backward"),
        sample("zero-size", draw(0, 3), s=(3,), axes=(1,), norm="backward", without=_NOTHING),
    )


def _inverse_transforms(draw: Any) -> tuple[Sample, ...]:
    return (
        sample("even", draw(2, 3), s=(4,), axes=(1,), norm="backward"),
        sample("odd", draw(2, 3), s=(5,), axes=(1,), norm="ortho"),
        sample("two axes", draw(2, 3), s=(2, 4), axes=(0, 1), norm="forward"),
        sample("axes exchanged", draw(3, 2), s=(2, 4), axes=(1, 0), norm="backward"),
        sample("cut", draw(5), s=(4,), axes=(0,), norm="backward"),
        sample("padded", draw(2), s=(5,), axes=(0,), norm="forward"),
        sample("zero-size", draw(0, 3), s=(4,), axes=(1,), norm="backward", without=_NOTHING),
    )


def _also_real(samples: tuple[Sample, ...]) -> tuple[Sample, ...]:
    without = {"strict": "the standard itself takes only complex values here"}
    real = sample("of real values", normal(4), s=(4,), axes=(0,), norm="ortho", without=without)
    return (*samples, real)


def _twin(name: str) -> Any:
    def twin(torch: Any, x: Any, *, s: Any, axes: Any, norm: str) -> Any:
        return getattr(torch.fft, name)(x, s=s, dim=axes, norm=norm)

    return twin


_shifts = (
    sample("odd", normal(5), axes=(0,)),
    sample("even, one axis", normal(2, 4), axes=(1,)),
    sample("two axes", normal(2, 3), axes=(0, 1)),
    sample("zero-size", normal(0, 2), axes=(0,)),
    sample("complex", complex_normal(3), axes=(0,)),
)

SAMPLES = {
    "fftn": Entry(_also_real(_transforms(complex_normal)), numpy="fft.fftn", torch=_twin("fftn")),
    "ifftn": Entry(
        _also_real(_transforms(complex_normal)), numpy="fft.ifftn", torch=_twin("ifftn")
    ),
    "rfftn": Entry(_transforms(normal), numpy="fft.rfftn", torch=_twin("rfftn")),
    "irfftn": Entry(
        _also_real(_inverse_transforms(complex_normal)), numpy="fft.irfftn", torch=_twin("irfftn")
    ),
    "fftshift": Entry(
        _shifts,
        numpy="fft.fftshift",
        torch=lambda torch, x, *, axes: torch.fft.fftshift(x, dim=axes),
    ),
    "ifftshift": Entry(
        _shifts,
        numpy="fft.ifftshift",
        torch=lambda torch, x, *, axes: torch.fft.ifftshift(x, dim=axes),
    ),
}
