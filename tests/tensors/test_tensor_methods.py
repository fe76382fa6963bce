"""The methods of a Tensor: each is the function of the namespace, recorded."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.ops.twins import complexes, normals

import telegrad as tg
from telegrad.errors import ShapeError

X = normals(2, 3)

SPELLINGS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "sum": (lambda x: x.sum(), lambda x: tg.sum(x)),
    "sum over an axis": (
        lambda x: x.sum(1, keepdims=True),
        lambda x: tg.sum(x, axis=1, keepdims=True),
    ),
    "prod": (lambda x: x.prod(0), lambda x: tg.prod(x, axis=0)),
    "mean": (lambda x: x.mean(axis=-1), lambda x: tg.mean(x, axis=-1)),
    "var": (lambda x: x.var(correction=1), lambda x: tg.var(x, correction=1)),
    "std": (lambda x: x.std(0), lambda x: tg.std(x, axis=0)),
    "max": (lambda x: x.max(1), lambda x: tg.max(x, axis=1)),
    "min": (lambda x: x.min(), lambda x: tg.min(x)),
    "norm": (lambda x: x.norm(), lambda x: tg.sqrt(tg.sum(x * x))),
    "norm of an order": (lambda x: x.norm(1), lambda x: tg.sum(tg.abs(x))),
    "norm of an order over an axis": (
        lambda x: x.norm(1, 0),
        lambda x: tg.sum(tg.abs(x), axis=0),
    ),
    "logsumexp": (lambda x: x.logsumexp(1), lambda x: tg.logsumexp(x, axis=1)),
    "cumsum": (lambda x: x.cumsum(0), lambda x: tg.cumulative_sum(x, axis=0)),
    "reshape": (lambda x: x.reshape(3, 2), lambda x: tg.reshape(x, (3, 2))),
    "reshape, a tuple": (lambda x: x.reshape((3, -1)), lambda x: tg.reshape(x, (3, 2))),
    "flatten": (lambda x: x.flatten(), lambda x: tg.reshape(x, (6,))),
    "unsqueeze, squeeze": (lambda x: x.unsqueeze(0).squeeze(), lambda x: x),
    "squeeze an axis": (lambda x: x.unsqueeze(1).squeeze(1), lambda x: x),
    "permute": (lambda x: x.permute(1, 0), lambda x: tg.permute_dims(x, (1, 0))),
    "transpose": (lambda x: x.transpose(0, -1), lambda x: x.T),
    "T": (lambda x: x.T, lambda x: tg.matrix_transpose(x)),
    "mT": (lambda x: x.mT, lambda x: tg.matrix_transpose(x)),
    "expand": (lambda x: x.expand(4, -1, 3), lambda x: tg.broadcast_to(x, (4, 2, 3))),
    "at": (lambda x: x.at[0].add(1.0), lambda x: tg.index_add(x, 1.0, index=0)),
    "abs": (lambda x: x.abs(), lambda x: tg.abs(x)),
    "exp": (lambda x: x.exp(), lambda x: tg.exp(x)),
    "log": (lambda x: x.square().log(), lambda x: tg.log(x * x)),
    "sqrt": (lambda x: x.square().sqrt(), lambda x: tg.sqrt(x * x)),
    "sin": (lambda x: x.sin(), lambda x: tg.sin(x)),
    "cos": (lambda x: x.cos(), lambda x: tg.cos(x)),
    "tanh": (lambda x: x.tanh(), lambda x: tg.tanh(x)),
    "sigmoid": (lambda x: x.sigmoid(), lambda x: tg.sigmoid(x)),
    "relu": (lambda x: x.relu(), lambda x: tg.relu(x)),
    "pow": (lambda x: x.pow(3), lambda x: x**3),
    "clip": (lambda x: x.clip(-0.5, 0.5), lambda x: tg.clip(x, -0.5, 0.5)),
    "clip from below": (lambda x: x.clip(min=0.0), lambda x: tg.clip(x, 0.0, None)),
    "masked_fill": (lambda x: x.masked_fill(x > 0, -1.0), lambda x: tg.where(x > 0, -1.0, x)),
    "softmax": (lambda x: x.softmax(0), lambda x: tg.softmax(x, axis=0)),
    "log_softmax": (lambda x: x.log_softmax(), lambda x: tg.log_softmax(x, axis=-1)),
    "matmul": (lambda x: x.matmul(x.T), lambda x: x @ x.T),
    "dot": (lambda x: x[0].dot(x[1]), lambda x: tg.sum(x[0] * x[1])),
    "clone": (lambda x: x.clone(), lambda x: x),
    "copy": (lambda x: x.copy(), lambda x: x),
    "astype": (lambda x: x.astype(tg.float32), lambda x: tg.astype(x, tg.float32)),
    "float": (lambda x: x.float(), lambda x: tg.astype(x, tg.float32)),
    "double": (lambda x: x.float().double(), lambda x: x.to(tg.float32).to(tg.float64)),
    "to a dtype": (lambda x: x.to(tg.complex128), lambda x: tg.astype(x, tg.complex128)),
    "to the same": (lambda x: x.to(x.dtype, device="cpu"), lambda x: x),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_method_is_the_function_and_is_recorded(name: str) -> None:
    method, function = SPELLINGS[name]
    x = tg.tensor(X, requires_grad=True)
    got, expected = method(x), function(x)
    assert got.requires_grad
    assert got.dtype == expected.dtype
    np.testing.assert_allclose(got.detach().numpy(), expected.detach().numpy(), rtol=1e-12)
    weight = tg.astype(tg.asarray(normals(*got.shape, seed=3)), got.dtype)
    (mine,) = tg.autograd.grad(got, x, weight)
    (theirs,) = tg.autograd.grad(expected, x, weight)
    np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-12, atol=1e-12)


def test_methods_without_a_derivative_give_constants() -> None:
    x = tg.tensor(X, requires_grad=True)
    assert x.argmax().item() == X.argmax()
    assert x.argmin(0).tolist() == X.argmin(0).tolist()
    assert (x > 0).any().item() is True
    assert (x > 0).all(1).tolist() == (X > 0).all(1).tolist()
    assert x.long().dtype == tg.int64
    for name in ("sign", "round", "floor", "ceil"):
        expected = getattr(np, name)(X)
        np.testing.assert_array_equal(getattr(x, name)().detach().numpy(), expected)


def test_a_0d_tensor_is_a_number_where_python_wants_one() -> None:
    assert complex(tg.tensor(1.0 + 2.0j)) == 1.0 + 2.0j
    assert "abc"[tg.tensor(1)] == "b"
    with pytest.raises(TypeError, match=r"expected a tensor with axes for len\(\), got a 0-d"):
        len(tg.tensor(1.0))
    with pytest.raises(ShapeError, match=r"a tensor with one element, got shape \(2,\)"):
        tg.ones(2).item()


def test_numpy_is_told_where_another_dtype_needs_a_copy() -> None:
    with pytest.raises(ValueError, match="expected dtype float32 without a copy, got float64"):
        np.array(tg.ones(2), dtype=np.float64, copy=False)


def test_attributes_make_a_tensor_a_leaf_and_forget_its_gradient() -> None:
    x = tg.ones(2)
    x.requires_grad = True
    (x * x).sum().backward()
    assert x.grad is not None
    del x.grad
    assert x.grad is None


def test_a_computed_tensor_that_requires_grad_is_left_as_it_is() -> None:
    y = tg.ones(2).requires_grad_() * 2.0
    assert y.requires_grad_() is y
    assert y.grad_fn is not None


def test_complex_parts_are_properties() -> None:
    z = complexes(3)
    x = tg.tensor(z, requires_grad=True)
    np.testing.assert_array_equal(x.real.detach().numpy(), z.real)
    np.testing.assert_array_equal(x.imag.detach().numpy(), z.imag)
    np.testing.assert_array_equal(x.conj().detach().numpy(), z.conj())
    assert x.float().dtype == tg.complex64
    assert x.float().double().dtype == tg.complex128


def test_to_gives_the_tensor_itself_where_nothing_changes() -> None:
    x = tg.tensor(X)
    assert x.to(tg.float64) is x
    assert x.double() is x


def test_copies_have_memory_of_their_own() -> None:
    x = tg.tensor(X)
    for copy in (x.clone(), x.copy()):
        assert not np.shares_memory(copy.array, x.array)


def test_t_is_for_matrices_alone() -> None:
    with pytest.raises(ShapeError, match=r"expected a matrix for \.T, got shape \(2, 2, 2\)"):
        _ = tg.ones((2, 2, 2)).T


def test_dot_is_for_vectors_alone() -> None:
    with pytest.raises(ShapeError, match="expected two vectors in dot"):
        tg.ones((2, 2)).dot(tg.ones(2))


def test_transpose_names_axes_that_are_not_there() -> None:
    with pytest.raises(ShapeError, match=r"two axes of shape \(2, 3\) in transpose, got 0 and 2"):
        tg.ones((2, 3)).transpose(0, 2)


def test_a_number_is_in_a_tensor_if_some_element_equals_it() -> None:
    x = tg.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert 2.0 in x
    assert tg.tensor(4) in x
    assert 5.0 not in x
    assert float("nan") not in x
    assert "2.0" not in x
    assert 1.0 in tg.tensor(1.0)
    assert 0.0 not in tg.zeros((0, 2))
