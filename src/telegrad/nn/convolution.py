"""Convolution as a layer."""

import math
from numbers import Integral
from typing import Any

from telegrad.errors import UsageError
from telegrad.nn import functional, init
from telegrad.nn.functional.convolution import pads_of, pair
from telegrad.nn.module import Module
from telegrad.nn.parameter import Parameter
from telegrad.ops.filled import empty
from telegrad.ops.windows import pad
from telegrad.tensors import Tensor

_MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


class Conv2d(Module):
    """Images (item, channel, row, column) weighted by a small kernel at every place.

    Arguments:
        in_channels: How many channels come in.
        out_channels: How many go out.
        kernel_size: The rows and columns of the kernel; a number for both.
        stride: How far apart its places are.
        padding: The border around the images, or "same" or "valid".
        dilation: How far apart the elements of the kernel are.
        groups: Into how many parts the channels are split, each with a kernel of its own.
        bias: Whether there is a bias.
        padding_mode: What the border holds: "zeros", or the images continued: "reflect",
            "replicate", "circular".
        device: Where the parameters are to be, such as "cuda"; the CPU by default.
        dtype: The dtype of the parameters; float32 by default.

    Raises:
        UsageError: If the groups don't divide the channels, or the padding mode is not known.

    Examples:
        >>> tg.nn.Conv2d(3, 8, kernel_size=3, padding=1)(tg.ones(1, 3, 16, 16)).shape
        (1, 8, 16, 16)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] | str = 0,
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        *,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        for name, count in (("in_channels", in_channels), ("out_channels", out_channels)):
            if not isinstance(count, Integral) or count < 1:
                raise UsageError(f"expected {name} of 1 or more in Conv2d, got {count!r}")
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise UsageError(
                f"expected groups that divide {in_channels} channels in and {out_channels} out, "
                f"got {groups}"
            )
        if padding_mode not in _MODES:
            raise UsageError(
                f"expected one of {', '.join(_MODES)} as padding_mode, got {padding_mode!r}"
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = pair(kernel_size, "kernel_size")
        self.stride = pair(stride, "stride")
        self.padding = padding if isinstance(padding, str) else pair(padding, "padding")
        self.dilation = pair(dilation, "dilation")
        self.groups = groups
        self.padding_mode = padding_mode
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        self.weight = Parameter(empty(shape, dtype=dtype, device=device))
        self.bias = Parameter(empty((out_channels,), dtype=dtype, device=device)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new first values."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan = math.prod(self.weight.shape[1:])
            bound = 1 / math.sqrt(fan) if fan else 0.0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            widths = pads_of(padding, self.kernel_size, self.stride, self.dilation)
            before = [(0, 0)] * (input.ndim - 2)
            input = pad(input, (*before, *widths), mode=_MODES[self.padding_mode])
            padding = 0
        return functional.conv2d(
            input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups
        )

    def extra_repr(self) -> str:
        text = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}"
        )
        if self.padding != (0, 0):
            text += f", padding={self.padding!r}"
        if self.dilation != (1, 1):
            text += f", dilation={self.dilation}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text
