"""The handshake by which two workers come to trust a connection: a state machine for each side.

    dialler                                      listener
    introduction (name, nonce, ...)      ─►      for me, for this purpose, at these ends?
    for this purpose, ...? is it the one ◄─      introduction (name, nonce, ...)
    proof = derive("dialler proof", T)   ─►      checked in constant time
                                         ◄─      proof = derive("listener proof", T), or a refusal
    checked in constant time

T is both introductions, byte for byte, and the certificates of both sides where there is TLS. It
includes the purpose, the listener that the dialler expects, both names, incarnations and nonces,
the ends of the connection, versions and limits. So nothing negotiated can be changed on the way. A
proof for one purpose, listener or connection is worthless for any other; a recorded proof is
worthless because nonces are fresh, and one sent back to its maker because it names the side. Each
side compares the other's statements with what it sees itself, so a relayed handshake fails, changed
or not. The keys of the frames that follow, one for each direction, are derived from T as well, and
so belong to this connection alone. The dialler proves first: a stranger learns nothing made with
the key. While a key is being changed, a worker has several: the dialler proves with its first, and
the listener accepts any of its own and answers with the same.

There is no I/O, clock or randomness here: bytes, nonces and the time come in, effects go out. Every
message has a fixed size, and `wanted` says how much of it is missing, so a driver that reads no
more than that never takes a byte of the frames. Invariants: `Established` is the last effect of a
successful handshake, and follows a proof that was checked; after `Failed` nothing is handled.
"""

import enum
import hashlib
import hmac
from collections.abc import Collection

import msgspec

from telegrad.errors import AuthenticationFailed, PeerError, ProtocolViolation
from telegrad.rpc.security.introduction import (
    INTRODUCTION_BYTES,
    Introduction,
    Limits,
    Purpose,
    Side,
    could_be_introduction,
)
from telegrad.rpc.security.keys import ClusterKey, SessionKeys

_PROOF = b"\x01"
REFUSAL = b"\x00"
"""Sent by a listener in place of its introduction (a certificate was refused) or its proof."""
_PROOF_BYTES = 1 + hashlib.sha256().digest_size
# What a side that speaks TLS sends first.
_TLS_HELLO = b"\x16\x03"
_TLS_DOUBT = ": have both sides certificates (TELEGRAD_CREDENTIALS), or neither?"
_KEY_ADVICE = "check that both workers were given the same key (TELEGRAD_KEY_FILE)"


class Agreement(msgspec.Struct, frozen=True):
    """What both sides of an authenticated connection have agreed on."""

    peer_name: str
    peer_incarnation: int
    version: int
    limits: Limits
    segments: bool


class Opened(msgspec.Struct, frozen=True):
    """The connection is open."""


class Received(msgspec.Struct, frozen=True):
    """Bytes came, at most `wanted` of them."""

    data: bytes


class Closed(msgspec.Struct, frozen=True):
    """The other side closed the connection."""


class Elapsed(msgspec.Struct, frozen=True):
    """Time passed."""


class Write(msgspec.Struct, frozen=True):
    """Send these bytes."""

    data: bytes


class Established(msgspec.Struct, frozen=True):
    """The other side has proved the key; the payload follows, under `keys`."""

    agreement: Agreement
    keys: SessionKeys


class Failed(msgspec.Struct, frozen=True):
    """Close the connection; `error` says why."""

    error: PeerError


Event = Opened | Received | Closed | Elapsed
Effect = Write | Established | Failed


class _State(enum.Enum):
    NEW = "before the connection opened"
    AWAITS_INTRODUCTION = "the other side's introduction"
    AWAITS_PROOF = "the other side's proof"
    DONE = "nothing"


class Handshake:
    """One side's part; `handle` takes an event and the time and returns effects."""

    def __init__(
        self,
        own: Introduction,
        keys: tuple[ClusterKey, ...],
        *,
        deadline: float,
        certified: str | None = None,
        certificates: tuple[bytes, bytes] = (b"", b""),
        revoked: Collection[str] = (),
    ) -> None:
        """Take part as `own`, proving with the first of the `keys` and accepting all of them.

        `certified` is the name in the other side's certificate, if there is one; `certificates` are
        digests of the dialler's and the listener's, in this order. If no certificates are shown,
        `revoked` are the names that the key alone does not prove.
        """
        self._own = own
        self._keys = keys
        self._key = keys[0]
        """The key that both sides use."""
        self._deadline = deadline
        self._certified = certified
        self._certificates = certificates
        self._revoked = revoked
        self._state = _State.NEW
        self._received = b""
        self._transcript = b""
        self.peer: Introduction | None = None
        """The other side's introduction, once it has come; not proved yet."""

    @property
    def wanted(self) -> int:
        """How many bytes the message under way still lacks."""
        if self._state is _State.AWAITS_INTRODUCTION:
            return INTRODUCTION_BYTES - len(self._received)
        if self._state is _State.AWAITS_PROOF:
            return _PROOF_BYTES - len(self._received)
        return 0

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Return the effects of the event."""
        if self._state is _State.DONE:
            return []
        if now >= self._deadline:
            return self._fail(
                AuthenticationFailed(
                    f"the deadline of the handshake passed waiting for {self._state.value} "
                    f"({len(self._received)} bytes of it came)"
                )
            )
        try:
            match event:
                case Opened():
                    return self._open()
                case Received(data):
                    return self._receive(data)
                case Closed():
                    raise ProtocolViolation(
                        f"the connection was closed when {self._state.value} was expected "
                        f"({len(self._received)} bytes of it came)"
                        # A side that speaks TLS closes so if this one speaks plain TCP.
                        + (_TLS_DOUBT if self.peer is None and self._own.ends else "")
                    )
                case Elapsed():
                    return []
        except PeerError as error:
            return self._fail(error)

    def _open(self) -> list[Effect]:
        self._state = _State.AWAITS_INTRODUCTION
        if self._own.side is Side.DIALLER:
            return [Write(self._own.encode())]
        return []

    def _receive(self, data: bytes) -> list[Effect]:
        if len(data) > self.wanted:
            raise ProtocolViolation(
                f"expected at most {self.wanted} bytes of {self._state.value}, got {len(data)}"
            )
        self._received += data
        introducing = self._state is _State.AWAITS_INTRODUCTION
        if introducing and self._certified is not None and data[:1] == REFUSAL:
            raise AuthenticationFailed(
                f"{self._certified} refused our certificate: was it revoked? Its log says why; "
                "mint another one with `telegrad keygen`"
            )
        if introducing and not could_be_introduction(self._received):
            doubt = _TLS_DOUBT if self._received.startswith(_TLS_HELLO) else ""
            raise ProtocolViolation(
                "expected a worker's introduction, got bytes that begin "
                f"{self._received[:8]!r}{doubt}"
            )
        if self.wanted:
            return []
        message, self._received = self._received, b""
        return self._on_introduction(message) if introducing else self._on_proof(message)

    def _on_introduction(self, message: bytes) -> list[Effect]:
        own, peer = self._own, Introduction.decode(message)
        self.peer = peer
        if peer.side is own.side or peer.nonce == own.nonce:
            raise AuthenticationFailed(
                f"expected the introduction of a {_other(own.side).name.lower()} with a nonce of "
                f"its own, got that of a {peer.side.name.lower()}: our own message sent back?"
            )
        if own.side is Side.LISTENER:
            answer = own.encode()
            try:
                self._check_meant(peer)
            except PeerError as error:
                # Answer all the same, so that the dialler can find and report the mismatch.
                return [Write(answer), *self._fail(error)]
            self._transcript = b"".join((message, answer, *self._certificates))
            self._state = _State.AWAITS_PROOF
            return [Write(answer)]
        self._check_meant(peer)
        self._check_certified(peer)
        self._transcript = b"".join((own.encode(), message, *self._certificates))
        self._state = _State.AWAITS_PROOF
        return [Write(_PROOF + self._proof_of(Side.DIALLER))]

    def _on_proof(self, message: bytes) -> list[Effect]:
        own, peer = self._own, self.peer
        assert peer is not None
        try:
            self._check_proof(message, peer)
            if own.side is Side.LISTENER:
                self._check_certified(peer)
        except AuthenticationFailed as error:
            if own.side is Side.DIALLER:
                raise
            # Tell the dialler: a listener that closes without a refusal must have died.
            return [Write(REFUSAL.ljust(_PROOF_BYTES, b"\0")), *self._fail(error)]
        self._state = _State.DONE
        agreement = Agreement(
            peer.name,
            peer.incarnation,
            min(own.newest, peer.newest),
            own.limits.smaller(peer.limits),
            own.segments and peer.segments,
        )
        established = Established(
            agreement,
            SessionKeys(self._derive(own.side, "frames"), self._derive(peer.side, "frames")),
        )
        if own.side is Side.DIALLER:
            return [established]
        return [Write(_PROOF + self._proof_of(Side.LISTENER)), established]

    def _proof_of(self, side: Side) -> bytes:
        return self._derive(side, "proof")

    def _derive(self, side: Side, use: str) -> bytes:
        return self._key.derive(f"telegrad {side.name.lower()} {use}", self._transcript)

    def _check_proof(self, message: bytes, peer: Introduction) -> None:
        for key in self._keys if self._own.side is Side.LISTENER else self._keys[:1]:
            self._key = key
            if hmac.compare_digest(message, _PROOF + self._proof_of(peer.side)):
                return
        if self._own.side is Side.DIALLER and message[:1] == REFUSAL:
            raise AuthenticationFailed(
                f"{peer.name} refused our proof: {_KEY_ADVICE} and, with TLS, each the certificate "
                "of its own name"
            )
        raise AuthenticationFailed(
            f"the other side, which calls itself {peer.name}, did not prove the cluster's key: "
            f"{_KEY_ADVICE}"
        )

    def _check_meant(self, peer: Introduction) -> None:
        """Raise unless this is the connection that the other side means to have."""
        own = self._own
        self._check_versions(peer)
        if peer.purpose is not own.purpose:
            raise AuthenticationFailed(
                f"expected {own.purpose.place}, got {peer.purpose.place} ({peer.name}): is the "
                "port another's (MASTER_PORT), or does somebody relay the connection?"
                if own.side is Side.DIALLER
                else f"{peer.name} dialled {peer.purpose.place}, this is {own.purpose.place}"
            )
        if peer.ends != own.ends:
            raise AuthenticationFailed(
                f"{peer.name} has a connection {peer.ends or 'without ends'}, this worker one "
                f"{own.ends or 'without ends'}: another process holds the port and relays, or a "
                "port is forwarded. Choose another port (MASTER_PORT); through a forwarded one use "
                "TLS (`telegrad keygen`)"
            )
        if own.side is Side.DIALLER:
            if own.expected and peer.name != own.expected:
                raise AuthenticationFailed(
                    f"expected the worker {own.expected} at the other end, got {peer.name}: is "
                    "the address out of date?"
                )
            return
        # A dialler names the worker that it dials, but at a meeting place it knows none yet.
        if peer.expected != (own.name if own.purpose is Purpose.LINK else ""):
            raise AuthenticationFailed(
                f"{peer.name} dialled {peer.expected or 'nobody'} and reached {own.name}: is the "
                "address out of date?"
            )

    def _check_certified(self, peer: Introduction) -> None:
        if peer.name in self._revoked:
            raise AuthenticationFailed(
                f"a certificate of {peer.name} was revoked, and this connection shows none: "
                f"{peer.name} may come by TLS, with another one (`telegrad keygen`)"
            )
        if self._certified is not None and peer.name != self._certified:
            raise AuthenticationFailed(
                f"expected the worker {self._certified}, whose certificate it is, at the other "
                f"end, got {peer.name}: mint each worker its own with `telegrad keygen`"
            )

    def _check_versions(self, peer: Introduction) -> None:
        own = self._own
        if min(own.newest, peer.newest) < max(own.oldest, peer.oldest):
            raise ProtocolViolation(
                f"{peer.name} speaks versions {peer.oldest} to {peer.newest} of the protocol, this "
                f"worker {own.oldest} to {own.newest}: install the same telegrad on both"
            )

    def _fail(self, error: PeerError) -> list[Effect]:
        self._state = _State.DONE
        self._received = b""
        return [Failed(error)]


def _other(side: Side) -> Side:
    return Side.LISTENER if side is Side.DIALLER else Side.DIALLER
