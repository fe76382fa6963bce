"""``einsum``: order of contraction, dtypes, and what is refused."""

from string import ascii_letters

import numpy as np
import pytest

import telegrad as tg
from telegrad.errors import ShapeError, UsageError


def test_integers_are_summed_in_their_own_dtype() -> None:
    x = tg.asarray([[1, 2], [3, 4]], dtype=tg.int32)
    assert tg.einsum("ij,jk->ik", x, x).tolist() == [[7, 10], [15, 22]]
    assert tg.einsum("ij->j", x).dtype == tg.int32


def test_many_operands_are_contracted_pair_by_pair() -> None:
    # In one sum this would be 10**12 products.
    rng = np.random.default_rng(0)
    factors = [tg.tensor(rng.normal(size=(10, 10)), requires_grad=True) for _ in range(11)]
    letters = "abcdefghijkl"
    subscripts = ",".join(letters[i : i + 2] for i in range(11)) + "->" + letters[0] + letters[-1]
    out = tg.einsum(subscripts, *factors)
    product = factors[0]
    for factor in factors[1:]:
        product = product @ factor
    np.testing.assert_allclose(out.detach().numpy(), product.detach().numpy(), rtol=1e-9)
    ours = tg.autograd.grad(out.sum(), factors)
    theirs = tg.autograd.grad(product.sum(), factors)
    for a, b in zip(ours, theirs):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9)


def test_a_number_beside_tensors_takes_their_dtype() -> None:
    x = tg.ones(3, dtype=tg.float64)
    assert tg.einsum(",i->i", 2.0, x).dtype == tg.float64


@pytest.mark.parametrize(
    ("subscripts", "shapes", "message"),
    [
        ("ij,jk->ik", [(2, 3)], "expected 2 operands for 'ij,jk->ik' in einsum, got 1"),
        ("ij->i", [(2, 3, 4)], "expected operand 0 of 'ij->i' to have 2 axes in einsum, got 3"),
        ("ij->k", [(2, 3)], "expected each letter of the result once, and of an operand"),
        ("ij->ii", [(2, 3)], "expected each letter of the result once, and of an operand"),
        ("i1->i", [(2, 3)], "expected letters and at most one '...' for each operand"),
        (f"...,{ascii_letters}", [(2,), (1,) * 52], "expected at most 52 different axes in einsum"),
        ("ij,jk->ik", [(2, 3), (2, 3)], "expected axes of one length for a letter"),
    ],
)
def test_subscripts_that_do_not_fit_are_refused(
    subscripts: str, shapes: list[tuple[int, ...]], message: str
) -> None:
    with pytest.raises((UsageError, ShapeError)) as caught:
        tg.einsum(subscripts, *(tg.ones(shape) for shape in shapes))
    assert message in str(caught.value)


def test_subscripts_come_first() -> None:
    with pytest.raises(UsageError, match="as the first argument of einsum, got Tensor"):
        tg.einsum(tg.ones(3), "i")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="expected an operand for 'i->i' in einsum, got none"):
        tg.einsum("i->i")
