"""The cotangent of a node with several outputs: one part each, ``None`` where nothing came."""

from typing import Any

from telegrad.graph.addition import added


class Bundle(tuple[Any, ...]):
    """Parts that add slot by slot, so the engine sums bundles as it sums arrays."""

    __slots__ = ()

    @classmethod
    def single(cls, size: int, index: int, part: Any) -> "Bundle":
        """Return a bundle of `size` parts with only the one at `index` present."""
        return cls(part if i == index else None for i in range(size))

    def __add__(self, other: "Bundle") -> "Bundle":  # type: ignore[override]
        return Bundle(
            b if a is None else a if b is None else added(a, b)
            for a, b in zip(self, other, strict=True)
        )
