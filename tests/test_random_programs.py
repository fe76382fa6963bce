"""Random programs over all rows agree with PyTorch in value, VJP, JVP and HVP.

Hypothesis draws the programs, the same ones on every run, and shrinks one that disagrees;
``pytest tests/test_random_programs.py --hypothesis-profile=large`` looks much longer, with fresh
ones. Before that, each row stands against its twin alone, so that every row is met.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.random_programs.libraries import PYTORCH, TELEGRAD
from tests.random_programs.program import CASES, STARTS, Case, Step, run
from tests.rules.samples import SAMPLES

import telegrad
from telegrad.autograd import functional

# PyTorch warns of samples without degrees of freedom, whose variance is NaN in both.
pytestmark = pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0:UserWarning")

_TANGENTS = (np.array([0.7, -0.2, 0.5]), np.array([1.3, -0.9]))

steps = st.builds(
    Step,
    st.sampled_from(CASES),
    st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
)
programs = st.lists(steps, min_size=1, max_size=6)


class Derivatives(NamedTuple):
    """What both libraries say about one program."""

    value: Any
    vjp: Any
    jvp: Any
    hvp: Any


def cotangent(size: int) -> Any:
    return np.cos(np.arange(size) + 0.5)


def by_telegrad(program: Sequence[Step]) -> Derivatives:
    starts = tuple(telegrad.asarray(start) for start in STARTS)
    tangents = tuple(telegrad.asarray(tangent) for tangent in _TANGENTS)

    def function(*inputs: Any) -> Any:
        return run(program, inputs, TELEGRAD)

    def weighted(*inputs: Any) -> Any:
        result = function(*inputs)
        return telegrad.sum(result * telegrad.asarray(cotangent(result.shape[0])))

    value, jvp = functional.jvp(function, starts, tangents)
    vjp = functional.grad(weighted, argnums=(0, 1))(*starts)
    hvp = functional.hvp(weighted, starts, tangents)[1]
    return Derivatives(_joined([value]), _joined(vjp), _joined([jvp]), _joined(hvp))


def by_pytorch(program: Sequence[Step]) -> Derivatives:
    starts = tuple(torch.from_numpy(start.copy()) for start in STARTS)
    tangents = tuple(torch.from_numpy(tangent) for tangent in _TANGENTS)

    def function(*inputs: Any) -> Any:
        return run(program, inputs, PYTORCH)

    def weighted(*inputs: Any) -> Any:
        result = function(*inputs)
        return torch.sum(result * torch.from_numpy(cotangent(result.shape[0])))

    value, jvp = torch.autograd.functional.jvp(function, starts, tangents)
    vjp = torch.autograd.functional.vjp(weighted, starts)[1]
    hvp = torch.autograd.functional.hvp(weighted, starts, tangents)[1]
    return Derivatives(_joined([value]), _joined(vjp), _joined([jvp]), _joined(hvp))


def _joined(arrays: Sequence[Any]) -> Any:
    return np.concatenate([np.asarray(array).reshape(-1) for array in arrays])


def assert_agree(program: Sequence[Step]) -> None:
    ours, theirs = by_telegrad(program), by_pytorch(program)
    for what, got, want in zip(Derivatives._fields, ours, theirs):
        np.testing.assert_allclose(
            got, want, rtol=1e-6, atol=1e-8, err_msg=f"{what} of the program {list(program)}"
        )


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_each_row_agrees_with_its_twin_in_pytorch(case: Case) -> None:
    assert_agree([Step(case, (0, 1, 0))])


def test_a_row_without_a_twin_gives_its_reason() -> None:
    alone = {name: entry.no_torch for name, entry in SAMPLES.items() if entry.torch is None}
    assert all(len(reason) > 10 for reason in alone.values()), alone


@pytest.mark.timeout(3600)
@settings(max_examples=3 * settings.default.max_examples)
@given(programs)
def test_random_programs_agree_with_pytorch(program: list[Step]) -> None:
    assert_agree(program)
