"""Tensors of a device on their way to another worker: placed, copied on the device, or staged."""
