"""Sending CUDA tensors to another worker: through device memory, or through the host's memory."""
