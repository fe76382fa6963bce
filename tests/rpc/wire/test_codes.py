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
    assert b"b" not in cache


def test_ever_new_functions_don_t_pile_up_and_all_of_them_run():
    with neighbours("a", "b") as (a, b):
        for number in range(1200):
            assert a.rpc_sync("b", lambda number=number: number) == number
        assert a.rpc_sync("b", lambda number=0: number) == 0
        assert len(a.peers.get("b").outgoing.known_code) <= 256
        assert len(b.peers.get("a").incoming[0].received_code) <= 1024
