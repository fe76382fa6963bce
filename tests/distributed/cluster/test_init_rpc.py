"""init_rpc and shutdown: workers started by hand that meet at rank 0."""

import datetime
import os
import socket
import textwrap

import pytest
from tests.rpc.neighbours import eventually

from telegrad.distributed import rpc
from telegrad.errors import CallTimeout, UsageError, WorkerLost
from telegrad.rpc import startup
from telegrad.rpc.membership import membership
from telegrad.rpc.security.certificates import mint
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.transport import Address

pytestmark = pytest.mark.processes

SCRIPT = textwrap.dedent(
    """
    import os
    from telegrad.distributed import rpc
    rpc.init_rpc()
    me = rpc.get_worker_info()
    if me.id == 0:
        size = int(os.environ["WORLD_SIZE"])
        print("all:", *[rpc.rpc_sync(i, rpc.get_worker_info).name for i in range(size)])
    {body}
    rpc.shutdown()
    print("bye", me.name)
    """
)


@pytest.fixture
def world(launch):
    """Return a function that starts a worker with something to do."""

    def start(name, rank, size, body="", **extra):
        return launch(name, rank, size, "-c", SCRIPT.format(body=body), **extra)

    return start


def output(process):
    return process.communicate(timeout=60)[0]


def test_three_workers_meet_call_each_other_and_leave_together(world):
    # The last one leaves half a second after the others have come to their end.
    slow = "import time; time.sleep(0.5 * (me.id == 2))"
    processes = [world(name, rank, 3, slow) for rank, name in enumerate(["ps", "t0", "t1"])]
    texts = [output(process) for process in processes]
    assert "all: ps t0 t1" in texts[0]
    for name, text in zip(["ps", "t0", "t1"], texts):
        assert f"bye {name}" in text
    assert [process.returncode for process in processes] == [0, 0, 0]


CHAIN = textwrap.dedent(
    """
    import time
    def hop(left, path):
        # The work of a link, long enough for all others to have come to their end.
        time.sleep(0.03)
        if not left:
            open(path, "w").close()
            return
        rpc.rpc_async((rpc.get_worker_info().id + 1) % 3, hop, (left - 1, path))
    if me.id == 0:
        rpc.rpc_async(1, hop, (20, os.environ["DONE"]))
    """
)


def test_calls_that_nobody_waits_for_end_before_anyone_leaves(world, tmp_path):
    done = tmp_path / "done"
    processes = [world(f"w{rank}", rank, 3, CHAIN, DONE=str(done)) for rank in range(3)]
    for process in processes:
        assert "bye" in output(process)
    assert done.exists()


def test_a_worker_that_dies_does_not_keep_the_others_from_leaving(world):
    body = "me.id == 0 and rpc.rpc_async('t0', os._exit, (3,))"
    processes = [world(name, rank, 2, body) for rank, name in enumerate(["ps", "t0"])]
    assert "bye ps" in output(processes[0])
    assert processes[0].returncode == 0


def test_a_name_that_is_taken_and_a_wrong_world_size_are_refused_and_the_others_meet(world):
    master = world("ps", 0, 3)
    other = world("t1", 1, 9)
    # Which of the two namesakes comes first is open, that one of them is refused is not.
    twins = [world("t0", rank, 3) for rank in (1, 2)]
    assert "rank 0 expects a world of 3 workers, t1 a world of 9" in output(other)
    assert eventually(lambda: any(twin.poll() is not None for twin in twins), 60)
    refused = next(rank for rank, twin in enumerate(twins, 1) if twin.returncode is not None)
    assert "there is a worker named 't0' already" in output(twins[refused - 1])
    world("t1", refused, 3)
    assert "all: ps " in output(master)


def test_a_wrong_key_keeps_a_worker_out_and_the_right_one_meets_the_others(world, tmp_path):
    other = tmp_path / "other"
    ClusterKey.fresh().save(other)
    master = world("ps", 0, 2)
    assert "AuthenticationFailed" in output(world("t0", 1, 2, TELEGRAD_KEY_FILE=str(other)))
    world("t0", 1, 2)
    assert "all: ps t0" in output(master)


def test_an_unreachable_master_is_an_error_that_says_what_was_tried(monkeypatch, tmp_path):
    ClusterKey.fresh().save(tmp_path / "key")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        monkeypatch.setenv("MASTER_PORT", str(probe.getsockname()[1]))
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("TELEGRAD_KEY_FILE", str(tmp_path / "key"))
        with pytest.raises(WorkerLost, match=r"no worker could be reached at tcp://127.*tried"):
            rpc.init_rpc("t", rank=1, world_size=2, options=rpc.Options(join_timeout=0.5))


# The last is one that no socket may be connected to without asking for it.
@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("nobody.invalid", r"the host of tls://nobody.invalid:29500 is not known .*MASTER_ADDR"),
        ("tcp://10.0.0.7", r"the host of tls://\[tcp://10.0.0.7\]:29500 is not known"),
        ("255.255.255.255", r"no way leads from this machine to tls://255.*\(Permission denied\)"),
    ],
)
def test_a_master_that_no_way_leads_to_is_an_error_that_names_it(host, said, monkeypatch, tmp_path):
    (minted, *_) = mint(tmp_path / "cluster", ["t"], now=datetime.datetime.now(datetime.UTC))
    monkeypatch.setenv("TELEGRAD_CREDENTIALS", str(minted))
    monkeypatch.setenv("MASTER_ADDR", host)
    monkeypatch.setenv("MASTER_PORT", "29500")
    with pytest.raises(WorkerLost, match=said):
        rpc.init_rpc("t", rank=1, world_size=2, options=rpc.Options(join_timeout=0.01))


def test_a_name_that_has_only_an_address_of_ipv6_leads_to_the_own_one(monkeypatch):
    found = [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 29500, 0, 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    assert startup.own_host(Address("tls", host="six", port=29500)) == "::1"


def test_a_port_in_use_is_an_error(monkeypatch, tmp_path):
    ClusterKey.fresh().save(tmp_path / "key")
    monkeypatch.setenv("TELEGRAD_KEY_FILE", str(tmp_path / "key"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setenv("MASTER_PORT", str(taken.getsockname()[1]))
        with pytest.raises(UsageError, match="in use"):
            rpc.init_rpc("t", rank=0, world_size=2)


def test_a_worker_that_cant_be_started_leaves_no_directory(monkeypatch, tmp_path):
    ClusterKey.fresh().save(tmp_path / "key")
    monkeypatch.setenv("TELEGRAD_KEY_FILE", str(tmp_path / "key"))
    monkeypatch.setenv("MASTER_PORT", "0")
    directory = membership.PrivateDirectory.make()
    monkeypatch.setattr(membership.PrivateDirectory, "make", lambda: directory)
    with pytest.raises(UsageError, match="expected a worker's name"):
        rpc.init_rpc("no name", rank=0, world_size=1)
    assert not os.path.exists(directory.path)


def test_one_process_may_start_and_leave_and_start_again(monkeypatch, tmp_path):
    ClusterKey.fresh().save(tmp_path / "key")
    monkeypatch.setenv("TELEGRAD_KEY_FILE", str(tmp_path / "key"))
    for _ in range(2):
        monkeypatch.setenv("MASTER_PORT", "0")
        rpc.init_rpc("alone", rank=0, world_size=1)
        with pytest.raises(UsageError, match="call shutdown first"):
            rpc.init_rpc("alone", rank=0, world_size=1)
        assert rpc.rpc_sync("alone", abs, (-2,)) == 2
        rpc.shutdown()


def test_too_few_workers_is_an_error_after_the_timeout(monkeypatch, tmp_path):
    ClusterKey.fresh().save(tmp_path / "key")
    monkeypatch.setenv("TELEGRAD_KEY_FILE", str(tmp_path / "key"))
    monkeypatch.setenv("MASTER_PORT", "0")
    with pytest.raises(CallTimeout, match="1 of 2 workers came"):
        rpc.init_rpc("ps", rank=0, world_size=2, options=rpc.Options(join_timeout=0.2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rank": 0, "world_size": 1}, "needs a name, .* as `telegrad run "),
        ({"name": "a", "world_size": 1}, "needs rank="),
        ({"name": "a", "rank": 70000}, "a rank from 0 to 65534 in an open world"),
        ({"name": "a", "rank": 0, "meeting": 3}, "expected a directory's path or a torch"),
        ({"name": "a", "rank": 5, "world_size": 2}, "a rank from 0 to 1"),
        ({"name": "a", "rank": 0, "world_size": -1}, "a world_size of 1 or more, got -1"),
        ({"name": "a", "rank": "x", "world_size": 2}, "expected an integer for rank, got 'x'"),
    ],
)
def test_settings_that_are_missing_or_wrong_are_named(monkeypatch, arguments, message):
    for name in ("RANK", "WORLD_SIZE", "TELEGRAD_WORKER_NAME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match=message):
        rpc.init_rpc(**arguments)
