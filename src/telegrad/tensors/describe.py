"""What an error says about a value that is no Tensor: its type, and how to make a Tensor of it.

Other libraries have a ``Tensor`` and a ``Parameter``, too, so the bare name of a type can mislead.
Nothing here imports those libraries.
"""

from typing import Any, Final

from telegrad.errors import DTypeError

_PLAIN: Final = frozenset({"builtins", "numpy", "telegrad", "__main__"})
"""Libraries whose types need no more than their bare name."""


def kind_of(value: Any) -> str:
    """Return the name of a value's type, with its module where another library made it."""
    kind = type(value)
    return kind.__name__ if _library(kind) in _PLAIN else f"{kind.__module__}.{kind.__qualname__}"


def way_in(value: Any, usual: str = "telegrad.asarray") -> str:
    """Return the function that makes a Tensor of a value; PyTorch's tensors keep their history."""
    libraries = {_library(kind) for kind in type(value).__mro__}
    return "telegrad.torch.from_torch" if "torch" in libraries else usual


def no_tensor(value: Any, what: str, expected: str = "a Tensor") -> DTypeError:
    """Return the error for a value that is no Tensor; `what` says where it came from or goes to."""
    return DTypeError(
        f"expected {expected} {what}, got {kind_of(value)}; wrap it with {way_in(value)}"
    )


def _library(kind: type) -> str:
    return kind.__module__.partition(".")[0]
