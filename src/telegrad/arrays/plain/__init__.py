"""Kernels in plain form: over the array API standard alone, for any backend."""
