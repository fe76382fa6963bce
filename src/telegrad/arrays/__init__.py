"""What a block of numbers is: raw arrays, the namespace that serves them, dtypes and broadcasting.

Knows nothing of graphs or Tensors.
"""

from telegrad.arrays.backend import backend_of, backend_of_type
from telegrad.arrays.broadcasting import fit
from telegrad.arrays.scalars import scalar_like
from telegrad.arrays.silence import silent

__all__ = ["backend_of", "backend_of_type", "fit", "scalar_like", "silent"]
