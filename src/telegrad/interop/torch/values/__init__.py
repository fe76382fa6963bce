"""How torch tensors are sent: raw buffers, devices, tangents."""
