"""A network of namespaces: one for each worker, and a switch between them whose cables can be cut.

Nothing of it touches the machine's own network. It takes root and the command ``ip``.
"""

import contextlib
import ctypes
import os
import re
import shutil
import subprocess

__all__ = ["Network", "sweep", "why_no_network"]

_CLONE_NEWNET = 0x40000000
# What a bad link does to packets; the second where the kernel has no netem: its queue is so short
# that it drops what comes too fast.
_BAD = (
    ("netem", "delay", "10ms", "10ms", "reorder", "25%", "loss", "3%"),
    ("tbf", "rate", "2mbit", "burst", "4kb", "limit", "8kb"),
)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


def why_no_network() -> str | None:
    """Say why there can be no namespaces here; None if there can."""
    if not shutil.which("ip") or os.geteuid() != 0:
        return "network namespaces need root and the command ip"
    try:
        Network(["w0"]).close()
    except subprocess.CalledProcessError as error:
        return f"this machine does not allow network namespaces: {error.stderr.strip()}"
    return None


def sweep(pid: int) -> None:
    """Remove the namespaces of a process that could not."""
    if not shutil.which("ip"):
        return
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    for name in re.findall(rf"^(tg{pid}(?:s|w\d+))\b", listed, re.MULTILINE):
        _run("ip", "netns", "del", name)


class Network:
    """Namespaces for the named workers; `bad_link` says by what means links are made bad."""

    def __init__(self, names: list[str]) -> None:
        self._prefix = f"tg{os.getpid()}"
        self._switch = f"{self._prefix}s"
        self._stack = contextlib.ExitStack()
        self.bad_link: str | None = None
        try:
            self._add(self._switch)
            _run("ip", "-n", self._switch, "link", "add", "bridge", "type", "bridge")
            _run("ip", "-n", self._switch, "link", "set", "bridge", "up")
            for name in names:
                self._plug_in(name)
            self._find_bad_link(names[0])
        except BaseException:
            self.close()
            raise

    def _add(self, namespace: str) -> None:
        _run("ip", "netns", "add", namespace)
        self._stack.callback(_run, "ip", "netns", "del", namespace)

    def _plug_in(self, name: str) -> None:
        there, switch = self.namespace(name), self._switch
        self._add(there)
        ends = ("type", "veth", "peer", "cable", "netns", there)
        _run("ip", "-n", switch, "link", "add", name, *ends)
        _run("ip", "-n", switch, "link", "set", name, "master", "bridge", "up")
        _run("ip", "-n", there, "addr", "add", f"{self.host(name)}/24", "dev", "cable")
        _run("ip", "-n", there, "link", "set", "cable", "up")
        _run("ip", "-n", there, "link", "set", "lo", "up")

    def _find_bad_link(self, name: str) -> None:
        if not shutil.which("tc"):
            return
        for means in _BAD:
            with contextlib.suppress(subprocess.CalledProcessError):
                self._impair(name, means)
                self.bad_link = means[0]
                self.restore(name)
                return

    def namespace(self, name: str) -> str:
        return f"{self._prefix}{name}"

    def host(self, name: str) -> str:
        return f"10.213.77.{int(name[1:]) + 1}"

    def command(self, name: str) -> list[str]:
        """Return what goes before a command so that it runs in the worker's namespace."""
        return ["ip", "netns", "exec", self.namespace(name)]

    def enter(self, name: str) -> None:
        """Move this thread, and those that it starts, into a worker's namespace."""
        with open(f"/var/run/netns/{self.namespace(name)}") as file:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.setns(file.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "can't enter the network namespace")

    def cut(self, name: str) -> None:
        _run("ip", "-n", self._switch, "link", "set", name, "down")

    def heal(self, name: str) -> None:
        _run("ip", "-n", self._switch, "link", "set", name, "up")

    def impair(self, name: str) -> None:
        """Let the link lose packets, both ways, and delay and reorder them where that can be."""
        self._impair(name, next(means for means in _BAD if means[0] == self.bad_link))

    def _impair(self, name: str, means: tuple[str, ...]) -> None:
        for namespace, device in self._ends(name):
            _run("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", *means)

    def restore(self, name: str) -> None:
        for namespace, device in self._ends(name):
            _run("tc", "-n", namespace, "qdisc", "del", "dev", device, "root")

    def _ends(self, name: str) -> list[tuple[str, str]]:
        return [(self._switch, name), (self.namespace(name), "cable")]

    def close(self) -> None:
        self._stack.close()
