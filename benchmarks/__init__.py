"""Benchmarks: each runs the peers in the same run, with equal threads and dtypes.

One thread for every BLAS and for PyTorch, in this process and in those it starts. Set here, since
the libraries read it when they are first imported, and this is imported before them.
"""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"
