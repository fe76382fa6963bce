"""Random programs over torch tensors: their gradients equal those of one process without calls."""

import random

import pytest
import torch
from tests.distributed.simulated import on_workers
from tests.interop.torch import handlers as handlers
from torch.autograd import forward_ad

import telegrad as tg
from telegrad.distributed import autograd, rpc
from telegrad.torch import from_torch, to_torch

WORKERS = ("main", "b", "c")


def make_program(seed):
    """Steps (worker or None for here, kind, first operand, second operand)."""
    chosen = random.Random(seed)
    steps = []
    for count in range(chosen.randint(3, 9)):
        where = chosen.choice([None, None, "main", "b", "c"])
        steps.append((where, chosen.randrange(5), *(chosen.randrange(count + 2) for _ in "xy")))
    return steps, chosen.choice(["last", "several"])


def leaves():
    return [
        torch.tensor([0.5, -0.25], dtype=torch.float64, requires_grad=True),
        torch.tensor([1.5, 0.75], dtype=torch.float64, requires_grad=True),
    ]


def loss_of(values, ending):
    used = values[-1:] if ending == "last" else values[-3:]
    return sum((value * value).sum() for value in used)


def run_here(seed):
    """The same computation with PyTorch alone."""
    steps, ending = make_program(seed)
    values = leaves()
    starts = list(values)
    parameters = {
        (name, kind): torch.tensor(value, dtype=torch.float64, requires_grad=True)
        for name in WORKERS
        for kind, value in (("w", (2.0, 3.0)), ("t", (5.0, 7.0)))
    }
    for where, kind, i, j in steps:
        x, y = values[i], values[j]
        w, t = (parameters[where or "main", each] for each in "wt")
        values.append(
            (
                lambda x, y, w, t: torch.sin(x * w) + y,
                lambda x, y, w, t: x * y * 0.5,
                lambda x, y, w, t: (x + y).tanh() * w,
                lambda x, y, w, t: x * t * 0.1 + y,
                lambda x, y, w, t: x.exp() * 0.1 + (y * w).cos(),
            )[kind](x, y, w, t)
        )
    named = {**{("x", i): x for i, x in enumerate(starts)}, **parameters}
    found = torch.autograd.grad(loss_of(values, ending), list(named.values()), allow_unused=True)
    return {key: g.tolist() for key, g in zip(named, found) if g is not None}


def run_apart(seed, create_graph=False):
    """On three workers; returns the gradients by the same names."""
    steps, ending = make_program(seed)
    values = leaves()
    starts = list(values)
    with autograd.context() as context_id:
        for where, kind, i, j in steps:
            args = (kind, values[i], values[j])
            if where is None:
                values.append(handlers.run_step(*args))
            else:
                values.append(rpc.rpc_sync(where, handlers.run_step, args))
        autograd.backward(context_id, [loss_of(values, ending)], create_graph=create_graph)
        found = autograd.get_gradients(context_id)
        result = {("x", i): found[x].tolist() for i, x in enumerate(starts) if x in found}
        for name in WORKERS:
            # A worker that no call reached does not know the context.
            if name == "main" or any(where == name for where, *_ in steps):
                there = rpc.rpc_sync(name, handlers.gradients, (context_id,))
                result.update({(name, kind): g for kind, g in there.items()})
                assert rpc.rpc_sync(name, handlers.untouched)
        assert all(x.grad is None for x in starts)
    return result


@pytest.mark.parametrize("seed", range(60))
def test_a_random_program_has_the_gradients_of_one_process(seed):
    results = []
    # Two schedules of the network: the bits may not depend on it.
    for schedule in (seed, seed + 1000):
        on_workers(*WORKERS, seed=schedule)(lambda: results.append(run_apart(seed)))()
    assert results[0] == results[1]
    expected = run_here(seed)
    assert results[0].keys() == expected.keys()
    for key, gradient in expected.items():
        assert results[0][key] == pytest.approx(gradient, rel=1e-9, abs=1e-12), key


@pytest.mark.parametrize("seed", range(0, 60, 6))
def test_a_recorded_pass_has_the_same_gradients(seed):
    results = []
    on_workers(*WORKERS, seed=seed)(lambda: results.append(run_apart(seed, create_graph=True)))()
    for key, gradient in run_here(seed).items():
        assert results[0][key] == pytest.approx(gradient, rel=1e-9, abs=1e-12), key


def second_order_here(seed):
    steps, ending = make_program(seed)
    x, other = leaves()
    values = [x, other]
    for _, kind, i, j in steps:
        values.append(handlers.run_step(kind, values[i], values[j]))
    (first,) = torch.autograd.grad(loss_of(values, ending), x, create_graph=True, allow_unused=True)
    if first is None or not first.requires_grad:
        return None
    (second,) = torch.autograd.grad((first * first).sum(), x, allow_unused=True)
    return None if second is None else second.tolist()


@pytest.mark.parametrize("seed", range(0, 60, 5))
def test_a_second_pass_goes_back_over_the_same_wires(seed):
    expected, found = [], []

    @on_workers(*WORKERS, seed=seed)
    def program():
        expected.append(second_order_here(seed))
        if expected[0] is None:
            return
        steps, ending = make_program(seed)
        x, other = leaves()
        values = [x, other]
        with autograd.context() as context_id:
            for where, kind, i, j in steps:
                args = (kind, values[i], values[j])
                here = where is None
                values.append(
                    handlers.run_step(*args)
                    if here
                    else rpc.rpc_sync(where, handlers.run_step, args)
                )
            loss = loss_of(values, ending)
            (first,) = autograd.grad(context_id, [loss], [x], create_graph=True)
            autograd.backward(context_id, [(first * first).sum()])
            found.append(autograd.get_gradients(context_id)[x].tolist())

    program()
    if expected[0] is not None:
        assert found[0] == pytest.approx(expected[0], rel=1e-9, abs=1e-12)


@on_workers(*WORKERS)
def test_a_fourth_derivative_goes_back_over_the_wires_of_the_third():
    x = torch.tensor([0.5, 0.75], dtype=torch.float64, requires_grad=True)
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", torch.sin, (rpc.rpc_sync("c", torch.mul, (x, 2.0)),))
        for _ in range(4):
            (y,) = autograd.grad(context_id, [y.sum()], [x], create_graph=True)
        assert torch.allclose(y, 16 * (2 * x).sin(), rtol=1e-12)


def test_both_kinds_pass_from_one_graph_to_the_other_in_one_context():
    @on_workers("main", "b")
    def program():
        x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
        y = tg.tensor([3.0, 4.0], dtype=tg.float64, requires_grad=True)
        with autograd.context() as context_id:
            a, b = rpc.rpc_sync("b", handlers.scale_both, (x, y))
            c = rpc.rpc_sync("b", handlers.scale_over, (a,))
            loss = (from_torch(c) * b).sum() + from_torch(to_torch(y).sin().sum())
            autograd.backward(context_id, [loss])
            found = autograd.get_gradients(context_id)
            # loss = x w² t · y t + sin y
            assert found[x].tolist() == [4 * 25 * 3, 9 * 49 * 4]
            direct = [4 * 25 * 1.0, 9 * 49 * 2.0]
            cosine = torch.tensor([3.0, 4.0], dtype=torch.float64).cos().tolist()
            assert found[y].tolist() == pytest.approx([d + c for d, c in zip(direct, cosine)])

    program()


def hooked_values(steps, run):
    """All values of a program, with a hook on every other one that changes its gradient."""
    values = leaves()
    for number, (where, kind, i, j) in enumerate(steps):
        value = run(where, kind, values[i], values[j])
        if number % 2 and value.requires_grad:
            value.register_hook(lambda g: g * 1.5 + 0.25)
        values.append(value)
    return values


# 126: a hook behind a part of the graph that PyTorch only passes by.
@pytest.mark.parametrize("seed", [*range(40), 126])
def test_gradients_of_any_values_with_hooks_are_those_of_one_process(seed):
    steps, ending = make_program(seed)
    chosen = random.Random(seed)
    asked = sorted(chosen.sample(range(len(steps) + 2), chosen.randint(1, 4)))

    def run_step_here(where, kind, a, b):
        # Kind 3 goes over to telegrad's graph, where the same leaf would be another one.
        w, t = parameters[where or "main"]
        return (
            torch.sin(a * w) + b,
            a * b * 0.5,
            (a + b).tanh() * w,
            a * t * 0.1 + b,
            a.exp() * 0.1 + (b * w).cos(),
        )[kind]

    parameters = {
        name: [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in ((2, 3), (5, 7))]
        for name in WORKERS
    }
    values = hooked_values(steps, run_step_here)
    # One at a time: asked for several, PyTorch leaves out the hooks of those that lie on the way.
    expected = [
        torch.autograd.grad(
            loss_of(values, ending), values[k], allow_unused=True, retain_graph=True
        )
        for k in asked
    ]
    results = []

    @on_workers(*WORKERS, seed=seed)
    def program():
        def run_there(where, kind, a, b):
            if where is None:
                return handlers.run_step(kind, a, b)
            return rpc.rpc_sync(where, handlers.run_step, (kind, a, b))

        with autograd.context() as context_id:
            found = hooked_values(steps, run_there)
            inputs = [found[k] for k in asked]
            loss = loss_of(found, ending)
            results.extend(autograd.grad(context_id, [loss], inputs, allow_unused=True))

    program()
    for number, (gradient, (wanted,)) in enumerate(zip(results, expected)):
        if wanted is None:
            assert gradient is None, asked[number]
        else:
            assert gradient.tolist() == pytest.approx(wanted.tolist(), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("in_context", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_tangents_of_a_random_program_are_those_of_one_process(seed, in_context):
    # Kind 3 goes over to telegrad's graph, and forward mode does not.
    steps = [(where, kind if kind != 3 else 1, i, j) for where, kind, i, j in make_program(seed)[0]]

    def last_of(run):
        duals = [
            forward_ad.make_dual(leaf, torch.tensor([1.0, -2.0], dtype=torch.float64))
            for leaf in leaves()
        ]
        for where, kind, i, j in steps:
            duals.append(run(where, kind, duals[i], duals[j]))
        primal, tangent = forward_ad.unpack_dual(duals[-1])
        return primal.tolist(), tangent.tolist()

    def run_there(where, kind, a, b):
        if where is None:
            return handlers.run_step(kind, a, b)
        return rpc.rpc_sync(where, handlers.run_step, (kind, a, b))

    @on_workers(*WORKERS, seed=seed)
    def program():
        with forward_ad.dual_level():
            expected = last_of(lambda where, *rest: handlers.run_step(*rest))
            if in_context:
                with autograd.context():
                    found = last_of(run_there)
            else:
                found = last_of(run_there)
        assert found == expected

    program()
