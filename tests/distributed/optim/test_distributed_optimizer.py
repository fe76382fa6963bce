"""DistributedOptimizer: equal to one process, alone with each parameter, clear when it fails."""

import threading

import numpy as np
import pytest
from tests.distributed import training
from tests.rpc.neighbours import eventually

import telegrad as tg
from telegrad import nn, optim
from telegrad.distributed import LocalCluster, RemoteModule, autograd, rpc
from telegrad.distributed.optim import DistributedOptimizer
from telegrad.errors import ContextError, DTypeError, ShapeError, UsageError, WorkerLost
from telegrad.optim.lr_scheduler import LambdaLR, StepLR

pytestmark = pytest.mark.processes

START = {"b": [2.0, -3.0, 0.5], "c": [1.5, 4.0, -1.0]}
"""The parameters of the model, by owner."""


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(["b", "c"]) as cluster:
        yield cluster


@pytest.fixture
def model(cluster):
    return [rpc.rpc_sync(owner, training.weights, (START[owner],)) for owner in START]


def loss_of(model, x):
    """A loss through both workers: the second scales what the first gave."""
    first = tg.tanh(rpc.rpc_sync("b", training.weigh, (model[0], x)))
    second = rpc.rpc_sync("c", training.weigh, (model[1], first))
    return ((second - 1.0) ** 2).sum()


def twin():
    """The same model in this process, and its loss."""
    w, v = (
        nn.Parameter(tg.tensor(np.array(values), dtype=tg.float64)) for values in START.values()
    )
    return [w, v], lambda x: ((v * tg.tanh(w * x) - 1.0) ** 2).sum()


def inputs(steps):
    rng = np.random.default_rng(7)
    return [tg.tensor(rng.standard_normal(3)) for _ in range(steps)]


def values_of(model):
    return [rpc.rpc_sync(owner, training.value, (each,)) for owner, each in zip(START, model)]


def train(model, optimizer, batches, max_norm=None):
    for x in batches:
        with autograd.context() as context_id:
            autograd.backward(context_id, [loss_of(model, x)])
            if max_norm is not None:
                optimizer.clip_grad_norm_(context_id, max_norm)
            optimizer.step(context_id)


def train_here(params, loss, optimizer, batches, max_norm=None):
    for x in batches:
        optimizer.zero_grad()
        loss(x).backward()
        if max_norm is not None:
            nn.utils.clip_grad_norm_(params, max_norm)
        optimizer.step()


def assert_same(model, params):
    for theirs, mine in zip(values_of(model), params, strict=True):
        np.testing.assert_allclose(theirs, mine.detach().numpy(), rtol=1e-12)


# Equal to one process.


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
        (optim.Adam, {"lr": 0.05, "weight_decay": 0.01}),
        (optim.RMSprop, {"lr": 0.01}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_twenty_steps_equal_those_of_one_process(model, kind, options):
    params, loss = twin()
    train(model, DistributedOptimizer(kind, model, **options), inputs(20))
    train_here(params, loss, kind(params, **options), inputs(20))
    assert_same(model, params)
    assert not np.allclose(values_of(model)[0], START["b"])


def test_clipping_is_by_the_norm_over_all_workers(model):
    params, loss = twin()
    x = inputs(1)[0]
    optimizer = DistributedOptimizer(optim.SGD, model, lr=0.1)
    with autograd.context() as context_id:
        autograd.backward(context_id, [loss_of(model, x)])
        norm = optimizer.clip_grad_norm_(context_id, 0.5)
        clipped = rpc.rpc_sync("b", training.gradient, (model[0], context_id))
        assert optimizer.clip_grad_norm_(context_id, 10.0) == pytest.approx(0.5, rel=1e-5)
    loss(x).backward()
    assert norm == pytest.approx(nn.utils.clip_grad_norm_(params, 0.5).item())
    np.testing.assert_allclose(clipped, params[0].grad.numpy())


def test_clipped_steps_equal_those_of_one_process(model):
    params, loss = twin()
    train(model, DistributedOptimizer(optim.SGD, model, lr=0.3), inputs(8), max_norm=0.7)
    train_here(params, loss, optim.SGD(params, lr=0.3), inputs(8), max_norm=0.7)
    assert_same(model, params)


def test_a_gradient_that_is_not_a_number_makes_all_so_when_clipped(model):
    optimizer = DistributedOptimizer(optim.SGD, model, lr=0.3)
    with autograd.context() as context_id:
        autograd.backward(context_id, [loss_of(model, inputs(1)[0])])
        rpc.rpc_sync("b", training.poison, (model[0], context_id, float("nan")))
        assert np.isnan(optimizer.clip_grad_norm_(context_id, 1.0))
        assert np.isnan(rpc.rpc_sync("c", training.gradient, (model[1], context_id))).all()


def test_a_parameter_of_this_worker_is_stepped_with_the_others(cluster, model):
    mine = nn.Parameter(tg.tensor([1.0, 2.0, 3.0], dtype=tg.float64))
    optimizer = DistributedOptimizer(optim.SGD, [rpc.RRef(mine), model[0]], lr=0.5)
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", training.weigh, (model[0], mine))
        autograd.backward(context_id, [y.sum()])
        optimizer.step(context_id)
    assert mine.tolist() == [0.0, 3.5, 2.75]
    assert values_of(model[:1])[0].tolist() == [1.5, -4.0, -1.0]
    assert mine.grad is None


def test_a_parameter_without_a_gradient_stays_as_it_is(model):
    optimizer = DistributedOptimizer(optim.Adam, model, lr=0.5)
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", training.weigh, (model[0], inputs(1)[0]))
        autograd.backward(context_id, [y.sum()])
        optimizer.step(context_id)
    assert values_of(model)[1].tolist() == START["c"]
    assert values_of(model)[0].tolist() != START["b"]


def test_an_optimiser_that_knows_grad_alone_is_lent_it(model):
    rpc.rpc_sync("b", training.gradient_in_grad, (model[0], [7.0, 7.0, 7.0]))
    optimizer = DistributedOptimizer(training.Foreign, model, 0.5)
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", training.weigh, (model[0], tg.ones(3, dtype=tg.float64)))
        autograd.backward(context_id, [y.sum()])
        optimizer.step(context_id)
    assert values_of(model)[0].tolist() == [1.5, -3.5, 0.0]
    assert rpc.rpc_sync("b", training.grad_of, (model[0],)) == [7.0, 7.0, 7.0]


# Groups.


def test_groups_have_options_of_their_own_wherever_their_parameters_live(model):
    params, loss = twin()
    mine, more = (nn.Parameter(tg.tensor([1.0, 2.0, 3.0], dtype=tg.float64)) for _ in range(2))
    theirs = DistributedOptimizer(
        optim.SGD,
        [
            {"params": [model[1], rpc.RRef(mine)], "lr": 0.02},
            {"params": model[0], "momentum": 0.9},
            {"params": (rpc.RRef(each) for each in [more]), "weight_decay": 0.1},
        ],
        lr=0.05,
    )
    ours = optim.SGD(
        [{"params": [params[1]], "lr": 0.02}, {"params": [params[0]], "momentum": 0.9}], lr=0.05
    )
    train(model, theirs, inputs(5))
    train_here(params, loss, ours, inputs(5))
    assert_same(model, params)
    assert mine.tolist() == more.tolist() == [1.0, 2.0, 3.0]
    with autograd.context() as context_id:
        autograd.backward(context_id, [(mine + more).sum()])
        theirs.step(context_id)
    np.testing.assert_allclose(mine.detach().numpy(), [0.98, 1.98, 2.98])
    np.testing.assert_allclose(more.detach().numpy(), [0.945, 1.94, 2.935])


def test_a_schedule_and_a_state_know_the_groups_by_position_on_every_owner(cluster, model):
    def grouped(model):
        made = DistributedOptimizer(
            optim.Adam, [{"params": model[:1], "lr": 0.1}, {"params": model[1:]}], lr=0.2
        )
        return made, made.schedule(LambdaLR, [lambda epoch: 0.5**epoch, lambda epoch: 1.0])

    optimizer, schedule = grouped(model)
    train(model, optimizer, inputs(2))
    schedule.step()
    assert schedule.get_last_lr() == {"b": [0.05, 0.2], "c": [0.05, 0.2]}
    states = optimizer.state_dict(), schedule.state_dict()
    other = [
        rpc.rpc_sync(owner, training.weights, (now,)) for owner, now in zip(START, values_of(model))
    ]
    resumed, its_schedule = grouped(other)
    resumed.load_state_dict(states[0])
    its_schedule.load_state_dict(states[1])
    assert its_schedule.get_last_lr() == schedule.get_last_lr()
    train(model, optimizer, inputs(2))
    train(other, resumed, inputs(2))
    for theirs, mine in zip(values_of(other), values_of(model)):
        assert theirs.tolist() == mine.tolist()
    alone = DistributedOptimizer(optim.Adam, model, lr=0.1)
    with pytest.raises(UsageError, match=r"groups of .* parameters, got one of"):
        alone.load_state_dict(states[0])


def test_groups_that_are_none_or_share_a_parameter_are_refused(model):
    first, second = model
    for given, wanted in (
        ({"params": model}, "RRefs to parameters, or a list of groups, got dict"),
        ([{"lr": 0.1}], r"'params' as params_rref\[0\], a group, got one with \['lr'\]"),
        ([{"params": [first]}, second], r"'params' as params_rref\[1\], a group, got RRef"),
        ([{"params": []}], "at least one RRef to a parameter, got none"),
        ([{"params": [first]}, {"params": [first]}], "each parameter once, got one twice"),
        ([{"params": [first], "rate": 1.0}], "options out of lr, .* got rate"),
    ):
        with pytest.raises(UsageError, match=wanted):
            DistributedOptimizer(optim.SGD, given, lr=0.1)
    with pytest.raises(DTypeError, match=r"as params_rref\[1\]\['params'\]\[0\], got int"):
        DistributedOptimizer(optim.SGD, [{"params": [first]}, {"params": [1]}], lr=0.1)


# Schedules and states.


def test_a_schedule_sets_the_rate_on_every_owner(model):
    params, loss = twin()
    theirs = DistributedOptimizer(optim.SGD, model, lr=0.2)
    ours = optim.SGD(params, lr=0.2)
    schedule, twin_schedule = theirs.schedule(StepLR, 2, gamma=0.5), StepLR(ours, 2, gamma=0.5)
    for x in inputs(6):
        train(model, theirs, [x])
        train_here(params, loss, ours, [x])
        schedule.step()
        twin_schedule.step()
    assert_same(model, params)
    assert schedule.get_last_lr() == {"b": [0.025], "c": [0.025]}


def test_a_schedule_of_any_callable_and_its_state(model):
    optimizer = DistributedOptimizer(optim.SGD, model, lr=1.0)
    schedule = optimizer.schedule(LambdaLR, lambda epoch: 1 / (1 + epoch))
    schedule.step()
    schedule.step()
    saved = schedule.state_dict()
    schedule.step()
    assert schedule.get_last_lr()["c"] == [0.25]
    schedule.load_state_dict(saved)
    assert schedule.get_last_lr() == {"b": [1 / 3], "c": [1 / 3]}
    with pytest.raises(UsageError, match=r"states of the owners \['b', 'c'\]"):
        schedule.load_state_dict({"owners": {"b": saved["owners"]["b"]}})


def test_a_schedule_whose_state_fits_one_owner_alone_is_as_it_was_on_all(model):
    optimizer = DistributedOptimizer(optim.SGD, model, lr=1.0)
    schedule = optimizer.schedule(StepLR, 2, gamma=0.5)
    schedule.step()
    before = schedule.state_dict()
    of_b, of_c = before["owners"]["b"], before["owners"]["c"]
    odd = {"owners": {"b": {**of_b, "last_epoch": 4}, "c": {**of_c, "base_lrs": [1.0, 1.0]}}}
    with pytest.raises(UsageError, match="for 1 groups") as caught:
        schedule.load_state_dict(odd)
    assert any("these did: b" in note for note in caught.value.__notes__)
    assert schedule.state_dict() == before
    assert schedule.get_last_lr() == {"b": [1.0], "c": [1.0]}


def test_a_restored_state_goes_on_as_if_nothing_had_happened(cluster, model):
    batches = inputs(10)
    optimizer = DistributedOptimizer(optim.Adam, model, lr=0.05)
    train(model, optimizer, batches[:5])
    saved = optimizer.state_dict()
    other = [
        rpc.rpc_sync(owner, training.weights, (now,)) for owner, now in zip(START, values_of(model))
    ]
    restored = DistributedOptimizer(optim.Adam, other, lr=0.9)
    restored.load_state_dict(saved)
    train(model, optimizer, batches[5:])
    train(other, restored, batches[5:])
    for theirs, mine in zip(values_of(other), values_of(model)):
        assert theirs.tolist() == mine.tolist()


def test_a_state_is_a_copy_of_its_moment(model):
    optimizer = DistributedOptimizer(optim.SGD, model, lr=0.05, momentum=0.9)
    train(model, optimizer, inputs(1))
    saved = optimizer.state_dict()
    before = saved["owners"]["b"]["state"][0]["momentum_buffer"].tolist()
    train(model, optimizer, inputs(3))
    assert saved["owners"]["b"]["state"][0]["momentum_buffer"].tolist() == before


# Several trainers.


def test_all_owners_step_at_the_same_time(model):
    optimizer = DistributedOptimizer(training.Meeting, model, lr=0.1)
    train(model, optimizer, inputs(1))  # Each of the two waits until the other is there.
    assert values_of(model)[1].tolist() != START["c"]


def test_a_step_between_anothers_forward_and_backward_leaves_that_pass_exact(model):
    x = tg.tensor(np.array([1.0, 2.0, 3.0]), requires_grad=True)
    optimizer = DistributedOptimizer(optim.SGD, model, lr=1.0)
    recorded, stepped = threading.Event(), threading.Event()
    found = []

    def other_trainer():
        with autograd.context() as context_id:
            y = rpc.rpc_sync("b", training.weigh, (model[0], x))
            recorded.set()
            assert stepped.wait(30)
            autograd.backward(context_id, [y.sum()])
            found.append(autograd.get_gradients(context_id)[x].tolist())

    thread = threading.Thread(target=other_trainer)
    thread.start()
    assert recorded.wait(30)
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", training.total, (model[0],))
        autograd.backward(context_id, [y])
        optimizer.step(context_id)
    stepped.set()
    thread.join(30)
    assert found == [START["b"]]
    assert values_of(model)[0].tolist() == [1.0, -4.0, -0.5]


def step_once(optimizer, shared):
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", training.total, (shared,))
        autograd.backward(context_id, [y])
        optimizer.step(context_id)


def test_nobody_sees_half_an_update_and_no_other_trainer_steps_in_between(cluster):
    shared = rpc.rpc_sync("b", training.weights, (np.zeros(8),))
    slow = DistributedOptimizer(training.InHalves, [shared], lr=1.0)
    quick = DistributedOptimizer(optim.SGD, [shared], lr=1.0)
    training.HALFWAY.clear()
    training.GO_ON.clear()
    first = threading.Thread(target=step_once, args=(slow, shared))
    second = threading.Thread(target=step_once, args=(quick, shared))
    first.start()
    try:
        assert training.HALFWAY.wait(30)
        assert rpc.rpc_sync("b", training.value, (shared,)).tolist() == [0.0] * 8
        second.start()
        # Long enough for a step that nothing holds back.
        assert not eventually(lambda: not second.is_alive(), 0.3)
    finally:
        training.GO_ON.set()
    first.join(30)
    second.join(30)
    assert rpc.rpc_sync("b", training.value, (shared,)).tolist() == [-2.0] * 8


def test_two_trainers_lose_no_step_of_each_other(cluster):
    size, steps = 200_000, 25
    shared = rpc.rpc_sync("b", training.weights, (np.zeros(size),))
    failures = []

    def trainer():
        try:
            optimizer = DistributedOptimizer(optim.SGD, [shared], lr=1.0)
            for _ in range(steps):
                step_once(optimizer, shared)
        except BaseException as error:
            failures.append(error)

    trainers = [threading.Thread(target=trainer) for _ in range(2)]
    for thread in trainers:
        thread.start()
    while any(thread.is_alive() for thread in trainers):
        assert rpc.rpc_sync("b", training.is_uniform, (shared,))
    assert failures == []
    assert rpc.rpc_sync("b", training.value, (shared,)).tolist() == [-2.0 * steps] * size


# Bad input.


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("zero_grad", "gradients belong to a context and go with it"),
        ("param_groups", "on the owners; .*schedule"),
    ],
)
def test_what_an_optimiser_here_has_and_this_one_lacks_says_why(model, name, said):
    optimizer = DistributedOptimizer(optim.SGD, model, lr=0.1)
    with pytest.raises(AttributeError, match=said):
        getattr(optimizer, name)
    assert not hasattr(optimizer, name)
    assert name not in dir(optimizer)


def test_what_is_no_reference_is_refused_with_its_position(model):
    with pytest.raises(DTypeError, match=r"params_rref\[1\], got Parameter; wrap a local one"):
        DistributedOptimizer(optim.SGD, [model[0], nn.Parameter(tg.ones(2))], lr=0.1)
    with pytest.raises(DTypeError, match=r"got list; .* join lists of them, \[\*some, \*others\]"):
        DistributedOptimizer(optim.SGD, [model[:1], model[1:]], lr=0.1)
    with pytest.raises(UsageError, match="at least one RRef to a parameter, got none"):
        DistributedOptimizer(optim.SGD, [], lr=0.1)


@pytest.mark.parametrize(("maker", "came"), [("a_number", "int"), ("a_computed_tensor", "Tensor")])
def test_a_reference_to_something_else_is_refused_by_its_owner(model, maker, came):
    wrong = rpc.rpc_sync("c", getattr(training, maker))
    with pytest.raises(DTypeError, match=f"leaves that require grad.* to {came}") as caught:
        DistributedOptimizer(optim.SGD, [model[0], wrong], lr=0.1)
    assert "worker 'c' could not build the optimiser; these did: b" in caught.value.__notes__


def test_a_frozen_parameter_stays_as_it_is_until_it_is_thawed(model):
    rpc.rpc_sync("b", training.freeze, (model[0],))
    optimizer = DistributedOptimizer(optim.SGD, model, lr=0.1, weight_decay=0.5)
    train(model, optimizer, inputs(1))
    frozen, stepped = values_of(model)
    assert frozen.tolist() == START["b"]
    assert stepped.tolist() != START["c"]
    rpc.rpc_sync("b", training.freeze, (model[0], False))
    train(model, optimizer, inputs(1))
    assert values_of(model)[0].tolist() != START["b"]


def test_a_parameter_twice_is_refused(model):
    with pytest.raises(UsageError, match="each parameter once"):
        DistributedOptimizer(optim.SGD, [model[0], model[0]], lr=0.1)


def test_a_class_that_cannot_be_built_there_gives_its_error_and_the_place(model):
    with pytest.raises(LookupError, match="nothing to be had on c") as caught:
        DistributedOptimizer(training.Picky, model, "b")
    assert "worker 'c' could not build the optimiser; these did: b" in caught.value.__notes__
    with pytest.raises(TypeError, match="no_such_option") as both:
        DistributedOptimizer(optim.SGD, model, no_such_option=1)
    assert both.value.__notes__[-2:] == [
        "worker 'b' could not build the optimiser; no other worker did",
        "neither could c",
    ]


@pytest.mark.parametrize("method", ["step", "clip_grad_norm_"])
def test_an_unknown_or_released_context_is_refused(model, method):
    optimizer = DistributedOptimizer(optim.SGD, model, lr=0.1)
    options = (1.0,) if method == "clip_grad_norm_" else ()
    with autograd.context() as released:
        pass
    for context_id in (released, 12345):
        with pytest.raises(ContextError, match=f"got {context_id}; it was never used here or is"):
            getattr(optimizer, method)(context_id, *options)
    assert values_of(model)[0].tolist() == START["b"]


@pytest.mark.parametrize("method", ["step", "clip_grad_norm_"])
def test_an_owner_that_has_released_the_context_refuses_it_and_does_not_skip_the_step(
    model, method
):
    optimizer = DistributedOptimizer(optim.SGD, model, lr=0.1)
    options = (1.0,) if method == "clip_grad_norm_" else ()
    with autograd.context() as context_id:
        autograd.backward(context_id, [loss_of(model, inputs(1)[0])])
        rpc.rpc_sync("b", training.forget, (context_id,))
        # Not a call of the context, which would be refused as such.
        with (
            tg.no_grad(),
            pytest.raises(ContextError, match="live context on worker 'b'") as caught,
        ):
            getattr(optimizer, method)(context_id, *options)
    assert "worker 'b' could not" in caught.value.__notes__[-1]


def test_a_set_has_no_order_for_a_state_to_go_by_and_is_refused(model):
    for given in (set(model), [{"params": frozenset(model)}]):
        with pytest.raises(UsageError, match=r"the same in every run.* got a (frozen)?set"):
            DistributedOptimizer(optim.SGD, given, lr=0.1)


def test_what_is_no_class_or_has_no_parameters_is_refused(cluster):
    layer = RemoteModule("b", nn.Linear, (1, 1))
    for given in ("SGD", optim.SGD(nn.Linear(1, 1).parameters())):
        said = rf"the class of an optimiser, such as optim.SGD, got a {type(given).__name__}; "
        with pytest.raises(UsageError, match=said):
            DistributedOptimizer(given, layer.remote_parameters(), lr=0.1)
    with pytest.raises(UsageError, match=r"got RemoteModule; .* pass its remote_parameters\(\)"):
        DistributedOptimizer(optim.SGD, layer, lr=0.1)


def test_a_norm_below_zero_is_refused(model):
    optimizer = DistributedOptimizer(optim.SGD, model, lr=0.1)
    with autograd.context() as context_id, pytest.raises(UsageError, match="0 or more, got -1"):
        optimizer.clip_grad_norm_(context_id, -1)


def test_a_state_of_other_owners_is_refused(model):
    optimizer = DistributedOptimizer(optim.SGD, model, lr=0.1)
    alone = DistributedOptimizer(optim.SGD, model[:1], lr=0.1)
    with pytest.raises(UsageError, match=r"owners \['b', 'c'\], got those of \['b'\]"):
        optimizer.load_state_dict(alone.state_dict())
    with pytest.raises(UsageError, match=r"owners \['b', 'c'\], got dict"):
        optimizer.load_state_dict(optim.SGD([nn.Parameter(tg.ones(1))]).state_dict())
    with pytest.raises(UsageError, match=r"owners \['b', 'c'\], got list"):
        optimizer.load_state_dict([])


def test_a_state_of_another_shape_is_refused_and_changes_nothing(cluster, model):
    optimizer = DistributedOptimizer(optim.SGD, model, lr=0.1, momentum=0.9)
    train(model, optimizer, inputs(2))
    before = optimizer.state_dict()
    short = rpc.rpc_sync("c", training.weights, ([1.0, 2.0],))
    other = DistributedOptimizer(optim.SGD, [model[0], short], lr=0.7, momentum=0.9)
    with autograd.context() as context_id:
        y = rpc.rpc_sync("c", training.total, (short,))
        autograd.backward(context_id, [y])
        other.step(context_id)
    with pytest.raises(ShapeError, match=r"momentum_buffer of shape \(3,\)") as caught:
        optimizer.load_state_dict(other.state_dict())
    assert any("worker 'c' could not restore" in note for note in caught.value.__notes__)
    after = optimizer.state_dict()
    assert after["owners"]["b"]["param_groups"] == before["owners"]["b"]["param_groups"]
    kept = [each["owners"]["b"]["state"][0]["momentum_buffer"].tolist() for each in (before, after)]
    assert kept[0] == kept[1]


def test_an_old_state_that_could_not_be_put_back_is_named(model):
    optimizer = DistributedOptimizer(training.Stubborn, model, lr=0.1)
    with pytest.raises(LookupError, match="no state today") as caught:
        optimizer.load_state_dict(optimizer.state_dict())
    assert "the old state could not be put back everywhere" in caught.value.__notes__[-1]


def test_a_lost_owner_is_named_and_the_others_have_stepped():
    with LocalCluster(["b", "c"]) as cluster:
        model = [rpc.rpc_sync(owner, training.weights, (START[owner],)) for owner in START]
        optimizer = DistributedOptimizer(optim.SGD, model, lr=0.5)
        with autograd.context() as context_id:
            y = rpc.rpc_sync("c", training.total, (model[1],))
            autograd.backward(context_id, [y])
            cluster.process("b").kill()
            with pytest.raises(WorkerLost, match="'b'") as caught:
                optimizer.step(context_id)
            assert "worker 'b' could not step; these did: c" in caught.value.__notes__
            assert rpc.rpc_sync("c", training.value, (model[1],)).tolist() == [1.0, 3.5, -1.5]
            assert eventually(lambda: cluster.worker.find("b").lost is not None)
            # Lost for good: found out before anything is sent, and c steps all the same.
            with pytest.raises(WorkerLost, match="'b'") as caught:
                optimizer.step(context_id)
            assert "worker 'b' could not step; these did: c" in caught.value.__notes__
            assert rpc.rpc_sync("c", training.value, (model[1],)).tolist() == [0.5, 3.0, -2.0]
        with pytest.raises(WorkerLost, match="'b'"):
            optimizer.state_dict()
