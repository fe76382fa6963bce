"""What this process has taken of a device apart from PyTorch, and not given back.

So a test needs not ask for the free memory of the whole device, which others use as well.
"""

from functools import partial

__all__ = ["Ledger"]

_TAKE = {
    "cudaMalloc": "memory",
    "cudaIpcOpenMemHandle": "memory of another process",
    "cudaEventCreateWithFlags": "event",
    "cudaIpcOpenEventHandle": "event",
}
_GIVE = {
    "cudaFree": "memory",
    "cudaIpcCloseMemHandle": "memory of another process",
    "cudaEventDestroy": "event",
}


class Ledger:
    """CUDA's runtime, in the place of the library of a ``Runtime``; notes what succeeds."""

    def __init__(self, library):
        self._library = library
        self.taken = {}
        """By kind and address: bytes of memory, else 0."""

    def __getattr__(self, name):
        function = getattr(self._library, name)
        if name in _TAKE:
            return partial(self._take, function, _TAKE[name])
        return partial(self._give, function, _GIVE[name]) if name in _GIVE else function

    def _take(self, function, kind, made, *arguments):
        code = function(made, *arguments)
        if not code:
            # `made` is a ctypes.byref.
            self.taken[kind, made._obj.value] = arguments[0] if kind == "memory" else 0
        return code

    def _give(self, function, kind, value):
        code = function(value)
        if not code:
            # What was taken before this ledger began is not in it.
            self.taken.pop((kind, value), None)
        return code
