"""Samples of ``rules/contraction.py``."""

import numpy as np
from tests.rules.samples.sample import Entry, complex_normal, normal, sample

__all__ = ["SAMPLES"]

SAMPLES = {
    "einsum": Entry(
        (
            sample("matrices", normal(2, 3), normal(3, 2), subscripts="ij,jk->ik"),
            sample("transposed", normal(2, 3), normal(2, 2), subscripts="ji,jk->ki"),
            sample("batched", normal(2, 2, 2), normal(2, 2), subscripts="bij,bj->bi"),
            sample("outer", normal(2), normal(3), subscripts="i,j->ji"),
            sample("elementwise", normal(2, 2), normal(2, 2), subscripts="ij,ij->ij"),
            sample("to a number", normal(2, 2), normal(2, 2), subscripts="ij,ji->"),
            sample("summed alone", normal(2, 3), normal(2, 2), subscripts="ij,kl->k"),
            sample("a diagonal", normal(2, 2, 2), normal(2, 2), subscripts="iij,jk->ik"),
            sample("all on a diagonal", normal(2, 2), normal(2, 2), subscripts="ii,ii->i"),
            sample("by a number", normal(), normal(2), subscripts=",i->i"),
            sample("zero-size", normal(0, 2), normal(2, 2), subscripts="ij,jk->ik"),
            sample("zero inside", normal(2, 0), normal(0, 2), subscripts="ij,jk->ik"),
            sample("complex", complex_normal(2, 2), complex_normal(2), subscripts="ij,j->i"),
            sample("complex beside real", complex_normal(2, 2), normal(2), subscripts="ij,j->i"),
        ),
        numpy=lambda x, y, *, subscripts: np.einsum(subscripts, x, y),
        torch=lambda torch, x, y, *, subscripts: torch.einsum(
            subscripts,
            x.to(torch.promote_types(x.dtype, y.dtype)),
            y.to(torch.promote_types(x.dtype, y.dtype)),
        ),
    ),
    "einsum_one": Entry(
        (
            sample("transposed", normal(2, 3), subscripts="ij->ji"),
            sample("summed", normal(2, 3, 2), subscripts="ijk->ki"),
            sample("to a number", normal(2, 3), subscripts="ij->"),
            sample("a diagonal", normal(2, 2), subscripts="ii->i"),
            sample("a trace", normal(3, 3), subscripts="ii->"),
            sample("two diagonals", normal(2, 2, 2, 2), subscripts="ijij->ji"),
            sample("thrice", normal(2, 2, 2), subscripts="iii->i"),
            sample("zero-size", normal(0, 2), subscripts="ij->j"),
            sample("complex", complex_normal(2, 2, 2), subscripts="iij->j"),
        ),
        numpy=lambda x, *, subscripts: np.einsum(subscripts, x),
        torch=lambda torch, x, *, subscripts: torch.einsum(subscripts, x),
    ),
}
