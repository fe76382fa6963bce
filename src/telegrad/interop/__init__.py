"""Values of other frameworks in telegrad's graphs and remote calls.

Importing this package imports no framework: PyTorch is imported when the first torch tensor is met.
No lower layer refers to this folder, except a table of names in ``distributed/worker_autograd.py``.
"""
