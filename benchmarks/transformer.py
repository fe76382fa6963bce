"""A transformer layer, composed the same way of telegrad's modules or of PyTorch's."""

from typing import Any

__all__ = ["BATCH", "FEATURES", "LENGTH", "layer", "run_layer"]

BATCH, LENGTH, FEATURES = 8, 64, 128
_HEADS = 4


def layer(nn: Any) -> Any:
    """The parts: attention and two linear maps, each after a normalisation."""
    return nn.ModuleDict(
        {
            "norm1": nn.LayerNorm(FEATURES),
            "attention": nn.MultiheadAttention(FEATURES, _HEADS, batch_first=True),
            "norm2": nn.LayerNorm(FEATURES),
            "widen": nn.Linear(FEATURES, 4 * FEATURES),
            "bend": nn.GELU(),
            "narrow": nn.Linear(4 * FEATURES, FEATURES),
        }
    )


def run_layer(parts: Any, x: Any) -> Any:
    """The layer's value for a batch of sequences."""
    h = parts["norm1"](x)
    x = x + parts["attention"](h, h, h, need_weights=False)[0]
    return x + parts["narrow"](parts["bend"](parts["widen"](parts["norm2"](x))))
