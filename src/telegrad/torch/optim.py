"""A replacement for ``torch.distributed.optim``: the distributed optimiser.

It takes any class of ``torch.optim``. Telegrad's additions (states, schedules, clipping) work as
well.
"""

from typing import Any

from telegrad.distributed import optim

__all__ = ["DistributedOptimizer"]


class DistributedOptimizer(optim.DistributedOptimizer):
    """An optimiser of ``torch.optim`` on each worker that owns some of the given parameters."""

    is_functional_optim = False
    _may_be_empty = True

    @property
    def remote_optimizers(self) -> list[Any]:
        """Return RRefs to the owners' local optimisers."""
        return list(self._local.values())
