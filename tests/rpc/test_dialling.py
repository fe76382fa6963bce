"""Dialling a peer that does not answer: nobody waits for it longer than its own deadline."""

import socket
import threading

import pytest
from tests.rpc.connected import PATIENCE

from telegrad.errors import CallTimeout, WorkerLost
from telegrad.rpc.keys import ClusterKey
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.options import Options
from telegrad.rpc.starting import start_worker


def test_a_call_does_not_wait_beyond_its_deadline_for_anothers_dialling() -> None:
    a = start_worker("a", 0, "tcp://127.0.0.1:0", ClusterKey.fresh(), Options(lost_after=PATIENCE))
    failed: list[BaseException] = []

    def call_patiently() -> None:
        with pytest.raises(WorkerLost) as caught:
            a.rpc_sync("b", abs, (-1,))
        failed.append(caught.value)

    with socket.create_server(("127.0.0.1", 0)) as silent:
        a.add_peer(WorkerInfo("b", 1, 1), f"tcp://127.0.0.1:{silent.getsockname()[1]}")
        patient = threading.Thread(target=call_patiently)
        patient.start()
        try:
            dialled, _ = silent.accept()
            with pytest.raises(CallTimeout, match="'b' could not be reached before the deadline"):
                a.rpc_async("b", abs, (-1,), timeout=0.1)
            assert patient.is_alive(), "the one that dials goes on"
            dialled.close()
        finally:
            patient.join(PATIENCE)
            a.close()
    assert len(failed) == 1
