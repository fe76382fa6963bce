"""Benchmarks: each runs the peers in the same run, with equal threads and dtypes."""
