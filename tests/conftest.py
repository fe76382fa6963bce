"""Profiles of the property-based tests, and what the garbage collector need not look at.

By default Hypothesis draws the same examples on every run; ``--hypothesis-profile=large`` draws
many more, and fresh ones.
"""

import gc

from hypothesis import HealthCheck, settings

settings.register_profile("same-every-time", derandomize=True, deadline=None, database=None)
settings.register_profile(
    "large", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same-every-time")


def pytest_collection_finish() -> None:
    """Spare each collection the modules and the thousands of tests, which stay to the end."""
    gc.collect()
    gc.freeze()
