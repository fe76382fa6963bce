"""How bytes move between workers: addresses, listening, dialling, authenticated connections.

Knows no frames and no calls. It gives its callers only bytes of peers that have proved the key.
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
