"""Random tensors: the same seed, the same bits; states that can be saved; streams apart."""

import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

import telegrad as tg
from telegrad.errors import DTypeError, UsageError


def bits(x: tg.Tensor) -> bytes:
    return x.detach().numpy().tobytes()


def everything(generator: tg.Generator | None = None) -> list[bytes]:
    like = tg.ones((2, 2), dtype=tg.float64)
    return [
        bits(tg.rand(3, 2, generator=generator)),
        bits(tg.randn((5,), generator=generator, dtype=tg.float64)),
        bits(tg.randn(3, generator=generator, dtype=tg.complex64)),
        bits(tg.randint(10, shape=(4,), generator=generator)),
        bits(tg.permutation(7, generator=generator)),
        bits(tg.bernoulli(0.5, (8,), generator=generator)),
        bits(tg.rand_like(like, generator=generator)),
        bits(tg.randn_like(like, generator=generator)),
    ]


def test_the_same_seed_gives_the_same_bits() -> None:
    assert everything(tg.Generator(3)) == everything(tg.Generator(3))
    assert everything(tg.Generator(3)) != everything(tg.Generator(4))


def test_the_numbers_of_a_seed_are_known() -> None:
    """A change of the stream would silently change every seeded experiment."""
    expected = np.random.Generator(np.random.Philox(np.random.SeedSequence(0)))
    drawn = tg.rand(4, generator=tg.Generator(0), dtype=tg.float64)
    np.testing.assert_array_equal(drawn.numpy(), expected.random(4))


def test_manual_seed_starts_the_generator_of_the_process() -> None:
    tg.manual_seed(11)
    first = everything()
    tg.manual_seed(11)
    assert everything() == first == everything(tg.Generator(11))
    assert tg.default_generator().initial_seed == 11


def test_a_state_can_be_saved_and_gone_back_to() -> None:
    generator = tg.Generator(5)
    tg.rand(3, generator=generator)
    state = pickle.loads(pickle.dumps(generator.get_state()))
    after = everything(generator)
    assert everything(generator) != after
    generator.set_state(state)
    assert everything(generator) == after


def test_a_saved_state_does_not_move_with_the_stream() -> None:
    generator = tg.Generator(5)
    state = generator.get_state()
    first = bits(tg.rand(100, generator=generator))
    generator.set_state(state)
    assert bits(tg.rand(100, generator=generator)) == first


def test_a_generator_can_be_pickled_with_its_place_in_the_stream() -> None:
    generator = tg.Generator(5)
    tg.rand(3, generator=generator)
    copy = pickle.loads(pickle.dumps(generator))
    assert everything(copy) == everything(generator)


def test_spawned_streams_differ_and_repeat() -> None:
    first, second = tg.Generator(5).spawn(2)
    again, _ = tg.Generator(5).spawn(2)
    drawn = everything(first)
    assert drawn == everything(again)
    assert drawn != everything(second)
    assert drawn != everything(tg.Generator(5))


def test_threads_share_a_stream_without_drawing_a_number_twice() -> None:
    generator, found = tg.Generator(1), []

    def draw() -> None:
        for _ in range(50):
            found.append(tg.rand((), generator=generator, dtype=tg.float64).item())

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 200


def test_threads_that_ask_first_at_the_same_time_get_the_one_generator_of_the_process() -> None:
    # In a process of its own, since in this one it has been asked for.
    script = """
import threading
from telegrad.ops import random

both, found = threading.Barrier(2, timeout=30), []

class Slow(random.Generator):
    def __init__(self):
        both.wait()
        super().__init__()

random.Generator = Slow
threads = [threading.Thread(target=lambda: found.append(random.default_generator())) for _ in "ab"]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert found[0] is found[1] is random.default_generator()
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_numbers_lie_where_they_should() -> None:
    generator = tg.Generator(2)
    uniform = tg.rand(2000, generator=generator).numpy()
    assert 0 <= uniform.min() < 0.01 < 0.99 < uniform.max() < 1
    normal = tg.randn(4000, generator=generator).numpy()
    assert abs(normal.mean()) < 0.1
    assert abs(normal.std() - 1) < 0.1
    pairs = tg.randn(4000, generator=generator, dtype=tg.complex128).numpy()
    assert abs(np.mean(np.abs(pairs) ** 2) - 1) < 0.1
    whole = tg.randint(-2, 3, (500,), generator=generator).numpy()
    assert sorted(set(whole.tolist())) == [-2, -1, 0, 1, 2]
    assert sorted(tg.permutation(9, generator=generator).tolist()) == list(range(9))
    assert abs(tg.bernoulli(0.25, (4000,), generator=generator).mean().item() - 0.25) < 0.05


def test_dtypes_and_shapes_are_those_asked_for() -> None:
    assert tg.rand(2, 3).dtype == tg.float32
    assert tg.randn(2, dtype=tg.float64).dtype == tg.float64
    assert tg.randint(5).shape == ()
    assert tg.randint(5, shape=3, dtype=tg.int8).dtype == tg.int8
    assert tg.rand((2, 3)).shape == tg.rand([2, 3]).shape == tg.rand(2, 3).shape == (2, 3)
    assert tg.rand().shape == ()


def test_random_tensors_can_be_leaves() -> None:
    x = tg.randn(3, requires_grad=True)
    assert x.is_leaf
    assert x.requires_grad
    with tg.inference_mode():
        assert tg.rand(2).is_inference()


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(UsageError, match="expected a seed of 0 or more, or None for any, got -1"):
        tg.Generator(-1)
    with pytest.raises(UsageError, match="expected a seed of 0 or more, or None for any, got 'a'"):
        tg.manual_seed("a")  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match=r"expected a telegrad\.Generator as generator, got int"):
        tg.rand(2, generator=3)  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match="expected float32 or float64 in rand, got int64"):
        tg.rand(2, dtype=tg.int64)
    with pytest.raises(UsageError, match="expected high above low in randint, got 3 and 3"):
        tg.randint(3, 3)
    with pytest.raises(
        DTypeError, match=r"high in randint, got tuple; .*randint\(0, high, shape\)"
    ):
        tg.randint(3, (2,))  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match="whole number as low in randint, got float"):
        tg.randint(0.5, 3)  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match="whole number as high in randint, got float"):
        tg.randint(3.7)  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match="whole number as n in permutation, got list"):
        tg.permutation([5, 6, 7])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="expected n of 0 or more in permutation, got -1"):
        tg.permutation(-1)
    with pytest.raises(DTypeError, match="expected an integer dtype in randint, got float32"):
        tg.randint(3, dtype=tg.float32)
    with pytest.raises(UsageError, match="expected a probability from 0 to 1 in bernoulli"):
        tg.bernoulli(1.5)
    with pytest.raises(DTypeError, match=r"one probability for all .*, got shape \(3,\)"):
        tg.bernoulli(tg.ones(3))  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match="expected whole numbers as the lengths of a shape"):
        tg.rand(2.7)
    with pytest.raises(DTypeError, match=r"expected one of the dtypes .*, got float16"):
        tg.bernoulli(0.5, 2, dtype="float16")
