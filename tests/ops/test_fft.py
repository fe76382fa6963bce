"""Fourier transforms: frequencies, round trips, and what is refused."""

import numpy as np
import pytest
from tests.ops.twins import complexes, normals

import telegrad as tg
from telegrad.errors import DTypeError, ShapeError, UsageError


@pytest.mark.parametrize("n", [1, 2, 5, 6])
def test_frequencies_are_numpys_in_the_default_dtype(n: int) -> None:
    for name in ("fftfreq", "rfftfreq"):
        found = getattr(tg.fft, name)(n, d=0.5)
        assert found.dtype == tg.float32
        np.testing.assert_allclose(found.numpy(), getattr(np.fft, name)(n, 0.5))
        assert getattr(tg.fft, name)(n, dtype=tg.float64).dtype == tg.float64


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize("n", [5, 6])
def test_each_transform_has_its_inverse(norm: str, n: int) -> None:
    z, x = tg.tensor(complexes(2, n)), tg.tensor(normals(2, n))
    np.testing.assert_allclose(tg.fft.ifft(tg.fft.fft(z, norm=norm), norm=norm).numpy(), z.numpy())
    np.testing.assert_allclose(
        tg.fft.irfft(tg.fft.rfft(x, norm=norm), n=n, norm=norm).numpy(), x.numpy()
    )
    np.testing.assert_allclose(
        tg.fft.hfft(tg.fft.ihfft(x, norm=norm), n=n, norm=norm).numpy(), x.numpy()
    )
    np.testing.assert_allclose(
        tg.fft.irfftn(tg.fft.rfftn(x, norm=norm), s=x.shape, norm=norm).numpy(), x.numpy()
    )


def test_the_gradient_of_a_round_trip_is_the_cotangent() -> None:
    x = tg.tensor(normals(7), requires_grad=True)
    g = tg.tensor(normals(7, seed=1))
    (found,) = tg.autograd.grad(tg.fft.irfft(tg.fft.rfft(x), n=7), x, g)
    np.testing.assert_allclose(found.numpy(), g.numpy(), atol=1e-12)


def test_a_convolution_by_transforms_has_the_gradient_of_the_sum() -> None:
    x = tg.tensor(normals(4), requires_grad=True)
    y = tg.tensor(normals(3, seed=1), requires_grad=True)
    out = tg.fft.irfft(tg.fft.rfft(x, n=6) * tg.fft.rfft(y, n=6), n=6)
    np.testing.assert_allclose(
        out.detach().numpy(), np.convolve(x.detach().numpy(), y.detach().numpy())
    )
    g = normals(6, seed=2)
    by_x, by_y = tg.autograd.grad(out, [x, y], tg.tensor(g))
    np.testing.assert_allclose(by_x.numpy(), np.correlate(g, y.detach().numpy(), "valid"))
    np.testing.assert_allclose(by_y.numpy(), np.correlate(g, x.detach().numpy(), "valid"))


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "ihfft", "irfft", "hfft"])
def test_an_empty_axis_is_padded_with_zeros_whatever_lies_in_memory_there(name: str) -> None:
    memory = np.ones((2, 4), np.float64 if name in ("rfft", "ihfft") else np.complex128)
    x = tg.asarray(memory[:, :0], copy=False).requires_grad_()
    out = getattr(tg.fft, name)(x, n=3)
    assert not np.any(out.detach().numpy())
    assert out.shape[0] == 2
    (found,) = tg.autograd.grad(out, x, tg.ones_like(out))
    assert found.shape == x.shape


@pytest.mark.parametrize("shape", [(2, 0), (0, 2)])
def test_an_inverse_over_several_axes_takes_an_empty_one(shape: tuple[int, int]) -> None:
    x = tg.asarray(np.ones((4, 4), np.complex128)[: shape[0], : shape[1]], copy=False)
    out = tg.fft.irfftn(x, s=(2, 3), axes=(0, 1))
    np.testing.assert_array_equal(out.numpy(), np.zeros((2, 3)))


def test_what_does_not_fit_is_refused() -> None:
    x = tg.ones(4)
    with pytest.raises(DTypeError, match="expected real numbers in rfft, got complex64"):
        tg.fft.rfft(tg.fft.fft(x))
    with pytest.raises(DTypeError, match="expected floating or complex numbers in fft, got int64"):
        tg.fft.fft(tg.asarray([1, 2]))
    with pytest.raises(UsageError, match="'ortho' or 'forward' as norm of fft, got 'both'"):
        tg.fft.fft(x, norm="both")  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"expected at least one element along the axes \(0,\)"):
        tg.fft.fft(x, n=0)
    with pytest.raises(ShapeError, match=r"expected a length for each of the axes \(0,\) in fftn"):
        tg.fft.fftn(x, s=(2, 2), axes=(0,))
    with pytest.raises(ShapeError, match="at least one axis to transform in fftn, got none"):
        tg.fft.fftn(tg.tensor(1.0))
    with pytest.raises(ShapeError, match="expected an axis from -1 to 0 in fft, got 1"):
        tg.fft.fft(x, axis=1)
