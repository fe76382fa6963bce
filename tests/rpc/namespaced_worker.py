"""A worker in a network namespace of its own, told what to do line by line.

python -m tests.rpc.namespaced_worker DIRECTORY listen ADDRESS    echoes whatever comes
python -m tests.rpc.namespaced_worker DIRECTORY dial ADDRESS      obeys `dial SECONDS`,
                                                                  `echo TEXT`, `send TEXT`, `read`
python -m tests.rpc.namespaced_worker DIRECTORY join RANK         a worker of two, which is called
python -m tests.rpc.namespaced_worker DIRECTORY join-quietly RANK when the other obeys `call`; one
                                                                  that joins quietly never listens
python -m tests.rpc.namespaced_worker KEY_FILE trio NAME          a worker of three, by a key alone;
                                                                  obeys `echo NAME`
"""

import operator
import os
import select
import sys
import threading

import numpy as np
from tests.rpc.connected import receive

from telegrad.distributed import rpc
from telegrad.errors import TelegradError
from telegrad.rpc.security.tls import Credentials
from telegrad.rpc.transport import Connection, Identity, connect, listen

SILENCE = 0.3
"""Seconds without an answer that count as silence, where none can come."""
PATIENCE = 20.0
"""Seconds for one that must come, however busy the machine is."""


def echo_forever(connection: Connection) -> None:
    buffer = memoryview(bytearray(1000))
    while count := receive(connection, buffer):
        connection.send([buffer[:count]])


def serve(identity: Identity, address: str) -> None:
    def start(connection: Connection) -> None:
        threading.Thread(target=echo_forever, args=(connection,), daemon=True).start()

    with listen(address, identity=identity, on_connection=start) as listener:
        print(listener.address, flush=True)
        sys.stdin.read()


def answer(connection: Connection, patience: float) -> str:
    if not connection.pending() and not select.select([connection], [], [], patience)[0]:
        return "silence"
    buffer = memoryview(bytearray(1000))
    return bytes(buffer[: receive(connection, buffer)]).decode()


def obey(identity: Identity, address: str) -> None:
    connection: Connection | None = None
    for line in sys.stdin:
        command, _, text = line.strip().partition(" ")
        try:
            if command == "dial":
                another = connect(address, identity=identity, expect="ps", timeout=float(text))
                connection = connection or another
                reply = f"connected to {another.peer_name}"
            else:
                assert connection is not None
                if command != "read":
                    connection.send([text.encode()])
                reply = answer(connection, SILENCE if command == "send" else PATIENCE)
        except TelegradError as error:
            reply = f"{type(error).__name__}: {error}"
        print(reply, flush=True)


def join(directory: str, name: str, rank: int, listens: bool) -> None:
    """Be a worker of a cluster of two, found by MASTER_ADDR and MASTER_PORT."""
    os.environ["TELEGRAD_CREDENTIALS"] = directory
    options = rpc.Options(lost_after=1.0, listen=listens)
    rpc.init_rpc(name, rank=rank, world_size=2, options=options)
    print("joined", flush=True)
    for _ in sys.stdin:
        try:
            reply = str(rpc.rpc_sync(1 - rank, operator.add, args=(40, 2)))
        except TelegradError as error:
            reply = f"{type(error).__name__}: {error}"
        print(reply, flush=True)


TRIO = ("ps", "neighbour", "trainer")


def echo(value: np.ndarray) -> np.ndarray:
    return value


def join_trio(key: str, name: str) -> None:
    """Be a worker of three that have a key alone; echo 32 MB, and say how that went there."""
    os.environ["TELEGRAD_KEY_FILE"] = key
    rpc.init_rpc(name, rank=TRIO.index(name), world_size=3)
    print("joined", flush=True)
    worker, large = rpc.current_worker(), np.arange(4 << 20, dtype=np.float64)
    for line in sys.stdin:
        to = line.split()[1]
        try:
            assert np.array_equal(rpc.rpc_sync(to, echo, args=(large,)), large)
            connection = worker.peers.find(to).outgoing.connection
            shared = "shared memory" if worker.host.segment_pool.resident else "no shared memory"
            reply = f"{type(connection).__name__}, {shared}"
        except TelegradError as error:
            reply = f"{type(error).__name__}: {error}"
        print(reply, flush=True)


if __name__ == "__main__":
    directory, task, where = sys.argv[1:]
    if task == "trio":
        join_trio(directory, where)
        sys.exit()
    credentials = Credentials(directory)
    name = credentials.directory.name
    if task in ("join", "join-quietly"):
        join(directory, name, int(where), task == "join")
    else:
        me = Identity(name, 1, credentials.load_key(), credentials=credentials)
        (serve if task == "listen" else obey)(me, where)
