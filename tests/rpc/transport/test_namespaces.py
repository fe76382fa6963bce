"""TLS between two network namespaces, as between two machines, whose link is cut and healed."""

import contextlib
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rpc.connected import PATIENCE, mint_cluster

from telegrad.rpc.security.keys import ClusterKey

pytestmark = pytest.mark.processes

PS, TRAINER = f"tg{os.getpid()}p", f"tg{os.getpid()}t"
ROOT = Path(__file__).parents[3]
PS_HOST, TRAINER_HOST = "10.213.77.1", "10.213.77.2"


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture
def link() -> Iterator[None]:
    """Two namespaces and a cable between them; nothing of it touches the machine's own network."""
    if not shutil.which("ip") or os.geteuid() != 0:
        pytest.skip("making network namespaces needs root and the command ip")
    with contextlib.ExitStack() as stack:
        try:
            for name in (PS, TRAINER):
                ip("netns", "add", name)
                stack.callback(ip, "netns", "del", name)
            ip("-n", PS, "link", "add", "cable", "type", "veth", "peer", "cable", "netns", TRAINER)
            for name, host in ((PS, PS_HOST), (TRAINER, TRAINER_HOST)):
                ip("-n", name, "addr", "add", f"{host}/24", "dev", "cable")
                ip("-n", name, "link", "set", "cable", "up")
                ip("-n", name, "link", "set", "lo", "up")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"this machine does not allow network namespaces: {error.stderr.strip()}")
        yield


class Machine:
    """A process that holds the namespaces of one machine, for others to enter."""

    def __init__(self, namespace: str) -> None:
        self._process = subprocess.Popen(
            ["ip", "netns", "exec", namespace, "sh", "-c", "echo up; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"up\n"
        target = f"--target={self._process.pid}"
        self.enter = ("nsenter", target, "--net", "--mount", f"--wd={ROOT}")

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class Talker:
    """A process in a namespace to which one speaks in lines."""

    def __init__(
        self, namespace: str, directory: Path, *arguments: str, enter: tuple[str, ...] = ()
    ) -> None:
        self._process = subprocess.Popen(
            [*(enter or ("ip", "netns", "exec", namespace)), sys.executable]
            + ["-m", "tests.rpc.namespaced_worker", str(directory), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            cwd=ROOT,
            env={**os.environ, "MASTER_ADDR": PS_HOST, "MASTER_PORT": "29500"},
        )

    def hear(self) -> str:
        assert self._process.stdout is not None
        assert select.select([self._process.stdout], [], [], PATIENCE)[0], "it says nothing"
        return self._process.stdout.readline().decode().strip()

    def ask(self, line: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        return self.hear()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def test_a_tls_connection_survives_a_link_that_is_cut_and_healed(
    link: None, tmp_path: Path
) -> None:
    mint_cluster(tmp_path / "cluster", "ps", "trainer")
    with (
        contextlib.closing(
            Talker(PS, tmp_path / "cluster/ps", "listen", f"tls://{PS_HOST}:0")
        ) as ps,
        contextlib.closing(
            Talker(TRAINER, tmp_path / "cluster/trainer", "dial", ps.hear())
        ) as trainer,
    ):
        assert trainer.ask("dial 20") == "connected to ps"
        assert trainer.ask("echo before") == "before"

        ip("-n", PS, "link", "set", "cable", "down")
        assert trainer.ask("send during") == "silence"
        assert "no worker could be reached at tls://10.213.77.1" in trainer.ask("dial 1")

        ip("-n", PS, "link", "set", "cable", "up")
        assert trainer.ask("read") == "during", "what was sent into the cut arrives when it heals"
        assert trainer.ask("echo after") == "after"
        assert trainer.ask("dial 20") == "connected to ps"


def until_it_works(worker: Talker) -> None:
    """Call until the answer comes: a busy machine may take a second, and then each is lost."""
    deadline = time.monotonic() + PATIENCE
    while (answer := worker.ask("call")) != "42":
        assert time.monotonic() < deadline, answer


def test_calls_fail_while_the_link_is_cut_and_work_again_when_it_is_healed(
    link: None, tmp_path: Path
) -> None:
    mint_cluster(tmp_path / "cluster", "ps", "trainer")
    with (
        contextlib.closing(Talker(PS, tmp_path / "cluster/ps", "join", "0")) as ps,
        contextlib.closing(Talker(TRAINER, tmp_path / "cluster/trainer", "join", "1")) as trainer,
    ):
        assert (ps.hear(), trainer.hear()) == ("joined", "joined")
        until_it_works(trainer)
        ip("-n", PS, "link", "set", "cable", "down")
        failure = trainer.ask("call")
        assert failure.startswith("WorkerLost")
        assert "ps" in failure
        ip("-n", PS, "link", "set", "cable", "up")
        until_it_works(trainer)


def test_a_key_alone_gives_tls_between_machines_and_shared_memory_on_one(
    link: None, tmp_path: Path
) -> None:
    if not shutil.which("nsenter"):
        pytest.skip("entering a namespace needs the command nsenter")
    ClusterKey.fresh().save(tmp_path / "key")
    places = {"ps": PS, "neighbour": PS, "trainer": TRAINER}
    with contextlib.ExitStack() as stack:
        # Those of one machine see the same files, as `ip netns exec` alone would not let them.
        machine = Machine(PS)
        stack.callback(machine.close)
        trio = {
            name: stack.enter_context(
                contextlib.closing(
                    Talker(
                        place,
                        tmp_path / "key",
                        "trio",
                        name,
                        enter=machine.enter if place == PS else (),
                    )
                )
            )
            for name, place in places.items()
        }
        assert {talker.hear() for talker in trio.values()} == {"joined"}
        assert trio["trainer"].ask("echo ps") == "SecureConnection, no shared memory"
        assert trio["ps"].ask("echo trainer") == "SecureConnection, no shared memory"
        assert trio["neighbour"].ask("echo ps") == "PlainConnection, shared memory"
        assert trio["neighbour"].ask("echo trainer").startswith("SecureConnection")


def listeners_in(namespace: str) -> list[str]:
    """Return the local addresses at which something listens there."""
    table = subprocess.run(
        ["ip", "netns", "exec", namespace, "cat", "/proc/net/tcp"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    rows = [row.split() for row in table.splitlines()[1:]]
    return [row[1] for row in rows if row[3] == "0A"]


def test_a_party_that_only_dials_out_is_called_over_its_own_connection_also_after_a_cut(
    link: None, tmp_path: Path
) -> None:
    mint_cluster(tmp_path / "cluster", "ps", "trainer")
    with (
        contextlib.closing(Talker(PS, tmp_path / "cluster/ps", "join", "0")) as ps,
        contextlib.closing(
            Talker(TRAINER, tmp_path / "cluster/trainer", "join-quietly", "1")
        ) as trainer,
    ):
        assert (ps.hear(), trainer.hear()) == ("joined", "joined")
        assert listeners_in(TRAINER) == []
        until_it_works(ps)
        until_it_works(trainer)
        ip("-n", PS, "link", "set", "cable", "down")
        failure = ps.ask("call")
        assert failure.startswith("WorkerLost")
        assert "trainer" in failure
        ip("-n", PS, "link", "set", "cable", "up")
        until_it_works(ps)


def test_plain_tcp_is_refused_on_an_address_that_others_can_reach(link: None) -> None:
    source = f"""
from telegrad.errors import Refused
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.transport import Identity, listen
try:
    listen("tcp://{PS_HOST}:0", identity=Identity("ps", 1, ClusterKey.fresh()), on_connection=print)
except Refused as error:
    print(error)
"""
    done = subprocess.run(
        ["ip", "netns", "exec", PS, sys.executable, "-c", source],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert "telegrad keygen" in done.stdout
