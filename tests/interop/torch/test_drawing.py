"""The picture of a context whose graph leads through PyTorch's."""

import pytest
import torch
from tests.distributed.simulated import on_workers
from tests.interop.torch import handlers as handlers

from telegrad.distributed import autograd, rpc
from telegrad.errors import GradientError


@on_workers("main", "b")
def test_a_torch_graph_is_drawn_from_root_to_leaves_over_both_workers():
    one = torch.ones(2, 3, requires_grad=True)
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.same, (one * 2,))
        drawing = str(autograd.draw(context_id, [y.sum()]))
        lines = drawing.splitlines()
        assert sum("TorchRegion" in line for line in lines) == 2
        assert sum('label="leaf 2×3"' in line for line in lines) == 1
        assert sum('label="to b"' in line or 'label="to main"' in line for line in lines) == 2
        # One jump from each recv node to the send node at its other end.
        assert sum("style=dashed" in line for line in lines) == 2
        # From the root to the region, from there to the recv node: nothing ends in between.
        starts = {line.split(" -> ")[0].strip() for line in lines if " -> " in line}
        names = {line.split(" [")[0].strip() for line in lines if "label=" in line and " [" in line}
        leaves = {line.split(" [")[0].strip() for line in lines if "leaf 2×3" in line}
        assert names - starts == leaves
        # Looking changes nothing: the pass still runs.
        autograd.backward(context_id, [y.sum()])
        assert autograd.get_gradients(context_id)[one].tolist() == [[2, 2, 2], [2, 2, 2]]


@on_workers("main", "b")
def test_a_root_that_requires_no_grad_is_refused():
    with autograd.context() as context_id, pytest.raises(GradientError, match="as roots"):
        autograd.draw(context_id, [torch.ones(2)])
