"""How bytes move between workers: addresses, listening, dialling, authenticated connections.

Frames and calls are not known here. Nothing but a proved peer's bytes comes out of it.
"""

from telegrad.rpc.transport.address import Address, parse_address
from telegrad.rpc.transport.connection import Connection
from telegrad.rpc.transport.dialer import connect
from telegrad.rpc.transport.directory import PrivateDirectory
from telegrad.rpc.transport.identity import Identity
from telegrad.rpc.transport.listener import Listener, listen

__all__ = [
    "Address",
    "Connection",
    "Identity",
    "Listener",
    "PrivateDirectory",
    "connect",
    "listen",
    "parse_address",
]
