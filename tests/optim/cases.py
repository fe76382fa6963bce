"""The optimisers with their options, as they are compared with PyTorch's.

A difference of one rounding stays small in a training that settles. It grows in one that swings:
where the steps are so long that each goes past the lowest place, as when a gradient is divided by
its own size and that is nearly nothing. ``SWINGING`` are such options.
"""

from typing import Any

__all__ = ["CASES", "STEADY", "SWINGING"]

Case = tuple[str, dict[str, Any]]

STEADY: dict[str, Case] = {
    "SGD": ("SGD", {"lr": 0.05}),
    "SGD with decay": ("SGD", {"lr": 0.05, "weight_decay": 0.1}),
    "SGD with momentum": ("SGD", {"lr": 0.02, "momentum": 0.9, "dampening": 0.3}),
    "SGD by Nesterov": (
        "SGD",
        {"lr": 0.02, "momentum": 0.8, "nesterov": True, "weight_decay": 0.01},
    ),
    "SGD upwards": ("SGD", {"lr": 1e-3, "maximize": True, "weight_decay": 0.01}),
    "Adam": ("Adam", {}),
    "Adam with decay": (
        "Adam",
        {"lr": 0.01, "betas": (0.8, 0.95), "weight_decay": 0.1, "eps": 1e-3},
    ),
    "Adam with the largest square": ("Adam", {"lr": 0.02, "amsgrad": True, "eps": 1e-3}),
    "Adam upwards": ("Adam", {"lr": 1e-3, "maximize": True}),
    "AdamW": ("AdamW", {"lr": 0.02}),
    "AdamW with the largest square": ("AdamW", {"amsgrad": True, "weight_decay": 0.2}),
    "AdamW upwards": ("AdamW", {"maximize": True}),
    "Adagrad": ("Adagrad", {}),
    "Adagrad with decays": (
        "Adagrad",
        {"lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5},
    ),
    "Adagrad upwards": ("Adagrad", {"maximize": True, "lr": 1e-3, "eps": 1e-3}),
    "RMSprop": ("RMSprop", {"eps": 0.03}),
    "RMSprop centered": ("RMSprop", {"centered": True, "alpha": 0.9, "eps": 0.03}),
    "RMSprop with momentum": ("RMSprop", {"momentum": 0.5, "weight_decay": 0.01, "eps": 0.03}),
    "RMSprop with all": (
        "RMSprop",
        {"momentum": 0.5, "centered": True, "weight_decay": 0.01, "eps": 0.03},
    ),
    "RMSprop upwards": ("RMSprop", {"maximize": True, "lr": 1e-3, "eps": 0.03}),
}

SWINGING: dict[str, Case] = {
    "Adagrad, long steps": ("Adagrad", {"lr": 0.1}),
    "RMSprop by default": ("RMSprop", {}),
    "RMSprop centered by default": ("RMSprop", {"centered": True}),
    "RMSprop centered, short memory": ("RMSprop", {"centered": True, "alpha": 0.9, "eps": 1e-3}),
    "RMSprop with momentum and default eps": ("RMSprop", {"momentum": 0.5, "weight_decay": 0.01}),
    "RMSprop with all and small eps": (
        "RMSprop",
        {"momentum": 0.5, "centered": True, "eps": 1e-3},
    ),
}

CASES: dict[str, Case] = {**STEADY, **SWINGING}
