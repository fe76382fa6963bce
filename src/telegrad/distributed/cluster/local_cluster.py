"""A cluster on this machine: a process for each name, and the calling process as one more worker.

Children are fresh interpreters that take over `sys.path`, the interpreter's options (-O, -W, -X),
the working directory and the environment. They never run the caller's script, so nothing needs a
`__main__` guard. Unless the environment says how many threads they may start, all share the cores.
There is a control socket for each child: when it closes, on exit, on an exception or because this
process was killed, the child ends; and when the child ends, a thread here notices by the same
socket.
"""

import contextlib
import logging
import os
import secrets
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Self

from telegrad.distributed.cluster.child import Child, spawn
from telegrad.distributed.cluster.child_output import logging_levels, prefixer
from telegrad.distributed.cluster.child_watch import ChildWatch
from telegrad.distributed.cluster.cluster import Cluster, ClusterChange
from telegrad.distributed.cluster.descriptor_limit import make_room_for
from telegrad.distributed.cluster.terminal import Terminal
from telegrad.distributed.cluster.worker_process import (
    INTRODUCE,
    Ended,
    Introduction,
    WorkerSpec,
)
from telegrad.distributed.worker_autograd import attach_autograd
from telegrad.errors import PeerError, TelegradError, UnknownWorker, UsageError, WorkerLost
from telegrad.rpc.current import check_not_serving, default_worker, set_default_worker
from telegrad.rpc.membership.card import OPEN, Card
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.options import Options, given_options
from telegrad.rpc.security.introduction import check_worker_name
from telegrad.rpc.security.keys import KEY_BYTES, ClusterKey
from telegrad.rpc.startup import begin_worker, forget, meet
from telegrad.rpc.timeouts import LONGEST_WAIT, seconds
from telegrad.rpc.transport import PrivateDirectory
from telegrad.rpc.wire.functions import exposing_modules
from telegrad.rpc.worker import Worker

_log = logging.getLogger("telegrad.cluster")
_START_TIMEOUT: Final = 60.0  # Seconds, plus one for each worker.
_AT_ONCE: Final = 8 * (os.cpu_count() or 1)  # Processes that start at the same time.
_GRACE: Final = 3.0  # Seconds that children have to end by themselves; they allow themselves less.
_running: "set[LocalCluster]" = set()
"""The clusters that run, kept alive here: otherwise one that nothing refers to would be collected,
and its workers would end unnoticed."""


class LocalCluster(Cluster):
    """Workers on this machine, in a `with` statement.

    Arguments:
        names: The names of the workers, each in a process of its own; or how many: they are
            called worker0, worker1 and so on.
        me: The name of the calling process, whose id is 0. While the cluster runs, the module-level
            functions act for it, on any thread.
        options: The options of every worker.
        start_timeout: The seconds that the processes have to start; by default 60, plus one for
            each: it takes 0.3 s of a processor to start one, most of it for imports.
        initializer: A function that each started worker runs before it is used, also after a
            restart.
        restart: Whether a worker whose process ended, or that was lost, is started again, under its
            name and id.
        prefix_output: Whether lines that the processes print are prefixed with the worker's name,
            and what they log is handled by this process's loggers; otherwise they write to this
            process's streams.

    Raises:
        UsageError: If a name is not allowed or comes twice; on starting, if this process may not
            open as many files as needed.
        WorkerLost: On starting, if a process did not come up.

    Examples:
        >>> from telegrad.distributed import LocalCluster
        >>> with LocalCluster(["ps", "trainer"]):
        ...     print(rpc.rpc_sync("ps", abs, (-2,)))
        2
    """

    def __init__(
        self,
        names: Sequence[str] | int,
        *,
        me: str = "main",
        options: Options | None = None,
        start_timeout: float | None = None,
        initializer: Callable[[], object] | None = None,
        restart: bool = False,
        prefix_output: bool = True,
    ) -> None:
        super().__init__()
        chosen = _chosen_names(names)
        everyone = [me, *chosen]
        for name in everyone:
            check_worker_name(name)
        twice = sorted({name for name in everyone if everyone.count(name) > 1})
        if twice:
            raise UsageError(
                f"expected different names, {', '.join(twice)} came twice; this process is {me!r} "
                "itself, me=... gives it another name"
            )
        if initializer is not None and not callable(initializer):
            raise UsageError(
                f"expected a function as initializer, got a {type(initializer).__name__}"
            )
        self._names = chosen
        self._me = me
        self._options = given_options(options)
        if start_timeout is None:
            start_timeout = _START_TIMEOUT + len(chosen)
        self.start_timeout = seconds(start_timeout, "start_timeout")
        """The seconds that the workers have to start."""
        self._initializer = initializer
        self._restart = restart
        self._lines = prefixer(chosen) if prefix_output and chosen else None
        self._children: dict[str, Child] = {}
        self._cards: dict[str, Card] = {}
        self._ends: dict[str, tuple[int, str]] = {}
        """By name: the incarnation of its last life, and how that ended."""
        self._ids: dict[str, int] = {}
        """The ids of all names so far: none is used twice."""
        self._changing = threading.RLock()
        """Held while a worker is being started, added or removed."""
        self._secret = b""
        self._directory: PrivateDirectory | None = None
        self._worker: Worker | None = None
        self._before: Worker | None = None
        self._watch: ChildWatch | None = None

    @property
    def is_running(self) -> bool:
        return self._worker is not None

    @property
    def worker(self) -> Worker:
        if self._worker is None:
            raise UsageError("the cluster is not running: use it in a with statement")
        return self._worker

    @property
    def names(self) -> list[str]:
        return [self._me, *self._names]

    def process(self, name: str) -> "subprocess.Popen[bytes]":
        """Return the process of a worker, to be watched or killed."""
        child = self._children.get(name)
        if child is None:
            raise UnknownWorker(
                f"there is no process of worker {name!r}; there are {', '.join(self._children)}"
            )
        return child.process

    def _process_number(self, name: str) -> str:
        if name == self._me:
            return str(os.getpid())
        return str(self._children[name].process.pid) if name in self._children else ""

    def start(self) -> Self:
        if self._worker is not None:
            raise UsageError("the cluster is running already")
        check_not_serving()
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def _start(self) -> None:
        end = time.monotonic() + self.start_timeout
        make_room_for(len(self._names))
        self._secret = secrets.token_bytes(KEY_BYTES)
        if self._options.unix_sockets:
            self._directory = PrivateDirectory.make()
            self._directory.keep()
        worker, _ = begin_worker(
            self._me,
            0,
            ClusterKey(self._secret),
            self._options,
            address=self._address(self._me),
            on_start=attach_autograd,
        )
        self._worker = worker
        Terminal(worker)
        worker.losses.explain = self._explain
        me = worker.info
        self._cards = {self._me: Card(me.name, 0, OPEN, worker.address, me.incarnation)}
        cards = self._bring_up_all(end)
        meet(worker, cards)
        self._cards.update({card.name: card for card in cards})
        for name in self._names:
            self._children[name].send(list(self._cards.values()))
        for name in self._names:
            self._children[name].receive(bool)
        self._before = set_default_worker(worker)
        _running.add(self)
        self._watch = ChildWatch(self._ended)
        for card in self._cards.values():
            self._tell(ClusterChange("came", card.info))
        for name in self._names:
            self._watch.add(self._children[name])
        if self._restart:
            worker.on_worker_lost(self._condemn)
        self._initialize(self._names)

    def _bring_up_all(self, end: float) -> list[Card]:
        """Start all processes, few at a time, since this one has to run, too; return the cards."""
        cards: list[Card] = []
        for started, name in enumerate(self._names):
            if started >= _AT_ONCE:
                cards.append(self._card(self._names[started - _AT_ONCE], end))
            self._spawn(name)
            self._plan(name)
        return cards + [self._card(name, end) for name in self._names[len(cards) :]]

    def _plan(self, name: str) -> None:
        """Tell a process what it is to be."""
        number = self._ids.setdefault(name, len(self._ids) + 1)
        self._children[name].send(
            WorkerSpec(
                name,
                number,
                self._address(name),
                self._secret,
                self._options,
                # The kernel sends its signal when the *thread* that started the child ends.
                os.getpid() if threading.current_thread() is threading.main_thread() else None,
                # A strict worker imports nothing that a peer names, but what its starter lists.
                exposing_modules() if self._options.strict else [],
                self._children[name].log_fd,
                logging_levels(),
            )
        )

    def _card(self, name: str, end: float) -> Card:
        """Return the card of a worker once it is up."""
        child = self._children[name]
        left = max(0.1, end - time.monotonic())
        child.line.socket.settimeout(left if left < LONGEST_WAIT else None)
        address, incarnation = child.receive(tuple[str, int])
        if incarnation < 0:
            raise WorkerLost(f"worker {name!r} could not start: {address}")
        child.incarnation = incarnation
        return Card(name, self._ids[name], OPEN, address, incarnation)

    def _explain(self, who: WorkerInfo) -> str | None:
        incarnation, reason = self._ends.get(who.name, (0, None))
        if incarnation == who.incarnation:
            return reason
        child = self._children.get(who.name)
        # Not the child of a later life: to ask would read what that one says as it starts.
        is_it = child is not None and child.incarnation == who.incarnation
        return child.reason() if child is not None and is_it else None

    def _address(self, name: str) -> str:
        if self._directory is None:
            return "tcp://127.0.0.1:0"
        return self._directory.socket_address(name)

    def _spawn(self, name: str) -> None:
        self._children[name] = spawn(name, len(self._names) + 1, self._lines)

    def _initialize(self, names: Sequence[str]) -> None:
        if self._initializer is not None:
            calls = [self.worker.rpc_async(name, self._initializer) for name in names]
            for call in calls:
                call.wait()

    # Changes.

    def add(self, name: str, **resources: Any) -> WorkerInfo:
        check_worker_name(name)
        if resources:
            raise UsageError(
                "expected no resources, which the workers of one machine share, got "
                f"{', '.join(resources)}"
            )
        with self._changing:
            _ = self.worker
            if name in self.names:
                where = self._cards[name].address if name in self._cards else "being started"
                raise UsageError(
                    f"there is a worker named {name!r} already, at {where}: choose another name, "
                    "or remove it first"
                )
            make_room_for(1)
            self._names.append(name)
            try:
                return self._bring_up(name)
            except BaseException:
                self._names.remove(name)
                self._end([self._children.pop(name)] if name in self._children else [])
                raise

    def _bring_up(self, name: str) -> WorkerInfo:
        """Start a worker of a running cluster, and introduce it to everyone."""
        end = time.monotonic() + self.start_timeout
        self._spawn(name)
        self._plan(name)
        child = self._children[name]
        card = self._card(name, end)
        self._cards[name] = card
        child.send(list(self._cards.values()))
        child.receive(bool)
        meet(self.worker, [card])
        self._introduce(Introduction([card], []), besides=name)
        self._initialize([name])
        assert self._watch is not None, "it runs"
        self._watch.add(child)
        self._tell(ClusterChange("came", card.info))
        return card.info

    def _introduce(self, news: Introduction, besides: str) -> None:
        """Tell the others who came or left, except those that are lost."""
        others = [name for name in self._cards if name not in (self._me, besides)]
        calls = []
        for name in others:
            with contextlib.suppress(TelegradError):
                calls.append(self.worker.send_service(name, INTRODUCE, news))
        for call in calls:
            with contextlib.suppress(PeerError):
                call.wait()

    def remove(self, name: str) -> None:
        with self._changing:
            _ = self.worker
            if name not in self._names:
                raise UnknownWorker(
                    f"there is no worker {name!r} to remove; there are {', '.join(self._names)}"
                )
            self._names.remove(name)
            child, card = self._children.pop(name), self._cards.pop(name, None)
            if card is not None:
                self._tell(ClusterChange("left", card.info))
            if self._watch is not None:
                self._watch.drop(child)
            self._end([child])
            forget(self.worker, name)
            self._introduce(Introduction([], [name]), besides=name)

    def _ended(self, child: Child) -> None:
        """Handle that the process of a worker has ended by itself."""
        self._tell_siblings(child)
        with self._changing:
            card = self._cards.get(child.name)
            if self._worker is None or self._children.get(child.name) is not child or card is None:
                return
            reason = child.reason() or "its connection was closed"
            self._ends[child.name] = card.incarnation, reason
            _log.warning("worker %r was lost: %s", child.name, reason)
            del self._cards[child.name]
            self._tell(ClusterChange("lost", card.info, reason))
            child.line.socket.close()
            if not self._restart:
                self._give_up(child.name, WorkerLost(f"{reason}, and restart=False"))
                return
            try:
                self._bring_up(child.name)
            except Exception as error:
                _log.error("worker %r could not be started again: %s", child.name, error)
                self._give_up(child.name, error)
                self._end([self._children[child.name]])

    def _tell_siblings(self, ended: Child) -> None:
        """Tell the other processes why the connections to one were closed."""
        card, reason = self._cards.get(ended.name), ended.reason()
        if card is None or reason is None or self._children.get(ended.name) is not ended:
            return
        for name, child in list(self._children.items()):
            # A child that is being started expects other messages.
            if child is not ended and name in self._up:
                child.send(Ended(ended.name, card.incarnation, reason))

    def _condemn(self, who: WorkerInfo, error: BaseException) -> None:
        """End a lost worker that may still run, stopped or stuck: a new life will replace it."""
        child = self._children.get(who.name)
        if child is not None and child.incarnation == who.incarnation:
            child.process.kill()

    def stop(self) -> None:
        _running.discard(self)
        worker, self._worker = self._worker, None
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()
        # If a worker is being restarted, wait until it is up; it is ended below.
        with self._changing:
            children, self._children = list(self._children.values()), {}
            self._cards.clear()
            self._up.clear()
            self._ends.clear()
            self._ids.clear()
        try:
            if worker is not None:
                # If the start failed, it has never been the default.
                if worker is default_worker():
                    set_default_worker(self._before)
                worker.close()
        finally:
            try:
                self._end(children)
            finally:
                if self._directory is not None:
                    self._directory.close()
                    self._directory = None

    close = stop

    def _end(self, children: list[Child]) -> None:
        try:
            for child in children:
                child.line.socket.close()
                if child.incarnation is None:
                    # It still imports, and nothing of the user's runs there.
                    child.process.kill()
            end = time.monotonic() + _GRACE
            for child in children:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.process.wait(max(0.0, end - time.monotonic()))
        finally:
            # Those that still run were stopped or are stuck in native code, or Ctrl-C ended the
            # wait.
            for child in children:
                child.line.socket.close()
                # SIGTERM would not reach a stopped process.
                child.process.kill()
                child.process.wait()
                if child.output is not None:
                    child.output.finish(_GRACE)


def _chosen_names(names: Sequence[str] | int) -> list[str]:
    if isinstance(names, int) and not isinstance(names, bool) and names >= 0:
        return [f"worker{number}" for number in range(names)]
    if isinstance(names, (str, bool)) or not isinstance(names, Iterable):
        raise UsageError(
            'expected a list of names like ["ps", "trainer"], or a number of workers, got '
            f"{names!r}"
        )
    return list(names)
