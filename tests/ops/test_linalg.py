"""Linear algebra: what is named, what is refused, and derivatives where they are delicate."""

from typing import Any

import numpy as np
import pytest
import torch
from tests.ops.twins import complexes, normals

import telegrad as tg
from telegrad.arrays.backend import NUMPY
from telegrad.autograd import grad
from telegrad.autograd.functional import jvp
from telegrad.errors import (
    DTypeError,
    GradientError,
    NotDifferentiable,
    ShapeError,
    UsageError,
)


def gradient(f: Any, x: Any) -> np.ndarray[Any, Any]:
    leaf = tg.tensor(x, requires_grad=True)
    return np.asarray(grad(f(leaf), leaf)[0])


def torch_gradient(f: Any, x: Any) -> np.ndarray[Any, Any]:
    leaf = torch.tensor(x, requires_grad=True)
    return torch.autograd.grad(f(leaf), leaf)[0].numpy(force=True)


def along(f: Any, order: int) -> Any:
    """The derivative of that order of a function of a number."""
    if not order:
        return f
    inner = along(f, order - 1)
    return lambda t: jvp(inner, (t,), (tg.ones_like(t),))[1]


# Results


def test_results_with_several_parts_are_named() -> None:
    x = tg.tensor([[2.0, 1.0], [1.0, 3.0]])
    assert tg.linalg.eigh(x)._fields == ("eigenvalues", "eigenvectors")
    assert tg.linalg.qr(x)._fields == ("Q", "R")
    assert tg.linalg.slogdet(x)._fields == ("sign", "logabsdet")
    assert tg.linalg.svd(x)._fields == ("U", "S", "Vh")


@pytest.mark.parametrize("dtype", [tg.float32, tg.complex64])
def test_single_precision_stays_single(dtype: Any) -> None:
    x = tg.asarray(complexes(3, 3) if dtype == tg.complex64 else normals(3, 3), dtype=dtype)
    assert tg.linalg.inv(x).dtype == dtype
    assert tg.linalg.expm(x).dtype == dtype
    assert tg.linalg.det(x).dtype == dtype
    assert tg.linalg.svdvals(x).dtype == tg.float32
    assert tg.linalg.vector_norm(x).dtype == tg.float32
    assert tg.fft.fft(x).dtype == tg.complex64


def test_matmul_of_two_dtypes_gives_the_wider_and_each_gradient_its_own() -> None:
    x = tg.ones((2, 2), dtype=tg.float32).requires_grad_()
    y = tg.ones((2, 2), dtype=tg.float64).requires_grad_()
    out = x @ y
    assert out.dtype == tg.float64
    assert [g.dtype for g in grad(out.sum(), [x, y])] == [tg.float32, tg.float64]
    whole = tg.asarray([[1, 2], [3, 4]])
    assert (whole @ x).dtype == tg.float32
    assert (whole @ whole).tolist() == [[7, 10], [15, 22]]


def test_full_svd_has_square_factors_and_the_values_of_the_thin_one() -> None:
    x = tg.tensor(normals(4, 2))
    full, thin = tg.linalg.svd(x), tg.linalg.svd(x, full_matrices=False)
    assert full.U.shape == (4, 4)
    assert thin.U.shape == (4, 2)
    np.testing.assert_allclose(full.S.numpy(), thin.S.numpy())
    np.testing.assert_allclose((thin.U * thin.S @ thin.Vh).numpy(), x.numpy(), atol=1e-12)


def test_matrix_rank_is_a_constant() -> None:
    x = tg.tensor([[1.0, 2.0], [2.0, 4.0]], requires_grad=True)
    rank = tg.linalg.matrix_rank(x)
    assert rank.item() == 1
    assert not rank.requires_grad
    stack = tg.stack([tg.eye(2), tg.eye(2) * tg.asarray([1.0, 1e-3])])
    assert tg.linalg.matrix_rank(stack, rtol=1e-2).tolist() == [2, 1]
    assert tg.linalg.matrix_rank(stack, rtol=tg.asarray([1e-2, 1e-4])).tolist() == [2, 2]


def test_pinv_leaves_out_small_singular_values() -> None:
    x = tg.asarray([[1.0, 0.0], [0.0, 1e-3]])
    assert tg.linalg.pinv(x, rtol=1e-2).tolist() == [[1.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (2, 0, 3)])
def test_matrices_without_elements_have_norms_decompositions_and_gradients(shape: Any) -> None:
    x = tg.zeros(shape, dtype=tg.float64).requires_grad_()
    for order in ("fro", "nuc", 1, 2, float("inf")):
        norm = tg.linalg.matrix_norm(x, ord=order)
        assert norm.shape == shape[:-2]
        assert not norm.detach().numpy().any()
        assert grad(norm.sum(), x)[0].shape == shape
    for parts in (tg.linalg.svd(x, full_matrices=False), tg.linalg.qr(x)):
        for part in parts:
            assert grad(part.sum(), x, retain_graph=True)[0].shape == shape
    assert tg.linalg.pinv(x).shape == (*shape[:-2], shape[-1], shape[-2])
    if shape == (0, 0):
        assert tg.linalg.det(x).item() == 1.0
        assert grad(tg.linalg.eigh(x).eigenvectors.sum(), x)[0].shape == shape


# Singular and degenerate matrices


SINGULAR = [
    [[1.0, 2.0, 0.5], [2.0, 4.0, 1.0], [0.3, -1.0, 2.0]],
    [[1.0, 2.0, 0.5], [2.0, 4.0, 1.0], [-1.0, -2.0, -0.5]],
    [[0.0, 0.0, 0.0]] * 3,
]


@pytest.mark.parametrize("x", SINGULAR, ids=["rank 2", "rank 1", "rank 0"])
def test_det_of_a_singular_matrix_has_its_exact_derivatives(x: Any) -> None:
    a, v, w = np.asarray(x), normals(3, 3), normals(3, 3, seed=1)
    # det(a + t v + u w) is a polynomial; its mixed differences in t and u are exact.

    def of(t: float, u: float) -> float:
        return float(np.linalg.det(a + t * v + u * w))

    leaf = tg.tensor(a, requires_grad=True)
    (first,) = grad(tg.linalg.det(leaf), leaf, create_graph=True)
    slope = (8 * (of(0.5, 0) - of(-0.5, 0)) - (of(1, 0) - of(-1, 0))) / 6
    np.testing.assert_allclose((first.detach().numpy() * v).sum(), slope, atol=1e-12)
    (second,) = grad((first * tg.tensor(v)).sum(), leaf)
    bend = (
        16 * (of(0.5, 0.5) - of(0.5, -0.5) - of(-0.5, 0.5) + of(-0.5, -0.5))
        - (of(1, 1) - of(1, -1) - of(-1, 1) + of(-1, -1))
    ) / 12
    np.testing.assert_allclose((second.numpy() * w).sum(), bend, atol=1e-12)


def test_a_singular_matrix_does_not_spoil_the_others_of_its_stack() -> None:
    x = np.stack([np.eye(2), np.ones((2, 2))])
    found = gradient(lambda a: tg.linalg.det(a).sum(), x)
    np.testing.assert_allclose(found, [[[1, 0], [0, 1]], [[1, -1], [-1, 1]]], atol=1e-15)


def test_functions_of_equal_eigenvalues_have_exact_gradients() -> None:
    x = np.diag([2.0, 2.0, 5.0])
    found = gradient(lambda a: (tg.linalg.eigh(a).eigenvalues ** 2).sum(), x)
    np.testing.assert_allclose(found, 2 * x)
    np.testing.assert_allclose(gradient(lambda a: (tg.linalg.eigvalsh(a) ** 2).sum(), x), 2 * x)
    np.testing.assert_allclose(
        gradient(lambda a: (tg.linalg.svd(a, full_matrices=False).S ** 2).sum(), x), 2 * x
    )
    np.testing.assert_allclose(gradient(lambda a: (tg.linalg.svdvals(a) ** 2).sum(), x), 2 * x)


def test_vectors_of_equal_eigenvalues_have_no_finite_gradient_as_in_pytorch() -> None:
    x = np.diag([2.0, 2.0, 5.0])
    weight = normals(3, 3)
    with np.errstate(all="ignore"):
        ours = gradient(lambda a: (tg.linalg.eigh(a)[1] * tg.tensor(weight)).sum(), x)
    theirs = torch_gradient(lambda a: (torch.linalg.eigh(a)[1] * torch.tensor(weight)).sum(), x)
    assert not np.isfinite(theirs).all()
    assert not np.isfinite(ours).all()


def test_tied_columns_share_the_gradient_of_a_matrix_norm() -> None:
    x = np.asarray([[1.0, -1.0], [2.0, 2.0]])
    ours = gradient(lambda a: tg.linalg.matrix_norm(a, ord=1), x)
    theirs = torch_gradient(lambda a: torch.linalg.matrix_norm(a, ord=1), x)
    np.testing.assert_allclose(ours, theirs)
    assert ours.tolist() == [[0.5, -0.5], [0.5, 0.5]]


def test_gradients_of_hermitian_arguments_are_hermitian() -> None:
    a = complexes(3, 3)
    x = a @ a.conj().T + 3 * np.eye(3)
    for f in (
        lambda a: tg.real(tg.linalg.cholesky(a)).sum(),
        lambda a: (tg.linalg.eigh(a).eigenvalues ** 2).sum(),
        lambda a: (tg.abs(tg.linalg.eigh(a).eigenvectors)[0, :] ** 3).sum(),
    ):
        found = gradient(f, x)
        np.testing.assert_allclose(found, found.conj().T, atol=1e-12)


@pytest.mark.parametrize("name", ["cholesky", "eigh", "eigvalsh"])
def test_tangents_of_hermitian_arguments_count_by_their_hermitian_part(name: str) -> None:
    a, tangent = normals(3, 3), normals(3, 3, seed=1)
    x = a @ a.T + 3 * np.eye(3)
    weights = [normals(3, seed=2), normals(3, 3, seed=2)]

    def f(y: Any) -> Any:
        parts = getattr(tg.linalg, name)(y)
        parts = parts if isinstance(parts, tuple) else (parts,)
        return sum((part * tg.tensor(weights[part.ndim - 1])).sum() for part in parts)

    _, forward = jvp(f, (tg.tensor(x),), (tg.tensor(tangent),))
    np.testing.assert_allclose(forward.item(), (gradient(f, x) * tangent).sum())
    _, symmetric = jvp(f, (tg.tensor(x),), (tg.tensor((tangent + tangent.T) / 2),))
    np.testing.assert_allclose(symmetric.item(), forward.item())


def test_the_gradient_of_a_tall_pinv_needs_no_matrix_of_its_length_squared() -> None:
    # 20,000 squared would be three gigabytes.
    x = normals(20_000, 3)
    found = gradient(lambda a: (tg.linalg.pinv(a) @ a).sum(), x)
    np.testing.assert_allclose(found, np.zeros_like(x), atol=1e-10)


# What has no derivative


@pytest.mark.parametrize("what", ["eigenvectors", "singular vectors"])
def test_a_function_of_complex_phases_is_refused_as_in_pytorch(what: str) -> None:
    a = complexes(3, 3)
    x = a + a.conj().T
    weight = complexes(3, 3, seed=5)

    def loss(xp: Any, module: Any, y: Any, w: Any) -> Any:
        if what == "eigenvectors":
            return xp.real(module.eigh(y)[1] * w).sum()
        return xp.real(module.svd(y, full_matrices=False)[0] * w).sum()

    leaf = tg.tensor(x, requires_grad=True)
    with pytest.raises(GradientError, match=f"does not depend on the phase of complex {what}"):
        loss(tg, tg.linalg, leaf, tg.tensor(weight)).backward()
    assert leaf.grad is None
    theirs = torch.tensor(x, requires_grad=True)
    with pytest.raises(RuntimeError, match="ill-defined"):
        loss(torch, torch.linalg, theirs, torch.tensor(weight)).backward()


@pytest.mark.parametrize("what", ["eigenvectors", "singular vectors"])
def test_rounding_of_a_large_loss_is_not_taken_for_a_phase(what: str) -> None:
    a = complexes(8, 8).astype(np.complex64)
    x = tg.tensor(a + a.conj().T, requires_grad=True)
    weight = tg.tensor(normals(8, 8).astype(np.float32) * 1e7)
    vectors = tg.linalg.eigh(x)[1] if what == "eigenvectors" else tg.linalg.svd(x)[0]
    (found,) = grad((tg.abs(vectors) ** 2 * weight).sum(), x)
    assert np.isfinite(found.numpy()).all()


@pytest.mark.parametrize("shape", [(4, 3), (3, 4)])
def test_only_the_values_of_a_full_svd_have_a_gradient(shape: Any) -> None:
    x = tg.tensor(normals(*shape), requires_grad=True)
    u, s, vh = tg.linalg.svd(x)
    (found,) = grad(s.sum(), x, retain_graph=True)
    np.testing.assert_allclose(
        found.numpy(), gradient(lambda a: tg.linalg.svdvals(a).sum(), x.detach().numpy())
    )
    message = r"svd\(full_matrices=True\) of a matrix that is not square.*use full_matrices=False"
    for vectors in (u, vh):
        with pytest.raises(NotDifferentiable, match=message):
            grad(vectors.sum(), x, retain_graph=True)
    with pytest.raises(NotDifferentiable, match=message):
        jvp(lambda a: tg.linalg.svd(a).S, (x.detach(),), (tg.ones_like(x.detach()),))


def test_a_square_full_svd_is_differentiable() -> None:
    x = normals(3, 3)
    np.testing.assert_allclose(
        gradient(lambda a: (tg.linalg.svd(a).U[:, 0] ** 4).sum(), x),
        gradient(lambda a: (tg.linalg.svd(a, full_matrices=False).U[:, 0] ** 4).sum(), x),
    )


def test_a_complete_qr_of_a_tall_matrix_has_no_derivative() -> None:
    x = tg.tensor(normals(4, 2), requires_grad=True)
    q, r = tg.linalg.qr(x, mode="complete")
    assert (q.shape, r.shape) == ((4, 4), (4, 2))
    message = r"qr\(mode='complete'\) of a matrix with more rows \(4\) than columns \(2\)"
    with pytest.raises(NotDifferentiable, match=message):
        grad(r.sum(), x)
    with pytest.raises(NotDifferentiable, match="use mode='reduced'"):
        jvp(
            lambda a: tg.linalg.qr(a, mode="complete").R,
            (x.detach(),),
            (tg.ones((4, 2), dtype=x.dtype),),
        )


# Higher orders, against closed forms


def test_derivatives_of_third_order_have_their_closed_forms() -> None:
    a = tg.tensor(normals(3, 3) * 0.3)
    one = tg.eye(3, dtype=tg.float64)
    t = tg.tensor(0.2, dtype=tg.float64)
    cube = a @ a @ a

    found = along(lambda u: tg.linalg.expm(u * a), 3)(t)
    np.testing.assert_allclose(found.numpy(), (cube @ tg.linalg.expm(t * a)).numpy(), rtol=1e-10)

    found = along(lambda u: tg.linalg.inv(one - u * a), 3)(t)
    inverse = tg.linalg.inv(one - t * a)
    expected = 6.0 * cube @ tg.linalg.matrix_power(inverse, 4)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-10)

    found = along(lambda u: tg.linalg.det(one + u * a), 3)(t)
    np.testing.assert_allclose(found.item(), 6 * tg.linalg.det(a).item(), rtol=1e-9)

    found = along(lambda u: tg.linalg.det(one + u * a), 3)(tg.zeros_like(t))
    np.testing.assert_allclose(found.item(), 6 * tg.linalg.det(a).item(), rtol=1e-9)

    # The logarithm of the determinant: 2 tr((1 + t a)^-1 a)^3.
    found = along(lambda u: tg.linalg.slogdet(one + u * a).logabsdet, 3)(t)
    step = tg.linalg.solve(one + t * a, a)
    np.testing.assert_allclose(found.item(), 2 * tg.trace(step @ step @ step).item(), rtol=1e-9)

    # Eigenvalues of s + t 1 move all at the speed 1, their cubes accordingly.
    symmetric = a + a.T
    found = along(lambda u: (tg.linalg.eigh(symmetric + u * one).eigenvalues ** 3).sum(), 3)(t)
    np.testing.assert_allclose(found.item(), 18.0, rtol=1e-9)


# Bad input


def test_matrices_of_the_wrong_shape_are_refused() -> None:
    wide, vector = tg.ones((2, 3)), tg.ones(3)
    for name in ("inv", "det", "slogdet", "cholesky", "eigh", "eigvalsh", "expm"):
        with pytest.raises(
            ShapeError, match=rf"expected a square matrix in {name}, got shape \(2, 3\)"
        ):
            getattr(tg.linalg, name)(wide)
    for name in ("svd", "svdvals", "qr", "pinv", "matrix_norm", "trace", "diagonal"):
        with pytest.raises(ShapeError, match=f"expected a matrix or a stack of matrices in {name}"):
            getattr(tg.linalg, name)(vector)
    with pytest.raises(
        ShapeError, match=r"expected a right side with 2 rows in solve, got .*\(3,\)"
    ):
        tg.linalg.solve(tg.eye(2), vector)
    for right in (tg.tensor(1.0), vector, tg.ones((3, 1))):
        with pytest.raises(ShapeError, match="a right side with 2 rows in solve_triangular"):
            tg.linalg.solve_triangular(tg.eye(2), right, upper=False)
    with pytest.raises(ShapeError, match="expected two vectors in outer"):
        tg.linalg.outer(wide, vector)
    with pytest.raises(ShapeError, match="expected vectors of 3 elements in cross, got 2 and 2"):
        tg.linalg.cross(tg.ones(2), tg.ones(2))
    with pytest.raises(ShapeError, match="expected vectors of one length in vecdot, got 3 and 2"):
        tg.vecdot(vector, tg.ones(2))
    with pytest.raises(ShapeError, match=r"an axis of both arguments in vecdot, got 0 .* -1 to -1"):
        tg.vecdot(vector, tg.ones((2, 3)), axis=0)
    with pytest.raises(ShapeError, match=r"as many axes of x1 as of x2 in tensordot, got \(0,\)"):
        tg.tensordot(wide, wide, axes=((0,), ()))
    with pytest.raises(ShapeError, match="expected paired axes of one length in tensordot"):
        tg.tensordot(wide, wide, axes=1)
    with pytest.raises(
        ShapeError, match=r"expected shapes that matmul takes, got \(2, 3\) and \(2, 3\)"
    ):
        tg.matmul(wide, wide)


def test_integers_are_refused_where_a_result_is_a_fraction() -> None:
    with pytest.raises(DTypeError, match="expected floating or complex numbers in inv, got int64"):
        tg.linalg.inv(tg.asarray([[1, 0], [0, 1]]))


def test_options_that_do_not_exist_are_refused() -> None:
    with pytest.raises(
        UsageError, match="expected the mode 'reduced' or 'complete' in qr, got 'r'"
    ):
        tg.linalg.qr(tg.eye(2), mode="r")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="as ord of matrix_norm, got 3"):
        tg.linalg.matrix_norm(tg.eye(2), ord=3)
    with pytest.raises(DTypeError, match=r"expected an integer power in matrix_power, got 0\.5"):
        tg.linalg.matrix_power(tg.eye(2), 0.5)  # type: ignore[arg-type]


def test_matrices_without_what_a_function_needs_are_refused_by_name() -> None:
    with pytest.raises(UsageError, match="expected a matrix that has an inverse in inv"):
        tg.linalg.inv(tg.zeros((2, 2)))
    with pytest.raises(UsageError, match="expected a matrix that has an inverse in solve"):
        tg.linalg.solve(tg.zeros((2, 2)), tg.ones(2))
    with pytest.raises(UsageError, match="eigenvalues are all positive in cholesky"):
        tg.linalg.cholesky(-tg.eye(2))
    for size in (2, 40):
        with pytest.raises(UsageError, match="zeros on its diagonal in solve_triangular"):
            tg.linalg.solve_triangular(tg.zeros((size, size)), tg.ones(size), upper=True)


@pytest.mark.parametrize("columns", [(), (2,)], ids=["a vector", "a matrix"])
def test_solve_factors_its_matrix_once_in_a_backward_pass(
    columns: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    a = tg.tensor(normals(3, 3) + 3 * np.eye(3), requires_grad=True)
    b = tg.tensor(normals(3, *columns), requires_grad=True)
    solution = tg.linalg.solve(a, b).sum()
    solve, calls = NUMPY.linalg.solve, []
    monkeypatch.setattr(NUMPY.linalg, "solve", lambda *args: calls.append(args) or solve(*args))
    solution.backward()
    assert len(calls) == 1
    assert a.grad is not None
    assert b.grad is not None


@pytest.mark.parametrize("lib", [tg, torch], ids=["telegrad", "torch"])
def test_the_power_zero_depends_on_its_matrix_with_slope_zero(lib: Any) -> None:
    x = lib.tensor([[[float("inf"), 2.0], [3.0, 4.0]]] * 2, requires_grad=True)
    identity = lib.linalg.matrix_power(x, 0)
    assert identity.tolist() == [[[1.0, 0.0], [0.0, 1.0]]] * 2
    (gradient,) = lib.autograd.grad(identity.sum(), x)
    assert gradient.tolist() == [[[0.0, 0.0], [0.0, 0.0]]] * 2
