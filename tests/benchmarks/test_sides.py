"""The sides of a benchmark do the same work: their programs give the same gradients."""

import pytest
from benchmarks.alone import alone
from tests.benchmarks.gradients import gradients

pytestmark = pytest.mark.processes


def test_programs_give_the_same_gradients_on_every_side() -> None:
    sides = ("telegrad", "telegrad, torch tensors", "PyTorch")
    found = {side: alone(gradients, side, 1, 2) for side in sides}
    expected = found["PyTorch"]
    without = [work for work, values in expected.items() if not values]
    assert without == ["transformer in two stages", "the same, 4 micro-batches"]
    for side in sides:
        assert list(found[side]) == list(expected)
        for work, values in expected.items():
            assert found[side][work] == pytest.approx(values, rel=1e-4), (side, work)


def test_programs_over_five_workers_run() -> None:
    found = alone(gradients, "telegrad, no spin", 5)
    size, total, last = found["4 stages, 4 micro-batches"]
    assert size == 32 * 64
    assert last > 0
    assert total == pytest.approx(size * last, rel=1e-4)
