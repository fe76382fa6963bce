"""Functions by value are remembered, but not without bound."""

from tests.rpc.neighbours import neighbours

from telegrad.rpc.wire.codes import CodeCache


def test_the_oldest_digest_is_forgotten_and_a_repeated_one_is_the_newest():
    cache = CodeCache(2)
    cache.put(b"a", 1)
    cache.put(b"b", 2)
    cache.put(b"a", 3)
    cache.put(b"c", 4)
    assert len(cache) == 2
    assert cache.get(b"a") == 3
    assert cache.get(b"b") is None


def test_a_digest_that_stands_for_something_else_gets_no_newer_and_does_not_return():
    cache = CodeCache(2)
    cache.put(b"a", 1)
    cache.put(b"b", 2)
    cache.replace(b"a", 3)
    assert cache.get(b"a") == 3
    cache.put(b"c", 4)
    assert cache.get(b"a") is None
    cache.replace(b"a", 5)
    assert cache.get(b"a") is None


def test_ever_new_functions_don_t_pile_up_and_all_of_them_run():
    with neighbours("a", "b") as (a, b):
        for number in range(1200):
            assert a.rpc_sync("b", lambda number=number: number) == number
        assert a.rpc_sync("b", lambda number=0: number) == 0
        assert len(a.peers.get("b").outgoing.sent_code) <= 256
        assert len(b.peers.get("a").incoming.received_code) <= 1024


def test_what_a_peer_is_known_to_have_is_still_there_after_many_creations():
    with neighbours("a", "b") as (a, _):
        shift = 5
        function = lambda x: x + shift
        assert a.rpc_sync("b", function, (1,)) == 6
        for number in range(1100):
            made = a.remote("b", lambda number=number: number)
        assert made.to_here() == 1099
        assert a.rpc_sync("b", function, (2,)) == 7
