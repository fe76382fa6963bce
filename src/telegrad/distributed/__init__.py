"""Programs over many workers: clusters, remote calls, distributed autograd and optimisers.

The submodules `rpc`, `autograd` and `optim` are imported by name; `LocalCluster` starts a cluster
on this machine.
"""

from telegrad.distributed.cluster import LocalCluster

__all__ = ["LocalCluster"]
