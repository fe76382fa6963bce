"""The audit's lines: who came, was refused, called what, left and was lost."""

import json
import logging
import socket

import pytest
from tests.rpc.neighbours import eventually, neighbours

from telegrad.errors import Refused
from telegrad.rpc.membership.card import Card
from telegrad.rpc.membership.rendezvous import Rendezvous, join
from telegrad.rpc.options import Options
from telegrad.rpc.security import audit as audit_module
from telegrad.rpc.security.audit import audit
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.transport import Identity
from telegrad.rpc.wire.functions import expose

SECRET = "only the two of us know"


class Vault:
    @expose
    def put(self, what):
        return len(what)


@expose
def open_vault():
    return Vault()


def unexposed(what):
    raise AssertionError("it was called")


@pytest.fixture
def lines(caplog):
    """What the audit said so far, at some worker."""
    caplog.set_level(logging.INFO, "telegrad.audit")

    def of(worker, event=None):
        all_ = [json.loads(r.getMessage()) for r in caplog.records if r.name == "telegrad.audit"]
        return [
            line for line in all_ if line["worker"] == worker and event in (None, line["event"])
        ]

    return of


def test_who_calls_what_of_a_strict_worker_is_told_without_what_was_said(lines, caplog):
    with neighbours("a", "b", options=Options(strict=True)) as (a, _b):
        vault = a.remote("b", open_vault)
        assert vault.rpc_sync().put(SECRET) == len(SECRET)
        with pytest.raises(Refused):
            a.rpc_sync("b", unexposed, (SECRET,))
        # It may have opened a path of its own since, for a notice.
        joined = lines("b", "joined")[0]
        assert joined["peer"] == "a"
        assert joined["side"] == "accepted"
        assert joined["incarnation"] == a.info.incarnation
        assert joined["source"].startswith("process ")
        assert set(joined) == {"time", "event", "worker", "peer", "incarnation", "source", "side"}
        called = [line["function"] for line in lines("b", "called")]
        assert f"{__name__}:open_vault" in called
        assert f"{__name__}:Vault.put" in called
        assert all(line["peer"] == "a" for line in lines("b", "called"))
        (refused,) = lines("b", "refused")
        assert refused["source"] == "a"
        assert "unexposed" in refused["reason"]
        assert SECRET not in "".join(
            r.getMessage() for r in caplog.records if r.name == "telegrad.audit"
        )


def test_a_worker_that_is_not_strict_tells_no_calls(lines):
    with neighbours("a", "b") as (a, _):
        assert a.rpc_sync("b", abs, (-2,)) == 2
        assert {line["event"] for line in lines("b")} == {"joined"}


def test_who_left_and_who_was_lost_are_told_apart(lines):
    with neighbours("a", "b", "c") as (a, b, c):
        assert b.rpc_sync("a", abs, (-2,)) == c.rpc_sync("a", abs, (-2,)) == 2
        b.close()
        assert eventually(lambda: bool(lines("a", "left")))
        path = a.peers.find("c").incoming
        a.endpoint_lost(path, ConnectionError("its cable was cut"))
        (left,), (lost,) = lines("a", "left"), lines("a", "lost")
        assert (left["peer"], left["reason"]) == ("b", "it has shut down")
        assert (lost["peer"], lost["reason"]) == ("c", "its cable was cut")
        assert lost["incarnation"] == c.info.incarnation
    # A worker that goes itself has lost nobody.
    assert len(lines("a", "lost")) == 1


def test_a_stranger_that_is_refused_is_told_with_its_address(lines):
    with neighbours("a", "b", tcp=True) as (a, _):
        port = int(a.address.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n" + b"x" * 500)
            assert eventually(lambda: bool(lines("a", "refused")))
    (refused,) = lines("a", "refused")
    assert refused["source"] == "127.0.0.1"
    assert "expected a worker's introduction" in refused["reason"]


def test_a_worker_that_does_not_fit_into_the_cluster_is_told(lines):
    key = ClusterKey.fresh()
    zero, other = Card("zero", 0, 3, "", 1), Card("zero", 1, 3, "", 2)
    place = Rendezvous("tcp://127.0.0.1:0", Identity("zero", 1, key), zero, print, lambda _: True)
    try:
        with pytest.raises(Exception, match="already"):
            join(place.address, Identity("zero", 2, key), other, 10.0)
    finally:
        place.close()
    (refused,) = lines("zero", "refused")
    assert refused["source"] == "zero"
    assert "already" in refused["reason"]


def test_the_audit_costs_nothing_and_says_nothing_unless_it_is_turned_on(caplog, monkeypatch):
    monkeypatch.setattr(audit_module, "json", None)
    caplog.set_level(logging.WARNING, "telegrad.audit")
    audit("called", "a", peer="b")
    assert not caplog.records


def test_what_a_peer_chose_is_cut_and_stays_on_one_line(lines):
    audit("refused", "a", reason='"\n' * 1000, count=None)
    (line,) = lines("a")
    assert line["reason"] == '"\n' * 250
    assert "count" not in line
