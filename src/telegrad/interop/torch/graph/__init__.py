"""PyTorch's graph in a pass of telegrad's: walked, cut into regions, run by PyTorch's engine."""
