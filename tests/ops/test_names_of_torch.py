"""A function with a name of PyTorch's gives the same, or docs/differences.md says so."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import telegrad as tg

torch = pytest.importorskip("torch")

PAGE = Path(__file__).parents[2] / "docs/differences.md"
RANDOM = {"bernoulli", "empty", "empty_like", "rand", "rand_like", "randint", "randn", "randn_like"}
ACTING = {"load", "manual_seed", "save"}
DIFFERENT = {"equal", "max", "meshgrid", "min", "nonzero", "sort", "std", "var"}

A = [[0.5, -1.5, 2.0], [-0.25, 3.0, 1.0], [1.25, 0.75, -2.0]]
B = [[1.5, 0.5, -2.5], [0.25, -1.0, 2.0], [-0.5, 0.125, 1.0]]
I = [[0, 2, 1], [1, 1, 0], [2, 0, 0]]  # noqa: E741

ARGUMENTS: list[Callable[[Any], tuple[Any, ...]]] = [
    lambda m: (m.tensor(A),),
    lambda m: (m.tensor(A[0]),),
    lambda m: (m.tensor(I),),
    lambda m: (m.tensor(A) > 0,),
    lambda m: (m.tensor(2.5),),
    lambda m: (3,),
    lambda m: ([m.tensor(A), m.tensor(B)],),
    lambda m: ([m.tensor(A), m.tensor(B)], 1),
    lambda m: (m.tensor(A), m.tensor(B)),
    lambda m: (m.tensor(A), m.tensor(I)),
    lambda m: (m.tensor(I), m.tensor(I)),
    lambda m: (m.tensor(A[0]), m.tensor(B[0])),
    lambda m: (m.tensor(A), 0),
    lambda m: (m.tensor(A), 1),
    lambda m: (m.tensor(A), 2.0),
    lambda m: (m.tensor(A), (1, 0)),
    lambda m: (m.tensor(A), -0.4, 0.4),
    lambda m: (m.tensor(A) > 0, m.tensor(A), m.tensor(B)),
]


def numbers(result: Any) -> Any:
    if isinstance(result, tuple | list):
        return [numbers(part) for part in result]
    return result.detach().numpy() if hasattr(result, "detach") else np.asarray(result)


def same(mine: Any, wanted: Any) -> bool:
    if isinstance(mine, list) or isinstance(wanted, list):
        return (
            type(mine) is type(wanted) and len(mine) == len(wanted) and all(map(same, mine, wanted))
        )
    if mine.dtype == object or wanted.dtype == object:
        return True  # a dtype or another thing that is no number
    return mine.shape == wanted.shape and np.allclose(mine, wanted, 1e-4, 1e-5, equal_nan=True)


def results(module: ModuleType, name: str) -> list[Any]:
    """What the function gives for each of the arguments; None where it refuses them."""
    found = []
    for arguments in ARGUMENTS:
        try:
            found.append(numbers(getattr(module, name)(*arguments(module))))
        except Exception:  # of whichever kind: only what both take is compared
            found.append(None)
    return found


def shared(ours: Any, theirs: Any) -> list[str]:
    names = [n for n in ours.__all__ if hasattr(theirs, n) and n not in RANDOM | ACTING]
    return [
        n for n in names if callable(getattr(ours, n)) and not isinstance(getattr(ours, n), type)
    ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", ["", "linalg", "fft"])
def test_a_function_with_a_name_of_pytorchs_gives_the_same_unless_the_page_says_so(
    part: str,
) -> None:
    ours, theirs = (getattr(tg, part), getattr(torch, part)) if part else (tg, torch)
    different = {
        name
        for name in shared(ours, theirs)
        for mine, wanted in zip(results(ours, name), results(theirs, name))
        if mine is not None and wanted is not None and not same(mine, wanted)
    }
    assert different == (set() if part else DIFFERENT)


def test_the_page_names_what_is_different() -> None:
    page = PAGE.read_text()
    for name in sorted(DIFFERENT):
        assert f"`{name}`" in page, name
