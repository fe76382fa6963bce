"""Workers started by launchers, without arguments: torchrun and mpirun for real where they are."""

import os
import shutil
import subprocess
import sys
import textwrap

import pytest

from telegrad.rpc.security.keys import ClusterKey

pytestmark = pytest.mark.processes

SCRIPT = textwrap.dedent(
    """
    import os, sys
    import telegrad as tg
    from telegrad.distributed import join, rpc
    import telegrad.distributed.autograd as dist_autograd

    with join() as cluster:
        me = rpc.get_worker_info()
        x = tg.tensor([1.0, 2.0], requires_grad=True)
        with dist_autograd.context() as context_id:
            last = max(info.id for info in cluster.wait_for())
            y = rpc.rpc_sync(last, tg.square, (x,))
            dist_autograd.backward(context_id, [y.sum()])
            gradient = dist_autograd.get_gradients(context_id)[x].tolist()
        line = f"{cluster.launcher}|{me.name}|{len(cluster.names)}|{gradient}"
        print(line, flush=True)
    """
)


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return str(path)


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """An environment without a word of launchers or secrets, and with a temporary directory."""
    said = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in said and not name.startswith(("TELEGRAD_", "SLURM_", "OMPI_", "PMI"))
    }
    return {**environment, "TMPDIR": "/tmp", "OMP_NUM_THREADS": "1"}


def lines_of(done):
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(line for line in done.stdout.splitlines() if "|" in line)


def expected(launcher, size):
    return [f"{launcher}|worker{rank}|{size}|[2.0, 4.0]" for rank in range(size)]


def test_under_torchrun(script, bare):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*command, "--nproc-per-node=2", script],
        env=bare,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert lines_of(done) == expected("torchrun", 2)


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="needs mpirun")
def test_under_mpirun(script, bare):
    command = ["mpirun", "--oversubscribe", "--allow-run-as-root", "-np", "2"]
    done = subprocess.run(
        [*command, sys.executable, script], env=bare, capture_output=True, text=True, timeout=120
    )
    assert lines_of(done) == expected("mpirun (Open MPI)", 2)


def test_under_telegrad_run(script, bare):
    command = [sys.executable, "-m", "telegrad", "run", "--workers", "worker0,worker1", script]
    done = subprocess.run(command, env=bare, capture_output=True, text=True, timeout=120)
    said = [line.partition("] ")[2] for line in lines_of(done)]
    assert sorted(said) == expected("telegrad run", 2)


SLURM = {
    "SLURM_NTASKS": "2",
    "SLURM_STEP_ID": "0",
    "SLURM_JOB_ID": f"test-{os.getpid()}",
    "SLURM_STEP_NUM_NODES": "1",
    "SLURM_STEP_NODELIST": "here",
}
JOB = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
SET = {"LWS_GROUP_SIZE": "2", "LWS_LEADER_ADDRESS": "127.0.0.1"}


@pytest.mark.parametrize(
    ("launcher", "variables", "index", "has_key"),
    [
        ("srun", SLURM, "SLURM_PROCID", False),
        ("Kubernetes (indexed Job)", JOB, "JOB_COMPLETION_INDEX", True),
        ("Kubernetes (LeaderWorkerSet)", SET, "LWS_WORKER_INDEX", True),
    ],
)
def test_under_those_whose_variables_are_set_here(
    launcher, variables, index, has_key, script, bare
):
    if has_key:
        variables = {**variables, "TELEGRAD_KEY": ClusterKey.fresh().encode().decode().strip()}
    variables = {**variables, "MASTER_PORT": str(20000 + os.getpid() % 10000)}
    processes = [
        subprocess.Popen(
            [sys.executable, script],
            env={**bare, **variables, index: str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [process.communicate(timeout=120)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [text.splitlines()[-1] for text in said] == expected(launcher, 2), said


OPEN = textwrap.dedent(
    """
    import sys
    from telegrad.distributed import join
    with join(sys.argv[1], meeting=sys.argv[2]) as cluster:
        cluster.on_change(lambda change: print(change.kind, change.worker.name, flush=True))
        print("in", *cluster.names, flush=True)
        sys.stdin.readline()
    print("out", flush=True)
    """
)


def test_processes_come_to_an_open_world_leave_die_and_come_back(tmp_path, bare):
    def start(name):
        return subprocess.Popen(
            [sys.executable, "-c", OPEN, name, str(tmp_path / "meeting")],
            env=bare,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    started = []

    def begin(name, *expected):
        started.append(start(name))
        assert started[-1].stdout.readline().split() == ["in", *expected]
        return started[-1]

    try:
        first = begin("first", "first")
        witness = begin("witness", "first", "witness")
        assert first.stdout.readline() == "came witness\n"
        # The one that began, of rank 0, goes; the world stays.
        first.stdin.write("\n")
        first.stdin.flush()
        assert witness.stdout.readline() == "left first\n"
        third = begin("third", "witness", "third")
        assert witness.stdout.readline() == "came third\n"
        third.kill()
        third.wait()
        begin("third", "witness", "third")
        told = [witness.stdout.readline() for _ in range(2)]
        # The life that was cut short may be told as left: the next one found it gone.
        assert told[0] in ("lost third\n", "left third\n")
        assert told[1] == "came third\n"
    finally:
        for process in started:
            process.kill()
            process.communicate()


AWAITING = textwrap.dedent(
    """
    import sys
    from telegrad.distributed import join, rpc
    with join(sys.argv[1], meeting=sys.argv[2]) as cluster:
        try:
            cluster.wait_for("nobody", timeout=0.01)
        except TimeoutError as error:
            print(error, flush=True)
        print(cluster.wait_for("late")[0].name, rpc.rpc_sync("late", abs, (-2,)), flush=True)
    """
)


def test_in_an_open_world_one_may_wait_for_a_worker_that_has_not_come_yet(tmp_path, bare):
    def start(script, name):
        command = [sys.executable, "-c", script, name, str(tmp_path / "meeting")]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=bare, stdin=pipe, stdout=pipe, text=True)

    started = [start(AWAITING, "early")]
    try:
        said = started[0].stdout.readline()
        assert said == "'nobody' did not come up within 0.01 s\n"
        started.append(start(OPEN, "late"))
        assert started[0].stdout.readline() == "late 2\n"
        assert started[0].wait(60) == 0
    finally:
        for process in started:
            process.kill()
            process.communicate()


def test_under_a_launcher_workers_are_the_launchers_to_start(tmp_path, bare):
    script = textwrap.dedent(
        """
        import sys
        from telegrad.distributed import join
        with join("alone", rank=0, world_size=1) as cluster:
            for act in (lambda: cluster.add("b"), lambda: cluster.remove("alone")):
                try:
                    act()
                except Exception as error:
                    print(type(error).__name__, error)
            assert cluster.start() is cluster
            print(cluster, cluster.worker.name)
        cluster.stop()
        print(cluster)
        """
    )
    # Below those that the system gives to whoever asks for any.
    bare["MASTER_PORT"] = str(10000 + os.getpid() % 10000)
    done = subprocess.run(
        [sys.executable, "-c", script], env=bare, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.splitlines() == [
        "UsageError expected 'b' to be started by nobody (found by arguments), as this process "
        "was: it joins by init_rpc",
        "UsageError expected 'alone' to leave by itself, by rpc.shutdown()",
        "<JoinedCluster of alone: running> alone",
        "<JoinedCluster of alone: not running>",
    ], done.stderr
