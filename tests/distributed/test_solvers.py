"""Solvers on other workers: black boxes there, and a fixed point that couples two of them."""

import numpy as np
import pytest
from tests.autograd.solvers import programs
from tests.rpc.neighbours import eventually

import telegrad as tg
from telegrad.autograd import from_adjoint, from_fixed_point
from telegrad.autograd import functional as F
from telegrad.distributed import LocalCluster, autograd, rpc
from telegrad.errors import NotDifferentiable, ShapeError

pytestmark = pytest.mark.processes

RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(3, 3)) + 3 * np.eye(3), RNG.normal(size=3)


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(["first", "second"]) as cluster:
        yield cluster


def leaf(array):
    return tg.tensor(array, requires_grad=True)


def test_a_black_box_runs_once_there_and_what_it_saves_is_freed_there(cluster):
    here = leaf(A), leaf(B)
    (programs.black_box(*here) ** 2).sum().backward()
    alive, runs = rpc.rpc_sync("first", programs.counts)
    a, b = leaf(A), leaf(B)
    with autograd.context() as context_id:
        x = rpc.rpc_sync("first", programs.black_box, (a, b))
        assert rpc.rpc_sync("first", programs.counts) == (alive + 1, runs + 1)
        autograd.backward(context_id, [(x**2).sum()])
        assert rpc.rpc_sync("first", programs.counts) == (alive, runs + 2)
        found = autograd.get_gradients(context_id)
        assert np.array_equal(found[a].numpy(), here[0].grad.numpy())
        assert np.array_equal(found[b].numpy(), here[1].grad.numpy())


def test_what_a_black_box_saves_goes_with_a_context_that_no_pass_ran_in(cluster):
    alive, _ = rpc.rpc_sync("first", programs.counts)
    with autograd.context():
        rpc.rpc_sync("first", programs.black_box, (leaf(A), leaf(B)))
    assert eventually(lambda: rpc.rpc_sync("first", programs.counts)[0] == alive)


def test_second_order_goes_over_workers_where_the_adjoint_is_differentiable(cluster):
    def loss(roots):
        def of(a):
            low, high = roots(a, tg.tensor([1.0, 2.0], dtype=tg.float64))
            return (low * high * high).sum()

        return of

    a = tg.tensor([3.0, -4.0], dtype=tg.float64)
    here = F.hessian(loss(programs.quadratic))(a)
    with autograd.context():
        remote = lambda *args: rpc.rpc_sync("second", programs.quadratic, args)
        there = F.hessian(loss(remote))(a)
    assert np.allclose(here.numpy(), there.detach().numpy(), rtol=1e-13)


def test_errors_of_a_black_box_keep_their_types_over_workers(cluster):
    wrong = from_adjoint(lambda x: (x, None), lambda saved, v: v[:1])
    with autograd.context() as context_id:
        y = rpc.rpc_sync("first", wrong, (leaf(B),))
        with pytest.raises(ShapeError, match=r"expected shape \(3,\) from the adjoint"):
            autograd.backward(context_id, [y.sum()])
    with autograd.context() as context_id:
        b = leaf(B)
        y = rpc.rpc_sync("first", programs.black_box, (tg.tensor(A), b))
        (g,) = autograd.grad(context_id, (y**2).sum(), b, create_graph=True)
        with pytest.raises(NotDifferentiable, match="comes from a black box"):
            autograd.backward(context_id, [g.sum()])


def heat(interface, source):
    """One solver: what it gives at the interface, as a black box."""
    return 0.5 * np.sin(interface) + source, interface


def heat_adjoint(interface, v):
    return 0.5 * np.cos(interface) * v, v


def heat_tangent(interface, t, s):
    return 0.5 * np.cos(interface) * t + s


first_solver = from_adjoint(heat, heat_adjoint, heat_tangent)


def second_solver(interface, stiffness):
    """Another, by telegrad's functions."""
    return tg.tanh(stiffness * interface)


def coupled(call_first, call_second):
    def step(interface, source, stiffness):
        return call_second(call_first(interface, source), stiffness)

    return from_fixed_point(step)


def test_two_solvers_on_two_workers_are_coupled_by_a_fixed_point(cluster):
    values = RNG.normal(size=3), np.array(0.7)
    zeros = tg.zeros(3, dtype=tg.float64)
    here = [leaf(each) for each in values]
    x = coupled(first_solver, second_solver)(zeros, *here)
    (x**2).sum().backward()

    remote = coupled(
        lambda *args: rpc.rpc_sync("first", first_solver, args),
        lambda *args: rpc.rpc_sync("second", second_solver, args),
    )
    there = [leaf(each) for each in values]
    with autograd.context() as context_id:
        y = remote(zeros, *there)
        autograd.backward(context_id, [(y**2).sum()])
        found = autograd.get_gradients(context_id)
        for mine, theirs in zip(here, there):
            assert np.allclose(mine.grad.numpy(), found[theirs].numpy(), rtol=1e-10)
    assert np.allclose(x.detach().numpy(), y.detach().numpy(), rtol=1e-12)

    def in_forward_mode(f):
        return F.jvp(lambda s: f(zeros, s, tg.tensor(values[1])), tg.tensor(values[0]), zeros + 1)

    tangents = [in_forward_mode(f)[1] for f in (coupled(first_solver, second_solver), remote)]
    assert np.allclose(tangents[0].numpy(), tangents[1].detach().numpy(), rtol=1e-10)
