"""What Ray leaves in the process that starts it."""

import os
from collections.abc import Iterator
from unittest import mock

import pytest


@pytest.fixture(scope="module", autouse=True)
def _rays_environment() -> Iterator[None]:
    """Take its variables out again: later tests would have its PYTHONBREAKPOINT, say."""
    with mock.patch.dict(os.environ):
        yield
