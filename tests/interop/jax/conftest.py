"""The tests of JAX run with 64 bits, as the workers that ``simulators.py`` is imported on do."""

from collections.abc import Iterator

import pytest

jax = pytest.importorskip("jax")


@pytest.fixture(autouse=True)
def _x64() -> Iterator[None]:
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


@pytest.fixture(params=["short", "general"])
def _both_roads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test on the short road of a call, and on the general one."""
    from telegrad.interop.jax import operation

    if request.param == "general":
        monkeypatch.setattr(operation, "is_plain", lambda reals, mode: False)
