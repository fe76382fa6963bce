"""What a campaign asks of its workers, and what each must give.

An operation runs on its *root*, the worker that opens the context, and returns what it found; its
oracle says, in one process, what that must be, to the bit. `programs.py` and `worlds.py` have the
random programs, and their simulation on one process is the oracle.
"""

import functools
import random
import signal
import threading
import time

import numpy as np
from tests.distributed import handlers, programs, training, worlds
from tests.distributed.passes.test_random_programs import WORKERS, alone
from tests.distributed.passes.test_wide_programs import QUESTIONS, apart, ask
from tests.distributed.wide_programs import STEPS, random_program
from tests.rpc.simulated import Counter
from tests.soak.worker import LOSSES, run_name

import telegrad as tg
from telegrad import nn, optim
from telegrad.distributed import autograd, rpc
from telegrad.distributed.optim import DistributedOptimizer
from telegrad.errors import ContextError, LevelError, PeerError
from telegrad.rpc.current import current_worker

__all__ = [
    "GATHERED",
    "KINDS",
    "TYPED",
    "HalfPublished",
    "expected_of",
    "perform",
    "strike_in_pass",
]

TYPED = (PeerError, ContextError, LevelError)
"""How an operation may end when workers are lost: the last two if the one that opened a context, or
a dual level, was lost for a while to one that has a part in it."""
_AT_REST = 20.0
"""Seconds for the news of an aborted pass to be everywhere."""
_SEEDS = 400
"""Different programs of each kind: the oracle of each runs once."""
W = np.array([2.0, 3.0])
"""The parameter of `handlers.scale` on every worker."""


class HalfPublished(Exception):
    """Some workers have the gradients of a pass, and others that live do not."""


def placement_of(seed: int, root: str) -> dict[str, str]:
    """Return a random placement with the first place on the root."""
    others = [root, *(name for name in WORKERS if name != root)]
    return programs.random_placement(random.Random(seed), others)


def living(names, function, args) -> dict:
    """Return what each of the workers that can be asked answers."""
    answers = {}
    for name in names:
        try:
            answers[name] = rpc.rpc_sync(name, function, args)
        except TYPED:
            continue
    return answers


# Random programs, placed at random.


def narrow(number: int, seed: int, root: str) -> dict:
    """One pass over a random program; if it fails, nobody who lives has anything of it."""
    seed %= _SEEDS
    placement = placement_of(number, root)
    run = programs.RUNS[run_name(number, seed, placement)]
    steps, returned = programs.program_of(seed)
    inputs = programs.start_values(seed)
    by_worker: dict[str, list] = {}
    for name in run.parameters:
        by_worker.setdefault(placement[name[0]], []).append(name)
    with autograd.context() as context_id:
        call = programs.caller(run, current_worker())
        loss = programs.loss_of(programs.execute(run, "p0", steps, returned, inputs, call))
        if not loss.requires_grad:
            return {}
        try:
            autograd.backward(context_id, [loss])
        except TYPED:
            check_nothing(run.name, context_id, by_worker)
            raise
        here = autograd.get_gradients(context_id)
        found = {i: here[x].numpy() for i, x in enumerate(inputs) if x in here}
        for name, its in by_worker.items():
            found.update(rpc.rpc_sync(name, programs.collect, (run.name, context_id, its)))
        return found


def check_nothing(run: str, context_id: int, by_worker: dict[str, list]) -> None:
    """Raise unless a pass that failed leaves no gradient on those that can be asked."""
    end = time.monotonic() + _AT_REST
    while True:
        left: dict = {}
        for name, its in by_worker.items():
            left.update(living([name], programs.collect, (run, context_id, its)))
        left = {name: sorted(found) for name, found in left.items() if found}
        if not left:
            return
        if time.monotonic() > end:
            raise HalfPublished(f"the pass failed, and gradients are left: {left}")


def wide(number: int, seed: int, root: str) -> dict:
    """Some question to a random program of many kinds of steps."""
    seed %= _SEEDS
    placement = placement_of(seed, root)
    world = worlds.RUNS[run_name(number, seed, placement)]
    question, program = wide_program(seed)
    with autograd.context():
        return ask(question, world, program, seed)


def wide_program(seed: int):
    rng = random.Random(seed)
    return rng.choice(QUESTIONS), random_program(rng, STEPS)


@functools.cache
def wide_expected(seed: int) -> dict:
    """What a simulation gives with the same placement: references make it part of the program."""
    question, program = wide_program(seed)
    return apart(question, program, seed, placement_of(seed, "w0"), 0)


# A pass that another worker than the home runs: all who live have its gradients, or none.


def delegated(number: int, seed: int, root: str) -> dict:
    """Have the owner of a loss run the pass; look what the others have of it."""
    rng = random.Random(seed)
    runner, *chain = rng.sample([name for name in WORKERS if name != root], 3)
    x = tg.tensor(start_of(seed), requires_grad=True)
    with autograd.context() as context_id:
        loss = rpc.remote(runner, loss_over, (chain, x))
        failure = None
        try:
            loss.to_here()  # Once it is there: the pass shall be what is hit.
            loss.backward(context_id)
        except TYPED as error:
            failure = error
        check_agreement(context_id, chain, x, failure)
        if failure is not None:
            raise failure
        found = {"x": autograd.get_gradients(context_id)[x].numpy()}
        for i, name in enumerate(chain):
            gradient = rpc.rpc_sync(name, handlers.gradient, (context_id,))
            if gradient is not None:
                found[i] = np.array(gradient)
        return found


def loss_over(names, x):
    for name in names:
        x = rpc.rpc_sync(name, handlers.scale, (x,))
    return x.sum()


def share_of(context_id: int):
    """Return whether this worker has the context, and the gradient of its parameter there."""
    try:
        return True, handlers.gradient(context_id)
    except ContextError:
        return False, None


def check_agreement(context_id, chain, x, failure) -> None:
    """Raise unless all who live and have the context have its gradients, or none does.

    Whoever was lost for a while, or came back, has it no more, and says so.
    """
    end = time.monotonic() + _AT_REST
    while True:
        shares = living(chain, share_of, (context_id,))
        try:
            mine = autograd.get_gradients(context_id).get(x)
        except ContextError:
            return  # It was released everywhere: nobody knew how the pass had ended.
        published = {name: its is not None for name, (has, its) in shares.items() if has}
        published["home"] = mine is not None
        if len(set(published.values())) == 1 and (failure is not None or published["home"]):
            return
        if time.monotonic() > end:
            raise HalfPublished(f"gradients after {failure!r}: {published}, {shares}")


def strike_in_pass(victim: str, others: list[str]) -> None:
    """Have a worker kill itself in the midst of its local pass; the others keep nothing of it."""
    x = tg.tensor(start_of(1), requires_grad=True)
    with autograd.context() as context_id:
        y = rpc.rpc_sync(others[0], handlers.scale, (x,))
        y = rpc.rpc_sync(victim, handlers.with_signal_in_backward, (y, signal.SIGKILL))
        y = rpc.rpc_sync(others[1], handlers.scale, (y,))
        try:
            autograd.backward(context_id, [y.sum()])
        except TYPED as error:
            check_dropped(context_id, others, error)
            raise
        raise HalfPublished(f"the pass ended well, though {victim} was killed in it")


def strike_home(victim: str, others: list[str]) -> None:
    """Have a worker kill itself in a context that it has opened on others, after a pass."""
    rpc.rpc_sync(victim, open_and_die, (others,))


def open_and_die(names: list[str]) -> None:
    x = tg.tensor(start_of(1), requires_grad=True)
    with autograd.context() as context_id:
        autograd.backward(context_id, [loss_over(names, x)], retain_graph=True)
        handlers.kill_yourself()
        threading.Event().wait()  # Another thread may take the signal.


def check_dropped(context_id: int, names: list[str], failure: Exception) -> None:
    """Raise unless nobody who lives has a gradient of a pass that failed."""
    end = time.monotonic() + _AT_REST
    while True:
        shares = living(names, share_of, (context_id,))
        left = [name for name, (_, its) in shares.items() if its is not None]
        if not left:
            return
        if time.monotonic() > end:
            raise HalfPublished(f"after {failure!r} there are gradients on {left}")


def start_of(seed: int) -> np.ndarray:
    return np.array([float(seed % 97 + 1), 5.0])


def delegated_expected(seed: int) -> dict:
    # Whole numbers: exact in any order.
    x = start_of(seed)
    return {"x": W * W, 0: x * W, 1: x * W}


# Calls and references.


def call(number: int, seed: int, root: str) -> dict:
    """Send arrays of several sizes to all others at once and have them back."""
    sent = sent_of(seed)
    others = [name for name in WORKERS if name != root]
    futures = [rpc.rpc_async(name, echo, (array,)) for name in others for array in sent]
    got = [future.wait() for future in futures]
    # The same from everyone: that of the last stands for all.
    for i, array in enumerate(got):
        if array.tobytes() != got[i % len(sent)].tobytes():
            raise AssertionError("two workers sent back different bits")
    return dict(enumerate(got[-len(sent) :]))


def sent_of(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(size) for size in (3, 5_000, int(rng.integers(1, 100_000)))]


def echo(array):
    return array


def reference(number: int, seed: int, root: str) -> dict:
    """A counter on one worker that two others count with."""
    rng = random.Random(seed)
    owner, other = rng.sample(WORKERS, 2)
    counter = rpc.remote(owner, Counter, (seed % 1000,))
    for step in range(5):
        counter.rpc_sync().add(step)
        rpc.rpc_sync(other, count_on, (counter, step))
    return {"count": np.array(counter.rpc_sync().add(0))}


def count_on(counter, step):
    return counter.rpc_sync().add(step)


# Training.

_RATES = {"lr": 0.05, "momentum": 0.9}


def train(number: int, seed: int, root: str) -> dict:
    """Some steps of an optimiser of parameters on two workers."""
    owners = random.Random(seed).sample(WORKERS, 2)
    start, batches = training_of(seed)
    model = [rpc.rpc_sync(on, training.weights, (w,)) for on, w in zip(owners, start)]
    optimizer = DistributedOptimizer(optim.SGD, model, **_RATES)
    for x in batches:
        with autograd.context() as context_id:
            first = tg.tanh(rpc.rpc_sync(owners[0], training.weigh, (model[0], tg.tensor(x))))
            second = rpc.rpc_sync(owners[1], training.weigh, (model[1], first))
            autograd.backward(context_id, [((second - 1.0) ** 2).sum()])
            optimizer.step(context_id)
    return {
        i: rpc.rpc_sync(on, training.value, (w,)) for i, (on, w) in enumerate(zip(owners, model))
    }


def training_of(seed: int):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((2, 3)).tolist(), rng.standard_normal((4, 3))


def train_expected(seed: int) -> dict:
    start, batches = training_of(seed)
    w, v = (nn.Parameter(tg.tensor(np.array(values))) for values in start)
    optimizer = optim.SGD([w, v], **_RATES)
    for x in batches:
        optimizer.zero_grad()
        ((v * tg.tanh(w * tg.tensor(x)) - 1.0) ** 2).sum().backward()
        optimizer.step()
    return {0: w.detach().numpy(), 1: v.detach().numpy()}


KINDS = {
    "narrow": narrow,
    "wide": wide,
    "delegated": delegated,
    "call": call,
    "reference": reference,
    "train": train,
}
GATHERED = ("narrow", "wide", "delegated")
"""Those that read, after a pass, the gradients of every worker by calls."""
_EXPECTED = {
    "narrow": lambda seed: alone(seed % _SEEDS),
    "wide": lambda seed: wide_expected(seed % _SEEDS),
    "delegated": delegated_expected,
    "call": lambda seed: dict(enumerate(sent_of(seed))),
    "reference": lambda seed: {"count": np.array(seed % 1000 + 20)},
    "train": train_expected,
}
_ONE_ORACLE = threading.Lock()


def perform(kind: str, number: int, seed: int, root: str) -> tuple[dict, list[str]]:
    """Run an operation on this worker, its root; return what it found and whom it lost in it."""
    before = LOSSES.copy()
    found = KINDS[kind](number, seed, root)
    return found, sorted(LOSSES - before)


def expected_of(kind: str, seed: int) -> dict:
    """Return what an operation must give, computed in this process alone."""
    with _ONE_ORACLE:
        return _EXPECTED[kind](seed)
