"""The example of two parties through a firewall that translates addresses and lets nobody in."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from telegrad.rpc.security.keys import ClusterKey

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[3]
WALL, INSIDE, OUTSIDE = (f"tg{os.getpid()}{which}" for which in "wio")
INSIDE_HOST, OUTSIDE_HOST = "10.213.78.2", "10.213.79.2"
PORT = "29500"
PATIENCE = 120
"""Seconds for the example, however busy the machine is."""
RULES = """
table ip wall {
    chain forward {
        type filter hook forward priority filter; policy drop;
        ct state established,related accept
        iifname "inside" oifname "outside" accept
    }
    chain input {
        type filter hook input priority filter; policy drop;
    }
    chain translate {
        type nat hook postrouting priority srcnat;
        oifname "outside" masquerade
    }
}
"""
DIAL = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=1)
    print("reached")
except TimeoutError:
    print("nobody answers")
"""
LISTEN = """
import socket, sys
with socket.create_server((sys.argv[1], int(sys.argv[2]))):
    print("up", flush=True)
    sys.stdin.read()
"""


def run(*command: str, given: str | None = None) -> str:
    done = subprocess.run(command, check=True, capture_output=True, text=True, input=given)
    return done.stdout


def inside_of(namespace: str, *command: str) -> list[str]:
    return ["ip", "netns", "exec", namespace, *command]


@pytest.fixture
def firewall() -> Iterator[None]:
    """Three namespaces: one inside, one outside, between them one that routes."""
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("nft"):
        pytest.skip("a firewall needs root and the commands ip and nft")
    with contextlib.ExitStack() as stack:
        try:
            for name in (WALL, INSIDE, OUTSIDE):
                run("ip", "netns", "add", name)
                stack.callback(run, "ip", "netns", "del", name)
                run("ip", "-n", name, "link", "set", "lo", "up")
            for side, name, host in (
                ("inside", INSIDE, INSIDE_HOST),
                ("outside", OUTSIDE, OUTSIDE_HOST),
            ):
                wire = ["type", "veth", "peer", "wire", "netns", name]
                run("ip", "-n", WALL, "link", "add", side, *wire)
                door = host.removesuffix("2") + "1"
                run("ip", "-n", WALL, "addr", "add", f"{door}/24", "dev", side)
                run("ip", "-n", WALL, "link", "set", side, "up")
                run("ip", "-n", name, "addr", "add", f"{host}/24", "dev", "wire")
                run("ip", "-n", name, "link", "set", "wire", "up")
                # Also from outside: nothing but the rules keeps anybody out.
                run("ip", "-n", name, "route", "add", "default", "via", door)
            run(*inside_of(WALL, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"))
            run(*inside_of(WALL, "nft", "-f", "-"), given=RULES)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"this machine allows no such network: {error.stderr.strip()}")
        yield


def dial(frm: str, host: str) -> str:
    """Say what comes of dialling a host where somebody listens."""
    to = INSIDE if host == INSIDE_HOST else OUTSIDE
    listen = inside_of(to, sys.executable, "-c", LISTEN, host, PORT)
    with subprocess.Popen(listen, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as listening:
        assert listening.stdin is not None
        assert listening.stdout is not None
        assert listening.stdout.readline() == b"up\n"
        said = run(*inside_of(frm, sys.executable, "-c", DIAL, host, PORT))
        listening.stdin.close()
    return said.strip()


def test_two_parties_train_through_a_firewall_that_lets_nobody_in(
    firewall: None, tmp_path: Path
) -> None:
    assert dial(OUTSIDE, INSIDE_HOST) == "nobody answers"
    assert dial(INSIDE, OUTSIDE_HOST) == "reached"
    ClusterKey.fresh().save(tmp_path / "key")
    environment = {
        **os.environ,
        "MASTER_ADDR": OUTSIDE_HOST,
        "MASTER_PORT": PORT,
        "TELEGRAD_KEY_FILE": str(tmp_path / "key"),
    }

    def party(namespace: str, *arguments: str) -> "subprocess.Popen[str]":
        script = str(ROOT / "examples/split_learning.py")
        return subprocess.Popen(
            inside_of(namespace, sys.executable, script, *arguments),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    with party(OUTSIDE, "--labels", "--quick") as labels, party(INSIDE, "--images") as images:
        try:
            said, _ = labels.communicate(timeout=PATIENCE)
            also, _ = images.communicate(timeout=PATIENCE)
        finally:
            labels.kill()
            images.kill()
    assert (labels.returncode, images.returncode) == (0, 0), said + also
    assert "losses differ from those of one process by at most" in said
    assert "refused: a function of Python's, the images' file, code of its own" in said
