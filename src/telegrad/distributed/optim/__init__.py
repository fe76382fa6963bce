"""One optimiser for parameters that live on many workers."""

from telegrad.distributed.optim.distributed_optimizer import (
    DistributedOptimizer,
    DistributedScheduler,
)

__all__ = ["DistributedOptimizer", "DistributedScheduler"]
