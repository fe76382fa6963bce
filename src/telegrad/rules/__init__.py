"""Primitives with both derivatives, by family. Rules see a namespace and values, nothing else."""

from telegrad.rules.primitive import LINEAR, NOT_DIFFERENTIABLE, SAME, ZERO, Primitive

__all__ = ["LINEAR", "NOT_DIFFERENTIABLE", "SAME", "ZERO", "Primitive"]
