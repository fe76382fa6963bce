"""Losses as modules; ``functional`` says what each one computes."""

from telegrad.nn import functional
from telegrad.nn.module import Module
from telegrad.tensors import Tensor


class MSELoss(Module):
    """The squared difference.

    Arguments:
        reduction: "mean" (the default), "sum" or "none".

    Examples:
        >>> tg.nn.MSELoss()(tg.tensor([1.0, 2.0]), tg.tensor([1.0, 4.0]))
        tensor(2.)
    """

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.mse_loss(input, target, self.reduction)


class HuberLoss(Module):
    """Half the squared difference, continued as a straight line for large ones.

    Arguments:
        reduction: "mean" (the default), "sum" or "none".
        delta: Where it becomes straight.

    Examples:
        >>> tg.nn.HuberLoss()(tg.tensor([0.0, 0.0]), tg.tensor([1.0, 4.0]))
        tensor(2.)
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__()
        self.reduction = reduction
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.huber_loss(input, target, self.reduction, self.delta)


class _Weighted(Module):
    """A loss with a weight for each class, kept as a buffer so that it moves with the module."""

    weight: Tensor | None

    def __init__(self, weight: Tensor | None, reduction: str) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.reduction = reduction


class CrossEntropyLoss(_Weighted):
    """The cross entropy of ``softmax(input)`` and classes, or probabilities.

    The arguments are those of ``functional.cross_entropy``.

    Examples:
        >>> tg.nn.CrossEntropyLoss()(tg.tensor([[2.0, 0.0], [0.0, 2.0]]), tg.tensor([0, 1]))
        tensor(0.1269)
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, reduction)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(
            input, target, self.weight, self.ignore_index, self.reduction, self.label_smoothing
        )


class NLLLoss(_Weighted):
    """Minus the log-probability of each item's class.

    The arguments are those of ``functional.cross_entropy``.

    Examples:
        >>> tg.nn.NLLLoss()(tg.log_softmax(tg.tensor([[2.0, 0.0]])), tg.tensor([0]))
        tensor(0.1269)
    """

    def __init__(
        self, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean"
    ) -> None:
        super().__init__(weight, reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.nll_loss(input, target, self.weight, self.ignore_index, self.reduction)


class BCEWithLogitsLoss(_Weighted):
    """The cross entropy of ``sigmoid(input)`` and a target from 0 to 1.

    The arguments are those of ``functional.binary_cross_entropy_with_logits``.

    Examples:
        >>> tg.nn.BCEWithLogitsLoss()(tg.tensor([0.0, 2.0]), tg.tensor([1.0, 1.0]))
        tensor(0.41)
    """

    pos_weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(weight, reduction)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(
            input, target, self.weight, self.reduction, self.pos_weight
        )
