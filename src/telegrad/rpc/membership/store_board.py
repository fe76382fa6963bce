"""A board in a key-value store with PyTorch's methods, such as the TCPStore of torchrun's agent."""

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Store(Protocol):
    """The methods of a ``torch.distributed.Store`` that a board needs."""

    def compare_set(self, key: str, expected: str, desired: str, /) -> Any:
        """Set a value if there is none; return the value that is there then."""

    def check(self, keys: list[str], /) -> bool:
        """Say whether all keys have a value."""

    def get(self, key: str, /) -> bytes:
        """Return a value that is there."""


class StoreBoard:
    """The board under a prefix of a store's keys."""

    pace = 0.5

    def __init__(self, store: Store, prefix: str = "telegrad") -> None:
        self._store = store
        self._prefix = prefix
        self._end = 0
        """A lower bound on the number of texts."""

    def __repr__(self) -> str:
        return f"StoreBoard({self._store!r}, {self._prefix!r})"

    def post(self, text: str) -> None:
        """Append a text; no two texts may be the same."""
        while self._store.compare_set(self._key(self._end), "", text) != text.encode():
            self._end += 1

    def read(self, start: int) -> list[str]:
        found: list[str] = []
        while self._store.check([self._key(start + len(found))]):
            found.append(self._store.get(self._key(start + len(found))).decode())
        self._end = max(self._end, start + len(found))
        return found

    def close(self) -> None:
        """Do nothing: there is nothing to free."""

    def _key(self, number: int) -> str:
        return f"{self._prefix}/{number}"
