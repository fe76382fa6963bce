"""Snapshots on a disk that is full: an error that says so, and the last one stays."""

import errno
import os
import subprocess

import numpy as np
import pytest

from telegrad.distributed.survival.snapshots import SnapshotDirectory


@pytest.fixture
def small_disk(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root mounts a small file system")
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(tmp_path)]
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr}")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_snapshot_that_does_not_fit_fails_and_leaves_the_one_before(small_disk):
    snapshots = SnapshotDirectory(small_disk / "snapshots")
    snapshots.save(1, {"model": {"w": np.arange(1000.0)}})
    with pytest.raises(OSError, match="No space left") as caught:
        snapshots.save(2, {"model": {"w": np.ones(1 << 20)}})
    assert caught.value.errno == errno.ENOSPC
    assert os.listdir(small_disk / "snapshots") == ["step-00000001"]
    step, states = snapshots.newest()
    assert step == 1
    assert np.asarray(states["model"]["w"]).tolist() == np.arange(1000.0).tolist()
    snapshots.save(3, {"model": {"w": np.ones(1000)}})
    assert snapshots.newest()[0] == 3
