"""Which versions of JAX will do, and what is said where there is none."""

import subprocess
import sys

import pytest

from telegrad.errors import UsageError
from telegrad.interop.jax import version


@pytest.mark.parametrize("found", ["0.9.2", "0.4.30", "dev"])
def test_a_version_that_is_too_old_is_refused(found):
    with pytest.raises(UsageError, match=f"expected JAX 0.10 or newer .* got {found}; install"):
        version.check(found)


@pytest.mark.parametrize("found", ["0.10.0", "0.11.0.dev2", "1.0"])
def test_newer_versions_will_do(found):
    version.check(found)


def test_without_jax_the_error_says_how_to_get_it():
    code = (
        "import importlib.metadata as m\n"
        "def missing(name): raise m.PackageNotFoundError(name)\n"
        "m.version = missing\n"
        "import telegrad.jax\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.returncode == 1
    assert "ModuleNotFoundError: telegrad.jax needs JAX 0.10 or newer" in answer.stderr
    assert "pip install 'telegrad[jax]'" in answer.stderr
