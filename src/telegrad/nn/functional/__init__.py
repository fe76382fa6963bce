"""The functions under the modules, with the names and arguments of ``torch.nn.functional``."""

import typing as _typing

from telegrad.nn.functional.activations import gelu, log_softmax, softmax
from telegrad.nn.functional.attention import scaled_dot_product_attention
from telegrad.nn.functional.convolution import conv2d
from telegrad.nn.functional.dropout import dropout
from telegrad.nn.functional.linear import embedding, linear
from telegrad.nn.functional.losses import (
    binary_cross_entropy_with_logits,
    cross_entropy,
    huber_loss,
    mse_loss,
    nll_loss,
)
from telegrad.nn.functional.normalization import batch_norm, layer_norm
from telegrad.nn.functional.pooling import avg_pool2d, max_pool2d
from telegrad.nn.functional.recurrent import gru_layer
from telegrad.nn.torch_names import FUNCTIONS as _FUNCTIONS
from telegrad.ops.activations import log_sigmoid as logsigmoid
from telegrad.ops.activations import relu, sigmoid, silu, softplus
from telegrad.ops.transcendental import tanh
from telegrad.tensors.torch_hints import advice_on_names as _advice_on_names

__all__ = [
    "avg_pool2d",
    "batch_norm",
    "binary_cross_entropy_with_logits",
    "conv2d",
    "cross_entropy",
    "dropout",
    "embedding",
    "gelu",
    "gru_layer",
    "huber_loss",
    "layer_norm",
    "linear",
    "log_softmax",
    "logsigmoid",
    "max_pool2d",
    "mse_loss",
    "nll_loss",
    "relu",
    "scaled_dot_product_attention",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "tanh",
]

if not _typing.TYPE_CHECKING:  # or a type checker would take every name for known
    __getattr__ = _advice_on_names(__name__, _FUNCTIONS)
