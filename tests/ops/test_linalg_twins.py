"""Linear algebra against PyTorch: values, gradients, tangents, second order; real and complex."""

from math import inf
from typing import Any

import numpy as np
import pytest
import torch
from tests.ops.twins import assert_twins, complexes, normals

import telegrad as tg

REAL_AND_COMPLEX = pytest.mark.parametrize("draw", [normals, complexes])
SHAPES = pytest.mark.parametrize("shape", [(2, 4, 3), (2, 3, 3), (3, 5), (0, 3, 2)])


def hermitian(a: Any) -> Any:
    return a + a.conj().mT if isinstance(a, torch.Tensor) else a + tg.conj(a).mT


def positive_definite(a: Any) -> Any:
    if isinstance(a, torch.Tensor):
        return a @ a.mH + 3 * torch.eye(a.shape[-1], dtype=a.dtype)
    return a @ tg.conj(a).mT + 3 * tg.eye(a.shape[-1], dtype=a.dtype)


@REAL_AND_COMPLEX
@pytest.mark.parametrize("name", ["inv", "det", "slogdet"])
@pytest.mark.parametrize("shape", [(3, 3), (2, 1, 2, 2), (0, 3, 3), (0, 0)])
def test_functions_of_square_matrices_are_pytorchs(draw: Any, name: str, shape: Any) -> None:
    assert_twins(getattr(tg.linalg, name), getattr(torch.linalg, name), draw(*shape))


@REAL_AND_COMPLEX
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3, 3), (3, 2)),
        ((3, 3), (3,)),
        ((2, 3, 3), (2, 3, 1)),
        ((2, 3, 3), (4, 1, 3, 2)),
        ((2, 2, 2), (2, 1)),
    ],
)
def test_solve_is_pytorchs(draw: Any, left: Any, right: Any) -> None:
    assert_twins(tg.linalg.solve, torch.linalg.solve, draw(*left), draw(*right))


def test_solve_takes_a_right_side_with_one_axis_as_a_vector_also_for_a_stack() -> None:
    assert_twins(
        tg.linalg.solve,
        lambda a, b: torch.linalg.solve(a, b[:, None])[..., 0],
        normals(2, 3, 3),
        normals(3),
    )


@REAL_AND_COMPLEX
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("n", [3, 40])
def test_solve_triangular_is_pytorchs(draw: Any, upper: bool, n: int) -> None:
    # Two sizes, since small systems and large ones are solved by different libraries.
    assert_twins(
        lambda a, b: tg.linalg.solve_triangular(a, b, upper=upper),
        lambda a, b: torch.linalg.solve_triangular(a, b, upper=upper),
        draw(n, n) / n + np.eye(n),
        draw(n, 2),
    )


@pytest.mark.parametrize("stack", [(), (2,)])
def test_solve_triangular_takes_a_right_side_with_one_axis_as_a_vector(stack: Any) -> None:
    assert_twins(
        lambda a, b: tg.linalg.solve_triangular(a, b, upper=False),
        lambda a, b: torch.linalg.solve_triangular(a, b[:, None], upper=False)[..., 0],
        normals(*stack, 3, 3) + 3.0 * np.eye(3),
        normals(3),
    )


@REAL_AND_COMPLEX
@SHAPES
def test_pinv_is_pytorchs(draw: Any, shape: Any) -> None:
    assert_twins(tg.linalg.pinv, torch.linalg.pinv, draw(*shape))


@REAL_AND_COMPLEX
@pytest.mark.parametrize("n", [0, 1, 2, 5, 6, -1, -3])
def test_matrix_power_is_pytorchs(draw: Any, n: int) -> None:
    x = draw(2, 3, 3)
    if n == 0:
        assert (tg.linalg.matrix_power(tg.tensor(x), 0) == tg.eye(3)).array.all()
        return
    assert_twins(
        lambda a: tg.linalg.matrix_power(a, n), lambda a: torch.linalg.matrix_power(a, n), x
    )


@REAL_AND_COMPLEX
def test_expm_is_pytorchs(draw: Any) -> None:
    assert_twins(tg.linalg.expm, torch.linalg.matrix_exp, draw(2, 3, 3))


@REAL_AND_COMPLEX
@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_is_pytorchs(draw: Any, upper: bool) -> None:
    assert_twins(
        lambda a: tg.linalg.cholesky(positive_definite(a), upper=upper),
        lambda a: torch.linalg.cholesky(positive_definite(a), upper=upper),
        draw(2, 3, 3),
    )


@REAL_AND_COMPLEX
@pytest.mark.parametrize(
    ("shape", "mode"),
    [
        ((2, 4, 3), "reduced"),
        ((2, 3, 3), "reduced"),
        ((3, 5), "reduced"),
        ((2, 3, 3), "complete"),
        ((3, 5), "complete"),
    ],
)
def test_qr_is_pytorchs(draw: Any, shape: Any, mode: Any) -> None:
    assert_twins(
        lambda a: tuple(tg.linalg.qr(a, mode=mode)),
        lambda a: tuple(torch.linalg.qr(a, mode=mode)),
        draw(*shape),
    )


def with_signs(xp: Any, values: Any, vectors: Any) -> Any:
    """The vectors with the signs that make their first elements positive."""
    return values, vectors * xp.sign(vectors[..., :1, :])


def test_eigh_of_real_matrices() -> None:
    assert_twins(
        lambda a: with_signs(tg, *tg.linalg.eigh(hermitian(a))),
        lambda a: with_signs(torch, *torch.linalg.eigh(hermitian(a))),
        normals(2, 3, 3),
    )


def test_eigh_of_complex_matrices_up_to_phases() -> None:
    assert_twins(
        lambda a: (lambda r: (r[0], tg.abs(r[1]) ** 2))(tg.linalg.eigh(hermitian(a))),
        lambda a: (lambda r: (r[0], torch.abs(r[1]) ** 2))(torch.linalg.eigh(hermitian(a))),
        complexes(2, 3, 3),
    )


@REAL_AND_COMPLEX
def test_eigvalsh_are_pytorchs(draw: Any) -> None:
    assert_twins(
        lambda a: tg.linalg.eigvalsh(hermitian(a)),
        lambda a: torch.linalg.eigvalsh(hermitian(a)),
        draw(2, 3, 3),
    )


def with_paired_signs(xp: Any, u: Any, values: Any, vh: Any) -> Any:
    signs = xp.sign(u[..., :1, :])
    return u * signs, values, vh * signs.mT


@SHAPES
def test_svd_of_real_matrices(shape: Any) -> None:
    assert_twins(
        lambda a: with_paired_signs(tg, *tg.linalg.svd(a, full_matrices=False)),
        lambda a: with_paired_signs(torch, *torch.linalg.svd(a, full_matrices=False)),
        normals(*shape),
    )


def without_phases(xp: Any, u: Any, values: Any, vh: Any) -> Any:
    """What does not change when a pair of singular vectors turns."""
    return u[..., :, :2] @ vh[..., :2, :], values, xp.abs(u) ** 2, xp.abs(vh) ** 2


@pytest.mark.parametrize("shape", [(2, 4, 3), (2, 3, 3), (3, 5)])
def test_svd_of_complex_matrices_up_to_phases(shape: Any) -> None:
    assert_twins(
        lambda a: without_phases(tg, *tg.linalg.svd(a, full_matrices=False)),
        lambda a: without_phases(torch, *torch.linalg.svd(a, full_matrices=False)),
        complexes(*shape),
    )


@REAL_AND_COMPLEX
@SHAPES
def test_svdvals_are_pytorchs(draw: Any, shape: Any) -> None:
    assert_twins(tg.linalg.svdvals, torch.linalg.svdvals, draw(*shape))


@REAL_AND_COMPLEX
@pytest.mark.parametrize("order", ["fro", "nuc", 1, -1, 2, -2, inf, -inf])
@pytest.mark.parametrize("keepdims", [False, True])
def test_matrix_norm_is_pytorchs(draw: Any, order: Any, keepdims: bool) -> None:
    assert_twins(
        lambda a: tg.linalg.matrix_norm(a, ord=order, keepdims=keepdims),
        lambda a: torch.linalg.matrix_norm(a, ord=order, keepdim=keepdims),
        draw(2, 3, 4),
    )


@REAL_AND_COMPLEX
@pytest.mark.parametrize("order", [0, 0.5, 1, 1.5, 2, 3, 3.5, inf, -inf, -1, -2])
@pytest.mark.parametrize("axis", [None, -1, (0, 2)])
def test_vector_norm_is_pytorchs(draw: Any, order: Any, axis: Any) -> None:
    assert_twins(
        lambda a: tg.linalg.vector_norm(a, ord=order, axis=axis),
        lambda a: torch.linalg.vector_norm(a, ord=order, dim=axis),
        draw(3, 2, 2),
    )


@pytest.mark.parametrize("order", [1, 1.5, 2, 2.5, 3, inf])
def test_vector_norm_has_a_zero_gradient_at_zero(order: Any) -> None:
    assert_twins(
        lambda a: tg.linalg.vector_norm(a, ord=order),
        lambda a: torch.linalg.vector_norm(a, ord=order),
        normals(3) * 0,
        second=False,
    )


@pytest.mark.parametrize("order", [1, 1.5, 2, 3, inf, -1, -2])
def test_vector_norm_beside_zeros(order: Any) -> None:
    x = normals(4)
    x[1] = 0
    assert_twins(
        lambda a: tg.linalg.vector_norm(a, ord=order),
        lambda a: torch.linalg.vector_norm(a, ord=order),
        x,
        second=False,
    )
