"""telegrad: automatic differentiation that crosses process and machine boundaries."""

from telegrad._version import __version__

__all__ = ["__version__"]
