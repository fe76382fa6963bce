"""Solvers as functions with derivatives.

A solver is seldom differentiated step by step, since the derivative of its solution is known from
the equation. These functions take the solver as a black box, and the equation or adjoint with it.
"""

from telegrad.autograd.solvers.adjoint import from_adjoint
from telegrad.autograd.solvers.fixed_point import from_fixed_point
from telegrad.autograd.solvers.linear_solve import from_linear_solve

__all__ = ["from_adjoint", "from_fixed_point", "from_linear_solve"]
