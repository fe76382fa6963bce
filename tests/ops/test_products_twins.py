"""Products of matrices and vectors against PyTorch, in value and in every derivative."""

from typing import Any

import pytest
import torch
from tests.ops.twins import assert_twins, complexes, normals

import telegrad as tg

REAL_AND_COMPLEX = pytest.mark.parametrize("draw", [normals, complexes])


@REAL_AND_COMPLEX
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3,), (3,)),
        ((3,), (3, 2)),
        ((2, 3), (3,)),
        ((2, 3), (3, 2)),
        ((3,), (2, 3, 2)),
        ((2, 2, 3), (3,)),
        ((2, 1, 2, 3), (4, 3, 2)),
        ((2, 2, 3), (3, 2)),
        ((2, 0), (0, 3)),
        ((0, 2, 3), (3, 2)),
    ],
)
def test_matmul_is_pytorchs(draw: Any, left: Any, right: Any) -> None:
    assert_twins(tg.matmul, torch.matmul, draw(*left), draw(*right))


@REAL_AND_COMPLEX
@pytest.mark.parametrize("axes", [0, 1, 2, ((0, 2), (1, 0)), ((-1,), (-3,)), ((), ())])
def test_tensordot_is_pytorchs(draw: Any, axes: Any) -> None:
    left, right = (2, 3, 4), (4, 2, 5)
    if axes == 2:
        right = (3, 4, 2)
    assert_twins(
        lambda a, b: tg.tensordot(a, b, axes=axes),
        lambda a, b: torch.tensordot(a, b, dims=axes),
        draw(*left),
        draw(*right),
    )


@REAL_AND_COMPLEX
@pytest.mark.parametrize("axis", [-1, -2])
def test_vecdot_conjugates_its_first_argument(draw: Any, axis: int) -> None:
    assert_twins(
        lambda a, b: tg.vecdot(a, b, axis=axis),
        lambda a, b: torch.linalg.vecdot(a, b, dim=axis),
        draw(2, 3, 2),
        draw(3, 2),
    )


@REAL_AND_COMPLEX
def test_cross_is_pytorchs(draw: Any) -> None:
    assert_twins(
        lambda a, b: tg.linalg.cross(a, b, axis=-2),
        lambda a, b: torch.linalg.cross(a, b, dim=-2),
        draw(2, 3, 1),
        draw(1, 3, 2),
    )


@REAL_AND_COMPLEX
def test_outer_and_kron_are_pytorchs(draw: Any) -> None:
    assert_twins(tg.outer, torch.outer, draw(2), draw(3))
    assert_twins(tg.kron, torch.kron, draw(2, 3), draw(2, 1, 2))
    assert_twins(tg.kron, torch.kron, draw(2), draw())


@REAL_AND_COMPLEX
@pytest.mark.parametrize("offset", [0, 1, -2, 5])
def test_diagonals_are_pytorchs(draw: Any, offset: int) -> None:
    assert_twins(
        lambda a: tg.diagonal(a, offset=offset),
        lambda a: torch.diagonal(a, offset, -2, -1),
        draw(2, 3, 4),
    )
    assert_twins(
        lambda a: tg.trace(a, offset=offset),
        lambda a: torch.diagonal(a, offset, -2, -1).sum(-1),
        draw(2, 3, 4),
    )
    assert_twins(lambda a: tg.diag(a, offset=offset), lambda a: torch.diag(a, offset), draw(3))
    assert_twins(lambda a: tg.diag(a, offset=offset), lambda a: torch.diag(a, offset), draw(3, 4))


EINSUMS = [
    ("ij,jk->ik", [(2, 3), (3, 4)]),
    ("ij,jk", [(2, 3), (3, 4)]),
    ("ba", [(2, 3)]),
    ("ii", [(3, 3)]),
    ("ii->i", [(3, 3)]),
    ("iijj->ij", [(2, 2, 3, 3)]),
    ("iij,jk->k", [(3, 3, 2), (2, 4)]),
    ("ij->", [(2, 3)]),
    ("ij,kl->i", [(2, 3), (2, 2)]),
    ("i...->...", [(2, 3, 2)]),
    ("...ij,...jk", [(2, 1, 2, 3), (4, 3, 2)]),
    ("...,...->...", [(2, 3), (3,)]),
    ("...i,i...->...", [(2, 3), (3, 2)]),
    ("i,j,k->kji", [(2,), (3,), (4,)]),
    ("ij,jk,kl,lm->im", [(2, 3), (3, 4), (4, 2), (2, 3)]),
    ("bhi,bhj,bhk->bijk", [(2, 2, 2), (2, 2, 3), (2, 2, 2)]),
    ("ij,ij,ij->j", [(2, 3), (2, 3), (2, 3)]),
    ("a,ab,b,bc,c->", [(2,), (2, 3), (3,), (3, 2), (2,)]),
    ("ij,jk->ik", [(2, 1), (3, 2)]),
    ("i j , j -> i", [(2, 3), (3,)]),
    ("ij,jk->ik", [(2, 0), (0, 3)]),
]


@REAL_AND_COMPLEX
@pytest.mark.parametrize(("subscripts", "shapes"), EINSUMS, ids=[s for s, _ in EINSUMS])
def test_einsum_is_pytorchs(draw: Any, subscripts: str, shapes: Any) -> None:
    assert_twins(
        lambda *a: tg.einsum(subscripts, *a),
        lambda *a: torch.einsum(subscripts, *a),
        *(draw(*shape, seed=i) for i, shape in enumerate(shapes)),
    )
