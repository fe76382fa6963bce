"""Optimisers with the names, defaults and numbers of ``torch.optim``."""

import typing as _typing

from telegrad.optim import lr_scheduler
from telegrad.optim.adagrad import Adagrad
from telegrad.optim.adam import Adam, AdamW
from telegrad.optim.optimizer import Optimizer
from telegrad.optim.rmsprop import RMSprop
from telegrad.optim.sgd import SGD
from telegrad.optim.torch_names import OPTIMIZERS as _OPTIMIZERS
from telegrad.tensors.torch_hints import advice_on_names as _advice_on_names

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "Optimizer", "RMSprop", "lr_scheduler"]

if not _typing.TYPE_CHECKING:  # or a type checker would take every name for known
    __getattr__ = _advice_on_names(__name__, _OPTIMIZERS)
