"""PyTorch's tensors and graphs in telegrad's calls and passes."""
