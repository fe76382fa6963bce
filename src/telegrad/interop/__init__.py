"""Values of other frameworks in telegrad's graphs and remote calls.

Importing this imports none of them: PyTorch is imported when a torch tensor is met. Nothing below
this folder knows that it exists, except for a table of names in ``distributed/worker_autograd.py``.
"""
