"""Recording modes: as context managers, as decorators, per thread and per async task."""

import asyncio
import threading

import pytest
from tests.autograd.beside_torch import agree, constant, fails, leaf
from tests.interpreter import HANDS_CONTEXTS_ON

import telegrad as tg


def test_modes_nest_as_context_managers():
    def scenario(lib):
        x = leaf(lib, 1.0)
        found = [(x * 2.0).requires_grad]
        with lib.no_grad():
            found.append((x * 2.0).requires_grad)
            with lib.enable_grad():
                found.append((x * 2.0).requires_grad)
                with lib.set_grad_enabled(False):
                    found.append((x * 2.0).requires_grad)
            found.append(lib.is_grad_enabled())
        return found, lib.is_grad_enabled()

    agree(scenario)


@pytest.mark.parametrize("mode", [tg.no_grad, tg.inference_mode])
@pytest.mark.parametrize(
    "function",
    [tg.exp, lambda x: x * x, lambda x: 2.0 - x, lambda x: x @ x, tg.sum, tg.tril],
    ids=["unary", "binary", "number", "product", "total", "other"],
)
def test_no_kind_of_function_records_under_a_mode_that_forbids_it(function, mode):
    x = tg.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    with mode():
        out = function(x)
        assert not out.requires_grad
        assert out.grad_fn is None
        assert out.is_inference() == (mode is tg.inference_mode)


def test_a_mode_left_by_an_exception_is_restored():
    def scenario(lib):
        try:
            with lib.no_grad():
                raise KeyError
        except KeyError:
            pass
        return lib.is_grad_enabled()

    agree(scenario)


def test_set_grad_enabled_works_as_a_call():
    def scenario(lib):
        lib.set_grad_enabled(False)
        off = lib.is_grad_enabled()
        lib.set_grad_enabled(True)
        return off, lib.is_grad_enabled()

    agree(scenario)


def test_set_grad_enabled_restores_what_was_before():
    def scenario(lib):
        with lib.no_grad():
            with lib.set_grad_enabled(True):
                inside = lib.is_grad_enabled()
            return inside, lib.is_grad_enabled()

    agree(scenario)


def test_set_grad_enabled_counts_where_it_is_entered():
    def scenario(lib):
        switch = lib.set_grad_enabled(True)
        with lib.no_grad(), switch:
            return lib.is_grad_enabled()

    agree(scenario)


def test_decorators_with_and_without_parentheses():
    def scenario(lib):
        @lib.no_grad()
        def quiet():
            return lib.is_grad_enabled()

        @lib.no_grad
        def bare():
            return lib.is_grad_enabled()

        @lib.set_grad_enabled(False)
        def switched():
            return lib.is_grad_enabled()

        @lib.inference_mode
        def inferred():
            return lib.is_inference_mode_enabled()

        outside = lib.is_grad_enabled()
        with lib.no_grad():
            recorded = lib.enable_grad(lib.is_grad_enabled)()
        return quiet(), bare(), switched(), inferred(), outside, recorded, lib.is_grad_enabled()

    agree(scenario)


def test_a_decorated_function_keeps_its_name_and_recurses():
    @tg.no_grad()
    def count(n):
        """Counts."""
        assert not tg.autograd.is_grad_enabled()
        return 0 if n == 0 else 1 + count(n - 1)

    assert count.__name__ == "count"
    assert count.__doc__ == "Counts."
    assert count(5) == 5
    assert tg.autograd.is_grad_enabled()


def test_a_generator_is_in_the_mode_only_while_it_runs():
    def scenario(lib):
        @lib.no_grad()
        def steps():
            received = yield lib.is_grad_enabled()
            try:
                yield lib.is_grad_enabled(), received
            except KeyError:
                yield "caught", lib.is_grad_enabled()
            return "end"

        found = []
        generator = steps()
        found.append(next(generator))
        found.append(lib.is_grad_enabled())
        found.append(generator.send(7))
        found.append(generator.throw(KeyError()))
        found.append(lib.is_grad_enabled())
        try:
            next(generator)
        except StopIteration as stop:
            found.append(stop.value)
        return found

    agree(scenario)


def test_closing_a_decorated_generator_closes_the_inner_one():
    closed = []

    @tg.no_grad()
    def steps():
        try:
            yield 1
        finally:
            closed.append(tg.autograd.is_grad_enabled())

    generator = steps()
    next(generator)
    generator.close()
    assert closed == [False]


def test_async_functions_and_generators_are_in_the_mode():
    @tg.no_grad()
    async def ask():
        await asyncio.sleep(0)
        return tg.autograd.is_grad_enabled()

    @tg.no_grad()
    async def steps():
        received = yield tg.autograd.is_grad_enabled()
        yield received, tg.autograd.is_grad_enabled()

    async def main():
        found = [await ask(), tg.autograd.is_grad_enabled()]
        generator = steps()
        found.append(await generator.__anext__())
        found.append(tg.autograd.is_grad_enabled())
        found.append(await generator.asend("sent"))
        found.append([item async for item in steps()])
        await generator.aclose()
        return found

    assert asyncio.run(main()) == [
        False,
        True,
        False,
        True,
        ("sent", False),
        [False, (None, False)],
    ]


def test_an_async_generator_handles_what_is_thrown_into_it_in_the_mode():
    @tg.no_grad()
    async def steps():
        try:
            yield
        except KeyError:
            yield tg.autograd.is_grad_enabled()

    async def main():
        generator = steps()
        await generator.__anext__()
        return await generator.athrow(KeyError()), tg.autograd.is_grad_enabled()

    assert asyncio.run(main()) == (False, True)


def test_async_tasks_do_not_see_each_others_modes():
    async def quiet(entered, leave):
        with tg.no_grad():
            entered.set()
            await leave.wait()
            return tg.autograd.is_grad_enabled()

    async def watcher(entered, leave):
        await entered.wait()
        found = tg.autograd.is_grad_enabled()
        leave.set()
        return found

    async def main():
        entered, leave = asyncio.Event(), asyncio.Event()
        return await asyncio.gather(quiet(entered, leave), watcher(entered, leave))

    assert asyncio.run(main()) == [False, True]


def test_a_new_thread_starts_in_the_ordinary_mode_unless_python_hands_modes_on():
    found = []
    with tg.no_grad():
        worker = threading.Thread(target=lambda: found.append(tg.autograd.is_grad_enabled()))
        worker.start()
        worker.join(timeout=30)
        found.append(tg.autograd.is_grad_enabled())
    assert found == [not HANDS_CONTEXTS_ON, False]


def test_one_decorated_function_runs_in_many_threads_at_once():
    barrier = threading.Barrier(4)
    found = []

    @tg.no_grad()
    def meet():
        barrier.wait(timeout=30)
        found.append(tg.autograd.is_grad_enabled())
        barrier.wait(timeout=30)

    def work():
        meet()
        found.append(tg.autograd.is_grad_enabled())

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=30)
    assert sorted(found) == [False] * 4 + [True] * 4


def test_inference_mode_is_stronger_than_enable_grad():
    def scenario(lib):
        x = leaf(lib, 1.0)
        found = []
        with lib.inference_mode():
            with lib.enable_grad():
                found.append((x * 2.0).requires_grad)
                found.append(lib.is_inference_mode_enabled())
            with lib.inference_mode(False):
                found.append((x * 2.0).requires_grad)
                found.append(lib.is_inference_mode_enabled())
        with lib.no_grad(), lib.inference_mode(False):
            found.append((x * 2.0).requires_grad)
        return found

    agree(scenario)


def test_what_inference_mode_made_can_not_require_grad():
    def scenario(lib):
        x = leaf(lib, 1.0)
        with lib.inference_mode():
            y = x * 2.0
        z = y.clone()
        z.requires_grad_()
        return y.is_inference(), fails(y.requires_grad_), z.requires_grad, z.is_inference()

    agree(scenario)


def test_a_tensor_made_under_inference_mode_can_require_grad_there():
    def scenario(lib):
        with lib.inference_mode():
            x = leaf(lib, 1.0)
            y = constant(lib, 1.0).requires_grad_()
            return x.requires_grad, y.requires_grad, (x * y).requires_grad

    agree(scenario)


def test_classes_are_not_decorated():
    with pytest.raises(tg.errors.UsageError, match="decorate the methods"):

        @tg.no_grad()
        class Refused:
            pass
