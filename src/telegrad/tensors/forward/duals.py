"""Forward mode: the tangents of a result from those of the inputs.

For each level, outermost first, the primitive's jvp rules run on Tensors without the tangents of
this level and of those further in. Those Tensors may still carry tangents of levels further out and
may require grad, and the rules are ordinary recorded code. So nested levels, and any mixture with
reverse mode, need nothing but recursion.

``join`` and ``split`` add and take apart ``x + e t``, where `e` is the infinitesimal of a level. A
tangent `t` that itself carries tangents of levels further in is allowed: ``e t`` with ``t = t0 + d
t1`` is written ``e t0 + d (e t1)``, so that the rule "only levels further out" holds for what is
stored.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

from telegrad.arrays import silent
from telegrad.errors import NotDifferentiable
from telegrad.graph import next_key
from telegrad.rules import LINEAR, SAME, ZERO, Primitive
from telegrad.rules.primitive import Word
from telegrad.tensors.forward.levels import Level, Tangents
from telegrad.tensors.late_bound import late_bound
from telegrad.tensors.recording.modes import MODE, no_grad
from telegrad.tensors.recording.op_node import OpNode, OutputNode, variant
from telegrad.tensors.recording.saved_values import stored_result
from telegrad.tensors.tensor import Tensor, history_of, wrap

ALIAS = Primitive("alias", vjp=(SAME,), jvp=(SAME,))
"""Gives the value of another Tensor, unchanged."""


def alias_node(*edges: Any) -> OpNode:
    """Return a node that passes its cotangent on to its edge, or, without one, is a variable."""
    return variant(ALIAS, 1, False)(edges, next_key())


def alias(x: Tensor, tangents: dict[Level, Tensor]) -> Tensor:
    """Return the value of `x` with these tangents, recorded where `x` requires grad."""
    node = None
    if x.node is not None and MODE.get().recording:
        node = alias_node(history_of(x))
    return wrap(x.array, node, Tangents(tangents) if tangents else None)


def join(x: Tensor, level: Level, tangent: Tensor) -> Tensor:
    """Return ``x + e tangent`` for the infinitesimal `e` of `level`."""
    if x.tangents is tangent.tangents is None:
        return alias(x, {level: alias(tangent, {})})
    tangents = dict(x.tangents or {})
    for inner, mixed in (tangent.tangents or {}).items():
        if inner.depth > level.depth:
            base = tangents.get(inner)
            base = late_bound.namespace.zeros_like(x) if base is None else base
            tangents[inner] = join(base, level, mixed)
    # A Tensor of our own, since the user's may be given another value later.
    outer = {at: t for at, t in (tangent.tangents or {}).items() if at.depth < level.depth}
    own = alias(tangent, outer)
    before = tangents.get(level)
    tangents[level] = own if before is None else before + own
    return alias(x, tangents)


def split(x: Tensor, level: Level) -> tuple[Tensor, Tensor | None]:
    """Return the parts of ``x = primal + e tangent``; no tangent where `x` has none at `level`."""
    if not x.tangents:
        return x, None
    rest: dict[Level, Tensor] = {}
    mixed: dict[Level, Tensor] = {}
    for each, tangent in x.tangents.items():
        if each.depth < level.depth:
            rest[each] = tangent
        elif each is not level:
            rest[each], part = split(tangent, level)
            if part is not None:
                mixed[each] = part
    own = x.tangents.get(level)
    primal = alias(x, rest)
    if own is None and not mixed:
        return primal, None
    own = late_bound.namespace.zeros_like(x) if own is None else own
    return primal, alias(own, {**(own.tangents or {}), **mixed})


def restricted(x: Tensor, level: Level) -> Tensor:
    """Return `x` with only the tangents of levels further out than `level`; its history stays."""
    if x.tangents is None:
        return x
    outer = {at: t for at, t in x.tangents.items() if at.depth < level.depth}
    return wrap(x.array, history_of(x), Tangents(outer) if outer else None)


def without_history(x: Tensor) -> Tensor:
    """Return the same value as a constant for reverse mode; its tangents stay, as constants too."""
    if not x.tangents:
        return wrap(x.array)
    return wrap(x.array, None, Tangents({at: without_history(t) for at, t in x.tangents.items()}))


def attach(tensor: Tensor, level: Level, tangent: Tensor) -> None:
    """Give `tensor` itself a tangent at `level`; it carries no tangents of levels further in."""
    tensor.tangents = Tangents({**(tensor.tangents or {}), level: tangent})


def carry_tangents(
    primitive: Primitive, inputs: Sequence[Tensor], result: Any, node: Any, options: dict[str, Any]
) -> Any:
    """Return the result of a call as Tensors with their tangents; `node` recorded it, or None."""
    if isinstance(primitive.jvp, Word):
        raise NotDifferentiable(
            f"{primitive.name} has no forward-mode derivative; give it unpack_dual(x).primal if "
            "the tangent of its argument should be ignored"
        )
    levels = {level for x in inputs for level in (x.tangents or ())}
    parts = result if primitive.outputs else (result,)
    if primitive.outputs:
        nodes = [None if node is None else OutputNode.of(node, i) for i in range(len(parts))]
    else:
        nodes = [node]
    outputs = [wrap(part, n) for part, n in zip(parts, nodes)]
    for level in sorted(levels, key=lambda each: each.depth):
        with nullcontext() if level.records else no_grad():
            tangents = _at_level(primitive, inputs, outputs, options, level)
        for output, tangent in zip(outputs, tangents):
            if tangent is not None:
                attach(output, level, tangent)
    if node is not None and node.is_stored:
        mode = MODE.get()
        for name, output in zip(primitive.outputs or ("out",), outputs):
            if name in node.saved_values:
                kept = getattr(node, name)
                setattr(node, name, stored_result(kept, output, mode, primitive.name))
    return tuple(outputs) if primitive.outputs else outputs[0]


@silent
def _at_level(
    primitive: Primitive,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    options: dict[str, Any],
    level: Level,
) -> Sequence[Tensor | None]:
    """Return the tangents of all outputs at one level: the sum over the inputs that have one."""
    xp = late_bound.namespace
    primals = [restricted(x, level) for x in inputs]
    results = [restricted(out, level) for out in outputs]
    s = SimpleNamespace(**options, **dict(zip(primitive.inputs, primals)))
    for name, out in zip(primitive.outputs or ("out",), results):
        setattr(s, name, out)
    for slot, name, what in primitive.facts:
        setattr(s, slot, getattr(getattr(s, name), what))
    total: list[Tensor | None] = [None] * len(outputs)
    for i, x in enumerate(inputs):
        tangent = (x.tangents or {}).get(level)
        rule = primitive.jvp[i]  # type: ignore[index]
        if tangent is None or rule is None:
            continue
        if rule is SAME:
            parts: Any = _stretched(xp, tangent, results[0])
        elif rule is LINEAR:
            parts = late_bound.apply(primitive, *primals[:i], tangent, *primals[i + 1 :], **options)
        elif rule is ZERO:
            parts = xp.zeros_like(results[0])
        else:
            parts = rule(xp, tangent, s)
        for j, part in enumerate(parts if primitive.outputs else (parts,)):
            if part is not None:
                before = total[j]
                total[j] = part if before is None else before + part
    return [None if t is None else _stretched(xp, t, out) for t, out in zip(total, results)]


def _stretched(xp: Any, tangent: Tensor, like: Tensor) -> Tensor:
    """Return a tangent of the result's shape and dtype."""
    if tangent.dtype != like.dtype:
        tangent = xp.astype(tangent, like.dtype)
    if tangent.shape != like.shape:
        tangent = xp.broadcast_to(tangent, like.shape)
    return tangent
