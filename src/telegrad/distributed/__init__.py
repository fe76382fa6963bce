"""Programs over many workers: clusters, remote calls, distributed autograd and optimisers.

The submodules `rpc`, `autograd` and `optim` are imported by name; `LocalCluster` starts a cluster
on this machine, `RayCluster` one on Ray, `join` joins one that a launcher started; a `RemoteModule`
lives on a worker. The examples in the docstrings begin with ``from telegrad.distributed import
rpc`` and ``from telegrad.distributed import autograd as dist_autograd``, in a `LocalCluster` with
the workers "ps" and "trainer".
"""

from telegrad.distributed.cluster.cluster import Cluster, ClusterChange
from telegrad.distributed.cluster.joined_cluster import JoinedCluster, join
from telegrad.distributed.cluster.local_cluster import LocalCluster
from telegrad.distributed.cluster.on_ray.ray_cluster import RayCluster
from telegrad.distributed.remote_module import RemoteModule

__all__ = [
    "Cluster",
    "ClusterChange",
    "JoinedCluster",
    "LocalCluster",
    "RayCluster",
    "RemoteModule",
    "join",
]
