"""Messages of another protocol over the same connections.

A service is a name and a handler. A message has a small header (anything that msgpack can encode)
and raw arrays; it costs as much as a call without a function and arguments. An inline handler runs
on the reading thread and must not wait; any other gets a thread as a call does. The answer is given
by `request.reply(...)`, on return or later, from any thread. An exception of the handler is sent as
the answer; for a notice it is logged, unless an inline handler reports that no worker sends such a
message (ProtocolViolation, or msgspec's ValidationError): that ends the connection.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from telegrad.errors import ProtocolViolation
from telegrad.rpc.interruption import busy, is_busy, raise_put_off
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.wire import arrays
from telegrad.rpc.wire.arrays import Descriptor
from telegrad.rpc.wire.frames import ANSWER, Buffer, Frame
from telegrad.rpc.wire.header_check import check_header

if TYPE_CHECKING:
    from telegrad.rpc.endpoint import Endpoint
    from telegrad.rpc.worker import Worker

Arrays = Sequence["np.ndarray[Any, Any]"]


class Message(msgspec.Struct, array_like=True, gc=False):
    """The header of a service's message or answer."""

    name: str
    header: Any
    arrays: list[Descriptor]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Message).decode


def seal_message(name: str, header: Any, content: Arrays) -> tuple[bytes, list[Buffer]]:
    """Return a frame's header and buffers."""
    buffers: list[Buffer] = []
    descriptors = arrays.describe_all(content, buffers) if content else []
    return _encode((name, header, descriptors)), buffers


def open_message(
    data: bytes | bytearray,
    buffers: Sequence[Buffer],
    most_dimensions: int,
    *,
    strict: bool = False,
) -> tuple[str, Any, list["np.ndarray[Any, Any]"]]:
    """Return (name, header, arrays)."""
    if strict:
        check_header(data)
    try:
        message = _decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ProtocolViolation(f"a malformed service message came: {error}") from error
    if not message.arrays and not buffers:
        return message.name, message.header, []
    content, used = arrays.build_all(message.arrays, buffers, 0, most_dimensions)
    if used != len(buffers):
        raise ProtocolViolation(
            f"expected {used} buffers for a message of {message.name!r}, got {len(buffers)}"
        )
    return message.name, message.header, content


class Service(msgspec.Struct, frozen=True):
    """A handler; `inline` handlers run on the reading thread and must not wait."""

    name: str
    handler: "Callable[[ServiceRequest], object]"
    inline: bool


class ServiceRequest(msgspec.Struct, eq=False):
    """One message that came from `frm` on the path `via`. Replying to a notice does nothing.

    `number` is the sender's number of this message; None for a notice, or once answered.
    """

    _worker: "Worker"
    via: "Endpoint"
    number: int | None
    frm: WorkerInfo
    header: Any
    arrays: list["np.ndarray[Any, Any]"]

    def reply(self, header: Any = None, content: Arrays = ()) -> None:
        """Answer the message."""
        if busy and is_busy():
            self._worker.host.start(partial(self.reply, header, content))
            return
        number, self.number = self.number, None
        if number is None:
            return
        try:
            data, buffers = seal_message("", header, content)
            self.via.send(Frame(ANSWER, 0, number, 0, data, buffers))
        except (OSError, EOFError) as error:
            self._worker.endpoint_lost(self.via, error)
        except BaseException:
            # Most likely the answer is too large: the sender still waits, and can be told.
            self.number = number
            raise
        raise_put_off()

    def fail(self, error: BaseException) -> None:
        """Answer with an exception, which is raised at the sender."""
        number, self.number = self.number, None
        if number is not None:
            self._worker.incoming.answer_failure(self.via, number, error)
