"""Snapshots: whole or not at all, in a directory, in this process, on a peer."""

import json
import os
import shutil

import numpy as np
import pytest
import torch

import telegrad as tg
from telegrad.distributed import LocalCluster, rpc
from telegrad.distributed.survival import snapshots as snapshots_module
from telegrad.distributed.survival.snapshots import (
    MemorySnapshots,
    PeerSnapshots,
    SnapshotDirectory,
    snapshots_in,
)
from telegrad.distributed.survival.state_tree import joined, taken_apart
from telegrad.errors import UsageError, WorkerLost

STATE = {
    "weight": tg.tensor([1.5, -0.0]),
    "state": {0: {"step": 3, "exp_avg": np.array([0.1, np.nan])}, 1: {}},
    "groups": [{"lr": 1e-3, "betas": (0.9, 0.999), "params": [0, 1], "fused": None}],
    "scalar": np.float32(2.5),
    "is": True,
}


def test_a_state_is_put_together_as_it_was():
    arrays, rest = taken_apart(STATE)
    again = joined(arrays, json.loads(json.dumps(rest)))
    assert list(again) == list(STATE)
    assert isinstance(again["weight"], tg.Tensor)
    assert np.asarray(again["weight"]).tobytes() == np.asarray(STATE["weight"]).tobytes()
    assert again["state"][0]["step"] == 3
    assert again["state"][0]["exp_avg"].tobytes() == STATE["state"][0]["exp_avg"].tobytes()
    assert again["groups"] == STATE["groups"]
    assert again["scalar"] == 2.5
    assert again["scalar"].dtype == np.float32
    assert again["is"] is True


def test_pytorchs_tensors_come_back_as_such():
    again = joined(*taken_apart({"weight": torch.arange(3.0)}))
    assert torch.equal(again["weight"], torch.arange(3.0))


def test_what_cant_be_saved_is_named():
    with pytest.raises(UsageError, match=r"got a object at state\.a\.1"):
        taken_apart({"a": [1, object()]})


def test_the_newest_of_a_directory_is_found_and_old_ones_go(tmp_path):
    kept = SnapshotDirectory(tmp_path / "new" / "place")
    assert kept.newest() is None
    for step in (0, 10, 20):
        kept.save(step, {"model": {"w": np.full(2, step)}, "optimizer": STATE})
    step, states = SnapshotDirectory(kept.path).newest()
    assert step == 20
    assert states["model"]["w"].tolist() == [20, 20]
    assert states["optimizer"]["groups"] == STATE["groups"]
    assert sorted(os.listdir(kept.path)) == ["step-00000010", "step-00000020"]
    kept.save(20, {"model": {"w": np.ones(1)}})
    assert kept.newest()[1]["model"]["w"].tolist() == [1]


def test_a_snapshot_that_is_half_written_is_never_used(tmp_path, monkeypatch):
    kept = SnapshotDirectory(tmp_path)
    kept.save(10, {"model": {"w": np.ones(2)}})
    save = snapshots_module.save

    def fail(arrays, path):
        save(arrays, path)
        if "second" in str(path):
            raise OSError("no space left")

    monkeypatch.setattr(snapshots_module, "save", fail)
    with pytest.raises(OSError, match="no space"):
        kept.save(20, {"first": {"w": np.ones(2)}, "second": {"w": np.ones(2)}})
    assert kept.newest()[0] == 10
    # Nor is one whose writer was killed.
    (tmp_path / ".step-00000030.abcd" / "model").mkdir(parents=True)
    assert SnapshotDirectory(tmp_path).newest()[0] == 10


def test_a_snapshot_that_was_altered_is_refused(tmp_path):
    kept = SnapshotDirectory(tmp_path)
    kept.save(10, {"model": {"w": np.ones(200)}})
    path = tmp_path / "step-00000010" / "model" / "arrays.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(UsageError, match="step-00000010 can't be read"):
        kept.newest()


@pytest.mark.parametrize("file", ["arrays.safetensors", "rest.json"])
@pytest.mark.parametrize("left", [None, 0, 5])
def test_a_snapshot_of_which_a_part_is_missing_is_refused_and_the_one_before_can_be_used(
    tmp_path, file, left
):
    kept = SnapshotDirectory(tmp_path)
    for step in (10, 20):
        kept.save(step, {"model": {"w": np.ones(200), "groups": [{"lr": 0.1}]}})
    path = tmp_path / "step-00000020" / "model" / file
    content = path.read_bytes()
    path.unlink()
    if left is not None:
        path.write_bytes(content[:left])
    with pytest.raises(UsageError, match=r"step-00000020 can't be read .*: remove it, and the one"):
        kept.newest()
    shutil.rmtree(tmp_path / "step-00000020")
    assert kept.newest()[0] == 10


def test_places_are_told_apart(tmp_path):
    assert isinstance(snapshots_in(None, []), MemorySnapshots)
    assert isinstance(snapshots_in("ps", ["ps"]), PeerSnapshots)
    assert isinstance(snapshots_in(tmp_path / "ps", ["ps"]), SnapshotDirectory)
    own = MemorySnapshots()
    assert snapshots_in(own, []) is own
    with pytest.raises(UsageError, match=r"path, a worker's name or None .*, got a int"):
        snapshots_in(3, [])


@pytest.mark.processes
def test_a_peer_keeps_a_snapshot_in_its_memory_and_its_loss_is_said():
    with LocalCluster(["keeper"]) as cluster:
        kept = PeerSnapshots("keeper")
        assert kept.newest() is None
        kept.save(5, {"model": STATE})
        step, states = kept.newest()
        assert step == 5
        assert states["model"]["groups"] == STATE["groups"]
        cluster.process("keeper").kill()
        assert rpc.get_worker_info().name == "main"
        with pytest.raises(WorkerLost, match=r"snapshot of step 5 went with worker 'keeper'"):
            kept.newest()
