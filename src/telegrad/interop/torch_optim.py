"""What can stand in for ``torch.distributed.optim``: the distributed optimiser over telegrad.

Any class of ``torch.optim`` will do. What telegrad adds (states, schedules, clipping) is there as
well.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from telegrad.distributed import optim
from telegrad.interop.torch_rpc.rref import RRef

__all__ = ["DistributedOptimizer"]


class DistributedOptimizer(optim.DistributedOptimizer):
    """Steps parameters where they live; `params_rref` are RRefs to them, or groups of such."""

    is_functional_optim = False

    def __init__(
        self,
        optimizer_class: Callable[..., Any],
        params_rref: Iterable[RRef | Mapping[str, Any]],
        *args: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__(optimizer_class, params_rref, *args, **kwargs)

    @property
    def remote_optimizers(self) -> list[Any]:
        """References to the optimisers of the owners."""
        return list(self._local.values())
