"""What launchers say of a process, by their environment variables."""

import socket

import pytest

from telegrad.errors import UsageError
from telegrad.rpc.membership.launch import Launch, _first_host, find_launch

TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_RESTART_COUNT": "2",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "4711",
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "4",
}
SLURM = {
    "SLURM_PROCID": "5",
    "SLURM_NTASKS": "8",
    "SLURM_STEP_ID": "1",
    "SLURM_JOB_ID": "77",
    "SLURM_NNODES": "2",
    "SLURM_STEP_NODELIST": "gpu[03-04]",
}


def test_no_launcher_is_none():
    assert find_launch({"PATH": "/bin", "MASTER_PORT": "1"}) is None


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        (TORCHRUN, Launch("torchrun", 3, 4, 4, "none-4711-2")),
        (
            {"TELEGRAD_LAUNCHER": "run", "RANK": "1", "WORLD_SIZE": "3"},
            Launch("telegrad run", 1, 3, 3),
        ),
        (
            {
                "OMPI_COMM_WORLD_RANK": "1",
                "OMPI_COMM_WORLD_SIZE": "2",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
                "PMIX_NAMESPACE": "prterun-9",
            },
            Launch("mpirun (Open MPI)", 1, 2, 1, "prterun-9"),
        ),
        (
            {"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2", "PMI_PORT": "h:1"},
            Launch("mpirun (MPICH, Intel MPI)", 0, 2, 2, "h:1"),
        ),
        (SLURM, Launch("srun", 5, 8, None, "77-1-0", "gpu03")),
        (
            {**SLURM, "PMI_RANK": "5", "SLURM_NNODES": "1"},
            Launch("srun", 5, 8, 8, "77-1-0", "gpu03"),
        ),
        ({**SLURM, **TORCHRUN}, Launch("torchrun", 3, 4, 4, "none-4711-2")),
        (
            {"LWS_WORKER_INDEX": "1", "LWS_GROUP_SIZE": "4", "LWS_LEADER_ADDRESS": "a-0.a.default"},
            Launch("Kubernetes (LeaderWorkerSet)", 1, 4, None, "a-0.a.default", "a-0.a.default"),
        ),
        ({"RANK": "1"}, Launch("the environment (RANK, WORLD_SIZE)", 1)),
    ],
)
def test_a_launcher_is_known_by_its_variables(env, expected):
    assert find_launch(env) == expected


def test_the_first_pod_of_an_indexed_job_is_found_by_the_name_of_this_one(monkeypatch):
    monkeypatch.setattr(socket, "getfqdn", lambda: "train-3.train.default.svc.cluster.local")
    env = {"JOB_COMPLETION_INDEX": "3", "WORLD_SIZE": "8"}
    assert find_launch(env) == Launch(
        "Kubernetes (indexed Job)",
        3,
        8,
        job="train",
        host="train-0.train.default.svc.cluster.local",
    )
    monkeypatch.setattr(socket, "getfqdn", lambda: "train-3")
    assert find_launch({"JOB_COMPLETION_INDEX": "3"}).host == "train-0"


def test_a_batch_script_of_slurm_is_no_task_of_its_own():
    assert find_launch({"SLURM_PROCID": "0", "SLURM_JOB_ID": "77"}) is None


@pytest.mark.parametrize(
    ("listed", "first"),
    [("a", "a"), ("a,b", "a"), ("n[07-09,12],x", "n07"), ("r1[1,3]-ib", "r11-ib"), ("", "")],
)
def test_the_first_host_of_slurms_list(listed, first):
    assert _first_host(listed) == first


def test_what_is_missing_or_no_number_is_named():
    with pytest.raises(UsageError, match="expected RANK in the environment"):
        find_launch({"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"})
    with pytest.raises(UsageError, match="expected an integer for RANK, got 'x'"):
        find_launch({"RANK": "x"})
