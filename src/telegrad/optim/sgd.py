"""Stochastic gradient descent."""

from collections.abc import Iterable
from typing import Any

from telegrad.errors import UsageError
from telegrad.optim.kernels import add_scaled, scale
from telegrad.optim.optimizer import Optimizer, ParamGroup, decayed


class SGD(Optimizer):
    """Steps down the gradient, with momentum if asked for.

    Arguments:
        params: The tensors to train, or groups, each a dict with "params" and options of its own.
        lr: The rate: how far a step goes.
        momentum: Which share of the last step is taken again.
        dampening: Which share of the gradient is left out of that.
        weight_decay: How strongly weights are pulled towards zero.
        nesterov: Whether to look ahead by the momentum.
        maximize: Whether to climb instead.

    Raises:
        UsageError: If an option is out of range.

    Examples:
        >>> x = tg.tensor([1.0], requires_grad=True)
        >>> (x * x).sum().backward()
        >>> tg.optim.SGD([x], lr=0.1).step()
        >>> x
        tensor([0.8], requires_grad=True)
    """

    made_later = frozenset({"momentum_buffer"})

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def check(self, group: ParamGroup) -> None:
        super().check(group)
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            raise UsageError(
                "expected a positive momentum and no dampening with nesterov, got "
                f"{group['momentum']} and {group['dampening']}"
            )

    def update(self, value: Any, gradient: Any, state: dict[str, Any], group: ParamGroup) -> None:
        g = decayed(value, gradient, group)
        momentum = group["momentum"]
        if momentum:
            buffer = state.get("momentum_buffer")
            if buffer is None:
                buffer = state["momentum_buffer"] = g.copy()
            else:
                scale(buffer, momentum)
                add_scaled(buffer, g, 1 - group["dampening"])
            if group["nesterov"]:
                # p -= lr (g + momentum buffer), in two passes and without memory.
                add_scaled(value, g, -group["lr"])
                add_scaled(value, buffer, -group["lr"] * momentum)
                return
            g = buffer
        add_scaled(value, g, -group["lr"])
