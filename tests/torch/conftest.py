"""A cluster for tests of the stand-ins, and a directory for the user's key that goes with them."""

import tempfile
from collections.abc import Iterator

import pytest
from tests.interop.conftest import alone

__all__ = ["alone"]


@pytest.fixture(autouse=True, scope="module")
def _runtime_directory() -> Iterator[None]:
    """Leave the home of who runs the tests alone; a socket's path must be short."""
    with tempfile.TemporaryDirectory(dir="/tmp") as short, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", short)
        yield
