"""Learning rates that change from epoch to epoch.

Each scheduler is a formula: the rate of a group after so many epochs, from the rate it began with.
``step()`` counts one epoch and sets the rates.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from telegrad.errors import UsageError
from telegrad.optim.optimizer import Optimizer
from telegrad.optim.torch_names import SCHEDULERS
from telegrad.tensors.torch_hints import advice_on_names

__all__ = [
    "CosineAnnealingLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "SequentialLR",
    "StepLR",
]

if not TYPE_CHECKING:  # or a type checker would take every name for known
    __getattr__ = advice_on_names(__name__, SCHEDULERS)


class LRScheduler:
    """What all schedulers share; a subclass says the rate of one group.

    Arguments:
        optimizer: The optimiser whose rates to set.
        last_epoch: How many epochs have passed, less one; -1 to begin.

    Examples:
        >>> class Halving(tg.optim.lr_scheduler.LRScheduler):
        ...     def rate(self, base, epoch, group):
        ...         return base / 2**epoch
        >>> optimizer = tg.optim.SGD([tg.zeros(1).requires_grad_()], lr=1.0)
        >>> scheduler = Halving(optimizer)
        >>> optimizer.step()
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.5]
    """

    _saved: tuple[str, ...] = ()
    """The attributes that belong to the state, besides the count of epochs."""

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self.optimizer = _checked(optimizer)
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise UsageError(
                    f"expected 'initial_lr' in group {i} to go on from epoch {last_epoch}; load "
                    "the optimiser's state first"
                )
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self.step()

    def rate(self, base: float, epoch: int, group: int) -> float:
        """Return the rate of a group after so many epochs.

        Arguments:
            base: The rate that it began with.
            epoch: How many epochs there were.
            group: Its number.
        """
        raise NotImplementedError(f"{type(self).__name__} has no rate method yet")

    def step(self) -> None:
        """Count one epoch and set the rates."""
        self.last_epoch += 1
        self._set()

    def _set(self) -> None:
        for i, (group, base) in enumerate(zip(self.optimizer.param_groups, self.base_lrs)):
            group["lr"] = self.rate(base, self.last_epoch, i)

    def get_last_lr(self) -> list[float]:
        """Return the rates of all groups now."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Return what is needed to go on; the optimiser has a state of its own."""
        names = ("last_epoch", "base_lrs", *self._saved)
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state."""
        names = {"last_epoch", "base_lrs", *self._saved}
        if set(state_dict) != names or len(state_dict["base_lrs"]) != len(self.base_lrs):
            raise UsageError(
                f"expected the state of a {type(self).__name__} for {len(self.base_lrs)} groups "
                f"with {', '.join(sorted(names))}, got {', '.join(sorted(state_dict))}"
            )
        for name, value in state_dict.items():
            setattr(self, name, value)
        self._set()


def _checked(optimizer: Any) -> Optimizer:
    if not isinstance(optimizer, Optimizer):
        raise UsageError(f"expected an Optimizer, got {type(optimizer).__name__}")
    return optimizer


class LambdaLR(LRScheduler):
    """The first rate times a function of the epoch: one for all groups, or one for each.

    Arguments:
        optimizer: The optimiser whose rates to set.
        lr_lambda: From the epoch to a factor; or a list of such functions.
        last_epoch: How many epochs have passed, less one; -1 to begin.

    Examples:
        >>> optimizer = tg.optim.SGD([tg.zeros(1).requires_grad_()], lr=1.0)
        >>> scheduler = tg.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)
        >>> optimizer.step()
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.5]
    """

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1) -> None:
        count = len(_checked(optimizer).param_groups)
        chosen = list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * count
        if len(chosen) != count:
            raise UsageError(f"expected {count} functions, one a group, got {len(chosen)}")
        self.lr_lambdas: list[Callable[[int], float]] = chosen
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, epoch: int, group: int) -> float:
        return base * self.lr_lambdas[group](epoch)


class StepLR(LRScheduler):
    """The rate times `gamma` after every `step_size` epochs.

    Arguments:
        optimizer: The optimiser whose rates to set.
        step_size: How many epochs the rate stays.
        gamma: What it is multiplied by then.
        last_epoch: How many epochs have passed, less one; -1 to begin.

    Examples:
        >>> optimizer = tg.optim.SGD([tg.zeros(1).requires_grad_()], lr=1.0)
        >>> scheduler = tg.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
        >>> optimizer.step()
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.5]
    """

    _saved = ("step_size", "gamma")

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        if step_size < 1:
            raise UsageError(f"expected step_size of 1 or more, got {step_size}")
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, epoch: int, group: int) -> float:
        return base * float(self.gamma) ** (epoch // self.step_size)


class CosineAnnealingLR(LRScheduler):
    """From the first rate down to `eta_min` in `T_max` epochs, along half a wave, and up again.

    Arguments:
        optimizer: The optimiser whose rates to set.
        T_max: In how many epochs.
        eta_min: The smallest rate.
        last_epoch: How many epochs have passed, less one; -1 to begin.

    Examples:
        >>> optimizer = tg.optim.SGD([tg.zeros(1).requires_grad_()], lr=1.0)
        >>> scheduler = tg.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2)
        >>> optimizer.step()
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.5]
    """

    _saved = ("T_max", "eta_min")

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if T_max < 1:
            raise UsageError(f"expected T_max of 1 or more, got {T_max}")
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, epoch: int, group: int) -> float:
        wave = (1 + math.cos(math.pi * epoch / self.T_max)) / 2
        return self.eta_min + (base - self.eta_min) * wave


class LinearLR(LRScheduler):
    """From one share of the first rate to another, in equal steps over `total_iters` epochs.

    Arguments:
        optimizer: The optimiser whose rates to set.
        start_factor: The share to begin with.
        end_factor: The share to end with.
        total_iters: In how many epochs.
        last_epoch: How many epochs have passed, less one; -1 to begin.

    Examples:
        >>> optimizer = tg.optim.SGD([tg.zeros(1).requires_grad_()], lr=1.0)
        >>> scheduler = tg.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.5, total_iters=2)
        >>> optimizer.step()
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.75]
    """

    _saved = ("start_factor", "end_factor", "total_iters")

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1 or not 0 <= end_factor <= 1:
            raise UsageError(
                f"expected factors from 0 to 1, the first above 0, got {start_factor} and "
                f"{end_factor}"
            )
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, epoch: int, group: int) -> float:
        passed = min(epoch, self.total_iters) / self.total_iters if self.total_iters else 1.0
        return base * (self.start_factor + (self.end_factor - self.start_factor) * passed)


class SequentialLR(LRScheduler):
    """Schedulers one after another; each begins anew at its milestone.

    Arguments:
        optimizer: The optimiser whose rates to set.
        schedulers: The schedulers, in order.
        milestones: The epochs at which the second and each later one begins.
        last_epoch: How many epochs have passed, less one; -1 to begin.

    Raises:
        UsageError: If there is not one milestone less than schedulers.

    Examples:
        >>> from telegrad.optim.lr_scheduler import LinearLR, SequentialLR, StepLR
        >>> optimizer = tg.optim.SGD([tg.zeros(1).requires_grad_()], lr=1.0)
        >>> parts = [LinearLR(optimizer, 0.5, total_iters=1), StepLR(optimizer, 10)]
        >>> SequentialLR(optimizer, parts, milestones=[1]).get_last_lr()
        [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Sequence[LRScheduler],
        milestones: Sequence[int],
        last_epoch: int = -1,
    ) -> None:
        if not schedulers or len(milestones) != len(schedulers) - 1:
            raise UsageError(
                f"expected one milestone between each two schedulers, got {len(milestones)} for "
                f"{len(schedulers)} schedulers"
            )
        if any(scheduler.optimizer is not optimizer for scheduler in schedulers):
            raise UsageError("expected schedulers of this very optimizer, got one of another")
        if list(milestones) != sorted(milestones):
            raise UsageError(f"expected rising milestones, got {list(milestones)}")
        self.schedulers = list(schedulers)
        self.milestones = list(milestones)
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, epoch: int, group: int) -> float:
        which = bisect_right(self.milestones, epoch)
        since = epoch - (self.milestones[which - 1] if which else 0)
        return self.schedulers[which].rate(base, since, group)
