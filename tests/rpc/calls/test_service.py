"""Messages of services: what comes malformed is a violation, whatever is wrong with it."""

import numpy as np
import pytest

from telegrad.errors import ProtocolViolation
from telegrad.rpc.calls.service import open_message, seal_message


def test_a_message_comes_out_as_it_went_in():
    data, buffers = seal_message("news", [1, "two"], [np.arange(3.0), np.ones((200, 200))])
    name, header, arrays = open_message(data, buffers, 64)
    assert (name, header) == ("news", [1, "two"])
    assert [array.shape for array in arrays] == [(3,), (200, 200)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data, buffers: (data[:-1], buffers), "a malformed service message came"),
        (lambda data, buffers: (b"\x93\xa1\xff\xc0\x90", []), "a malformed service message came"),
        (lambda data, buffers: (data, []), "not describe a buffer of no bytes"),
        (lambda data, buffers: (data, [*buffers, b""]), "expected 1 buffers .*'news', got 2"),
    ],
    ids=["cut off", "no text", "a buffer too few", "a buffer too many"],
)
def test_a_message_that_was_damaged_is_a_violation(change, message):
    data, buffers = change(*seal_message("news", None, [np.ones((200, 200))]))
    with pytest.raises(ProtocolViolation, match=message):
        open_message(data, buffers, 64)
