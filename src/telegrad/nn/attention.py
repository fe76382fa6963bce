"""Multi-head attention as a layer."""

import math
from typing import Any

import numpy as np

from telegrad.errors import DTypeError, ShapeError, UsageError
from telegrad.nn import functional, init
from telegrad.nn.functional.attention import attention_weights, blind_queries, causal_mask
from telegrad.nn.linear import Linear
from telegrad.nn.module import Module
from telegrad.nn.parameter import Parameter
from telegrad.ops.arguments import check_real
from telegrad.ops.filled import empty, zeros
from telegrad.ops.manipulation import permute_dims, reshape
from telegrad.ops.products import matmul
from telegrad.ops.random import Generator
from telegrad.ops.reductions import mean
from telegrad.ops.selection import where
from telegrad.rules.attention import SELF_ATTENTION
from telegrad.tensors import Tensor, apply_several, wrap


class MultiheadAttention(Module):
    """Several attentions at once, each over its own part of the features.

    Axes are (place, item, feature), or (item, place, feature) with `batch_first`, or (place,
    feature). Masks are as in PyTorch: True, or minus infinity, is where not to look.

    Arguments:
        embed_dim: The features of queries and of the result.
        num_heads: How many attentions; a divisor of `embed_dim`.
        dropout: With which probability a weight is dropped in training.
        bias: Whether there is a bias.
        kdim: The features of keys; `embed_dim` by default.
        vdim: The features of values; `embed_dim` by default.
        batch_first: Whether the axis of items comes first.
        device: Where the parameters are to be, such as "cuda"; the CPU by default.
        dtype: The dtype of the parameters; float32 by default.
        generator: Where dropout draws from; the generator of the process by default.

    Examples:
        >>> attention = tg.nn.MultiheadAttention(8, 2, batch_first=True)
        >>> x = tg.randn(4, 5, 8)
        >>> result, weights = attention(x, x, x)
        >>> result.shape, weights.shape
        ((4, 5, 8), (4, 5, 5))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        *,
        device: Any = None,
        dtype: Any = None,
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        if embed_dim < 1 or num_heads < 1 or embed_dim % num_heads:
            raise UsageError(
                f"expected num_heads that divides embed_dim {embed_dim}, got {num_heads}"
            )
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.generator = generator
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.in_proj_weight: Parameter | None = None
        how = {"dtype": dtype, "device": device}
        if self.kdim == embed_dim and self.vdim == embed_dim:
            self.in_proj_weight = Parameter(empty((3 * embed_dim, embed_dim), **how))
        else:
            self.q_proj_weight = Parameter(empty((embed_dim, embed_dim), **how))
            self.k_proj_weight = Parameter(empty((embed_dim, self.kdim), **how))
            self.v_proj_weight = Parameter(empty((embed_dim, self.vdim), **how))
        self.in_proj_bias = Parameter(zeros((3 * embed_dim,), **how)) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, **how)
        for weight in self.own_parameters().values():
            if weight.ndim == 2:
                init.xavier_uniform_(weight)
        if self.out_proj.bias is not None:
            init.zeros_(self.out_proj.bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the result, and how much each place looked at each (or None).

        Arguments:
            query: What looks: (item, place, feature) if `batch_first`, else the place first.
            key: What is looked at.
            value: What is given for it.
            key_padding_mask: (item, place): True where a key is not to be looked at.
            need_weights: Whether the weights are given, too.
            attn_mask: True where a query may not look at a key, or numbers to add to the scores.
            average_attn_weights: Whether the weights are averaged over the heads.
            is_causal: Whether no place looks at later ones, where `attn_mask` says nothing.
        """
        same = query is key and key is value
        lone = query.ndim == 2
        if query.ndim not in (2, 3) or key.ndim != query.ndim or value.ndim != query.ndim:
            raise ShapeError(
                f"expected query, key and value with 2 or 3 axes each, got shapes {query.shape}, "
                f"{key.shape} and {value.shape}"
            )
        if lone:
            query, key, value = query[None], key[None], value[None]
            if key_padding_mask is not None:
                key_padding_mask = key_padding_mask[None]
        elif not self.batch_first:
            query, key, value = (permute_dims(x, (1, 0, 2)) for x in (query, key, value))
        self._check_features(query, key, value)
        mask = self._mask(query, key, key_padding_mask, attn_mask, is_causal)
        out, weights = self._attend(query, key, value, mask, same)
        shown = None
        if need_weights:
            shown = mean(weights, axis=1) if average_attn_weights else weights
        if lone:
            return out[0], None if shown is None else shown[0]
        return out if self.batch_first else permute_dims(out, (1, 0, 2)), shown

    def _check_features(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        widths = (self.embed_dim, self.kdim, self.vdim)
        for name, x, width in zip(("query", "key", "value"), (query, key, value), widths):
            if x.shape[2] != width or x.shape[0] != query.shape[0]:
                weight, own = self.in_proj_weight, f"{name[0]}_proj_weight"
                taken = getattr(self, own).shape if weight is None else weight.shape
                raise ShapeError(
                    f"expected {name} with {query.shape[0]} items and {width} features, got "
                    f"{x.shape[0]} and {x.shape[2]} ({own if weight is None else 'in_proj_weight'} "
                    f"has shape {taken})"
                )
        if key.shape[1] != value.shape[1]:
            raise ShapeError(
                f"expected as many keys as values, got {key.shape[1]} and {value.shape[1]}"
            )

    def _attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, same: bool
    ) -> tuple[Tensor, Tensor]:
        """Return the result with all heads joined, and the weights of each head."""
        width = self.embed_dim // self.num_heads
        drops = self.training and self.dropout > 0
        plain = mask is None or not (
            mask.requires_grad or mask.is_dual or blind_queries(mask) is not None
        )
        if same and self.in_proj_weight is not None and plain and not drops:
            # One product for all three, and one primitive for the rest.
            packed = functional.linear(query, self.in_proj_weight, self.in_proj_bias)
            check_real(packed, "MultiheadAttention")
            packed = reshape(packed, (*query.shape[:2], 3, self.num_heads, width))
            scale = 1 / math.sqrt(width)
            raw = None if mask is None else mask.array
            heads, weights = apply_several(SELF_ATTENTION, packed, scale=scale, mask=raw)
        else:
            q, k, v = self._heads(query, key, value)
            weights = attention_weights(q, k, mask)
            weights = functional.dropout(
                weights, self.dropout, self.training, generator=self.generator
            )
            heads = permute_dims(matmul(weights, v), (0, 2, 1, 3))
        return self.out_proj(reshape(heads, query.shape)), weights

    def _heads(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        width = self.embed_dim
        cuts = [slice(i * width, (i + 1) * width) for i in range(3)]
        if self.in_proj_weight is None:
            weights = [self.q_proj_weight, self.k_proj_weight, self.v_proj_weight]
        else:
            weights = [self.in_proj_weight[cut] for cut in cuts]  # type: ignore[misc]
        made = []
        for x, weight, cut in zip((query, key, value), weights, cuts):
            bias = None if self.in_proj_bias is None else self.in_proj_bias[cut]
            y = functional.linear(x, weight, bias)
            y = reshape(y, (*y.shape[:2], self.num_heads, width // self.num_heads))
            made.append(permute_dims(y, (0, 2, 1, 3)))
        return tuple(made)

    def _mask(
        self, query: Tensor, key: Tensor, padding: Any, attn_mask: Any, is_causal: bool
    ) -> Tensor | None:
        """Return one mask for scores of axes (item, head, query, key), or None."""
        items, queries, _ = query.shape
        heads, keys, dtype = self.num_heads, key.shape[1], query.dtype
        found: Tensor | None = None
        if attn_mask is not None:
            if attn_mask.shape not in ((queries, keys), (items * heads, queries, keys)):
                raise ShapeError(
                    f"expected attn_mask of shape {(queries, keys)} or "
                    f"{(items * heads, queries, keys)}, got {attn_mask.shape}"
                )
            found = _added(attn_mask, dtype)
            if found.ndim == 3:
                found = reshape(found, (items, heads, queries, keys))
        elif is_causal:
            # Truth values if there is nothing to add them to: choosing is quicker than adding.
            if padding is None:
                return causal_mask(queries, keys)
            found = _added(wrap(~np.asarray(causal_mask(queries, keys).array)), dtype)
        if padding is None:
            return found
        if padding.shape != (items, keys):
            raise ShapeError(
                f"expected key_padding_mask of shape {(items, keys)}, got {padding.shape}"
            )
        more = reshape(_added(padding, dtype), (items, 1, 1, keys))
        return more if found is None else found + more

    def extra_repr(self) -> str:
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}"


def _added(mask: Tensor, dtype: Any) -> Tensor:
    """Return a mask as numbers to add to the scores."""
    if mask.dtype.kind == "f":
        return mask
    if mask.dtype.kind != "b":
        raise DTypeError(
            f"expected a mask of truth values or real numbers, got {mask.dtype}; for 1 where not "
            "to look write mask != 0"
        )
    zero = np.zeros((), dtype)
    return where(mask, wrap(np.full((), -math.inf, dtype)), wrap(zero))
