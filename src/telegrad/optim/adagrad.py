"""Adagrad."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from telegrad.optim.kernels import add_scaled, scratch
from telegrad.optim.optimizer import Optimizer, ParamGroup, decayed


class Adagrad(Optimizer):
    """Steps divided by the root of all squared gradients so far.

    Arguments:
        params: The tensors to train, or groups, each a dict with "params" and options of its own.
        lr: The rate: how far a step goes.
        lr_decay: How the rate falls: it is divided by ``1 + n * lr_decay`` after n steps.
        weight_decay: How strongly weights are pulled towards zero.
        initial_accumulator_value: What the sum of squares begins with.
        eps: Added where something is divided by, so that it is never by zero.
        maximize: Whether to climb instead.

    Raises:
        UsageError: If an option is out of range.

    Examples:
        >>> x = tg.tensor([1.0], requires_grad=True)
        >>> (x * x).sum().backward()
        >>> tg.optim.Adagrad([x], lr=0.1).step()
        >>> x
        tensor([0.9], requires_grad=True)
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "eps": eps,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def start(self, value: Any, group: ParamGroup) -> dict[str, Any]:
        return {"step": 0, "sum": np.full_like(value, group["initial_accumulator_value"])}

    def update(self, value: Any, gradient: Any, state: dict[str, Any], group: ParamGroup) -> None:
        step = state["step"] = state["step"] + 1
        g = decayed(value, gradient, group)
        work, total = scratch(value), state["sum"]
        np.multiply(g, g, out=work)
        np.add(total, work, out=total)
        np.sqrt(total, out=work)
        np.add(work, group["eps"], out=work)
        np.divide(g, work, out=work)
        add_scaled(value, work, -group["lr"] / (1 + (step - 1) * group["lr_decay"]))
