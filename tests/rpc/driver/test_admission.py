"""Whether a request may be read on, and for how long its link waits to be told."""

import time

from telegrad.rpc.driver.admission import Admission, Room
from telegrad.rpc.protocol.budget import Budget


def test_a_link_that_has_ended_is_admitted_nothing_and_waits_for_nothing():
    budget = Budget(100, 100)
    admission = Admission(Room(budget, patience=60.0), "a")
    assert admission.admit(40)
    admission.close()
    assert not admission.admit(10)
    assert admission.decide(10, None) is False
    assert budget.held == 0


class Interrupted(Budget):
    """A finalizer runs just when there is room."""

    def admit(self, peer, nbytes):
        admitted = super().admit(peer, nbytes)
        self.finalize()
        return admitted


def test_a_link_that_a_finalizer_ends_while_it_is_admitted_a_request_keeps_no_room():
    budget = Interrupted(100, 100)
    admission = Admission(Room(budget, patience=60.0), "a")
    budget.finalize = admission.close
    assert not admission.admit(40)
    assert budget.held == 0


def test_a_request_without_room_is_asked_about_again_until_the_patience_is_over():
    budget = Budget(100, 100)
    assert budget.admit("b", 100)
    patient, impatient = (Admission(Room(budget, patience), "a") for patience in (60.0, 0.0))
    assert patient.decide(10, time.monotonic()) is None
    assert impatient.decide(10, None) is False
    budget.release("b", 100)
    assert patient.decide(10, None) is True
    assert patient.take() == 10
