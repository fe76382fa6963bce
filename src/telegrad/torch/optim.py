"""What can stand in for ``torch.distributed.optim``: the distributed optimiser over telegrad.

Any class of ``torch.optim`` will do. What telegrad adds (states, schedules, clipping) is there as
well.
"""

from typing import Any

from telegrad.distributed import optim

__all__ = ["DistributedOptimizer"]


class DistributedOptimizer(optim.DistributedOptimizer):
    """An optimiser of ``torch.optim`` on each owner of the parameters that `params_rref` names."""

    is_functional_optim = False
    _may_be_empty = True

    @property
    def remote_optimizers(self) -> list[Any]:
        """Return references to the optimisers of the owners."""
        return list(self._local.values())
