"""Kernels as NumPy does them best, beside the plain ones."""
