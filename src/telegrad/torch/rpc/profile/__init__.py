"""Show remote calls, and the requests that a worker serves, in PyTorch's profiles."""
