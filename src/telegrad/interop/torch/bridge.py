"""Where a graph passes from PyTorch to telegrad and back: ``from_torch`` and ``to_torch``.

The node of a Tensor made from a torch tensor is an *Entry*: the place where cotangents enter
PyTorch's graph. The node of a torch tensor made from a Tensor is a PyTorch node, ``ToTorch``, which
holds a *Crossing*: the place where cotangents return to telegrad. When telegrad's engine meets an
entry, it cuts PyTorch's graph into regions (``graph/cut.py``); when PyTorch's engine meets a
``ToTorch``, it runs telegrad's part of the graph from there.

Conversion shares memory on the CPU; on a CUDA device it copies, to or from a CuPy array.
NumPy has no bfloat16: such a tensor can't become a Tensor, and its cotangents travel as float32.
Cotangents of sparse tensors travel as dense arrays and become sparse again on entry.
"""

import weakref
from collections.abc import Sequence
from functools import partial
from sys import getrefcount
from typing import Any, Final

import msgspec
import numpy as np
import torch
import torch.utils.dlpack
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.autograd.graph import GradientEdge, get_gradient_edge

from telegrad.arrays.cupy import is_cupy
from telegrad.arrays.ownership import IS_LOCKED
from telegrad.autograd.anomaly import refuse_nan
from telegrad.engine import GraphTask, keep_retained
from telegrad.errors import DeviceError, DTypeError, GradientError, LevelError
from telegrad.graph import Cotangent, next_key, reachable
from telegrad.interop.torch import version
from telegrad.interop.torch.devices.cupy_arrays import as_torch, copied, let_cupy_wait
from telegrad.interop.torch.modes import is_recording, run_ordinarily
from telegrad.interop.torch.values.arrays import CPU, is_transformed, raw, tensor_over
from telegrad.interop.torch.values.levels import bind, make_dual, tangent_of
from telegrad.tensors import Tensor, history_of, wrap
from telegrad.tensors.describe import kind_of
from telegrad.tensors.recording.accumulation import accumulate
from telegrad.tensors.recording.hooked import BoundaryStruct
from telegrad.tensors.recording.modes import MODE, ModeScope
from telegrad.tensors.shared import share


def _count_held(holder: list[Any]) -> int:
    value = holder[0]
    return getrefcount(value)


_HELD: Final = _count_held([object()]) if IS_LOCKED else 0
"""An array's references when its Tensor and one local hold it: note COUNTS in engine/local.py."""

version.check(torch.__version__)


def _make_anchor() -> tuple[torch.Tensor, GradientEdge]:
    made = torch.zeros((), requires_grad=True)
    return made, get_gradient_edge(made)


# The thread that first imports this module may be in any mode.
_ANCHOR, _ANCHOR_EDGE = run_ordinarily(_make_anchor)
"""An input of every ToTorch that makes its result require grad; it never receives a gradient."""


def accumulator_of(leaf: torch.Tensor) -> Any:
    """Return PyTorch's node for a leaf (``AccumulateGrad``)."""
    if leaf.layout is torch.strided:
        return get_gradient_edge(leaf).node
    with torch.enable_grad():
        made: Any = leaf.clone().grad_fn
    return made.next_functions[0][0]


class Entry(BoundaryStruct, eq=False):
    """Where cotangents enter PyTorch's graph: at an output of a node, or at a leaf."""

    key: int
    dtype: torch.dtype
    place: tuple[Any, int] | None = None
    """A PyTorch node and an output index; None for a leaf, whose node is rarely needed."""
    leaf: torch.Tensor | None = None
    device: torch.device = CPU
    sparse_dim: int | None = None
    """The number of sparse dimensions of the tensor and its cotangents; None if it is dense."""
    tensor: torch.Tensor | None = None
    """The torch tensor, which a later ``ToTorch`` takes as an input; None for messages."""
    owner: Any = None
    """Keeps alive the graph behind a node defined in Python, which the node itself does not."""

    @property
    def edge(self) -> GradientEdge:
        """Return the place as a PyTorch edge, also for a leaf."""
        if self.leaf is not None:
            return GradientEdge(accumulator_of(self.leaf), 0)
        assert self.place is not None
        return GradientEdge(*self.place)

    def name(self) -> str:
        return "FromTorchBackward"

    def pull(self, cotangent: Cotangent) -> Sequence[Cotangent | None]:
        if not isinstance(cotangent, Tensor):
            return (self._laid_out(self._over(cotangent)),)
        if not cotangent.tangents:
            return (self._laid_out(self._over(cotangent.array)),)
        tangent = self._over(_bound_tangent(cotangent).array)
        return (make_dual(self._over(cotangent.array), tangent),)

    def _laid_out(self, made: torch.Tensor) -> torch.Tensor:
        """Return a cotangent in the layout of the tensor: a received one may be sparse."""
        if self.sparse_dim is None:
            if made.layout is torch.strided:
                return made
            # Coalesced first: to_dense alone adds duplicate entries in any order on a device.
            return (made.coalesce() if made.is_sparse else made).to_dense()
        return made if made.is_sparse else made.to_sparse(self.sparse_dim)

    def _over(self, array: Any) -> torch.Tensor:
        if type(array) is not np.ndarray:
            if isinstance(array, torch.Tensor):
                # A cotangent from a device, or from another part of this process.
                return array.to(self.device, self.dtype)
            if is_cupy(array):
                return _cloned(array).to(self.device, self.dtype)
        made = tensor_over(array, self.dtype, self.device)
        # PyTorch adds to a gradient in place, or keeps it as a leaf's, if it sees no other
        # reference to it. A cotangent from a message has memory of its own, but telegrad's nodes
        # may pass one array to several edges.
        return made if self.tensor is None else made.clone()

    def pull_recorded(self, cotangent: Cotangent) -> Sequence[Cotangent | None]:
        if not cotangent.tangents:
            return (self._laid_out(self._recorded(cotangent)),)
        tangent = self._recorded(_bound_tangent(cotangent))
        return (make_dual(self._recorded(wrap(cotangent.array, cotangent.node)), tangent),)

    def _recorded(self, cotangent: Tensor) -> torch.Tensor:
        if isinstance(cotangent.array, torch.Tensor) and cotangent.node is not None:
            # A message from a device: no node of telegrad's could convert this cotangent.
            made: torch.Tensor = join(cotangent.array.detach(), Crossing(cotangent.node))
        elif isinstance(cotangent.array, torch.Tensor):
            made = cotangent.array
        else:
            made = to_torch(cotangent)
        return made.to(self.device, self.dtype)

    def take_over(self, *pass_: Any) -> None:
        """Take over a pass that began on telegrad's graph alone, and run it through both graphs."""
        # Imported here to break a cycle: that module imports this one.
        from telegrad.interop.torch.graph.joined_pass import run_joined

        run_joined(*pass_)


def _bound_tangent(cotangent: Tensor) -> Tensor:
    """Return the only tangent of a cotangent, and bind PyTorch's level to the tangent's."""
    tangents: Any = cotangent.tangents
    if len(tangents) > 1 or any(tangent.tangents for tangent in tangents.values()):
        raise LevelError(
            f"expected tangents of one level where a pass enters PyTorch's graph, got those of "
            f"{len(tangents)}: PyTorch's levels don't nest"
        )
    ((level, tangent),) = tangents.items()
    bind(level)
    found: Tensor = tangent
    return found


GONE_OVER: dict[int, weakref.ref[Entry]] = {}
"""The entries that telegrad's graph may lead to, by key; entries of roots and messages are not.

Not a WeakSet, which takes longer to tell whether it is empty: each pass asks.
"""


def _forget(key: int, _: object) -> None:
    GONE_OVER.pop(key, None)


_PYTHON_NODE: Any = torch._C._FunctionBase


def entry_of(tensor: torch.Tensor, *, keeps: bool) -> Entry | None:
    """Return the node for a torch tensor; None if it requires no grad."""
    if not tensor.requires_grad:
        return None
    made = Entry(next_key(), tensor.dtype)
    node = tensor.grad_fn
    if node is None and tensor._is_view():
        # A view made in no-grad mode says that it requires grad if its base does, but it is no
        # leaf and has no node, so no gradient flows on from it.
        node = _view_node_of(tensor)
        if node.next_functions[0][0] is not None:
            node = None
    if node is None:
        made.leaf = tensor
    else:
        made.place = node, tensor.output_nr
        if isinstance(node, _PYTHON_NODE):
            made.owner = _owner_of(tensor)
    if not tensor.is_cpu:
        made.device = tensor.device
    if tensor.is_sparse:
        made.sparse_dim = tensor.sparse_dim()
    if keeps:
        made.tensor = tensor
    return made


def _owner_of(tensor: torch.Tensor) -> Any:
    """Return an object that keeps alive the graph of a tensor whose node Python defines."""
    # Sparse tensors have no views.
    return tensor if tensor.is_sparse else _view_node_of(tensor)


def _view_node_of(tensor: torch.Tensor) -> Any:
    """Return the node of a view of a tensor, which leads to the tensor's own node."""
    if is_recording():
        return tensor.view_as(tensor).grad_fn
    with torch.inference_mode(False), torch.enable_grad():
        return tensor.view_as(tensor).grad_fn


def from_torch(tensor: Any) -> Tensor:
    """See ``telegrad.torch.from_torch``."""
    if not isinstance(tensor, torch.Tensor):
        raise DTypeError(f"expected a torch tensor, got {type(tensor).__name__}")
    if tensor.device.type not in ("cpu", "cuda"):
        raise DeviceError(
            f"expected a torch tensor on the CPU or a CUDA device, got one on {tensor.device}; "
            "call .cpu() first"
        )
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise DTypeError(f"expected a dense torch tensor, got one of layout {tensor.layout}")
    if is_transformed(tensor):
        raise GradientError(
            "expected a torch tensor with numbers of its own, got one inside of a function "
            "transform (torch.func), which does not go over; convert it outside of the transform"
        )
    if tangent_of(tensor) is not None:
        raise GradientError(
            "expected a torch tensor without a tangent, got a dual one; forward mode does not go "
            "over from PyTorch: unpack_dual it first"
        )
    array = copied(tensor) if tensor.is_cuda else _shared(tensor)
    is_recorded = MODE.get().recording and torch.is_grad_enabled()
    entry = entry_of(tensor, keeps=True) if is_recorded else None
    if entry is not None:
        forget = partial(_forget, entry.key)
        GONE_OVER[entry.key] = weakref.ref(entry, forget)
    return wrap(array, entry)


def _shared(tensor: torch.Tensor) -> Any:
    try:
        return share(tensor.detach().resolve_conj().resolve_neg().numpy())
    except TypeError:
        raise DTypeError(
            f"expected a torch tensor of a dtype that NumPy has, got {tensor.dtype}; convert it "
            "first, e.g. with .float()"
        ) from None


def numbers(cotangent: torch.Tensor) -> Any:
    """Return a cotangent as an array for telegrad's graph, on the same device."""
    return copied(cotangent) if cotangent.is_cuda else raw(cotangent)


class Crossing(msgspec.Struct, eq=False):
    """Where cotangents leave PyTorch's graph for telegrad's."""

    node: Any
    entries: Sequence[Entry] = ()
    """Where telegrad's part of the graph returns to PyTorch's."""
    is_of_message: bool = True
    """Whether the value came in a message: then no other node of telegrad's leads to `node`."""


REGIONS_RUNNING: set[int] = set()
"""PyTorch's ids (graph task ids) of its passes that run a region for a pass of telegrad."""


class ToTorch(torch.autograd.Function):
    """The PyTorch node that stands for all of telegrad's graph behind a value."""

    @staticmethod
    def forward(
        ctx: Any, anchor: torch.Tensor, made: list[torch.Tensor], crossing: Crossing, *_: Any
    ) -> torch.Tensor:
        ctx.crossing = crossing
        return made[0]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        if torch._C._current_graph_task_id() in REGIONS_RUNNING:
            # Telegrad's own pass continues from here, so PyTorch's adds nothing. It returns zeros,
            # not None, since hooks on later nodes would be called with None.
            return None, None, None, *(torch.zeros_like(e.tensor) for e in ctx.crossing.entries)
        accumulates = torch._C._will_engine_execute_node(_ANCHOR_EDGE.node)
        found = _pull_crossing(ctx.crossing, gradient, accumulates)
        return None, None, None, *(found.get(entry) for entry in ctx.crossing.entries)


_apply: Any = super(torch.autograd.Function, ToTorch).apply
"""``apply`` without its check for function transforms (``torch.func``), a third of its time."""
_is_transforming: Any = torch._C._are_functorch_transforms_active


def to_torch(tensor: Any) -> Any:
    """See ``telegrad.torch.to_torch``."""
    if not isinstance(tensor, Tensor):
        raise DTypeError(f"expected a telegrad Tensor, got {kind_of(tensor)}")
    if tensor.is_dual:
        raise GradientError(
            "expected a Tensor without tangents, got a dual one; forward mode does not go over to "
            "PyTorch: unpack_dual it first"
        )
    if tensor.node is None or not MODE.get().recording or not torch.is_grad_enabled():
        return torch.utils.dlpack.from_dlpack(tensor.detach())
    array = tensor.array
    if type(array) is np.ndarray:
        # Shared memory is watched for changes only from now on. If another reference exists, its
        # holder may have saved the array unwatched, so PyTorch gets a copy.
        if array.base is None and getrefcount(array) <= _HELD:
            tensor.array = array = share(array)
        else:
            array = array.copy()
    if is_cupy(array):
        value = _cloned(array)
    else:
        value = tensor_over(array, torch.from_numpy(np.empty(0, tensor.dtype)).dtype)
    node: Any = history_of(tensor)
    behind = [each for each in reachable([node]) if isinstance(each, Entry)]
    return join(value, Crossing(node, [each for each in behind if each.tensor is not None], False))


def _cloned(array: Any) -> torch.Tensor:
    """Return a torch tensor with a copy of a CuPy array's values, on its device."""
    made = as_torch(array).clone()
    # CuPy may free or overwrite the array only after the copy.
    let_cupy_wait(made.device.index or 0)
    return made


def join(value: torch.Tensor, crossing: Crossing) -> Any:
    """Return a new torch tensor with `value`'s data whose history is the crossing's node."""
    tensors = [each.tensor for each in crossing.entries] if crossing.entries else ()
    if _is_transforming():
        # A transform takes the tensor for a constant, and may be another's that this thread serves.
        with temporarily_clear_interpreter_stack():
            return join(value, crossing)
    if torch.is_grad_enabled():
        return _apply(_ANCHOR, [value], crossing, *tensors)
    with torch.inference_mode(False), torch.enable_grad():
        return _apply(_ANCHOR, [value], crossing, *tensors)


def _pull_crossing(
    crossing: Crossing, gradient: torch.Tensor, accumulates: bool
) -> dict[Any, torch.Tensor]:
    """Run telegrad's graph from a crossing; return the torch gradients at its entries."""
    reached = reachable([crossing.node])
    if any(node.is_boundary and not isinstance(node, Entry) for node in reached):
        raise GradientError(
            "expected a graph of this process alone, but the backward pass of PyTorch reached a "
            "tensor that came from another worker; write dist_autograd.backward(context_id, "
            "[loss]) instead of loss.backward(), inside of `with dist_autograd.context() as "
            "context_id`, with dist_autograd = telegrad.distributed.autograd or "
            "telegrad.torch.autograd"
        )
    recorded = torch.is_grad_enabled()
    targets: dict[Any, None] = dict.fromkeys(crossing.entries)
    if accumulates:
        targets.update(dict.fromkeys(node for node in reached if node.is_leaf))
    found: dict[Any, Any] = {}

    def deliver(node: Any, cotangent: Any, is_alone: bool) -> None:
        found[node] = cotangent

    # PyTorch doesn't tell whether it frees its graph, so telegrad's part is kept.
    task = GraphTask(
        deliver,
        keep_graph=True,
        recorded=recorded,
        targets=targets,
        check=refuse_nan if MODE.get().check_nan else None,
    )
    start = {crossing.node: from_torch(gradient) if recorded else numbers(gradient)}
    with ModeScope(recording=recorded):
        task.count(start)
        task.run(start)
        for leaf in [node for node in found if node.is_leaf]:
            accumulate(leaf, found.pop(leaf), False)
        keep_retained(task.retained)
        return {
            entry: (entry.pull_recorded if recorded else entry.pull)(cotangent)[0]
            for entry, cotangent in found.items()
        }
