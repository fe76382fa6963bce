"""Notices about contexts and levels, and who waits for them."""

import threading

import pytest
from tests.rpc.neighbours import neighbours

from telegrad.distributed.contexts import dual_levels, leases
from telegrad.distributed.worker_autograd import attach_autograd

ANSWERS = {leases.HELD: leases.RELEASE, dual_levels.HELD: dual_levels.CLOSED}


@pytest.mark.parametrize("service", list(ANSWERS))
def test_an_answer_to_who_must_be_dialled_keeps_nobody_waiting(service, monkeypatch):
    may_dial = threading.Event()
    with neighbours("a", "b") as (a, b):
        attach_autograd(a)
        attach_autograd(b)
        dial = a.host.dial

        def dial_late(*arguments):
            may_dial.wait(30)
            return dial(*arguments)

        monkeypatch.setattr(a.host, "dial", dial_late)
        heard = threading.Event()
        b.register_service(ANSWERS[service], lambda _: heard.set(), inline=True)
        b.notify_service("a", service, b.next_id())
        try:
            assert b.rpc_sync("a", abs, (-1,), timeout=5) == 1
            assert not heard.is_set()
        finally:
            may_dial.set()
        assert heard.wait(10)
