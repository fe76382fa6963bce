"""Where a worker meets the others: found by what its launcher and the environment say."""

import datetime
import os
import tempfile
import time

import pytest

from telegrad.errors import UsageError
from telegrad.rpc.membership import place
from telegrad.rpc.membership.launch import Launch
from telegrad.rpc.membership.place import find_meeting
from telegrad.rpc.membership.roster import WorldMismatch
from telegrad.rpc.membership.user_directory import meeting_named, user_directory, users_key
from telegrad.rpc.security.certificates import mint
from telegrad.rpc.security.keyed_credentials import KeyedCredentials
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.transport import Identity, listen


@pytest.fixture(autouse=True)
def own_directory(monkeypatch):
    """A directory of the user for this test alone; a socket's path has to be short."""
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)
        yield


def test_without_anything_the_users_own_key_and_directory_are_found():
    found = find_meeting({}, None, "a")
    assert found.address == f"unix://{user_directory()}/port-29500.sock"
    assert found.key == users_key()
    assert find_meeting({"MASTER_PORT": "7"}, None, "a").address.endswith("/port-7.sock")
    assert find_meeting({}, None, "a", is_open=True).board.path.endswith("/port-29500.world")


def test_a_launchers_job_on_one_machine_has_a_place_of_its_own():
    jobs = [Launch("mpirun", 0, 2, 2, job) for job in ("x", "y")]
    one, two = (find_meeting({}, job, "a").address for job in jobs)
    assert one != two
    assert one.startswith(f"unix://{user_directory()}/job-")
    hosted = Launch("torchrun", 0, 2, 2, "x")
    # Its agent has the port: nobody is to listen there.
    env = {"MASTER_ADDR": "this-host", "MASTER_PORT": "4711"}
    assert find_meeting(env, hosted, "a").address == one


def test_a_key_of_the_environment_is_for_rank_0s_address():
    key = ClusterKey.fresh()
    env = {"TELEGRAD_KEY": key.encode().decode(), "MASTER_PORT": "4711"}
    found = find_meeting(env, None, "a")
    assert (found.address, found.key) == ("tcp://127.0.0.1:4711", key)


@pytest.mark.parametrize("port", ["abc", "-1", "65536", "../x"])
@pytest.mark.parametrize("is_open", [False, True])
def test_what_is_no_port_is_named(port, is_open):
    with pytest.raises(UsageError, match=f"a port up to 65535 for MASTER_PORT, got {port!r}"):
        find_meeting({"MASTER_PORT": port}, None, "a", is_open=is_open)


def test_worlds_that_ended_more_than_a_day_ago_leave_nothing_in_the_users_directory():
    key, long_ago = ClusterKey.fresh(), time.time() - 2 * 86400
    ended, recent, running = (
        meeting_named(name, key, is_open=True).board for name in ("ended", "recent", "running")
    )
    ended.close()
    recent.close()
    for board in (ended, running):
        os.utime(board.path, (long_ago, long_ago))
    meeting_named("mine", key)
    assert [os.path.exists(each.path) for each in (ended, recent, running)] == [False, True, True]


def test_a_directory_that_is_named_is_a_board(tmp_path):
    found = find_meeting({"TELEGRAD_MEETING": str(tmp_path / "m")}, None, "a")
    assert found.board.path == str(tmp_path / "m")


def test_over_several_machines_a_key_is_asked_for_and_the_launcher_named():
    launch = Launch("srun", 1, 4, None, "77", "gpu03")
    with pytest.raises(UsageError, match=r"no cluster key: .*\(srun was found\)"):
        find_meeting({}, launch, "a")


def test_over_several_machines_a_key_alone_gives_certificates():
    key = ClusterKey.fresh()
    env = {"TELEGRAD_KEY": key.encode().decode(), "MASTER_PORT": "4711"}
    launch = Launch("srun", 1, 4, None, "77", "gpu03")
    found = find_meeting(env, launch, "a")
    assert found.address == "tls://gpu03:4711"
    assert isinstance(found.credentials, KeyedCredentials)
    assert find_meeting(env, launch, "a", tls=False).credentials is None
    here = find_meeting(env, None, "a", tls=True)
    assert here.address == "tls://127.0.0.1:4711"
    assert isinstance(here.credentials, KeyedCredentials)


def test_with_certificates_rank_0_is_met_where_the_launcher_says(tmp_path):
    mint(tmp_path / "c", ["a", "b"], now=datetime.datetime.now(datetime.UTC))
    env = {"TELEGRAD_CREDENTIALS": str(tmp_path / "c")}
    found = find_meeting(env, Launch("srun", 1, 4, None, "77", "gpu03"), "b")
    assert found.address.startswith("tls://gpu03:2")
    assert found.credentials.directory == tmp_path / "c" / "b"
    env["MASTER_PORT"] = "4711"
    lws = Launch("Kubernetes (LeaderWorkerSet)", 1, 4, None, "x", "a-0.a")
    assert find_meeting(env, lws, "a").address == "tls://a-0.a:4711"
    env["MASTER_PORT"] = "many"
    with pytest.raises(UsageError, match="65535 for MASTER_PORT, got 'many'"):
        find_meeting(env, lws, "a")


def test_the_store_of_torchruns_agent_is_a_board_over_several_machines(tmp_path, monkeypatch):
    mint(tmp_path / "c", ["a"], now=datetime.datetime.now(datetime.UTC))
    asked = []
    monkeypatch.setattr(place, "_agents_board", lambda *args: asked.append(args))
    env = {
        "TELEGRAD_CREDENTIALS": str(tmp_path / "c"),
        "MASTER_ADDR": "10.0.0.7",
        "MASTER_PORT": "4711",
    }
    find_meeting(env, Launch("torchrun", 0, 4, 2, "job"), "a")
    assert asked == [("tls://10.0.0.7:4711", "job")]


def test_an_open_world_is_not_met_where_one_of_fixed_size_does():
    key = ClusterKey.fresh()
    fixed = meeting_named("x", key)
    listener = listen(
        fixed.address, identity=Identity("a", 1, key), on_connection=lambda each: each.close()
    )
    try:
        with pytest.raises(WorldMismatch, match=r"an open world to meet at x, .*fixed size"):
            meeting_named("x", key, is_open=True)
    finally:
        listener.close()
