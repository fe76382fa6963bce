"""Importing Ray, when a RayCluster is made: it is an extra, and only one version will do."""

import importlib
from typing import Any, Final

from telegrad.errors import UsageError

_VERSION: Final = "2.60"


def load_ray() -> Any:
    """Import Ray; raise with how to install it if that fails."""
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise UsageError(
            f"a RayCluster needs Ray {_VERSION}, which is not installed here: "
            "pip install 'telegrad[ray]'"
        ) from error
    if not ray.__version__.startswith(f"{_VERSION}."):
        raise UsageError(
            f"a RayCluster needs Ray {_VERSION}, got {ray.__version__}: pip install "
            "'telegrad[ray]', here and on the nodes"
        )
    return ray
