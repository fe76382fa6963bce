"""Every loss equals PyTorch's: values, gradients, second order; and what it refuses."""

from typing import Any

import numpy as np
import pytest
import torch
from tests.nn.twins import assert_close, assert_twins, to_ours, to_theirs

import telegrad as tg
from telegrad import nn
from telegrad.errors import DTypeError, GradientError, ShapeError, UsageError

RNG = np.random.default_rng(3)
REDUCTIONS = ["mean", "sum", "none"]


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape)


def weighted(name: str, *, weight: Any = None, pos_weight: Any = None, **options: Any) -> Any:
    """The loss of both libraries."""
    made = []
    for lib, convert in ((nn, to_ours), (torch.nn, to_theirs)):
        extra = {"weight": weight, "pos_weight": pos_weight}
        tensors = {k: convert(v, False) for k, v in extra.items() if v is not None}
        made.append(getattr(lib, name)(**tensors, **options))
    return made


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", ["MSELoss", "HuberLoss"])
def test_losses_of_differences_are_pytorchs(name: str, reduction: str) -> None:
    assert_twins(*weighted(name, reduction=reduction), normal(3, 4), normal(3, 4))


def test_huber_with_another_delta_is_pytorchs() -> None:
    assert_twins(*weighted("HuberLoss", delta=0.4), normal(3, 4) * 2, normal(3, 4))


def test_huber_has_no_curvature_where_it_begins_to_grow_straight_on() -> None:
    assert_twins(*weighted("HuberLoss", reduction="sum"), np.array([1.0, -1.0, 0.5]), np.zeros(3))


def test_huber_of_an_infinite_difference_has_a_slope() -> None:
    assert_twins(
        *weighted("HuberLoss", reduction="sum"), np.array([np.inf, 0.3, -5.0]), np.zeros(3)
    )


CLASSES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "plain": (normal(4, 3), np.array([0, 2, 1, 2]), {}),
    "one item": (normal(3), np.array(2), {}),
    "images": (normal(2, 3, 2, 2), RNG.integers(0, 3, (2, 2, 2)), {}),
    "weights": (normal(4, 3), np.array([0, 2, 1, 2]), {"weight": np.array([0.5, 2.0, 1.0])}),
    "ignored": (normal(4, 3), np.array([0, -100, 1, -100]), {}),
    "another ignored": (normal(4, 3), np.array([0, 1, 1, 2]), {"ignore_index": 1}),
}
SMOOTHED: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "smoothing": (normal(4, 3), np.array([0, 2, 1, 2]), {"label_smoothing": 0.2}),
    "all at once": (
        normal(4, 3, 2),
        np.array([[0, 2], [1, -100], [2, 2], [0, 1]]),
        {"label_smoothing": 0.3, "weight": np.array([0.5, 2.0, 1.0])},
    ),
    "probabilities": (normal(4, 3), RNG.dirichlet(np.ones(3), 4), {}),
    "probabilities, smoothed and weighted": (
        normal(4, 3),
        RNG.dirichlet(np.ones(3), 4),
        {"label_smoothing": 0.3, "weight": np.array([0.5, 2.0, 1.0])},
    ),
}


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("case", [*CLASSES, *SMOOTHED])
def test_cross_entropy_is_pytorchs(case: str, reduction: str) -> None:
    x, target, options = {**CLASSES, **SMOOTHED}[case]
    assert_twins(*weighted("CrossEntropyLoss", reduction=reduction, **options), x, target)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_classes_that_are_ruled_out_do_not_spoil_the_others(
    reduction: str, smoothing: float
) -> None:
    out = float("-inf")
    x = np.array([[1.0, out, 0.5], [out, out, out], [0.3, 0.1, 0.2]])
    if smoothing:
        x[0, 1] = -2.0  # A smoothed target asks for some of every class.
    losses = weighted("CrossEntropyLoss", reduction=reduction, label_smoothing=smoothing)
    found, expected = (
        loss(convert(x, False), convert(np.array([2, -100, 0]), False))
        for loss, convert in zip(losses, (to_ours, to_theirs))
    )
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-12)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("case", CLASSES)
def test_negative_log_likelihood_is_pytorchs(case: str, reduction: str) -> None:
    x, target, options = CLASSES[case]
    assert_twins(*weighted("NLLLoss", reduction=reduction, **options), x, target)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("has_weights", [False, True])
def test_binary_cross_entropy_is_pytorchs(has_weights: bool, reduction: str) -> None:
    options: dict[str, Any] = {}
    if has_weights:
        options = {"weight": RNG.uniform(0.5, 1, (4, 3)), "pos_weight": np.array([0.5, 2, 1.5])}
    loss = weighted("BCEWithLogitsLoss", reduction=reduction, **options)
    assert_twins(*loss, normal(4, 3), RNG.uniform(0, 1, (4, 3)))


def test_binary_cross_entropy_of_extreme_values_is_finite() -> None:
    x = tg.tensor([-2000.0, 2000.0], dtype=tg.float64, requires_grad=True)
    loss = nn.BCEWithLogitsLoss()(x, tg.tensor([0.0, 1.0], dtype=tg.float64))
    loss.backward()
    assert loss.item() == 0.0
    np.testing.assert_allclose(x.grad.numpy(), [0.0, 0.0], atol=1e-300)


@pytest.mark.parametrize("dtype", ["uint8", "int64", "bool"])
def test_targets_and_weights_of_binary_cross_entropy_may_be_integers(dtype: str) -> None:
    x, labels = tg.tensor([0.5, -1.5, 2.0]), tg.tensor([1.0, 0.0, 1.0])
    weight, pos_weight = tg.tensor([1.0, 1.0, 0.0]), tg.tensor([0.0, 1.0, 1.0])
    expected = nn.BCEWithLogitsLoss(weight, pos_weight=pos_weight)(x, labels)
    others = [each.to(getattr(tg, dtype)) for each in (labels, weight, pos_weight)]
    loss = nn.BCEWithLogitsLoss(others[1], pos_weight=others[2])
    assert loss(x, others[0]).tolist() == loss(x, labels).tolist() == expected.tolist()


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_all_items_ignored_give_nan_without_a_gradient_as_in_pytorch(smoothing: float) -> None:
    loss = weighted("CrossEntropyLoss", label_smoothing=smoothing)
    assert_twins(*loss, normal(2, 3), np.array([-100, -100]))


HIDDEN = np.array([[1.0, -np.inf, 2.0], [0.5, 1.0, -np.inf], [0.1, 0.2, 0.3]])


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", ["CrossEntropyLoss", "NLLLoss"])
def test_classes_that_can_not_be_count_only_where_they_are_the_target(
    name: str, reduction: str
) -> None:
    assert_twins(*weighted(name, reduction=reduction), HIDDEN, np.array([0, 1, 2]), second=False)
    ours = weighted(name)[0](to_ours(HIDDEN), to_ours([1, 1, 2]))
    assert ours.item() == np.inf


def test_what_is_ignored_may_be_anything() -> None:
    x = np.array([[np.nan, -np.inf, np.inf], [0.5, 1.0, -2.0]])
    assert_twins(*weighted("NLLLoss"), x, np.array([-100, 1]))


def test_a_class_out_of_range_is_refused() -> None:
    x = tg.zeros((2, 3))
    with pytest.raises(UsageError, match=r"classes from 0 to 2.*got 3"):
        nn.CrossEntropyLoss()(x, tg.tensor([0, 3]))
    with pytest.raises(UsageError, match="got -1"):
        nn.NLLLoss()(x, tg.tensor([-1, 0]))


def test_targets_of_another_shape_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"\(2, 3\) and \(3,\)"):
        nn.MSELoss()(tg.zeros((2, 3)), tg.zeros(3))
    with pytest.raises(ShapeError, match=r"target of shape \(2,\).*got \(3,\)"):
        nn.CrossEntropyLoss()(tg.zeros((2, 3)), tg.tensor([0, 1, 2]))
    with pytest.raises(ShapeError, match=r"weight of shape \(3,\).*got \(2,\)"):
        nn.CrossEntropyLoss(tg.ones(2))(tg.zeros((2, 3)), tg.tensor([0, 1]))


def test_other_bad_arguments_are_refused() -> None:
    with pytest.raises(UsageError, match="reduction, got 'average'"):
        nn.MSELoss("average")(tg.zeros(2), tg.zeros(2))
    with pytest.raises(UsageError, match="reduction, got 'average'"):
        nn.CrossEntropyLoss(reduction="average")(tg.zeros((1, 2)), tg.tensor([0]))
    with pytest.raises(UsageError, match="label_smoothing"):
        nn.CrossEntropyLoss(label_smoothing=2.0)(tg.zeros((1, 2)), tg.tensor([0]))
    with pytest.raises(UsageError, match="ignore_index=1, got probabilities"):
        nn.CrossEntropyLoss(ignore_index=1)(tg.zeros((1, 2)), tg.zeros((1, 2)))
    with pytest.raises(UsageError, match="delta"):
        nn.HuberLoss(delta=0.0)(tg.zeros(2), tg.zeros(2))
    with pytest.raises(DTypeError, match="bool"):
        nn.CrossEntropyLoss()(tg.zeros((1, 2)), tg.tensor([True]))


def test_weights_of_probabilities_have_pytorchs_gradient() -> None:
    x, target, weight = normal(4, 3, 2), np.abs(normal(4, 3, 2)), np.array([0.5, 2.0, 1.0])
    ours, theirs = (
        (convert(x), convert(target, False), convert(weight)) for convert in (to_ours, to_theirs)
    )
    nn.functional.cross_entropy(*ours, label_smoothing=0.1).backward()
    torch.nn.functional.cross_entropy(*theirs, label_smoothing=0.1).backward()
    assert_close(ours[2].grad, theirs[2].grad)


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_weights_of_classes_that_are_differentiated_are_refused_as_in_pytorch(name: str) -> None:
    ours, theirs = (
        (convert(normal(2, 3)), convert(np.array([0, 2])), convert(np.ones(3)))
        for convert in (to_ours, to_theirs)
    )
    with pytest.raises(RuntimeError, match="not differentiable"):
        getattr(torch.nn.functional, name)(*theirs)
    with pytest.raises(GradientError, match=rf"constant weight.*in {name}"):
        getattr(nn.functional, name)(*ours)
    with pytest.raises(GradientError, match="constant weight"):
        tg.autograd.functional.jvp(
            lambda w: getattr(nn.functional, name)(*ours[:2], w),
            ours[2].detach(),
            tg.ones(3).to("float64"),
        )


def test_a_huber_loss_that_is_never_straight_has_a_gradient() -> None:
    loss = nn.HuberLoss(delta=np.inf), torch.nn.HuberLoss(delta=np.inf)
    assert_twins(*loss, np.array([1.0, -3.0]), np.array([0.5, 2.0]))
