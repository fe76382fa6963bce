"""Run PyTorch's graph in a telegrad pass: walk it, cut it into regions, and run those."""
