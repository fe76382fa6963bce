"""Adam, and AdamW, whose weight decay does not go through the averages."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from telegrad.optim.kernels import add_scaled, remembered, scale, scratch
from telegrad.optim.optimizer import Optimizer, ParamGroup, decayed


class Adam(Optimizer):
    """An average of the gradient, divided by the root of an average of its square.

    Arguments:
        params: The tensors to train, or groups, each a dict with "params" and options of its own.
        lr: The rate: how far a step goes.
        betas: How slowly the two averages move.
        eps: Added where something is divided by, so that it is never by zero.
        weight_decay: How strongly weights are pulled towards zero.
        amsgrad: Whether to divide by the largest average of squares so far.
        maximize: Whether to climb instead.

    Raises:
        UsageError: If an option is out of range.

    Examples:
        >>> x = tg.tensor([1.0], requires_grad=True)
        >>> (x * x).sum().backward()
        >>> tg.optim.Adam([x], lr=0.1).step()
        >>> x
        tensor([0.9], requires_grad=True)
    """

    marks: Mapping[str, Any] = {"decoupled_weight_decay": False}
    made_later = frozenset({"max_exp_avg_sq"})

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def start(self, value: Any, group: ParamGroup) -> dict[str, Any]:
        names = ["exp_avg", "exp_avg_sq"] + (["max_exp_avg_sq"] if group["amsgrad"] else [])
        return {"step": 0, **{name: np.zeros_like(value) for name in names}}

    def update(self, value: Any, gradient: Any, state: dict[str, Any], group: ParamGroup) -> None:
        g = decayed(value, gradient, group)
        step = state["step"] = state["step"] + 1
        first, second = group["betas"]
        average, square = state["exp_avg"], state["exp_avg_sq"]
        work = scratch(value)
        np.subtract(g, average, out=work)
        add_scaled(average, work, 1 - first)
        np.multiply(g, g, out=work)
        scale(square, second)
        add_scaled(square, work, 1 - second)
        if group["amsgrad"]:
            largest = remembered(state, "max_exp_avg_sq", value)
            square = np.maximum(largest, square, out=largest)
        # average / c1 / (sqrt(square / c2) + eps), with both corrections moved out of the passes:
        # an average that began at zero is too small by 1 - beta**step.
        root = math.sqrt(1 - math.pow(second, step))
        np.sqrt(square, out=work)
        np.add(work, group["eps"] * root, out=work)
        np.divide(average, work, out=work)
        add_scaled(value, work, -group["lr"] * root / (1 - math.pow(first, step)))


class AdamW(Adam):
    """Adam whose weight decay shrinks the weights directly, not by way of the gradients.

    The other arguments are those of ``Adam``.

    Arguments:
        weight_decay: How much weights shrink in a step: by its product with the rate.

    Raises:
        UsageError: If an option is out of range.

    Examples:
        >>> x = tg.tensor([1.0], requires_grad=True)
        >>> (x * x).sum().backward()
        >>> tg.optim.AdamW([x], lr=0.1).step()
        >>> x
        tensor([0.899], requires_grad=True)
    """

    marks = {"decoupled_weight_decay": True}

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize)

    def update(self, value: Any, gradient: Any, state: dict[str, Any], group: ParamGroup) -> None:
        if group["weight_decay"]:
            scale(value, 1 - group["lr"] * group["weight_decay"])
            group = {**group, "weight_decay": 0.0}
        super().update(value, gradient, state, group)
