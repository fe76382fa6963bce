"""Every module equals PyTorch's: state dict, values, gradients, second order."""

from typing import Any

import numpy as np
import pytest
import torch
from tests.nn.twins import assert_close, assert_twins, paired, to_ours, to_theirs

import telegrad as tg
from telegrad import nn

RNG = np.random.default_rng(5)
torch.manual_seed(5)


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape)


def distinct(*shape: int) -> Any:
    count = int(np.prod(shape))
    return (RNG.permutation(count) * 0.1 - count * 0.05).reshape(shape)


MODULES = {
    "Linear": (nn.Linear(4, 3), torch.nn.Linear(4, 3), [normal(2, 5, 4)]),
    "Linear without bias": (
        nn.Linear(4, 3, bias=False),
        torch.nn.Linear(4, 3, bias=False),
        [normal(4)],
    ),
    "Embedding": (nn.Embedding(5, 3), torch.nn.Embedding(5, 3), [np.array([[0, 4], [4, 2]])]),
    "Embedding with padding": (
        nn.Embedding(5, 3, padding_idx=-1),
        torch.nn.Embedding(5, 3, padding_idx=-1),
        [np.array([0, 4, 4, 1])],
    ),
    "LayerNorm": (nn.LayerNorm(6), torch.nn.LayerNorm(6), [normal(2, 3, 6)]),
    "LayerNorm over two axes": (
        nn.LayerNorm((3, 4), eps=0.1, bias=False),
        torch.nn.LayerNorm((3, 4), eps=0.1, bias=False),
        [normal(2, 3, 4)],
    ),
    "LayerNorm without affine": (
        nn.LayerNorm(4, elementwise_affine=False),
        torch.nn.LayerNorm(4, elementwise_affine=False),
        [normal(3, 4)],
    ),
    "BatchNorm2d": (nn.BatchNorm2d(3), torch.nn.BatchNorm2d(3), [normal(2, 3, 2, 2)]),
    "BatchNorm2d with a cumulative average": (
        nn.BatchNorm2d(2, momentum=None, eps=1e-3),
        torch.nn.BatchNorm2d(2, momentum=None, eps=1e-3),
        [normal(3, 2, 1, 2)],
    ),
    "BatchNorm2d without running statistics": (
        nn.BatchNorm2d(2, track_running_stats=False, affine=False),
        torch.nn.BatchNorm2d(2, track_running_stats=False, affine=False),
        [normal(3, 2, 1, 2)],
    ),
    "Dropout of nothing": (nn.Dropout(0.0), torch.nn.Dropout(0.0), [normal(3)]),
    "Dropout of all": (nn.Dropout(1.0), torch.nn.Dropout(1.0), [normal(3)]),
    "ReLU": (nn.ReLU(), torch.nn.ReLU(), [normal(7)]),
    "GELU": (nn.GELU(), torch.nn.GELU(), [normal(7)]),
    "GELU by tanh": (nn.GELU("tanh"), torch.nn.GELU("tanh"), [normal(7)]),
    "SiLU": (nn.SiLU(), torch.nn.SiLU(), [normal(7)]),
    "Tanh": (nn.Tanh(), torch.nn.Tanh(), [normal(7)]),
    "Sigmoid": (nn.Sigmoid(), torch.nn.Sigmoid(), [normal(7)]),
    "Softmax": (nn.Softmax(0), torch.nn.Softmax(0), [normal(3, 2)]),
    "MaxPool2d": (nn.MaxPool2d(2), torch.nn.MaxPool2d(2), [distinct(2, 3, 4, 5)]),
    "MaxPool2d overlapping, with a border": (
        nn.MaxPool2d(3, 2, 1),
        torch.nn.MaxPool2d(3, 2, 1),
        [distinct(1, 2, 5, 6)],
    ),
    "MaxPool2d dilated, of one image": (
        nn.MaxPool2d((2, 1), (1, 2), dilation=(2, 1)),
        torch.nn.MaxPool2d((2, 1), (1, 2), dilation=(2, 1)),
        [distinct(2, 5, 4)],
    ),
    "MaxPool2d hanging over": (
        nn.MaxPool2d(2, ceil_mode=True),
        torch.nn.MaxPool2d(2, ceil_mode=True),
        [distinct(1, 1, 5, 3)],
    ),
    "MaxPool2d larger than the input, hanging over": (
        nn.MaxPool2d(2, 2, dilation=3, ceil_mode=True),
        torch.nn.MaxPool2d(2, 2, dilation=3, ceil_mode=True),
        [distinct(1, 1, 3, 5)],
    ),
    "AvgPool2d": (nn.AvgPool2d(2), torch.nn.AvgPool2d(2), [normal(2, 3, 4, 5)]),
    "AvgPool2d with a border that counts": (
        nn.AvgPool2d(3, 2, 1),
        torch.nn.AvgPool2d(3, 2, 1),
        [normal(1, 2, 5, 6)],
    ),
    "AvgPool2d with a border that does not count": (
        nn.AvgPool2d(3, 2, 1, count_include_pad=False),
        torch.nn.AvgPool2d(3, 2, 1, count_include_pad=False),
        [normal(1, 2, 5, 6)],
    ),
    "AvgPool2d hanging over": (
        nn.AvgPool2d(3, 2, 1, ceil_mode=True),
        torch.nn.AvgPool2d(3, 2, 1, ceil_mode=True),
        [normal(1, 2, 6, 4)],
    ),
    "AvgPool2d larger than the input, hanging over": (
        nn.AvgPool2d(4, 2, ceil_mode=True),
        torch.nn.AvgPool2d(4, 2, ceil_mode=True),
        [normal(1, 2, 3, 5)],
    ),
    "AvgPool2d with a divisor": (
        nn.AvgPool2d(2, divisor_override=3),
        torch.nn.AvgPool2d(2, divisor_override=3),
        [normal(2, 4, 4)],
    ),
    "GRU": (nn.GRU(3, 4), torch.nn.GRU(3, 4), [normal(5, 2, 3)]),
    "GRU of two layers, both ways, batch first, with a first state": (
        nn.GRU(3, 2, num_layers=2, batch_first=True, bidirectional=True),
        torch.nn.GRU(3, 2, num_layers=2, batch_first=True, bidirectional=True),
        [normal(2, 4, 3), normal(4, 2, 2)],
    ),
    "GRU of no items": (nn.GRU(3, 2), torch.nn.GRU(3, 2), [normal(4, 0, 3)]),
    "GRU without bias, of one sequence": (
        nn.GRU(3, 2, bias=False),
        torch.nn.GRU(3, 2, bias=False),
        [normal(4, 3), normal(1, 2)],
    ),
}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_equals_pytorchs(name: str) -> None:
    ours, theirs, inputs = MODULES[name]
    assert_twins(*paired(ours, theirs), *inputs)


CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[Any, ...], dict[str, Any]]] = {
    "plain": ((2, 3, 5, 6), (3, 4, 3), {}),
    "same": ((2, 3, 5, 6), (3, 4, (3, 2)), {"padding": "same"}),
    "border and stride": ((1, 2, 6, 5), (2, 3, 3), {"padding": 1, "stride": 2}),
    "dilated, uneven": (
        (1, 2, 7, 6),
        (2, 2, (2, 3)),
        {"dilation": (2, 1), "stride": (1, 2), "padding": (0, 2)},
    ),
    "grouped": ((2, 4, 4, 4), (4, 6, 3), {"groups": 2, "bias": False}),
    "depthwise": ((1, 3, 4, 4), (3, 3, 3), {"groups": 3, "padding": 1}),
    "many channels": ((1, 17, 3, 3), (17, 2, 2), {}),
    "border beyond the kernel": ((1, 1, 3, 3), (1, 2, 2), {"padding": 3}),
    "reflected": ((1, 2, 4, 4), (2, 2, 3), {"padding": 1, "padding_mode": "reflect"}),
    "replicated": ((1, 2, 4, 4), (2, 2, 3), {"padding": 2, "padding_mode": "replicate"}),
    "circular": ((1, 2, 4, 4), (2, 2, 3), {"padding": "same", "padding_mode": "circular"}),
    "one image": ((2, 4, 4), (2, 3, 3), {"padding": "valid"}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution_equals_pytorchs(name: str) -> None:
    shape, args, options = CONVOLUTIONS[name]
    ours, theirs = nn.Conv2d(*args, **options), torch.nn.Conv2d(*args, **options)
    assert_twins(*paired(ours, theirs), normal(*shape))


def causal(length: int) -> Any:
    return ~np.tri(length, dtype=bool)


ATTENTIONS: dict[str, tuple[dict[str, Any], list[Any], dict[str, Any]]] = {
    "of three": ({}, [normal(3, 2, 4), normal(5, 2, 4), normal(5, 2, 4)], {}),
    "batch first, all heads shown": (
        {"batch_first": True},
        [normal(2, 3, 4), normal(2, 5, 4), normal(2, 5, 4)],
        {"average_attn_weights": False},
    ),
    "other widths": (
        {"kdim": 3, "vdim": 5, "bias": False},
        [normal(3, 2, 4), normal(2, 2, 3), normal(2, 2, 5)],
        {},
    ),
    "without items": ({}, [normal(3, 4), normal(2, 4), normal(2, 4)], {}),
}


@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention_equals_pytorchs(name: str) -> None:
    options, inputs, call = ATTENTIONS[name]
    ours = nn.MultiheadAttention(4, 2, **options)
    theirs = torch.nn.MultiheadAttention(4, 2, **options)
    assert_twins(*paired(ours, theirs), *inputs, **call)


@pytest.mark.parametrize("kind", ["bool", "float", "padding", "both", "by head"])
def test_masked_self_attention_equals_pytorchs(kind: str) -> None:
    ours, theirs = paired(nn.MultiheadAttention(4, 2), torch.nn.MultiheadAttention(4, 2))
    x = normal(3, 2, 4)
    masks: dict[str, Any] = {}
    if kind in ("bool", "both"):
        masks["attn_mask"] = causal(3)
    if kind == "float":
        masks["attn_mask"] = normal(3, 3)
    if kind in ("padding", "both"):
        masks["key_padding_mask"] = np.array([[False, False, True], [False, False, False]])
    if kind == "by head":
        masks["attn_mask"] = normal(4, 3, 3)

    def mine(x: Any) -> Any:
        return ours(x, x, x, **{k: to_ours(v, False) for k, v in masks.items()})

    def other(x: Any) -> Any:
        return theirs(x, x, x, **{k: to_theirs(v, False) for k, v in masks.items()})

    assert_twins(mine, other, x)


def test_causal_attention_is_attention_with_a_causal_mask() -> None:
    ours, theirs = paired(
        nn.MultiheadAttention(4, 2, batch_first=True),
        torch.nn.MultiheadAttention(4, 2, batch_first=True),
    )
    x = normal(2, 3, 4)
    mine, weights = ours(*[to_ours(x)] * 3, is_causal=True, need_weights=False)
    other, _ = theirs(*[to_theirs(x)] * 3, attn_mask=torch.tensor(causal(3)))
    assert weights is None
    assert_close(mine, other)
    masked = ours(*[to_ours(x)] * 3, is_causal=True, key_padding_mask=to_ours([[False] * 3] * 2))
    assert_close(masked[0], other)


def test_scaled_dot_product_attention_equals_pytorchs() -> None:
    ours, theirs = nn.functional, torch.nn.functional
    inputs = [normal(2, 3, 4), normal(2, 3, 4), normal(2, 3, 5)]
    for options in ({}, {"is_causal": True}, {"scale": 0.3}):
        assert_twins(
            lambda *x, o=options: ours.scaled_dot_product_attention(*x, **o),
            lambda *x, o=options: theirs.scaled_dot_product_attention(*x, **o),
            *inputs,
        )


NOWHERE = {
    "truth values": np.array([[False, False, False], [True, False, True], [True, True, True]]),
    "numbers": np.array([[-np.inf] * 3, [0.5, -np.inf, -1.0], [0.0, 1.0, 2.0]]),
}


@pytest.mark.parametrize("kind", NOWHERE)
def test_a_query_that_may_look_nowhere_sees_zeros_as_in_pytorch(kind: str) -> None:
    mask = NOWHERE[kind]
    assert_twins(
        lambda *x: nn.functional.scaled_dot_product_attention(*x, to_ours(mask, False)),
        lambda *x: torch.nn.functional.scaled_dot_product_attention(*x, to_theirs(mask, False)),
        normal(2, 3, 4),
        normal(2, 3, 4),
        normal(2, 3, 5),
    )


def test_one_number_may_be_the_mask_of_all() -> None:
    x = to_ours(normal(2, 3, 4))
    for number, factor in ((True, 1.0), (False, 0.0), (2.5, 1.0), (-np.inf, 0.0)):
        mask = to_ours(np.array(number), False)
        seen = nn.functional.scaled_dot_product_attention(x, x, x, mask)
        unmasked = nn.functional.scaled_dot_product_attention(x, x, x)
        np.testing.assert_allclose(seen.detach().numpy(), factor * unmasked.detach().numpy())


def test_self_attention_that_may_look_nowhere_sees_zeros() -> None:
    ours, theirs = paired(nn.MultiheadAttention(4, 2), torch.nn.MultiheadAttention(4, 2))
    mask = ~NOWHERE["truth values"]

    def mine(x: Any) -> Any:
        return ours(x, x, x, attn_mask=to_ours(mask))[0]

    def other(x: Any) -> Any:
        # With need_weights PyTorch gives NaN for that query.
        return theirs(x, x, x, attn_mask=to_theirs(mask), need_weights=False)[0]

    assert_twins(mine, other, normal(3, 2, 4), second=False)
    x = to_ours(normal(3, 1, 4))
    weights = ours(x, x, x, attn_mask=to_ours(mask))[1]
    np.testing.assert_allclose(weights.detach().numpy()[0].sum(axis=-1), [0.0, 1.0, 1.0])


def test_attention_shows_the_weights_that_dropout_left() -> None:
    ours = nn.MultiheadAttention(4, 2, dropout=1.0)
    theirs = torch.nn.MultiheadAttention(4, 2, dropout=1.0)
    assert_twins(*paired(ours, theirs), *[normal(3, 2, 4)] * 3)


def test_batch_norm_moves_its_running_statistics_as_pytorchs() -> None:
    ours, theirs = paired(nn.BatchNorm2d(3), torch.nn.BatchNorm2d(3))
    for _ in range(3):
        x = normal(4, 3, 2, 2) * 3 + 1
        ours(to_ours(x))
        theirs(to_theirs(x))
    for name, value in theirs.state_dict().items():
        assert_close(ours.state_dict()[name], value)
    assert_twins(ours.eval(), theirs.eval(), normal(2, 3, 2, 2))


@pytest.mark.parametrize("momentum", [1.0, None])
def test_batch_norm_keeps_a_variance_much_smaller_than_the_one_before(
    momentum: float | None,
) -> None:
    ours, theirs = nn.BatchNorm2d(2, momentum=momentum), torch.nn.BatchNorm2d(2, momentum=momentum)
    x = (normal(4, 2, 3, 3) * 1e-4).astype(np.float32)
    ours(to_ours(x))
    theirs(to_theirs(x))
    assert ours.running_var is not None
    np.testing.assert_allclose(ours.running_var.numpy(), theirs.running_var.numpy(), rtol=1e-3)


def test_a_model_of_many_layers_equals_pytorchs() -> None:
    def build(lib: Any) -> Any:
        return lib.Sequential(
            lib.Conv2d(1, 4, 3, padding=1),
            lib.BatchNorm2d(4),
            lib.GELU(),
            lib.MaxPool2d(2),
            lib.Conv2d(4, 2, 3),
            lib.Tanh(),
        )

    assert_twins(*paired(build(nn), build(torch.nn)), normal(3, 1, 8, 8))


@pytest.mark.parametrize("shape", [(0, 2, 3, 3), (2, 2, 0, 3)])
@pytest.mark.parametrize("tracked", [True, False])
def test_batch_norm_learns_nothing_from_an_empty_batch(shape: Any, tracked: bool) -> None:
    ours, theirs = paired(
        nn.BatchNorm2d(2, track_running_stats=tracked),
        torch.nn.BatchNorm2d(2, track_running_stats=tracked),
    )
    inputs = to_ours(np.zeros(shape)), to_theirs(np.zeros(shape))
    ours(inputs[0]).sum().backward()
    theirs(inputs[1]).sum().backward()
    assert_close(inputs[0].grad, inputs[1].grad)
    for found, expected in zip(ours.parameters(), theirs.parameters()):
        assert_close(found.grad, expected.grad)
    for name, expected in theirs.named_buffers():
        assert_close(getattr(ours, name), expected)


COMPLEX = {"Linear": ((4, 3), (2, 4)), "Conv2d": ((2, 3, 2), (1, 2, 3, 3)), "GRU": ((4, 3), (5, 4))}


@pytest.mark.parametrize("kind", COMPLEX)
def test_a_complex_module_is_drawn_and_trained_as_pytorchs(kind: str) -> None:
    sizes, shape = COMPLEX[kind]
    ours = getattr(nn, kind)(*sizes, dtype=tg.complex128)
    theirs = getattr(torch.nn, kind)(*sizes, dtype=torch.complex128)
    bound = 1 / np.sqrt(3 if kind == "GRU" else next(ours.parameters())[0].size)
    for drawn in (p.detach().numpy() for p in ours.parameters()):
        assert (np.abs([drawn.real, drawn.imag]) < bound).all()
        assert drawn.imag.any()
    theirs.load_state_dict({n: torch.tensor(v.numpy()) for n, v in ours.state_dict().items()})
    x = normal(*shape) + 1j * normal(*shape)
    mine, other = tg.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    a, b = ours(mine), theirs(other)
    a, b = (a[0], b[0]) if kind == "GRU" else (a, b)
    assert_close(a, b)
    tg.abs(a).sum().backward()
    b.abs().sum().backward()
    assert_close(mine.grad, other.grad)
    for p, q in zip(ours.parameters(), theirs.parameters()):
        assert_close(p.grad, q.grad)
