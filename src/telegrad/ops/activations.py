"""Activations."""
# mypy: disable-error-code="empty-body"

from typing import Literal

from telegrad.errors import UsageError
from telegrad.ops.arguments import ArrayLike
from telegrad.ops.elementwise import elementwise
from telegrad.rules import activations as _primitives
from telegrad.tensors import Tensor
from telegrad.tensors.recording.fast_paths import unary

_gelu = unary(_primitives.GELU)
_gelu_tanh = unary(_primitives.GELU_TANH)
_softplus = unary(_primitives.SOFTPLUS)


@elementwise(_primitives.RELU)
def relu(x: ArrayLike, /) -> Tensor:
    """Return each element, or zero where it is negative.

    Examples:
        >>> tg.relu(tg.tensor([-1.0, 0.0, 2.0]))
        tensor([0., 0., 2.])
    """


@elementwise(_primitives.SIGMOID)
def sigmoid(x: ArrayLike, /) -> Tensor:
    """Return ``1 / (1 + exp(-x))`` of each element.

    Examples:
        >>> tg.sigmoid(tg.tensor([-1.0, 0.0, 1.0]))
        tensor([0.2689, 0.5   , 0.7311])
    """


@elementwise(_primitives.LOG_SIGMOID)
def log_sigmoid(x: ArrayLike, /) -> Tensor:
    """Return the logarithm of ``sigmoid``, without its underflow.

    Examples:
        >>> tg.log_sigmoid(tg.tensor([-200.0, 0.0]))
        tensor([-200.    ,   -0.6931])
    """


def softplus(x: ArrayLike, /, beta: float = 1.0) -> Tensor:
    """Return ``log(1 + exp(beta * x)) / beta`` of each element, exact for all sizes of x.

    Raises:
        UsageError: If beta is not positive.

    Examples:
        >>> tg.softplus(tg.tensor([-1.0, 0.0, 100.0]))
        tensor([  0.3133,   0.6931, 100.    ])
    """
    if beta == 1:
        return _softplus(x)
    if beta <= 0:
        raise UsageError(f"expected a positive beta in softplus, got {beta}")
    return _softplus(x * beta) / beta


@elementwise(_primitives.SILU)
def silu(x: ArrayLike, /) -> Tensor:
    """Return ``x * sigmoid(x)`` of each element.

    Examples:
        >>> tg.silu(tg.tensor([-1.0, 0.0, 1.0]))
        tensor([-0.2689,  0.    ,  0.7311])
    """


def gelu(x: ArrayLike, /, *, approximate: Literal["none", "tanh"] = "none") -> Tensor:
    """Return each element times the share of a normal distribution below it.

    ``approximate="tanh"`` takes the approximation by a hyperbolic tangent.

    Raises:
        UsageError: If approximate is neither "none" nor "tanh".

    Examples:
        >>> tg.gelu(tg.tensor([-1.0, 0.0, 1.0]))
        tensor([-0.1587,  0.    ,  0.8413])
        >>> tg.gelu(tg.tensor([-1.0, 0.0, 1.0]), approximate="tanh")
        tensor([-0.1588,  0.    ,  0.8412])
    """
    if approximate == "none":
        return _gelu(x)
    if approximate == "tanh":
        return _gelu_tanh(x)
    raise UsageError(f"expected 'none' or 'tanh' as approximate in gelu, got {approximate!r}")
