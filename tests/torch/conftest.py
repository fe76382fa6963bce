"""A cluster for tests of the stand-ins."""

from tests.interop.conftest import alone

__all__ = ["alone"]
