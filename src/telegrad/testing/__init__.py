"""Tools for testing programs that use telegrad."""

from telegrad.testing.gradcheck import GradientMismatch, gradient_check

__all__ = ["GradientMismatch", "gradient_check"]
