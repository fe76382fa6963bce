"""What an optimiser may touch, remembers, and refuses."""

import pickle
import threading
import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch
from tests.interpreter import needs_lock

import telegrad as tg
from telegrad import nn, optim
from telegrad.errors import DTypeError, ShapeError, UsageError

EVERY = [optim.SGD, optim.Adam, optim.AdamW, optim.Adagrad, optim.RMSprop]


def parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(tg.randn(*shape, generator=tg.Generator(0), dtype=tg.float64))


@needs_lock
@pytest.mark.parametrize("kind", EVERY)
def test_a_step_reuses_memory_that_nobody_else_holds(kind: Any) -> None:
    p = parameter(4, 3)
    optimizer = kind([p], lr=0.1)
    for i in range(3):
        (p * p).sum().backward()
        place = p.array.ctypes.data
        optimizer.step()
        if i:
            assert p.array.ctypes.data == place


FULL: dict[Any, dict[str, Any]] = {
    optim.SGD: {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1, "maximize": True},
    optim.Adam: {"amsgrad": True, "weight_decay": 0.1, "maximize": True},
    optim.AdamW: {"amsgrad": True, "weight_decay": 0.1, "maximize": True},
    optim.Adagrad: {"weight_decay": 0.1, "lr_decay": 0.1, "maximize": True},
    optim.RMSprop: {"centered": True, "momentum": 0.9, "weight_decay": 0.1, "maximize": True},
}


@needs_lock
@pytest.mark.parametrize("kind", EVERY)
def test_a_step_allocates_no_arrays_once_it_has_run(kind: Any) -> None:
    p = parameter(100, 100)
    optimizer = kind([p], **FULL[kind])
    p.grad = tg.ones_like(p)
    optimizer.step()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        optimizer.step()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # An array would have 80 kB; Python's own small objects have less than one row of it.
    assert peak - before < 10_000


@pytest.mark.parametrize("kind", EVERY)
def test_a_step_leaves_values_alone_that_a_graph_saved(kind: Any) -> None:
    p = parameter(3)
    before = p.detach().numpy().copy()
    loss = (p * p * p).sum()
    p.grad = tg.ones_like(p)
    kind([p], lr=0.5).step()
    assert not np.array_equal(p.detach().numpy(), before)
    (gradient,) = tg.autograd.grad(loss, p)
    np.testing.assert_allclose(gradient.numpy(), 3 * before**2)


def test_a_step_leaves_copies_of_the_state_alone() -> None:
    model = nn.Linear(2, 2)
    kept = model.state_dict()
    before = {name: value.numpy().copy() for name, value in kept.items()}
    optimizer = optim.SGD(model.parameters(), lr=1.0)
    for p in model.parameters():
        p.grad = tg.ones_like(p)
    optimizer.step()
    for name, value in kept.items():
        np.testing.assert_array_equal(value.numpy(), before[name])
        assert not np.array_equal(model.state_dict()[name].numpy(), before[name])


def test_a_step_leaves_shared_memory_alone() -> None:
    outside = np.ones(3)
    p = nn.Parameter(tg.asarray(outside, copy=False))
    p.grad = tg.ones_like(p)
    optim.SGD([p], lr=1.0).step()
    np.testing.assert_array_equal(outside, np.ones(3))
    np.testing.assert_array_equal(p.detach().numpy(), np.zeros(3))


def test_a_step_leaves_the_gradient_alone() -> None:
    p = parameter(3)
    p.grad = tg.ones_like(p)
    optim.SGD([p], lr=0.1, momentum=0.9, weight_decay=0.5, maximize=True).step()
    np.testing.assert_array_equal(p.grad.numpy(), np.ones(3))


def test_a_value_made_aside_is_never_seen_half_done() -> None:
    p = nn.Parameter(np.zeros(200_000))
    optimizer = optim.SGD([p], lr=1.0)
    optimizer.always_aside = True
    p.grad = tg.ones_like(p)
    torn: list[Any] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            seen = p.array
            if seen[0] != seen[-1] or seen[0] != seen[100_000]:
                torn.append(seen)

    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in range(50):
        optimizer.step()
    done.set()
    watcher.join()
    assert not torn
    assert p.array[0] == -50


def test_parameters_without_a_gradient_stay() -> None:
    p, q = parameter(2), parameter(2)
    before = q.detach().numpy().copy()
    p.grad = tg.ones_like(p)
    optimizer = optim.Adam([p, q])
    optimizer.step()
    np.testing.assert_array_equal(q.detach().numpy(), before)
    assert q not in optimizer.state


def test_gradients_made_zero_are_zero_whatever_they_were() -> None:
    p = parameter(2)
    p.grad = tg.tensor([np.nan, np.inf], dtype=p.dtype)
    optim.SGD([p]).zero_grad(set_to_none=False)
    assert p.grad is not None
    assert p.grad.tolist() == [0.0, 0.0]


def test_gradients_may_come_from_elsewhere() -> None:
    p = parameter(2)
    before = p.detach().numpy().copy()
    optim.SGD([p], lr=1.0).step(gradients={p: tg.ones_like(p)})
    np.testing.assert_allclose(p.detach().numpy(), before - 1)
    assert p.grad is None


def test_a_complex_gradient_of_a_real_parameter_is_refused() -> None:
    p = parameter(2)
    with pytest.raises(DTypeError, match="real gradient for a parameter of float64, got complex"):
        optim.SGD([p]).step(gradients={p: tg.tensor([1j, 2.0])})


def test_a_closure_computes_the_loss_anew() -> None:
    p = parameter(2)
    optimizer = optim.SGD([p], lr=0.1)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with tg.no_grad():
        first = optimizer.step(closure)
        second = optimizer.step(closure)
    assert second.item() < first.item()


def test_float32_stays_float32() -> None:
    p = nn.Parameter(np.ones((2, 2), np.float32))
    p.grad = tg.ones_like(p)
    optimizer = optim.Adam([p])
    optimizer.step()
    assert p.dtype == tg.float32
    assert optimizer.state_dict()["state"][0]["exp_avg"].dtype == tg.float32


def test_the_state_is_a_copy_and_restores_a_run_bit_for_bit() -> None:
    p = parameter(3)
    optimizer = optim.Adam([p], lr=0.1)

    def steps(count: int) -> Any:
        for _ in range(count):
            optimizer.zero_grad()
            (p**4).sum().backward()
            optimizer.step()
        return p.detach().numpy().copy()

    steps(3)
    value, state = p.detach(), optimizer.state_dict()
    expected = steps(4)
    with tg.no_grad():
        p.copy_(value)
    optimizer.load_state_dict(state)
    np.testing.assert_array_equal(steps(4), expected)


def test_a_scheduler_goes_on_from_its_state() -> None:
    optimizer = optim.SGD([parameter(1)], lr=1.0)
    scheduler = optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    for _ in range(3):
        scheduler.step()
    state = scheduler.state_dict()
    other = optim.lr_scheduler.StepLR(optim.SGD([parameter(1)], lr=1.0), 5, gamma=0.1)
    other.load_state_dict(state)
    assert other.get_last_lr() == [0.5]
    other.step()
    assert other.get_last_lr() == [0.25]


def test_a_scheduler_may_begin_where_the_state_of_its_optimizer_ended_as_in_pytorch() -> None:
    def run(lib: Any, p: Any) -> list[float]:
        first = lib.optim.SGD([p], lr=1.0)
        scheduler = lib.optim.lr_scheduler.StepLR(first, 2, gamma=0.5)
        for _ in range(3):
            first.step()
            scheduler.step()
        second = lib.optim.SGD([p], lr=1.0)
        second.load_state_dict(first.state_dict())
        scheduler = lib.optim.lr_scheduler.StepLR(second, 2, gamma=0.5, last_epoch=3)
        return [scheduler.last_epoch, *scheduler.get_last_lr()]

    assert run(tg, parameter(1)) == run(torch, torch.ones(1, requires_grad=True)) == [4, 0.25]


def test_a_scheduler_that_makes_no_sense_is_refused() -> None:
    schedules = optim.lr_scheduler
    optimizer, other = optim.SGD([parameter(1)], lr=1.0), optim.SGD([parameter(1)], lr=1.0)
    with pytest.raises(UsageError, match=r"'initial_lr' in group 0 .* load the optimiser's state"):
        schedules.StepLR(optimizer, 2, last_epoch=3)
    with pytest.raises(UsageError, match="step_size of 1 or more, got 0"):
        schedules.StepLR(optimizer, 0)
    with pytest.raises(UsageError, match="T_max of 1 or more, got 0"):
        schedules.CosineAnnealingLR(optimizer, 0)
    with pytest.raises(UsageError, match=r"the first above 0, got 0\.0 and 1\.0"):
        schedules.LinearLR(optimizer, 0.0)
    with pytest.raises(UsageError, match="1 functions, one a group, got 2"):
        schedules.LambdaLR(optimizer, [float, float])
    step = schedules.StepLR(optimizer, 2)
    with pytest.raises(UsageError, match="between each two schedulers, got 0 for 2 schedulers"):
        schedules.SequentialLR(optimizer, [step, step], [])
    with pytest.raises(UsageError, match=r"rising milestones, got \[4, 2\]"):
        schedules.SequentialLR(optimizer, [step, step, step], [4, 2])
    with pytest.raises(UsageError, match="schedulers of this very optimizer"):
        schedules.SequentialLR(other, [step], [])


@pytest.mark.parametrize("kind", [optim.SGD, optim.Adam, optim.RMSprop, optim.Adagrad])
def test_a_parameter_without_elements_is_stepped_as_any_other(kind: Any) -> None:
    p, empty = parameter(2), tg.zeros((0, 3)).requires_grad_()
    optimizer = kind([empty, p], lr=0.5, weight_decay=0.1)
    before = p.tolist()
    p.grad, empty.grad = tg.ones_like(p), tg.zeros_like(empty)
    optimizer.step()
    assert empty.shape == (0, 3)
    assert p.tolist() != before


def test_a_state_of_pytorch_without_momentum_is_saved_as_it_was_loaded() -> None:
    optimizer = optim.SGD([parameter(2)], lr=0.1)
    state = optimizer.state_dict() | {"state": {0: {"momentum_buffer": None}}}
    optimizer.load_state_dict(state)
    assert optimizer.state_dict()["state"] == state["state"]


def test_its_repr_shows_the_groups() -> None:
    text = repr(optim.SGD([parameter(1)], lr=0.25))
    assert "Parameter Group 0" in text
    assert "lr: 0.25" in text


def test_no_parameters_are_refused() -> None:
    with pytest.raises(UsageError, match=r"at least one parameter.* in a plain list"):
        optim.SGD([], lr=0.1)
    with pytest.raises(UsageError, match="at least one parameter, got none in 2 groups"):
        optim.SGD([{"params": []}, {"params": []}], lr=0.1)


def test_a_lone_tensor_is_refused() -> None:
    with pytest.raises(UsageError, match="iterable of parameters"):
        optim.SGD(parameter(2), lr=0.1)


def test_a_module_is_refused() -> None:
    with pytest.raises(UsageError, match=r"got Linear; for a module, pass its parameters\(\)"):
        optim.SGD(nn.Linear(2, 2), lr=0.1)  # type: ignore[arg-type]


@pytest.mark.parametrize("in_group", [False, True])
def test_a_set_of_parameters_is_refused(in_group: bool) -> None:
    params = {nn.Parameter([1.0]), nn.Parameter([2.0])}
    with pytest.raises(UsageError, match=r"in an order .* got a set; pass a list"):
        optim.SGD([{"params": params}] if in_group else params, lr=0.1)


def test_what_is_not_a_leaf_is_refused() -> None:
    with pytest.raises(UsageError, match="leaves"):
        optim.SGD([parameter(2) * 2], lr=0.1)


def test_the_same_parameter_twice_is_refused() -> None:
    p = parameter(2)
    with pytest.raises(UsageError, match="twice"):
        optim.SGD([{"params": [p]}, {"params": [p]}], lr=0.1)


def test_options_out_of_range_are_refused() -> None:
    p = parameter(2)
    with pytest.raises(UsageError, match="lr of 0 or more, got -1"):
        optim.SGD([p], lr=-1)
    with pytest.raises(UsageError, match="betas"):
        optim.Adam([p], betas=(1.0, 0.9))
    with pytest.raises(UsageError, match=r"two betas from 0 up to 1, got \(0.9,\)"):
        optim.Adam([p], betas=(0.9,))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"two betas from 0 up to 1, got 0.9"):
        optim.Adam([p], betas=0.9)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"two betas from 0 up to 1, got \('a', 'b'\)"):
        optim.Adam([p], betas=("a", "b"))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="expected an Optimizer, got str"):
        optim.lr_scheduler.LambdaLR("SGD", lambda epoch: 1.0)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="lr of 0 or more, got 'fast'"):
        optim.Adam([p], lr="fast")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="initial_accumulator_value of 0 or more, got -1"):
        optim.Adagrad([p], initial_accumulator_value=-1)
    with pytest.raises(UsageError, match="nesterov"):
        optim.SGD([p], nesterov=True)
    with pytest.raises(UsageError, match="rate"):
        optim.SGD([{"params": [p], "rate": 1.0}])
    with pytest.raises(UsageError, match="a dict with 'params' as a group, got "):
        optim.SGD([p]).add_param_group([parameter(2)])  # type: ignore[arg-type]


def test_a_state_of_another_model_is_refused_and_changes_nothing() -> None:
    p, q = parameter(2), parameter(3)
    q.grad = tg.ones_like(q)
    other = optim.Adam([q], lr=0.5)
    other.step()
    mine = optim.Adam([p], lr=0.1)
    with pytest.raises(ShapeError, match=r"\(2,\).*\(3,\)"):
        mine.load_state_dict(other.state_dict())
    assert mine.param_groups[0]["lr"] == 0.1
    assert not mine.state
    with pytest.raises(UsageError, match=r"groups of \[1\] parameters, got one of \[2\]"):
        mine.load_state_dict(optim.Adam([parameter(2), parameter(2)]).state_dict())
    said = r"got a dict with 'weight'; give what the optimiser's own state_dict\(\) returned"
    with pytest.raises(UsageError, match=said):
        mine.load_state_dict({"weight": tg.ones(2)})
    with pytest.raises(UsageError, match=r"got a dict with '0', '1', '2', …; give"):
        mine.load_state_dict({str(number): tg.ones(2) for number in range(4)})
    with pytest.raises(UsageError, match="got a NoneType with neither; give"):
        mine.load_state_dict(None)
    state = stepped(optim.Adam).state_dict()
    state["state"][0]["exp_avg"] = state["state"][0]["exp_avg"] * 1j
    with pytest.raises(UsageError, match=r"real numbers as exp_avg .* float64, got complex128"):
        mine.load_state_dict(state)
    assert not mine.state


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("exp_avg", None, "numbers as exp_avg .*, got NoneType"),
        ("exp_avg", "1.0", "numbers as exp_avg .*, got str"),
        ("step", None, "numbers as step .*, got NoneType"),
        ("step", -1.0, "0 or more, as step, got -1.0"),
        ("step", np.nan, "0 or more, as step, got nan"),
        ("step", 1j, "0 or more, as step, got 1j"),
    ],
)
def test_a_state_that_is_damaged_is_refused_when_it_is_loaded_and_not_in_the_middle_of_a_step(
    name: str, value: Any, message: str
) -> None:
    state = stepped(optim.Adam).state_dict()
    state["state"][0][name] = value
    mine = optim.Adam([parameter(2)])
    with pytest.raises(UsageError, match=message):
        mine.load_state_dict(state)
    assert not mine.state


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"state": None}, "a dict by position"),
        ({"state": {0: None}}, "a dict by position"),
        ({"state": {"first": {}}}, "positions of parameters in the state, got 'first'"),
        ({"state": {0.5: {}}}, "positions of parameters in the state, got 0.5"),
        ({"param_groups": None}, "a list of dicts as 'param_groups'"),
        ({"param_groups": [{"lr": 0.1}]}, "a list of dicts as 'param_groups'"),
        ({"param_groups": [{"lr": 0.1, "params": 0}]}, "a list of dicts as 'param_groups'"),
        ({"param_groups": [{"lr": 0.1, "params": [[0]]}]}, r"each position once.*\[\[0\]\]"),
        ({"param_groups": [{"params": [0]}, {"params": [0]}]}, r"each position once.*\[0, 0\]"),
    ],
)
def test_a_state_of_another_form_is_refused_and_changes_nothing(
    changed: dict[str, Any], message: str
) -> None:
    mine = optim.Adam([parameter(2)])
    with pytest.raises(UsageError, match=message):
        mine.load_state_dict({**stepped(optim.Adam).state_dict(), **changed})
    assert not mine.state


def test_positions_may_have_become_text_as_in_json() -> None:
    state = stepped(optim.Adam).state_dict()
    mine = optim.Adam([parameter(2)])
    mine.load_state_dict({**state, "state": {"0": state["state"][0]}})
    assert len(mine.state) == 1


def stepped(kind: Any, **options: Any) -> Any:
    p = parameter(2)
    optimizer = kind([p], **options)
    p.grad = tg.ones_like(p)
    optimizer.step()
    return optimizer


def test_a_state_of_another_optimiser_is_refused_and_changes_nothing() -> None:
    mine = optim.Adam([parameter(2)], lr=0.1)
    with pytest.raises(UsageError, match="another optimiser: its groups lack betas, eps, amsgrad"):
        mine.load_state_dict(stepped(optim.SGD, momentum=0.9).state_dict())
    state = stepped(optim.Adam).state_dict()
    state["state"][0]["sum"] = state["state"][0].pop("exp_avg")
    with pytest.raises(UsageError, match="of Adam, got another: missing exp_avg; unexpected sum"):
        mine.load_state_dict(state)
    state = stepped(optim.Adam).state_dict()
    state["param_groups"][0]["lr"] = -1.0
    with pytest.raises(UsageError, match="lr of 0 or more, got -1"):
        mine.load_state_dict(state)
    assert mine.param_groups[0]["lr"] == 0.1
    assert not mine.state


def test_states_of_adam_and_adamw_are_told_apart_ours_and_pytorchs() -> None:
    theirs = torch.optim.AdamW([torch.ones(2, dtype=torch.float64, requires_grad=True)])
    for other in (stepped(optim.AdamW), theirs):
        with pytest.raises(UsageError, match=r"of Adam, with decoupled_weight_decay=False, got"):
            optim.Adam([parameter(2)]).load_state_dict(other.state_dict())
        optim.AdamW([parameter(2)]).load_state_dict(other.state_dict())
    theirs.load_state_dict(optim.AdamW([parameter(2)]).state_dict())
    assert theirs.param_groups[0]["decoupled_weight_decay"]


@pytest.mark.parametrize("kind", EVERY)
def test_a_state_brings_the_options_it_was_made_with(kind: Any) -> None:
    options: dict[str, Any] = {"lr": 0.5}
    if kind is optim.RMSprop:
        options.update(centered=True, momentum=0.5)
    elif kind in (optim.Adam, optim.AdamW):
        options["amsgrad"] = True
    other, mine = stepped(kind, **options), kind([parameter(2)])
    mine.load_state_dict(other.state_dict())
    mine.param_groups[0]["params"][0].grad = tg.ones(2, dtype=tg.float64)
    mine.step()
    shown = {name: value for name, value in mine.param_groups[0].items() if name != "params"}
    assert shown == {k: v for k, v in other.param_groups[0].items() if k != "params"}


@pytest.mark.parametrize("wrong", [tg.ones(3), tg.asarray(1j * np.ones(2))])
def test_a_gradient_that_does_not_fit_stops_the_step_before_any_parameter_moves(wrong: Any) -> None:
    first, second = nn.Parameter(np.zeros(2)), nn.Parameter(np.zeros(2))
    optimizer = optim.SGD([first, second], lr=1.0)
    with pytest.raises((ShapeError, DTypeError)):
        optimizer.step(gradients={first: tg.ones(2), second: wrong})
    assert first.tolist() == [0, 0]


def test_a_pickled_state_goes_on_with_the_same_bits() -> None:
    tg.manual_seed(0)
    x = tg.randn(16, 8)

    def step(model: Any, optimizer: Any) -> None:
        optimizer.zero_grad()
        (model(x) ** 2).mean().backward()
        optimizer.step()

    model = nn.Linear(8, 8)
    optimizer = optim.Adam(model.parameters(), lr=0.01, weight_decay=0.1)
    for _ in range(3):
        step(model, optimizer)
    other = pickle.loads(pickle.dumps(model))
    resumed = optim.Adam(other.parameters(), lr=0.5)
    resumed.load_state_dict(pickle.loads(pickle.dumps(optimizer.state_dict())))
    for _ in range(3):
        step(model, optimizer)
        step(other, resumed)
    for mine, theirs in zip(model.parameters(), other.parameters()):
        np.testing.assert_array_equal(mine.detach(), theirs.detach())


@pytest.mark.filterwarnings("ignore:You are comparing a array_api_strict dtype")
@pytest.mark.parametrize("kind", EVERY)
def test_parameters_on_another_librarys_arrays_stay_there_and_become_the_same(kind: Any) -> None:
    strict = pytest.importorskip("array_api_strict")
    ours = nn.Parameter(tg.tensor([1.0, -2.0], dtype=tg.float64))
    theirs = nn.Parameter(tg.asarray(strict.asarray([1.0, -2.0])))
    for p in (ours, theirs):
        optimizer = kind([p], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            (p * p).sum().backward()
            optimizer.step()
    assert type(theirs.array).__module__.startswith("array_api_strict")
    assert theirs.tolist() == ours.tolist()


@pytest.mark.parametrize(
    ("kind", "option", "value"),
    [
        (optim.RMSprop, "momentum", 0.9),
        (optim.RMSprop, "centered", True),
        (optim.Adam, "amsgrad", True),
        (optim.AdamW, "amsgrad", True),
        (optim.SGD, "momentum", 0.9),
    ],
)
def test_an_option_that_is_set_between_steps_is_heeded_from_there_on(
    kind: Any, option: str, value: Any
) -> None:
    p = tg.tensor([1.0, -2.0], requires_grad=True)
    p.grad = tg.tensor([0.5, 1.0])
    optimizer = kind([p], lr=0.1)
    optimizer.step()
    optimizer.param_groups[0][option] = value
    before = p.detach().clone()
    optimizer.step()
    assert (p != before).all()
    assert np.isfinite(p.detach().numpy()).all()
    # Off again: what it remembers is no reason to refuse the state.
    optimizer.param_groups[0][option] = type(value)(0)
    kind([p], lr=0.1).load_state_dict(optimizer.state_dict())
