"""Tensors on another device, with their history and tangents."""

from typing import Any

from telegrad.arrays.devices import placed
from telegrad.graph import next_key
from telegrad.rules import Primitive
from telegrad.tensors import Tensor, history_of, wrap
from telegrad.tensors.forward.duals import carry_tangents
from telegrad.tensors.recording.modes import MODE
from telegrad.tensors.recording.op_node import variant
from telegrad.tensors.shared import plain

# Not called by `apply`, whose results are on the backend of the inputs.
_TO_DEVICE = Primitive(
    "to_device",
    saves=("x.device",),
    vjp=(lambda xp, g, s: xp.to_device(g, s.x_device),),
    jvp=(lambda xp, t, s: xp.to_device(t, s.device),),
    options=("device",),
    holomorphic=False,
    exact=True,
)


def to_device(x: Tensor, device: Any, /) -> Tensor:
    """Return `x` on a device; itself where it is there already.

    Arguments:
        x: The values.
        device: "cpu", "cuda" for the current CUDA device, or one such as "cuda:1".

    Raises:
        DeviceError: If there is no such device, no room on it, or no CuPy, which serves CUDA's.

    Examples:
        >>> tg.tensor([1.0, 2.0]).to("cpu")
        tensor([1., 2.])
    """
    array = placed(plain(x.array), device)
    if array is plain(x.array):
        return x
    mode, node = MODE.get(), None
    history = history_of(x) if mode.recording else None
    if history is not None:
        node = variant(_TO_DEVICE, 1, x.dtype.kind == "c")((history,), next_key())
        node.x_device, node.device = x.device, device  # type: ignore[attr-defined]
    if x.tangents:
        made: Tensor = carry_tangents(_TO_DEVICE, [x], array, node, {"device": device})
    else:
        made = wrap(array, node)
    if mode.inference:
        made.ensure_meta().inference = True
    return made
