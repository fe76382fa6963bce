"""Gated recurrent units as a layer."""

import math
from typing import Any

from telegrad.errors import ShapeError, UsageError
from telegrad.nn import functional, init
from telegrad.nn.module import Module
from telegrad.nn.parameter import Parameter
from telegrad.ops.concatenation import concat, stack
from telegrad.ops.filled import empty, zeros
from telegrad.ops.manipulation import permute_dims
from telegrad.ops.random import Generator
from telegrad.ops.rearrangement import flip
from telegrad.tensors import Tensor


class GRU(Module):
    """Layers of gated recurrent units over a sequence, in one direction or both.

    Axes are (step, item, feature), or (item, step, feature) with `batch_first`, or (step, feature).

    Arguments:
        input_size: How many features come in.
        hidden_size: How many units a layer has.
        num_layers: How many layers.
        bias: Whether there is a bias.
        batch_first: Whether the axis of items comes first.
        dropout: With which probability a value is dropped between layers in training.
        bidirectional: Whether there are units that read from the end, too.
        device: Where the parameters are to be, such as "cuda"; the CPU by default.
        dtype: The dtype of the parameters; float32 by default.
        generator: Where dropout draws from; the generator of the process by default.

    Examples:
        >>> states, last = tg.nn.GRU(3, 4)(tg.ones(5, 2, 3))
        >>> states.shape, last.shape
        ((5, 2, 4), (1, 2, 4))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        device: Any = None,
        dtype: Any = None,
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        if min(input_size, hidden_size, num_layers) < 1:
            raise UsageError(
                f"expected input_size, hidden_size and num_layers of 1 or more, got {input_size}, "
                f"{hidden_size} and {num_layers}"
            )
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = dropout
        self.bidirectional = bidirectional
        self.generator = generator
        for layer in range(num_layers):
            width = input_size if layer == 0 else hidden_size * len(self._directions())
            for direction in self._directions():
                shapes = {"weight_ih": (3 * hidden_size, width)}
                shapes["weight_hh"] = (3 * hidden_size, hidden_size)
                if bias:
                    shapes["bias_ih"] = shapes["bias_hh"] = (3 * hidden_size,)  # type: ignore[assignment]
                for name, shape in shapes.items():
                    made = Parameter(empty(shape, dtype=dtype, device=device))
                    self.register_parameter(f"{name}_l{layer}{direction}", made)
        self.reset_parameters()

    def _directions(self) -> tuple[str, ...]:
        return ("", "_reverse") if self.bidirectional else ("",)

    def reset_parameters(self) -> None:
        """Draw new first values."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the last layer's states of all steps, and all layers' states after the last."""
        lone = input.ndim == 2
        if input.ndim not in (2, 3) or input.shape[-1] != self.input_size:
            raise ShapeError(
                f"expected an input of 2 or 3 axes, the last of length {self.input_size} "
                f"(weight_ih_l0 has shape {(3 * self.hidden_size, self.input_size)}), got "
                f"{input.shape}"
            )
        if lone:
            input, hx = input[:, None], None if hx is None else hx[:, None]
        elif self.batch_first:
            input = permute_dims(input, (1, 0, 2))
        if not input.shape[0]:
            raise ShapeError(
                "expected a sequence of at least one step, got none: (step, item, feature) is "
                f"{input.shape}"
            )
        first = self._first(input, hx)
        last: list[Tensor] = []
        for layer in range(self.num_layers):
            if layer and self.dropout:
                input = functional.dropout(
                    input, self.dropout, self.training, generator=self.generator
                )
            made = []
            for direction in self._directions():
                start = first[len(last)]
                states = self._run(
                    flip(input, axis=0) if direction else input, start, layer, direction
                )
                last.append(states[-1])
                made.append(flip(states, axis=0) if direction else states)
            input = made[0] if len(made) == 1 else concat(made, axis=-1)
        final = stack(last)
        if lone:
            return input[:, 0], final[:, 0]
        return permute_dims(input, (1, 0, 2)) if self.batch_first else input, final

    def _first(self, input: Tensor, hx: Tensor | None) -> Tensor:
        shape = (self.num_layers * len(self._directions()), input.shape[1], self.hidden_size)
        if hx is None:
            return zeros(shape, dtype=input.dtype)
        if hx.shape != shape:
            raise ShapeError(f"expected first states hx of shape {shape}, got {hx.shape}")
        return hx

    def _run(self, input: Tensor, first: Tensor, layer: int, direction: str) -> Tensor:
        end = f"_l{layer}{direction}"
        return functional.gru_layer(
            input,
            first,
            getattr(self, f"weight_ih{end}"),
            getattr(self, f"weight_hh{end}"),
            getattr(self, f"bias_ih{end}") if self.bias else None,
            getattr(self, f"bias_hh{end}") if self.bias else None,
        )

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        usual = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0}
        for name, default in {**usual, "bidirectional": False}.items():
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)}"
        return text
