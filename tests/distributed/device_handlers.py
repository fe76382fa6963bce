"""What the tests of telegrad's own tensors on a device run on other workers."""

import os
import sys

from telegrad.distributed import frameworks, rpc

OPERATIONS = ["add", "multiply", "subtract", "larger"]


def same(value):
    return value


def described(value):
    """What arrived: its class, where it is, its dtype, whether it requires grad, its numbers."""
    numbers = value.detach().cpu()
    found = type(value).__name__, str(value.device), str(value.dtype), value.requires_grad
    return (*found, numbers.tolist())


def cube(x):
    return x * x * x


def scale(x, factor):
    return x * factor.to(x.device)


def apply(name, x, y):
    y = y.to(x.device)
    if name == "add":
        return x + 2 * y
    if name == "multiply":
        return x * y
    if name == "subtract":
        return x - y
    return (x + y).clip(min=1.0)


def through(to, x):
    """By way of a third worker."""
    return rpc.rpc_sync(to, cube, (x,)) * 2


def bytes_of_segments():
    """What this worker's segments hold; None where PyTorch carries nothing."""
    if not frameworks.known:
        return None
    from telegrad.interop.torch.devices import peers

    channels = peers.CHANNELS.get(rpc.current_worker())
    return 0 if channels is None else channels.held()


def forget_torch(patch=None):
    """Have this process do as if PyTorch were not installed; a `patch` undoes it at its end."""
    if patch is None:
        sys.modules["torch"] = None
    else:
        patch.setitem(sys.modules, "torch", None)
        patch.setattr(frameworks, "known", [])


def hide_devices():
    """Before anything looks for them."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


def hide_devices_and_torch():
    hide_devices()
    forget_torch()
