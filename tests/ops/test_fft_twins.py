"""Fourier transforms against PyTorch: values, gradients, tangents and second order."""

from typing import Any

import pytest
import torch
from tests.ops.twins import assert_twins, complexes, normals

import telegrad as tg

OF_COMPLEX = ["fft", "ifft", "irfft", "hfft"]
OF_REAL = ["rfft", "ihfft"]
NORMS = pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])


def twins(name: str, x: Any, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    f, g = getattr(tg.fft, name), getattr(torch.fft, name)
    assert_twins(lambda a: f(a, **ours), lambda a: g(a, **theirs), x)


@NORMS
@pytest.mark.parametrize("n", [None, 3, 4, 7])
@pytest.mark.parametrize("name", OF_COMPLEX + OF_REAL)
def test_transforms_along_one_axis_are_pytorchs(name: str, n: int | None, norm: str) -> None:
    x = (normals if name in OF_REAL else complexes)(5, 2)
    twins(name, x, {"n": n, "axis": -2, "norm": norm}, {"n": n, "dim": -2, "norm": norm})


@pytest.mark.parametrize("name", OF_COMPLEX)
def test_transforms_of_complex_values_take_real_ones(name: str) -> None:
    twins(name, normals(2, 4), {}, {})


@pytest.mark.parametrize(
    ("s", "axes"), [(None, None), ((2, 5), None), ((4, 3), (0, 2)), (None, (2, 0)), (None, (1,))]
)
@pytest.mark.parametrize("name", ["fftn", "ifftn", "irfftn", "rfftn"])
def test_transforms_along_several_axes_are_pytorchs(name: str, s: Any, axes: Any) -> None:
    x = (normals if name == "rfftn" else complexes)(3, 2, 4)
    twins(name, x, {"s": s, "axes": axes}, {"s": s, "dim": axes})


@NORMS
@pytest.mark.parametrize("name", ["fftn", "ifftn", "irfftn", "rfftn"])
def test_norms_along_several_axes_are_pytorchs(name: str, norm: str) -> None:
    x = (normals if name == "rfftn" else complexes)(3, 4)
    twins(name, x, {"norm": norm}, {"norm": norm})


@pytest.mark.parametrize("axes", [None, 0, (0, 1)])
@pytest.mark.parametrize("name", ["fftshift", "ifftshift"])
@pytest.mark.parametrize("draw", [normals, complexes])
def test_shifts_are_pytorchs(draw: Any, name: str, axes: Any) -> None:
    twins(name, draw(3, 4), {"axes": axes}, {"dim": axes})
