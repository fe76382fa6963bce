"""Parts of models, with the names, defaults and numbers of ``torch.nn``.

Enough to train real models, locally and with their layers on several workers.
"""

import typing as _typing

from telegrad.nn import functional, init, utils
from telegrad.nn.activations import GELU, ReLU, Sigmoid, SiLU, Softmax, Tanh
from telegrad.nn.attention import MultiheadAttention
from telegrad.nn.containers import ModuleDict, ModuleList, Sequential
from telegrad.nn.convolution import Conv2d
from telegrad.nn.dropout import Dropout
from telegrad.nn.linear import Embedding, Linear
from telegrad.nn.losses import (
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    HuberLoss,
    MSELoss,
    NLLLoss,
)
from telegrad.nn.module import Module
from telegrad.nn.normalization import BatchNorm2d, LayerNorm
from telegrad.nn.parameter import Parameter
from telegrad.nn.pooling import AvgPool2d, MaxPool2d
from telegrad.nn.recurrent import GRU
from telegrad.nn.torch_names import CLASSES as _CLASSES
from telegrad.tensors.torch_hints import advice_on_names as _advice_on_names

__all__ = [
    "GELU",
    "GRU",
    "AvgPool2d",
    "BCEWithLogitsLoss",
    "BatchNorm2d",
    "Conv2d",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "HuberLoss",
    "LayerNorm",
    "Linear",
    "MSELoss",
    "MaxPool2d",
    "Module",
    "ModuleDict",
    "ModuleList",
    "MultiheadAttention",
    "NLLLoss",
    "Parameter",
    "ReLU",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Tanh",
    "functional",
    "init",
    "utils",
]

if not _typing.TYPE_CHECKING:  # or a type checker would take every name for known
    __getattr__ = _advice_on_names(__name__, _CLASSES)
