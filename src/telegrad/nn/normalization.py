"""Layers that normalise."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from telegrad.arrays.host import for_numpy
from telegrad.errors import ShapeError
from telegrad.nn import functional
from telegrad.nn.module import Module
from telegrad.nn.parameter import Parameter
from telegrad.ops.creation import tensor
from telegrad.ops.filled import ones, zeros
from telegrad.tensors import Tensor


class LayerNorm(Module):
    """The last axes brought to mean 0 and variance 1, then scaled and shifted.

    Arguments:
        normalized_shape: The lengths of these axes; a number for one.
        eps: Added where something is divided by, so that it is never by zero.
        elementwise_affine: Whether there are a scale and a shift to train.
        bias: Whether there is a shift.
        device: Where the parameters are to be, such as "cuda"; the CPU by default.
        dtype: The dtype of the parameters; float32 by default.

    Examples:
        >>> tg.nn.LayerNorm(2)(tg.tensor([1.0, 3.0])).detach()
        tensor([-1.,  1.])
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        *,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if isinstance(normalized_shape, (int, np.integer)):
            normalized_shape = (int(normalized_shape),)
        self.normalized_shape = tuple(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        shape, how = self.normalized_shape, {"dtype": dtype, "device": device}
        self.weight = Parameter(ones(shape, **how)) if elementwise_affine else None
        self.bias = Parameter(zeros(shape, **how)) if elementwise_affine and bias else None

    def forward(self, input: Tensor) -> Tensor:
        return functional.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class BatchNorm2d(Module):
    """Each channel of images brought to mean 0 and variance 1 over the batch.

    Arguments:
        num_features: How many channels.
        eps: Added where something is divided by, so that it is never by zero.
        momentum: How fast the running mean and variance move; None averages all batches.
        affine: Whether there are a scale and a shift to train.
        track_running_stats: Whether to keep a running mean and variance for evaluation.
        bias: Whether there is a shift.
        device: Where the parameters are to be, such as "cuda"; the CPU by default.
        dtype: The dtype of the parameters; float32 by default.

    Examples:
        >>> tg.nn.BatchNorm2d(3)(tg.ones(2, 3, 4, 4)).shape
        (2, 3, 4, 4)
    """

    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        *,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        shape, how = (num_features,), {"dtype": dtype, "device": device}
        self.weight = Parameter(ones(shape, **how)) if affine else None
        self.bias = Parameter(zeros(shape, **how)) if affine and bias else None
        tracked = track_running_stats
        self.register_buffer("running_mean", zeros(shape, **how) if tracked else None)
        self.register_buffer("running_var", ones(shape, **how) if tracked else None)
        seen = tensor(0, device=device) if tracked else None
        self.register_buffer("num_batches_tracked", seen)

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim != 4 or input.shape[1] != self.num_features:
            raise ShapeError(
                f"expected an input of shape (item, {self.num_features}, row, column) in "
                f"BatchNorm2d, got {input.shape}"
            )
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.training and self.num_batches_tracked is not None:
            seen = for_numpy(self.num_batches_tracked.array) + 1
            self.num_batches_tracked.array = for_numpy(seen)
            if self.momentum is None:
                momentum = 1.0 / float(seen)
        by_batch = self.training or self.running_mean is None
        moves = self.training and self.track_running_stats
        return functional.batch_norm(
            input,
            self.running_mean if moves or not by_batch else None,
            self.running_var if moves or not by_batch else None,
            self.weight,
            self.bias,
            by_batch,
            momentum,
            self.eps,
        )

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )
