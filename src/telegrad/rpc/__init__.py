"""Calling another worker: the wire, the protocol without I/O, transports, the worker, RRef."""

import os

if os.name != "posix":
    raise ImportError(
        "telegrad.rpc, telegrad.distributed and the telegrad command need a POSIX system (Linux or "
        f"macOS), got {os.name!r}: there, use telegrad within one process, or try WSL"
    )
