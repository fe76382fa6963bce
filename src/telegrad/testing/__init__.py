"""Tools for testing programs that use telegrad; shipped and public."""

from telegrad.testing.gradcheck import GradientMismatch, gradient_check

__all__ = ["GradientMismatch", "gradient_check"]
