"""Optimisers with the names, defaults and numbers of ``torch.optim``."""

from telegrad.optim import lr_scheduler
from telegrad.optim.adagrad import Adagrad
from telegrad.optim.adam import Adam, AdamW
from telegrad.optim.optimizer import Optimizer
from telegrad.optim.rmsprop import RMSprop
from telegrad.optim.sgd import SGD

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "Optimizer", "RMSprop", "lr_scheduler"]
