"""How many bytes a worker sends and receives."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from telegrad.rpc.call import Call

__all__ = ["Meter"]

_NOTHING: AbstractContextManager[Any] = nullcontext()


class Meter:
    """An observer of a worker that only counts bytes."""

    def __init__(self) -> None:
        self.bytes = 0

    def sent(self, call: Call, size: int) -> None:
        self.bytes += size

    def answered(self, call: Call, size: int) -> None:
        self.bytes += size

    def handling(
        self, frm: str, number: int | None, what: Any, size: int
    ) -> AbstractContextManager[Any]:
        return _NOTHING

    def waiting(self, call: Call) -> AbstractContextManager[Any]:
        return _NOTHING

    def running(self, name: str, detail: int | None = None) -> AbstractContextManager[Any]:
        return _NOTHING
