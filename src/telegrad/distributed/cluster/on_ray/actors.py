"""Ray's actors of a cluster: the board where the workers meet, and the workers themselves.

Ray restarts an actor with the arguments that it had. So a worker that comes back joins the world
again under its name, with another incarnation, even if the program that started it has ended.
"""

import dataclasses
from importlib import import_module
from typing import Any, Final

import msgspec

from telegrad.distributed.cluster.process_settings import switch_often
from telegrad.distributed.worker_autograd import attach_autograd
from telegrad.rpc.current import set_default_worker
from telegrad.rpc.membership.card import OPEN
from telegrad.rpc.membership.membership import Membership
from telegrad.rpc.membership.rendezvous import Meeting
from telegrad.rpc.options import Options
from telegrad.rpc.security.keyed_credentials import KeyedCredentials
from telegrad.rpc.security.keys import ClusterKey

NAMESPACE: Final = "telegrad"
"""The namespace of Ray where the actors of clusters are found by name."""
LONGEST_LEAVE: Final = 5.0  # Seconds.


def board_name(cluster: str) -> str:
    """Return the name of the actor that is a cluster's board."""
    return f"telegrad:{cluster}"


class ClusterSpec(msgspec.Struct):
    """What the workers of one cluster have in common."""

    name: str
    key: bytes
    options: Options
    is_secure: bool
    """Whether they speak TLS."""
    actor_options: dict[str, Any]
    """Ray's options for each worker's actor."""
    resources: dict[str, dict[str, Any]]
    """What each worker asks Ray for, by name, in the order of ids from 1."""


class BoardActor:
    """The board of a cluster, and its spec for a program that attaches to it."""

    def __init__(self, spec: ClusterSpec) -> None:
        self._spec = spec
        self._texts: list[str] = []

    def spec(self) -> ClusterSpec:
        """Return what the workers have in common."""
        return self._spec

    def change(self, spec: ClusterSpec) -> None:
        """Replace the spec, after a worker was added or removed."""
        self._spec = spec

    def post(self, text: str) -> None:
        """Append a text."""
        self._texts.append(text)

    def read(self, start: int) -> list[str]:
        """Return the texts from this position on."""
        return self._texts[start:]


class RayBoard:
    """A worker's access to the board."""

    pace = 0.5

    def __init__(self, name: str, actor: Any) -> None:
        self._ray = import_module("ray")
        self._name = name
        self._actor = actor

    def __repr__(self) -> str:
        return f"RayBoard({self._name!r})"

    def post(self, text: str) -> None:
        self._ray.get(self._actor.post.remote(text))

    def read(self, start: int) -> list[str]:
        found: list[str] = self._ray.get(self._actor.read.remote(start))
        return found

    def close(self) -> None:
        """Do nothing: there is nothing to free."""


def member_of(spec: ClusterSpec, board: Any, name: str, rank: int | None, host: str) -> Membership:
    """Make this process a worker of the cluster."""
    options = spec.options
    if options.host is None:
        options = dataclasses.replace(options, host=host)
    key = ClusterKey(spec.key)
    credentials = KeyedCredentials(name, key) if spec.is_secure else None
    meeting = Meeting("", key, credentials, RayBoard(spec.name, board))
    return Membership(name, rank, OPEN, options, meeting, attach_autograd)


class WorkerActor:
    """The actor of one worker."""

    def __init__(self, spec: ClusterSpec, name: str, rank: int) -> None:
        ray = import_module("ray")
        switch_often()
        host = ray.util.get_node_ip_address()
        # By name: if its handle were an argument, Ray would keep that in its store.
        board = ray.get_actor(board_name(spec.name), NAMESPACE)
        self._membership = member_of(spec, board, name, rank, host)
        set_default_worker(self._membership.worker)

    def incarnation(self) -> int:
        """Return which life this is, once it is up."""
        return self._membership.worker.info.incarnation

    def leave(self) -> None:
        """Leave the world."""
        self._membership.leave(LONGEST_LEAVE)
        self._membership.close()
