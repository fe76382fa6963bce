"""What a RayCluster refuses before it asks Ray for anything."""

import sys
import types

import pytest

from telegrad.distributed import RayCluster
from telegrad.errors import UsageError


@pytest.fixture
def ray(monkeypatch):
    """A module that has Ray's name and version, and nothing else."""
    module = types.ModuleType("ray")
    module.__version__ = "2.60.0"
    monkeypatch.setitem(sys.modules, "ray", module)


def test_without_ray_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"Ray 2\.60, which is not installed.*telegrad\[ray\]"):
        RayCluster(["a"])


@pytest.mark.parametrize(
    ("workers", "message"),
    [
        ("ps", 'expected workers like {"ps"'),
        (3, 'expected workers like {"ps"'),
        (["a", "a"], "a came twice"),
        (["main"], "main came twice; this program is 'main' itself, me="),
        ({"a": {"gpus": 1}}, "num_cpus, num_gpus, memory, resources as resources of 'a', got gpus"),
        ({"a": 3}, "as resources of 'a', got 3"),
        (["no name"], "expected a worker's name"),
    ],
)
def test_workers_that_make_no_sense_are_refused(ray, workers, message):
    with pytest.raises(UsageError, match=message):
        RayCluster(workers)


def test_a_cluster_that_does_not_run_says_so(ray):
    cluster = RayCluster({"a": {"num_cpus": 2}})
    assert repr(cluster) == "<RayCluster of main, a: not running>"
    with pytest.raises(UsageError, match="not running"):
        _ = cluster.worker
