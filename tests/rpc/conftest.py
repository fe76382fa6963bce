"""What each test of this folder finds."""

import pytest
from tests.rpc import simulated

from telegrad.rpc.calls.future import Future


@pytest.fixture(autouse=True)
def _gate():
    """Find the gate shut, whatever went through it before."""
    simulated.GATE[0] = Future()
