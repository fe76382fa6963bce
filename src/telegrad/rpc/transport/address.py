"""Where a worker listens, as text that can be sent to others.

    unix:///run/user/1000/telegrad-x1/ps.sock      a Unix socket in a private directory
    tcp://127.0.0.1:29500    tcp://[::1]:29500     TCP, on this machine only
    tls://10.0.0.7:29500                           TLS 1.3 over TCP, between machines
    unix://5f0c9a…/run/…/ps.sock,tls://10.0.0.7:29500    both: the first for workers of its machine

Opens nothing, but resolves host names. Invariant: `parse(text).text == text` for every address
that telegrad makes.
"""

import ipaddress
import logging
import re
import socket
import time

import msgspec

from telegrad.errors import Refused, UsageError, WorkerLost
from telegrad.rpc.transport.machine import this_machine

SocketAddress = tuple[socket.AddressFamily, str | tuple[str, int]]
"""A socket's family, and the address that it is connected or bound to."""

_log = logging.getLogger("telegrad.rpc")
# Seconds between two look-ups of a host name that is not known yet.
_PAUSE = 0.25
_SCHEMES = ("unix", "tcp", "tls")
_FORMS = "unix:///path, tcp://host:port (this machine) or tls://host:port (between machines)"


class Address(msgspec.Struct, frozen=True):
    """A parsed address: `path` of a Unix socket, or `host` and `port`.

    `machine` identifies the Unix socket's machine, where readers may be on another.
    """

    scheme: str
    path: str = ""
    host: str = ""
    port: int = 0
    machine: str = ""

    @property
    def text(self) -> str:
        """The address as text that can be sent to others."""
        if self.scheme == "unix":
            return f"unix://{self.machine}{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def resolve(self, patience: float = 0.0) -> list[SocketAddress]:
        """Return the families and socket addresses to try, in the system's order.

        A host name that is not known is looked up again for `patience` seconds: a container's name
        may be known only once it runs.
        """
        if self.scheme == "unix":
            return [(socket.AF_UNIX, self.path)]
        end = time.monotonic() + patience
        is_told = False
        while True:
            try:
                found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
                return [(row[0], (str(row[4][0]), int(row[4][1]))) for row in found]
            except socket.gaierror as error:
                unknown = f"the host of {self.text} is not known ({error.strerror})"
            if time.monotonic() + _PAUSE > end:
                raise WorkerLost(f"{unknown}: check MASTER_ADDR or the address you gave")
            if not is_told:
                _log.warning("%s yet: it is looked up again for %g s", unknown, patience)
                is_told = True
            time.sleep(_PAUSE)

    def check(self, patience: float = 0.0) -> None:
        """Raise for plain TCP beyond this machine; for `patience` see `resolve`."""
        for _, where in self.resolve(patience) if self.scheme == "tcp" else ():
            host = where[0]
            if not ipaddress.ip_address(host.partition("%")[0]).is_loopback:
                raise Refused(
                    f"{self.text} reaches beyond this machine ({host}) without TLS, where others "
                    "can read and change what is sent: use 127.0.0.1, or give all workers a key "
                    "(`telegrad keygen FILE`, TELEGRAD_KEY_FILE) and let them speak TLS by it, at "
                    f"tls://{self.host}:{self.port}"
                )


def parse_address(text: str) -> Address:
    """Return the address that the text names, or raise UsageError with the valid forms."""
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in _SCHEMES:
        raise UsageError(f"expected an address like {_FORMS}, got {text!r}")
    if scheme == "unix":
        found = re.fullmatch(r"([0-9a-f]{16})?(/.*)", rest, re.DOTALL)
        if found is None:
            raise UsageError(f"expected an absolute path after unix://, got {text!r}")
        return Address(scheme, path=found[2], machine=found[1] or "")
    host, separator, port = rest.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (separator and host and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise UsageError(
            f"expected a host and a port up to 65535 after {scheme}://, got {text!r}: {_FORMS}"
        )
    return Address(scheme, host=host, port=int(port))


def parse_addresses(text: str) -> list[Address]:
    """Return a worker's addresses: one, or one for its own machine and one for all."""
    near, separator, far = text.rpartition(",")
    if separator and near.startswith("unix://") and far.startswith("tls://"):
        return [parse_address(near), parse_address(far)]
    return [parse_address(text)]


def ways_from_here(text: str) -> list[Address]:
    """Return the addresses at which this process may reach a worker, the best first."""
    *near, last = parse_addresses(text)
    return [*(each for each in near if each.machine == this_machine()), last]


def is_near(text: str) -> bool:
    """Say whether the worker at that address is on this machine, as far as the text tells.

    Hot paths ask this about text that peers sent, so it never raises.
    """
    return "tls://" not in text or text.startswith(f"unix://{this_machine()}/")
