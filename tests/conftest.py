"""Profiles of the property-based tests, the order, and when the garbage collector runs.

By default Hypothesis draws the same examples on every run; ``--hypothesis-profile=large`` draws
many more, and fresh ones.
"""

import gc
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("same-every-time", derandomize=True, deadline=None, database=None)
settings.register_profile(
    "large", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same-every-time")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest: last, one of two processes would run it alone."""
    items.sort(key=lambda item: "tests/torch/pytorch_own" not in item.nodeid)


def pytest_collection_finish() -> None:
    """Spare each collection the modules and the thousands of tests, which stay to the end."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def _collector() -> Iterator[None]:
    """Leave it to the test when the garbage collector runs; as it was, afterwards."""
    before = gc.get_threshold()
    gc.disable()
    yield
    gc.set_threshold(*before)
    gc.enable()
