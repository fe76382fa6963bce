"""RMSprop."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from telegrad.optim.kernels import add_scaled, remembered, scale, scratch
from telegrad.optim.optimizer import Optimizer, ParamGroup, decayed


class RMSprop(Optimizer):
    """Steps divided by the root of a moving average of squared gradients.

    Arguments:
        params: The tensors to train, or groups, each a dict with "params" and options of its own.
        lr: The rate: how far a step goes.
        alpha: How slowly the average moves.
        eps: Added where something is divided by, so that it is never by zero.
        weight_decay: How strongly weights are pulled towards zero.
        momentum: Which share of the last step is taken again.
        centered: Whether the variance is taken instead of the average of squares.
        maximize: Whether to climb instead.

    Raises:
        UsageError: If an option is out of range.

    Examples:
        >>> x = tg.tensor([1.0], requires_grad=True)
        >>> (x * x).sum().backward()
        >>> tg.optim.RMSprop([x], lr=0.01).step()
        >>> x
        tensor([0.9], requires_grad=True)
    """

    made_later = frozenset({"momentum_buffer", "grad_avg"})

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "alpha": alpha,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "centered": centered,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def start(self, value: Any, group: ParamGroup) -> dict[str, Any]:
        names = ["square_avg"]
        names += ["momentum_buffer"] if group["momentum"] > 0 else []
        names += ["grad_avg"] if group["centered"] else []
        return {"step": 0, **{name: np.zeros_like(value) for name in names}}

    def update(self, value: Any, gradient: Any, state: dict[str, Any], group: ParamGroup) -> None:
        state["step"] += 1
        alpha, square = group["alpha"], state["square_avg"]
        g = decayed(value, gradient, group)
        work = scratch(value)
        np.multiply(g, g, out=work)
        scale(square, alpha)
        add_scaled(square, work, 1 - alpha)
        if group["centered"]:
            mean = remembered(state, "grad_avg", value)
            np.subtract(g, mean, out=work)
            add_scaled(mean, work, 1 - alpha)
            np.multiply(mean, mean, out=work)
            np.subtract(square, work, out=work)
            np.sqrt(work, out=work)
        else:
            np.sqrt(square, out=work)
        np.add(work, group["eps"], out=work)
        np.divide(g, work, out=work)
        if group["momentum"] > 0:
            buffer = remembered(state, "momentum_buffer", value)
            scale(buffer, group["momentum"])
            np.add(buffer, work, out=buffer)
            work = buffer
        add_scaled(value, work, -group["lr"])
