"""What one side of a path remembers of the requests that it serves."""

import pytest

from telegrad.rpc.endpoint import Endpoint
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.security.introduction import Limits


class Nowhere(Endpoint):
    def send(self, *_):
        pass

    def close(self):
        pass


class Raced(set):
    """Requests one of which is answered just before, or just after, somebody asks for it."""

    def __init__(self, endpoint, before):
        super().__init__([7])
        self.endpoint, self.before = endpoint, before

    def __contains__(self, number):
        if self.before:
            self.endpoint.is_wanted(number)
        found = super().__contains__(number)
        if not self.before:
            self.endpoint.is_wanted(number)
        return found


@pytest.mark.parametrize("before", [True, False])
def test_a_request_that_is_answered_while_it_is_cancelled_leaves_nothing(before):
    endpoint = Nowhere(WorkerInfo("b", 1, 0), Limits(), 0.0, 60.0)
    endpoint.serving = Raced(endpoint, before)
    endpoint.cancelled(7)
    assert not set(endpoint.serving)
    assert not endpoint.unwanted


def test_the_answer_of_one_request_is_unwanted_when_the_peer_gave_up_that_one_and_not_another():
    endpoint = Nowhere(WorkerInfo("b", 1, 0), Limits(), 0.0, 60.0)
    endpoint.serving |= {7, 8}
    endpoint.cancelled(7)
    assert endpoint.is_wanted(8)
    assert not endpoint.is_wanted(7)
    assert not endpoint.serving
    assert not endpoint.unwanted
