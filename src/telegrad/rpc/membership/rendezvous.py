"""How the workers of a cluster find each other: all meet at rank 0's address.

Each joins with a card (its name, rank, world size and address) and gets everyone's cards when all
are there. A worker that does not fit, because its name or rank is taken or its world size differs,
is refused with the reason, and the others keep waiting. A worker that comes back under its name is
admitted at once, unless its previous life turns out to be alive. The meeting place speaks only with
those that have proved the key.
"""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import msgspec

from telegrad.errors import CallTimeout, ProtocolViolation, UsageError
from telegrad.rpc.driver.frame_reader import FrameReader
from telegrad.rpc.driver.spin import Spinning
from telegrad.rpc.membership.board import Board
from telegrad.rpc.membership.card import OPEN, Card, world_of
from telegrad.rpc.membership.roster import WorldMismatch
from telegrad.rpc.names import UNKNOWN_ID
from telegrad.rpc.security.introduction import Limits, Purpose
from telegrad.rpc.security.key_file import KeySource
from telegrad.rpc.security.refusals import Refusals
from telegrad.rpc.security.tls import CredentialSource
from telegrad.rpc.transport import Connection, Identity, connect, listen
from telegrad.rpc.transport.readiness import is_ready
from telegrad.rpc.wire.frames import ANSWER, FAILURE, SERVICE, pack

# No arrays are sent at a meeting place, and no budget counts the bytes read here.
_LIMITS: Final = Limits(payload_bytes=0)
# Seconds that a worker may take to read an answer.
_LONGEST_REPLY: Final = 10.0


class Meeting(NamedTuple):
    """Where the workers of a cluster meet, and what proves that they belong to it."""

    address: str
    """Of rank 0's meeting place; "" where there is a board."""
    key: KeySource
    credentials: CredentialSource | None = None
    board: Board | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode_card = msgspec.msgpack.Decoder(Card).decode
_decode_all = msgspec.msgpack.Decoder(list[Card]).decode
_decode_text = msgspec.msgpack.Decoder(str).decode


class Rendezvous:
    """The meeting place, run by rank 0.

    `on_return` is called with workers that come when all are there, or come back; `is_alive` says
    whether a worker that joined before still runs, which may take a while.
    """

    def __init__(
        self,
        address: str,
        identity: Identity,
        me: Card,
        on_return: Callable[[Card], object],
        is_alive: Callable[[Card], bool],
    ) -> None:
        self._me = me
        self._on_return = on_return
        self._is_alive = is_alive
        self._changed = threading.Condition()
        self._members: dict[str, Card] = {me.name: me}
        self._waiting: dict[str, Connection] = {}
        self._complete = me.world_size in (1, OPEN)
        self.closed = False
        self._refusals = Refusals(me.name)
        identity = msgspec.structs.replace(identity, limits=_LIMITS)
        # A worker that comes at once must wait until this object is complete.
        with self._changed:
            self._listener = listen(
                address, identity=identity, on_connection=self._accept, purpose=Purpose.MEETING
            )
            self.address = self._listener.address

    def _accept(self, connection: Connection) -> None:
        threading.Thread(
            target=self._welcome, args=(connection,), name="telegrad-rendezvous", daemon=True
        ).start()

    def _welcome(self, connection: Connection) -> None:
        try:
            frame = FrameReader(connection, Spinning(0.0)).read(time.monotonic() + 5.0)
            if frame is None or frame.kind != SERVICE:
                raise ProtocolViolation("expected a worker's joining")
            joining = _decode_card(frame.header)
            if joining.name != connection.peer_name:
                raise ProtocolViolation(f"{connection.peer_name} joins as {joining.name}")
        except (OSError, EOFError, ProtocolViolation, msgspec.MsgspecError, UnicodeDecodeError):
            connection.close()
            return
        gone: Card | None = None
        while True:
            with self._changed:
                reason = self._misfit(joining)
                returns, known = self._complete, self._members.get(joining.name)
                if reason is None and (known is gone or not returns):
                    self._admit(joining, connection)
                    break
            # Outside the lock: asking may take a while.
            if reason is None and known is not None and self._is_alive(known):
                reason = (
                    f"there is a worker named {known.name!r} already (rank {known.rank}, at "
                    f"{known.address}), and it lives: is this a second job with the same address "
                    "and key? One that is to be replaced must end first"
                )
            if reason is not None:
                said = f"refused {joining.name!r}, which came to {self.address}: {reason}"
                self._refusals.note(joining.name, time.monotonic(), said, reason=reason)
                _reply(connection, FAILURE, reason)
                return
            gone = known
        if returns:
            # Outside the lock: telling everyone may take a while.
            self._on_return(joining)

    def _misfit(self, joining: Card) -> str | None:
        if self.closed:
            return "rank 0 has closed the meeting place: its cluster is leaving, or did not start"
        size = self._me.world_size
        if joining.world_size != size:
            return f"rank 0 expects {world_of(size)}, {joining.name} {world_of(joining.world_size)}"
        if joining.version != self._me.version:
            return (
                f"rank 0 runs telegrad {self._me.version}, {joining.name} {joining.version}: "
                "install the same version for all workers"
            )
        if not 0 < joining.rank < (size or UNKNOWN_ID):
            return f"expected a rank from 1 to {size - 1}, {joining.name} has {joining.rank}"
        known = self._members.get(joining.name)
        if known is not None and not (known.rank == joining.rank and self._has_gone(known.name)):
            return (
                f"there is a worker named {joining.name!r} already (rank {known.rank}, at "
                f"{known.address})"
            )
        for other in self._members.values():
            if other.rank == joining.rank and other.name != joining.name:
                return f"rank {joining.rank} is taken by {other.name!r}"
        return None

    def _has_gone(self, name: str) -> bool:
        """Say whether a known name may be reused: its worker is gone, or will be asked."""
        if self._complete:
            return True
        waiting = self._waiting.get(name)
        # A waiting worker sends nothing: if anything can be read, it is the end of the stream.
        return waiting is not None and is_ready(waiting.fileno(), 0.0, for_write=False)

    def _admit(self, joining: Card, connection: Connection) -> None:
        before = self._waiting.pop(joining.name, None)
        if before is not None:
            before.close()
        self._members[joining.name] = joining
        if self._complete:
            _reply(connection, ANSWER, self._everyone())
            return
        self._waiting[joining.name] = connection
        if len(self._members) == self._me.world_size:
            self._complete = True
            everyone = self._everyone()
            for waiting in self._waiting.values():
                _reply(waiting, ANSWER, everyone)
            self._waiting.clear()
            self._changed.notify_all()

    def forget(self, name: str, incarnation: int) -> None:
        """Forget a worker's life that is over, so that later workers don't hear of it."""
        with self._changed:
            known = self._members.get(name)
            is_it = known is not None and known.incarnation == incarnation
            if is_it and self._me.world_size == OPEN:
                del self._members[name]

    def everyone(self) -> list[Card]:
        """Return the cards of all members, by rank."""
        with self._changed:
            return self._everyone()

    def _everyone(self) -> list[Card]:
        return sorted(self._members.values(), key=lambda member: member.rank)

    def wait(self, timeout: float) -> list[Card]:
        """Return everyone's cards when all are there."""
        with self._changed:
            patience = min(timeout, threading.TIMEOUT_MAX)
            if not self._changed.wait_for(lambda: self._complete, patience):
                present = ", ".join(repr(member.name) for member in self._everyone())
                raise CallTimeout(
                    f"{len(self._members)} of {self._me.world_size} workers came to {self.address} "
                    f"within {timeout:g} s: {present}. Are the others running, with this address "
                    "and world size?"
                )
            return self._everyone()

    def close(self) -> None:
        """Admit no more workers."""
        self._listener.close()
        with self._changed:
            # A worker that is connected already may still try to join, and is refused.
            self.closed = True
            for waiting in self._waiting.values():
                _reply(waiting, FAILURE, "rank 0 has given up waiting for the others")
            self._waiting.clear()


def _reply(connection: Connection, kind: int, content: object) -> None:
    """Answer and hang up, without waiting for a worker that does not read."""
    unsent = None
    try:
        unsent = connection.send(pack(kind, 0, 0, 0, _encode(content), ()), (), time.monotonic())
    except OSError:
        pass
    if unsent is None:
        connection.close()
    else:
        rest = partial(_finish_reply, connection, unsent.rest)
        threading.Thread(target=rest, name="telegrad-rendezvous", daemon=True).start()


def _finish_reply(connection: Connection, rest: list[memoryview]) -> None:
    try:
        connection.send(rest, (), time.monotonic() + _LONGEST_REPLY)
    except OSError:
        pass
    finally:
        connection.close()


def join(address: str, identity: Identity, me: Card, timeout: float) -> list[Card]:
    """Join at the meeting place; return everyone's cards when all are there."""
    end = time.monotonic() + timeout
    connection = connect(address, identity=identity, timeout=min(timeout, 10.0), patience=timeout)
    try:
        connection.send(pack(SERVICE, 0, 0, 0, _encode(me), ()))
        frame = FrameReader(connection, Spinning(0.0)).read(end)
        if frame is None:
            raise CallTimeout(
                f"{me.name} reached rank 0 at {address}, but not all {me.world_size} workers came "
                f"within {timeout:g} s"
            )
        if frame.kind == FAILURE:
            reason = _decode_text(frame.header)
            kind = WorldMismatch if world_of(OPEN) in reason else UsageError
            raise kind(f"{me.name} can't join: {reason}")
        return _decode_all(frame.header)
    except CallTimeout:
        # CallTimeout is an OSError, too, but means no closed connection.
        raise
    except (EOFError, OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CallTimeout(f"rank 0 at {address} closed the connection: {error}") from error
    finally:
        connection.close()
