"""Wrong shapes and arguments: the message has both shapes and the name of the parameter."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import telegrad as tg
from telegrad import nn
from telegrad.errors import DTypeError, ShapeError, UsageError

F = nn.functional


def zeros(*shape: int) -> Any:
    return tg.zeros(shape)


SHAPES: dict[str, tuple[Callable[[], Any], str]] = {
    "linear": (
        lambda: nn.Linear(3, 2)(zeros(4, 5)),
        r"\(…, 3\) for weight of shape \(2, 3\), got shape \(4, 5\)",
    ),
    "linear, bias": (
        lambda: F.linear(zeros(4, 3), zeros(2, 3), zeros(3)),
        r"bias of shape \(2,\) for weight of shape \(2, 3\), got shape \(3,\)",
    ),
    "linear, weight": (
        lambda: F.linear(zeros(4, 3), zeros(3)),
        r"weight of shape \(out, in\) in linear, got \(3,\)",
    ),
    "embedding, weight": (
        lambda: F.embedding(tg.tensor([0]), zeros(3)),
        r"weight of shape \(row, feature\) in embedding, got \(3,\)",
    ),
    "conv, weight": (
        lambda: F.conv2d(zeros(1, 4, 8, 8), zeros(4, 3)),
        r"weight of shape \(out, in, row, column\).*\(4, 3\) for input of shape \(1, 4, 8, 8\)",
    ),
    "conv, channels": (
        lambda: nn.Conv2d(3, 2, 3)(zeros(1, 4, 8, 8)),
        r"\(item, 3, row, column\) for weight of shape \(2, 3, 3, 3\).*\(1, 4, 8, 8\)",
    ),
    "conv, too small": (
        lambda: nn.Conv2d(1, 2, 5)(zeros(1, 1, 4, 8)),
        r"at least as large as the kernel .*\(1, 1, 4, 8\).*weight of shape \(2, 1, 5, 5\)",
    ),
    "conv, bias": (
        lambda: F.conv2d(zeros(1, 1, 4, 4), zeros(2, 1, 3, 3), zeros(3)),
        r"bias of shape \(2,\).*got \(3,\)",
    ),
    "conv, groups": (
        lambda: F.conv2d(zeros(1, 2, 4, 4), zeros(3, 1, 3, 3), groups=2),
        r"2 groups divide.*\(3, 1, 3, 3\)",
    ),
    "layer norm": (
        lambda: nn.LayerNorm(3)(zeros(2, 4)),
        r"\(3,\) \(normalized_shape\).*\(2, 4\)",
    ),
    "layer norm, weight": (
        lambda: F.layer_norm(zeros(2, 4), (4,), zeros(3)),
        r"weight of shape \(4,\).*\(3,\)",
    ),
    "batch norm": (
        lambda: nn.BatchNorm2d(3)(zeros(2, 4, 2, 2)),
        r"\(item, 3, row, column\).*\(2, 4, 2, 2\)",
    ),
    "batch norm, weight": (
        lambda: F.batch_norm(zeros(2, 4), None, None, zeros(3), training=True),
        r"weight of shape \(4,\).*\(2, 4\).*\(3,\)",
    ),
    "pooling": (lambda: nn.MaxPool2d(3)(zeros(1, 1, 2, 4)), r"\(3, 3\).*\(1, 1, 2, 4\)"),
    "pooling, axes": (lambda: nn.AvgPool2d(2)(zeros(2, 4)), r"row, column\).*\(2, 4\)"),
    "attention": (
        lambda: nn.MultiheadAttention(4, 2)(zeros(3, 2, 4), zeros(3, 2, 5), zeros(3, 2, 4)),
        r"key with 2 items and 4 features, got 2 and 5 \(in_proj_weight has shape \(12, 4\)\)",
    ),
    "attention, width of keys": (
        lambda: nn.MultiheadAttention(4, 2, kdim=5)(zeros(3, 2, 4), zeros(3, 2, 4), zeros(3, 2, 4)),
        r"key with 2 items and 5 features, got 2 and 4 \(k_proj_weight has shape \(4, 5\)\)",
    ),
    "cross entropy, no classes": (
        lambda: F.cross_entropy(zeros(), tg.tensor(0)),
        r"axis of classes in cross_entropy, got shape \(\)",
    ),
    "cross entropy, weight": (
        lambda: F.cross_entropy(zeros(2, 3), tg.tensor([0, 1]), weight=zeros(4)),
        r"weight of shape \(3,\) in cross_entropy, got \(4,\)",
    ),
    "cross entropy, target": (
        lambda: F.cross_entropy(zeros(2, 3), tg.tensor([0, 1, 2])),
        r"target of shape \(2,\) for input of shape \(2, 3\) in cross_entropy, got \(3,\)",
    ),
    "cross entropy, classes as floats": (
        lambda: F.cross_entropy(zeros(2, 3), zeros(2)),
        r"classes as integers, or probabilities of shape \(2, 3\).*use target.long\(\)",
    ),
    "binary cross entropy, weight": (
        lambda: F.binary_cross_entropy_with_logits(zeros(3), zeros(3), weight=zeros(2, 3)),
        r"weight of a shape that broadcasts to the input's, \(3,\).*got \(2, 3\)",
    ),
    "binary cross entropy, pos_weight": (
        lambda: F.binary_cross_entropy_with_logits(zeros(2, 3), zeros(2, 3), pos_weight=zeros(4)),
        r"pos_weight of a shape that broadcasts to the input's, \(2, 3\).*got \(4,\)",
    ),
    "squares": (lambda: nn.MSELoss()(zeros(2, 3), zeros(3)), r"mse_loss, got \(2, 3\) and \(3,\)"),
    "attention, axes": (
        lambda: nn.MultiheadAttention(4, 2)(zeros(3, 4), zeros(3, 2, 4), zeros(3, 2, 4)),
        r"\(3, 4\), \(3, 2, 4\)",
    ),
    "attention, lengths": (
        lambda: nn.MultiheadAttention(4, 2)(zeros(3, 2, 4), zeros(3, 2, 4), zeros(5, 2, 4)),
        r"as many keys as values, got 3 and 5",
    ),
    "attention, mask": (
        lambda: nn.MultiheadAttention(4, 2)(*[zeros(3, 2, 4)] * 3, attn_mask=zeros(2, 2)),
        r"attn_mask of shape \(3, 3\).*got \(2, 2\)",
    ),
    "attention, padding": (
        lambda: nn.MultiheadAttention(4, 2)(*[zeros(3, 2, 4)] * 3, key_padding_mask=zeros(3, 2)),
        r"key_padding_mask of shape \(2, 3\), got \(3, 2\)",
    ),
    "dot product": (
        lambda: F.scaled_dot_product_attention(zeros(2, 3), zeros(2, 4), zeros(2, 4)),
        r"\(2, 3\) and \(2, 4\)",
    ),
    "batch norm, no channels": (
        lambda: F.batch_norm(zeros(3), None, None, training=True),
        r"axes \(item, channel, …\) in batch_norm, got \(3,\)",
    ),
    "orthogonal": (
        lambda: nn.init.orthogonal_(zeros(3)),
        r"at least two axes in orthogonal_, got shape \(3,\)",
    ),
    "gru": (
        lambda: nn.GRU(3, 2)(zeros(5, 1, 4)),
        r"length 3 \(weight_ih_l0 has shape \(6, 3\)\), got \(5, 1, 4\)",
    ),
    "gru, no steps": (
        lambda: nn.GRU(3, 2, batch_first=True)(zeros(2, 0, 3)),
        r"at least one step, got none: .* is \(0, 2, 3\)",
    ),
    "gru, first state": (
        lambda: nn.GRU(3, 2)(zeros(5, 1, 3), zeros(1, 2, 2)),
        r"hx of shape \(1, 1, 2\), got \(1, 2, 2\)",
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_that_do_not_fit_are_told(name: str) -> None:
    call, message = SHAPES[name]
    with pytest.raises(ShapeError, match=message):
        call()


ARGUMENTS: dict[str, tuple[Callable[[], Any], str]] = {
    "embedding, beyond": (
        lambda: nn.Embedding(3, 2)(tg.tensor([0, 3])),
        r"indices from 0 to 2 for weight of shape \(3, 2\).*got 3",
    ),
    "embedding, below": (lambda: nn.Embedding(3, 2)(tg.tensor([-1])), "got -1"),
    "embedding, padding": (lambda: nn.Embedding(3, 2, padding_idx=3), "within 3 rows, got 3"),
    "embedding, empty": (lambda: nn.Embedding(0, 2), "at least one row"),
    "linear, no size": (lambda: nn.Linear(-3, 2), "in_features of 0 or more in Linear, got -3"),
    "linear, a fraction": (lambda: nn.Linear(3, 2.0), "out_features of 0 or more"),  # type: ignore[arg-type]
    "linear, an array": (
        lambda: nn.Linear(3, 2)(np.ones(3)),
        "Tensors as input and weight of linear, got ndarray and Parameter; wrap",
    ),
    "conv, no channels": (lambda: nn.Conv2d(0, 2, 3), "in_channels of 1 or more in Conv2d, got 0"),
    "cross entropy, an array": (
        lambda: F.cross_entropy(zeros(2, 3), np.array([0, 1])),  # type: ignore[arg-type]
        "Tensors as input and target of cross_entropy, got Tensor and ndarray; wrap",
    ),
    "conv, groups": (lambda: nn.Conv2d(3, 4, 3, groups=2), "divide 3 channels in"),
    "conv, mode": (lambda: nn.Conv2d(1, 1, 1, padding_mode="mirror"), "got 'mirror'"),
    "conv, kernel": (lambda: nn.Conv2d(1, 1, (1, 2, 3)), "kernel_size"),  # type: ignore[arg-type]
    "conv, same with stride": (
        lambda: nn.Conv2d(1, 1, 3, stride=2, padding="same")(zeros(1, 1, 4, 4)),
        "stride 1 with padding='same'",
    ),
    "conv, same with stride, reflected": (
        lambda: nn.Conv2d(1, 1, 3, 2, "same", padding_mode="reflect")(zeros(1, 1, 4, 4)),
        "stride 1 with padding='same'",
    ),
    "conv, unknown padding, reflected": (
        lambda: nn.Conv2d(1, 1, 3, padding="sane", padding_mode="reflect")(zeros(1, 1, 4, 4)),
        "'same' or 'valid' as padding, got 'sane'",
    ),
    "conv, padding": (
        lambda: F.conv2d(zeros(1, 1, 4, 4), zeros(1, 1, 3, 3), padding="full"),
        "padding, got 'full'",
    ),
    "conv, negative padding": (
        lambda: F.conv2d(zeros(1, 1, 4, 4), zeros(1, 1, 3, 3), padding=-1),
        "padding of 0 or more",
    ),
    "conv, stride": (
        lambda: F.conv2d(zeros(1, 1, 4, 4), zeros(1, 1, 3, 3), stride=0),
        "of 1 or more",
    ),
    "pooling, padding": (lambda: F.max_pool2d(zeros(1, 1, 4, 4), 2, padding=2), "half"),
    "pooling, stride": (lambda: F.max_pool2d(zeros(1, 1, 4, 4), 2, stride=0), "of 1 or more"),
    "pooling, divisor": (
        lambda: F.avg_pool2d(zeros(1, 1, 4, 4), 2, divisor_override=0),
        "other than 0",
    ),
    "batch norm, one value": (
        lambda: nn.BatchNorm2d(1)(zeros(1, 1, 1, 1)),
        "more than one value a channel",
    ),
    "batch norm, no statistics": (
        lambda: F.batch_norm(zeros(2, 1), None, None),
        "running_mean and running_var",
    ),
    "attention, heads": (lambda: nn.MultiheadAttention(4, 3), "divides embed_dim 4, got 3"),
    "attention, both masks": (
        lambda: F.scaled_dot_product_attention(
            zeros(2, 3), zeros(2, 3), zeros(2, 3), zeros(2, 2), is_causal=True
        ),
        "got both",
    ),
    "gru, sizes": (lambda: nn.GRU(0, 3), "of 1 or more, got 0"),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_bad_arguments_are_told(name: str) -> None:
    call, message = ARGUMENTS[name]
    with pytest.raises(UsageError, match=message):
        call()


def test_dtypes_that_do_not_fit_are_told() -> None:
    with pytest.raises(DTypeError, match="integers as input of embedding, got float32"):
        nn.Embedding(3, 2)(tg.tensor([1.0]))
    with pytest.raises(
        DTypeError, match=r"complex numbers in linear, got int64; use \.to\(telegrad"
    ):
        nn.Linear(3, 2)(tg.tensor([1, 2, 3]))
    with pytest.raises(DTypeError, match="truth values or real numbers, got int64"):
        F.scaled_dot_product_attention(
            *[zeros(2, 3)] * 3, attn_mask=tg.tensor(np.ones((2, 2), np.int64))
        )


@pytest.mark.parametrize("name", ["attn_mask", "key_padding_mask"])
def test_self_attention_refuses_a_mask_of_integers_instead_of_adding_it(name: str) -> None:
    x = zeros(3, 3, 4)
    mask = tg.tensor(np.ones((3, 3), np.uint8))
    with pytest.raises(DTypeError, match=r"real numbers, got uint8; .* write mask != 0"):
        nn.MultiheadAttention(4, 2)(x, x, x, **{name: mask})


COMPLEX: dict[str, Callable[[Any], Any]] = {
    "layer_norm": nn.LayerNorm(2),
    "batch_norm": nn.BatchNorm2d(2),
    "max_pool2d": nn.MaxPool2d(1),
    "MultiheadAttention": lambda x: nn.MultiheadAttention(2, 1)(*[x[0, 0]] * 3),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_layers_that_need_an_order_or_a_variance_refuse_complex_numbers(name: str) -> None:
    with pytest.raises(DTypeError, match=f"real numbers in {name}, got complex64"):
        COMPLEX[name](tg.ones((2, 2, 2, 2), dtype=tg.complex64))


IMAGE_LAYERS = {
    "Conv2d": nn.Conv2d(2, 2, 1),
    "LayerNorm": nn.LayerNorm(2),
    "BatchNorm2d": nn.BatchNorm2d(2),
    # Sums of small integers would wrap around, and no small one is lower than all others.
    "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
    "max_pool2d": lambda x: F.max_pool2d(x, 2, padding=1),
}


@pytest.mark.parametrize("name", IMAGE_LAYERS)
@pytest.mark.parametrize("dtype", ["uint8", "bool"])
def test_images_of_integers_are_refused_instead_of_becoming_float64_or_nonsense(
    name: str, dtype: str
) -> None:
    with pytest.raises(DTypeError, match=rf"numbers .*, got {dtype}; use .*to\(telegrad.float32\)"):
        IMAGE_LAYERS[name](tg.ones((2, 2, 2, 2), dtype=getattr(tg, dtype)))


@pytest.mark.parametrize("name", ["mse_loss", "huber_loss", "binary_cross_entropy_with_logits"])
@pytest.mark.parametrize("which", ["input", "target"])
def test_losses_of_complex_numbers_are_refused(name: str, which: str) -> None:
    # The square of 0.5j is negative: the loss would be, too, and fall without end.
    given = {"input": tg.ones(2), "target": tg.ones(2), which: tg.tensor([0.5j, 1.0])}
    with pytest.raises(DTypeError, match=f"real numbers in {name}, got complex64"):
        getattr(nn.functional, name)(**given)


LOSSES_OF_INTEGERS: dict[str, Callable[[Any], Any]] = {
    "mse_loss": lambda x: F.mse_loss(x, x),
    "huber_loss": lambda x: F.huber_loss(x, x),
    "binary_cross_entropy_with_logits": lambda x: F.binary_cross_entropy_with_logits(x, zeros(2)),
    "nll_loss": lambda x: F.nll_loss(x, tg.tensor(0), weight=tg.tensor([0.5, 1.5])),
}


@pytest.mark.parametrize("name", LOSSES_OF_INTEGERS)
@pytest.mark.parametrize("dtype", ["uint8", "int64", "bool"])
def test_losses_of_integers_are_refused_instead_of_wrapping_around(name: str, dtype: str) -> None:
    x = tg.asarray([1, 0], dtype=getattr(tg, dtype))
    with pytest.raises(DTypeError, match=rf"real numbers .*{name}, got {dtype}.*to\(tele"):
        LOSSES_OF_INTEGERS[name](x)


def test_log_probabilities_that_are_complex_are_refused() -> None:
    message = r"real numbers in nll_loss, got complex64; take real\(x\)"
    with pytest.raises(DTypeError, match=message):
        F.nll_loss(tg.tensor([0.5j, 1.0]), tg.tensor(0))


WEIGHTED: dict[str, Callable[[Any], Any]] = {
    "nll_loss": lambda w: F.nll_loss(zeros(2), tg.tensor(0), weight=w),
    "cross_entropy": lambda w: F.cross_entropy(zeros(2), tg.tensor(0), weight=w),
    "weight": lambda w: F.binary_cross_entropy_with_logits(zeros(2), zeros(2), weight=w),
    "pos_weight": lambda w: F.binary_cross_entropy_with_logits(zeros(2), zeros(2), pos_weight=w),
}


@pytest.mark.parametrize("name", WEIGHTED)
def test_complex_weights_of_a_loss_are_refused(name: str) -> None:
    with pytest.raises(DTypeError, match="complex values, got float32; take real"):
        WEIGHTED[name](tg.tensor([0.5j, 1.0]))
