"""A flood of refusals: the first few of each source are told, the rest is counted."""

import contextlib
import json
import logging
import socket

import pytest
from tests.rpc.connected import Clock, hosting, identities
from tests.rpc.neighbours import eventually

from telegrad.rpc.security.refusals import Refusals
from telegrad.rpc.transport import connect, listener

PS, TRAINER = identities()


@pytest.fixture
def said(caplog):
    caplog.set_level(logging.INFO, "telegrad.audit")

    def of(logger):
        return [r.getMessage() for r in caplog.records if r.name == logger]

    return of


def test_the_first_few_of_each_source_are_told_and_the_rest_is_counted(said):
    refusals = Refusals("a")
    for turn in range(1000):
        refusals.note("eve", turn / 100, f"refused eve {turn}")
    refusals.note("mallory", 10.0, "refused mallory")
    first = [f"refused eve {turn}" for turn in range(5)]
    assert said("telegrad.rpc") == [*first, "refused mallory"]
    refusals.catch_up(59.9)
    assert len(said("telegrad.rpc")) == 6
    refusals.catch_up(60.0)
    assert said("telegrad.rpc")[6:] == ["refused 995 more from eve within a minute"]
    counted = json.loads(said("telegrad.audit")[-1])
    assert (counted["source"], counted["count"]) == ("eve", 995)
    refusals.note("eve", 61.0, "refused eve again")
    assert said("telegrad.rpc")[7:] == ["refused eve again"]


def test_many_sources_together_take_no_more_lines(said):
    refusals = Refusals("a")
    for turn in range(10_000):
        refusals.note(f"10.0.{turn // 256}.{turn % 256}", 0.0, "refused")
    assert len(said("telegrad.rpc")) == 50
    refusals.catch_up(60.0)
    counts = said("telegrad.rpc")[50:]
    assert len(counts) == 51
    assert counts[-1] == "refused 9900 more from others within a minute"


def test_a_flood_of_garbage_takes_a_few_lines_of_the_log(said, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(listener, "time", clock)
    with hosting("tcp://127.0.0.1:0", PS) as host:
        where = ("127.0.0.1", int(host.address.rpartition(":")[2]))
        for _ in range(200):
            with socket.create_connection(where) as stranger:
                stranger.settimeout(20)
                stranger.sendall(b"nonsense" * 50)
                with contextlib.suppress(ConnectionResetError):
                    assert not stranger.recv(1)
        # Whoever comes after the last of them is let in after it was noted.
        with contextlib.closing(connect(host.address, identity=TRAINER, expect="ps")):
            host.accept().close()
        assert len(said("telegrad.rpc")) == len(said("telegrad.audit")) == 5
        clock.sleep(61)
        # It looks at the clock again when something comes.
        socket.create_connection(where).close()
        assert eventually(lambda: len(said("telegrad.rpc")) >= 6)
    assert said("telegrad.rpc")[5] == "refused 195 more from 127.0.0.1 within a minute"
