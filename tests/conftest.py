"""Profiles of the property-based tests.

By default Hypothesis draws the same examples on every run; ``--hypothesis-profile=large`` draws
many more, and fresh ones.
"""

from hypothesis import HealthCheck, settings

settings.register_profile("same-every-time", derandomize=True, deadline=None, database=None)
settings.register_profile(
    "large", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same-every-time")
