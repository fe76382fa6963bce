"""The examples of docs/security.md, run in the order in which they stand there."""

import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from telegrad.cli import main
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.security.tls import Credentials, load_revoked

PAGE = Path(__file__).parents[2] / "docs/security.md"
SCRIPT = """
from telegrad.distributed import rpc

me = rpc.init_rpc()
if me.info.id == 0:
    print(rpc.rpc_sync("trainer0", abs, (-2,)), me.address)
rpc.shutdown()
"""


def test_the_examples_of_the_security_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    assert len(blocks) == 6
    for text in blocks:
        for line in text.splitlines():
            command, *arguments = shlex.split(line.removeprefix("$ "))
            if command == "telegrad":
                assert main(arguments) == 0
            else:
                assert (command, arguments[0]) == ("rm", "-r")
                shutil.rmtree(arguments[1])
    assert sorted(path.name for path in Path("cluster").iterdir()) == (
        ["authority", "ps", "trainer0", "trainer1", "trainer2"]
    )
    (revoked,) = load_revoked(Path("cluster/ps/revoked"))
    assert revoked == Credentials("cluster/trainer1").current().digest
    assert len(ClusterKey.load_all("cluster/ps/cluster.key")) == 1
    assert ClusterKey.load("cluster.key") != ClusterKey.load("cluster/ps/cluster.key")


@pytest.mark.processes
def test_the_workers_of_two_machines_start_as_the_page_says(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    text = PAGE.read_text().replace("10.0.0.7", "127.0.0.1").replace("29500", str(port))
    commands = re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)
    assert len(commands) == 2
    assert main(["keygen", str(tmp_path / "cluster"), "--workers", "ps,trainer0"]) == 0
    (tmp_path / "script.py").write_text(SCRIPT)
    started = [
        subprocess.Popen(
            ["sh", "-c", command.replace("python script.py", f"{sys.executable} script.py")],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for command in commands
    ]
    try:
        said = [process.communicate(timeout=60)[0] for process in started]
    finally:
        for process in started:
            process.kill()
            process.communicate()
    assert re.match(r"2 unix://.*,tls://127\.0\.0\.1:\d+$", said[0], re.M)
    assert said[1] == ""
