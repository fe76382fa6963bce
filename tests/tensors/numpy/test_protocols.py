"""NumPy's own functions on Tensors: recorded, in NumPy's values, or refused by name."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special
from tests.ops.twins import complexes, normals

import telegrad as tg
from telegrad.errors import DTypeError, GradientError, NotDifferentiable, UsageError
from telegrad.tensors.numpy.functions import FUNCTIONS
from telegrad.tensors.numpy.ufuncs import REDUCTIONS, UFUNCS, function_of
from telegrad.testing import gradient_check

A, B = normals(3, 3), normals(3, 3, seed=1)
S = A @ A.T + 3 * np.eye(3)
"""A symmetric matrix that all decompositions take."""

CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "sum over an axis, by position": (lambda x: np.sum(x, 0), (A,)),
    "sum, kept": (lambda x: np.sum(x, axis=(0, 1), keepdims=True), (A,)),
    "prod": (lambda x: np.prod(x, axis=1), (A,)),
    "mean": (lambda x: np.mean(x, axis=-1), (A,)),
    "var": (lambda x: np.var(x, axis=0, ddof=1), (A,)),
    "std": (lambda x: np.std(x, correction=1), (A,)),
    "max": (lambda x: np.max(x, axis=1), (A,)),
    "amin": (lambda x: np.amin(x), (A,)),
    "cumsum of all": (np.cumsum, (A,)),
    "cumprod": (lambda x: np.cumprod(x, axis=1), (A,)),
    "diff": (lambda x: np.diff(x, n=2, axis=0), (A,)),
    "diff after a number": (lambda x: np.diff(x, axis=0, prepend=0.1), (A,)),
    "diff, twice, between numbers": (lambda x: np.diff(x, n=2, prepend=0, append=1.5), (A,)),
    "diff before a list": (lambda x: np.diff(x, append=[0.1, 0.2]), (A[0],)),
    "clip": (lambda x: np.clip(x, -0.5, 0.5), (A,)),
    "where": (lambda x, y: np.where(A > 0, x, y), (A, B)),
    "sort": (lambda x: np.sort(x, axis=0), (A,)),
    "take": (lambda x: np.take(x, [0, 0, 2], axis=1), (A,)),
    "take of all": (lambda x: np.take(x, [0, 5]), (A,)),
    "take_along_axis": (lambda x: np.take_along_axis(x, np.argsort(A, 1), 1), (A,)),
    "concatenate with an array": (lambda x: np.concatenate([x, B], axis=1), (A,)),
    "concatenate with a list": (lambda x: np.concatenate([x, [0.1]]), (A[0],)),
    "stack with a list": (lambda x: np.stack([x, [0.1, 0.2, 0.3]]), (A[0],)),
    "hstack with a number": (lambda x: np.hstack([x, 0.1]), (A[0],)),
    "stack": (lambda x, y: np.stack([x, y], axis=1), (A, B)),
    "vstack": (lambda x, y: np.vstack((x, y)), (A[0], B[0])),
    "hstack": (lambda x, y: np.hstack((x, y)), (A, B)),
    "split": (lambda x: np.split(x, [1], axis=1)[1], (A,)),
    "dot with a number": (lambda x: np.dot(2.0, x), (A,)),
    "inner with a number": (lambda x: np.inner(x, 2.0), (A,)),
    "split by a number of NumPy's": (lambda x: np.split(x, np.int64(3))[1], (A,)),
    "split of nothing": (lambda x: np.split(x, 2)[1], (A[:0],)),
    "reshape": (lambda x: np.reshape(x, (9,)), (A,)),
    "ravel": (np.ravel, (A,)),
    "transpose": (np.transpose, (A,)),
    "swapaxes": (lambda x: np.swapaxes(x, 0, 1), (A,)),
    "moveaxis": (lambda x: np.moveaxis(x, 0, 1), (A,)),
    "moveaxis, by lists": (lambda x: np.moveaxis(x, [0, 1], [1, 0]), (A,)),
    "squeeze": (lambda x: np.squeeze(x), (A[None],)),
    "expand_dims": (lambda x: np.expand_dims(x, (0, 2)), (A,)),
    "expand_dims, by a list": (lambda x: np.expand_dims(x, [0, -1]), (A,)),
    "atleast_2d": (lambda x: np.atleast_2d(x), (A[0],)),
    "broadcast_to": (lambda x: np.broadcast_to(x, (2, 3)), (A[0],)),
    "flip": (lambda x: np.flip(x, 0), (A,)),
    "roll": (lambda x: np.roll(x, 1, axis=0), (A,)),
    "roll, by lists": (lambda x: np.roll(x, [1, 2], axis=[0, 1]), (A,)),
    "tile": (lambda x: np.tile(x, 2), (A,)),
    "repeat": (lambda x: np.repeat(x, 2, axis=0), (A,)),
    "tril": (lambda x: np.tril(x, k=-1), (A,)),
    "pad": (lambda x: np.pad(x, 1, mode="reflect"), (A,)),
    "copy": (np.copy, (A,)),
    "real": (np.real, (complexes(3),)),
    "dot": (np.dot, (A, B)),
    "dot of a stack and a vector": (np.dot, (normals(2, 3, 3), A[0])),
    "dot of stacks": (np.dot, (normals(2, 2, 3), normals(2, 3, 2))),
    "vdot": (np.vdot, (complexes(3), complexes(3, seed=3))),
    "inner": (np.inner, (A, B)),
    "outer": (np.outer, (A, B[0])),
    "tensordot": (lambda x, y: np.tensordot(x, y, axes=([0], [1])), (A, B)),
    "einsum": (lambda x, y: np.einsum("ij,kj->ik", x, y), (A, B)),
    "kron": (np.kron, (A[:2], B[:1])),
    "trace": (np.trace, (A,)),
    "trace of a stack": (np.trace, (normals(2, 3, 4),)),
    "trace of other axes": (lambda x: np.trace(x, 1, axis1=2, axis2=0), (normals(2, 3, 4),)),
    "diag": (np.diag, (A,)),
    "diagonal": (lambda x: np.diagonal(x, 1), (A,)),
    "cross": (np.cross, (A, B)),
    "linalg.solve": (np.linalg.solve, (S, B)),
    "linalg.inv": (np.linalg.inv, (S,)),
    "linalg.det": (np.linalg.det, (A,)),
    "linalg.slogdet": (lambda x: np.linalg.slogdet(x)[1], (S,)),
    "linalg.pinv": (np.linalg.pinv, (A[:2],)),
    "linalg.matrix_power": (lambda x: np.linalg.matrix_power(x, 3), (A,)),
    "linalg.svd, values alone": (lambda x: np.linalg.svd(x, compute_uv=False), (A,)),
    "linalg.norm": (np.linalg.norm, (A,)),
    "linalg.norm of rows": (lambda x: np.linalg.norm(x, axis=1), (A,)),
    "linalg.norm of a matrix": (lambda x: np.linalg.norm(x, "nuc"), (A,)),
    "fft": (lambda x: np.fft.fft(x, axis=0), (complexes(3, 2),)),
    "fft of real numbers": (np.fft.fft, (A,)),
    "irfft": (lambda x: np.fft.irfft(x, n=4), (complexes(3),)),
    "fftn": (lambda x: np.fft.fftn(x), (complexes(2, 2),)),
    "fftshift": (np.fft.fftshift, (A,)),
    "add.reduce": (lambda x: np.add.reduce(x), (A,)),
    "multiply.accumulate": (lambda x: np.multiply.accumulate(x, axis=1), (A,)),
    "subtract.outer": (np.subtract.outer, (A, B[0])),
    "matmul": (np.matmul, (A, B)),
    "vecdot": (np.vecdot, (A, B)),
    "deg2rad": (np.deg2rad, (A,)),
    "exp2": (np.exp2, (A,)),
    "scipy erf": (scipy.special.erf, (A,)),
    "scipy gammaln": (scipy.special.gammaln, (S[0] ** 2 + 1,)),
    "scipy expit": (scipy.special.expit, (A,)),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_of_numpy_is_recorded_and_has_numpys_value(name: str) -> None:
    call, arrays = CALLS[name]
    tensors = [tg.tensor(a, requires_grad=True) for a in arrays]
    result, expected = call(*tensors), np.asarray(call(*arrays))
    assert isinstance(result, tg.Tensor)
    assert result.requires_grad
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    np.testing.assert_allclose(result.detach().numpy(), expected, rtol=1e-10, atol=1e-12)


Z = complexes(3, 3)

ARGUMENTS: dict[Any, tuple[Any, ...]] = {
    np.array_equal: (A, A),
    np.allclose: (A, B),
    np.astype: (A, np.float32),
    np.atleast_1d: (A, B),
    np.atleast_2d: (A[0], B),
    np.broadcast_arrays: (A, B[0]),
    np.broadcast_to: (A, (2, 3, 3)),
    np.clip: (A, -0.5, None),
    np.concatenate: ([A, B], None),
    np.cross: (A, B),
    np.dot: (A, B),
    np.einsum: ("ij,jk", A, B),
    np.expand_dims: (A, 1),
    np.full_like: (A, 3.0),
    np.hstack: ([A[0], B[1]],),
    np.imag: (Z,),
    np.inner: (A, B),
    np.isclose: (A, A),
    np.kron: (A, B),
    np.moveaxis: (A, 0, 1),
    np.outer: (A, B),
    np.pad: (A, 1),
    np.real: (Z,),
    np.repeat: (A, 2),
    np.reshape: (A, 9),
    np.result_type: (A, np.float32(1)),
    np.roll: (A, 1),
    np.round: (A, 1),
    np.searchsorted: (np.sort(A[0]), B),
    np.split: (A, 3),
    np.stack: ([A, B],),
    np.swapaxes: (A, 0, 1),
    np.take: (A, 1),
    np.take_along_axis: (A, np.asarray([[0], [2], [1]]), 1),
    np.tensordot: (A, B),
    np.tile: (A, (2, 1)),
    np.vdot: (Z, A),
    np.vstack: ([A, B],),
    np.where: (A > 0, A, B),
    np.fft.ihfft: (A,),
    np.fft.rfft: (A,),
    np.fft.rfftn: (A,),
    np.linalg.cholesky: (S,),
    np.linalg.eigh: (S,),
    np.linalg.eigvalsh: (S,),
    np.linalg.matmul: (A, B),
    np.linalg.matrix_power: (A, -2),
    np.linalg.norm: (Z, "fro", (0, 1), True),
    np.linalg.outer: (A[0], B[0]),
    np.linalg.solve: (A, B[0]),
}
"""For functions of the table that take more than one matrix."""


def as_tensors(arguments: Any) -> Any:
    if isinstance(arguments, (list, tuple)):
        return type(arguments)(map(as_tensors, arguments))
    is_floating = isinstance(arguments, np.ndarray) and arguments.dtype.kind in "fc"
    return tg.asarray(arguments) if is_floating else arguments


def parts(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (list, tuple)) else [result]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f"{f.__module__}.{f.__name__}")
def test_every_function_in_the_table_has_numpys_value(function: Any) -> None:
    default = (Z,) if function.__module__.startswith("numpy.fft") else (A,)
    arguments = ARGUMENTS.get(function, default)
    found, expected = parts(function(*as_tensors(arguments))), parts(function(*arguments))
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected):
        ours = ours.numpy() if isinstance(ours, tg.Tensor) else ours
        assert np.shape(ours) == np.shape(theirs)
        if function is np.result_type:
            assert ours == theirs
        elif function is not np.empty_like:
            np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("sections", [2, -1])
def test_a_split_into_parts_that_there_are_not_is_refused_as_by_numpy(sections: int) -> None:
    for x in (A, tg.asarray(A)):
        with pytest.raises(ValueError, match=r"above 0|larger than 0|division"):
            np.split(x, sections)


@pytest.mark.parametrize("name", ["einsum", "dot", "linalg.solve", "take", "where", "pad"])
def test_a_call_of_numpy_is_differentiable_twice(name: str) -> None:
    gradient_check(*CALLS[name])


@pytest.mark.parametrize("ufunc", UFUNCS, ids=lambda ufunc: ufunc.__name__)
def test_every_elementwise_function_in_the_table_has_numpys_value(ufunc: Any) -> None:
    kinds = [name for name in ufunc.types if name[: ufunc.nin] in ("dd", "d", "ll", "l", "??")]
    is_real = any(kind.startswith("d") for kind in kinds)
    if ufunc in (np.matmul, np.vecdot):
        is_real = True
    draw = np.asarray([0.25, 0.5, 0.75]) if is_real else np.asarray([1, 2, 3])
    if ufunc is np.arccosh:
        draw = draw + 1
    arguments = [draw] * ufunc.nin
    expected = ufunc(*arguments)
    result = ufunc(*map(tg.asarray, arguments))
    assert isinstance(result, tg.Tensor)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-12)


def test_reductions_of_ufuncs_are_numpys() -> None:
    x = A > 0
    for ufunc in REDUCTIONS:
        values = x if ufunc in (np.logical_and, np.logical_or) else A
        for options in ({}, {"axis": None}, {"axis": 1, "keepdims": True}):
            found = ufunc.reduce(tg.asarray(values), **options)
            np.testing.assert_allclose(found.numpy(), ufunc.reduce(values, **options))


def test_the_table_serves_functions_of_numpy_alone() -> None:
    assert all(function.__module__.startswith("numpy") for function in FUNCTIONS)
    assert function_of(np.frompyfunc(lambda x: x, 1, 1)) is None


def test_numpys_operands_on_the_left_defer_to_the_tensor() -> None:
    t = tg.tensor([1.0, 2.0], dtype=tg.float64, requires_grad=True)
    for result in (
        np.ones(2) * t,
        np.ones(2) - t,
        np.float64(2.0) * t,
        np.ones((2, 2)) @ t,
        np.ones(2) / t,
        np.ones(2) ** t,
    ):
        assert isinstance(result, tg.Tensor)
        assert result.requires_grad
    assert (np.ones(2) < t).tolist() == [False, True]
    assert (np.ones(2) == t).tolist() == [True, False]


def test_questions_are_answered_by_plain_values() -> None:
    t = tg.tensor([[1.0, 2.0]], requires_grad=True)
    assert np.shape(t) == (1, 2)
    assert np.ndim(t) == 2
    assert np.size(t) == 2
    assert np.size(t, 0) == 1
    assert np.allclose(t, [[1.0, 2.0]]) is True
    assert np.array_equal(t, [[1.0, 3.0]]) is False
    assert np.isclose(t, 1.0).tolist() == [[True, False]]
    assert np.iscomplexobj(t) is False
    assert np.isrealobj(t) is True
    assert np.result_type(t, tg.float64) == tg.float64
    assert np.argmax(t).item() == 1
    assert np.count_nonzero(t).item() == 2
    assert np.any(t > 1).item() is True
    assert np.zeros_like(t).tolist() == [[0.0, 0.0]]
    assert np.full_like(t, 3).tolist() == [[3.0, 3.0]]


def test_tangents_pass_through_numpys_functions() -> None:
    value, tangent = tg.autograd.functional.jvp(
        lambda x: np.sum(np.sin(x)), (tg.tensor([0.0]),), (tg.tensor([2.0]),)
    )
    assert (value.item(), tangent.item()) == (0.0, 2.0)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda t: np.median(t), r"np\.median"),
        (lambda t: np.cbrt(t), r"np\.cbrt"),
        (lambda t: np.linalg.eig(t), r"np\.linalg\.eig"),
        (lambda t: np.add.at(t, [0], 1.0), r"np\.add\.at"),
        (lambda t: np.add.reduceat(t, [0]), r"np\.add\.reduceat"),
        (lambda t: np.logaddexp.reduce(t), r"np\.logaddexp\.reduce"),
        (lambda t: np.maximum.accumulate(t), r"np\.maximum\.accumulate"),
        (lambda t: np.frompyfunc(abs, 1, 1)(t), r"np\.abs"),
        (lambda t: np.put_along_axis(t, np.zeros((1, 1), int), 0, 0), r"np\.put_along_axis"),
    ],
)
def test_a_function_without_a_rule_is_refused_by_name(call: Any, name: str) -> None:
    with pytest.raises(NotDifferentiable, match=f"{name} .*has no rule for Tensors"):
        call(tg.tensor(A, requires_grad=True))


def test_writing_into_an_array_is_refused() -> None:
    t, array = tg.ones(2, dtype=tg.float64), np.zeros(2)
    with pytest.raises(UsageError, match=r"np\.add can't write its result into out="):
        np.add(t, 1, out=array)
    with pytest.raises(UsageError, match=r"a = a \+ t instead of a \+= t"):
        array += t
    with pytest.raises(UsageError, match=r"np\.sum takes the arguments .*'out'"):
        np.sum(t, out=array)
    assert array.tolist() == [0.0, 0.0]


def test_options_that_cannot_be_served_are_refused_by_name() -> None:
    t = tg.ones(2)
    with pytest.raises(UsageError, match=r"np\.sin takes the arguments .*'where'"):
        np.sin(t, where=np.asarray([True, False]))
    with pytest.raises(UsageError, match=r"np\.sum takes the arguments .*'initial'"):
        np.sum(t, initial=3)
    with pytest.raises(UsageError, match=r"np\.sort takes the arguments .*'kind'"):
        np.sort(t, kind="heapsort")
    with pytest.raises(UsageError, match=r"np\.reshape takes the arguments .*'order'"):
        np.reshape(t, (2,), order="F")


def test_a_mistake_in_the_values_keeps_its_own_error() -> None:
    with pytest.raises(DTypeError, match="expected a Tensor or a number as argument 1 of add"):
        np.add(tg.ones(2), "three")  # type: ignore[arg-type]


def test_asarray_of_a_tensor_that_requires_grad_says_detach() -> None:
    t = tg.tensor([1.0], requires_grad=True)
    for convert in (np.asarray, np.array):
        with pytest.raises(GradientError, match=r"detach\(\)\.numpy\(\)"):
            convert(t)
    assert np.asarray(t.detach()).tolist() == [1.0]
    assert np.array(t.detach(), dtype=np.int32).dtype == np.int32


def test_another_librarys_arrays_are_left_to_it() -> None:
    class Foreign:
        def __array_function__(self, func: Any, types: Any, args: Any, options: Any) -> str:
            return "mine"

    assert np.concatenate([tg.ones(2), Foreign()]) == "mine"  # type: ignore[comparison-overlap]


@pytest.mark.parametrize("axis", [3, -4, (0, 0)])
def test_an_axis_that_numpy_would_not_add_is_not_added(axis: Any) -> None:
    for x in (A, tg.asarray(A)):
        with pytest.raises(ValueError, match="axis"):
            np.expand_dims(x, axis)
