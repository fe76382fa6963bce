"""Remote calls, and what a worker serves, under PyTorch's profilers."""
