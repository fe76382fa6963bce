"""The node of an operation: what one call of a primitive leaves behind for the backward pass.

A node class is made for each primitive and each set of inputs that need a gradient (a *variant*),
with one slot for each value that the rules of those inputs read. So nothing is saved that no rule
reads, and ``s.y`` in a rule is a slot of the node itself.

Saved values are raw arrays. Their history need not be saved: that of an input is the edge to its
node, and that of the result is the node itself, so a saved result makes no reference cycle.
``pull_recorded`` joins values and histories again and runs the same rules on Tensors.

If a value was packed by a hook, carries tangents or lies in memory that others may write to, all
are kept in another form (``is_stored``; see ``saved_values.py``), off the fast path.
"""

import weakref
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

import msgspec
import numpy as np

from telegrad.arrays import backend_of, backend_of_type, fit
from telegrad.arrays.backend import NUMPY
from telegrad.errors import InternalError
from telegrad.graph import Bundle, Cotangent, Node, NodeHooks, next_key
from telegrad.rules import SAME, ZERO, Primitive
from telegrad.tensors.late_bound import late_bound
from telegrad.tensors.recording.hooked import Hooked
from telegrad.tensors.recording.link_node import link
from telegrad.tensors.recording.saved_values import restored
from telegrad.tensors.tensor import Tensor, wrap


class _Optional(msgspec.Struct, eq=False, kw_only=True, weakref=True):
    fits: Any = None
    """For each edge (shape, dtype) of its input; None where the rule's result already fits."""
    hooks: NodeHooks | None = None
    is_stored: bool = False
    """Whether values are kept in the form that ``stored`` gives them, not as bare references."""
    freed: bool = False
    metadata: dict[str, Any] | None = None
    """What users and ``detect_anomaly`` attach to a node."""


class OpNode(_Optional, Hooked, eq=False):
    """One recorded call; subclasses (made by ``variant``) add the slots of the saved values."""

    edges: tuple[Node, ...]
    key: int

    primitive: ClassVar[Primitive]
    rules: ClassVar[tuple[Any, ...]]
    """The vjp rules, one for each edge."""
    wanted: ClassVar[tuple[int, ...]]
    """Which input each edge stands for."""
    saved_values: ClassVar[tuple[str, ...]]
    """The slots that hold arrays; the other slots hold shapes and options."""
    saved_facts: ClassVar[tuple[str, ...]]
    plan: ClassVar[tuple[int, ...]]
    """Which of (inputs, results) each slot for a value holds."""
    facts_plan: ClassVar[tuple[tuple[int, str], ...]]
    """Where each fact comes from: an input and its attribute, or -1 and an option."""
    saves: ClassVar[int]
    """What the slots hold, in order: a bit for each input and, last, one for the result."""
    conjugates: ClassVar[bool]

    def output_count(self) -> int:
        """Return how many results the call has."""
        return len(self.primitive.outputs) or 1

    def name(self) -> str:
        """Return the name of the operation, as in ``MultiplyBackward``."""
        return "".join(part.capitalize() for part in self.primitive.name.split("_")) + "Backward"

    def pull(self, cotangent: Cotangent) -> Sequence[Cotangent | None]:
        if not self.is_stored:
            xp = _server(cotangent)
            if xp is not None:
                return self._run_rules(xp, cotangent, self)
        return self._pull_rare(cotangent)

    def pull_recorded(self, cotangent: Cotangent) -> Sequence[Cotangent | None]:
        results = self._run_rules(late_bound.namespace, cotangent, self._with_history())
        kind = self.primitive.by_itself
        if not kind:
            return results
        name, zeros = self.name(), kind == "zeros"
        return [None if r is None else link(r, e, name, zeros) for r, e in zip(results, self.edges)]

    def release(self) -> None:
        if self.saved_values:
            self.freed = True  # First: a pass of another thread may be reading them.
            for name in self.saved_values:
                setattr(self, name, None)

    def _run_rules(self, xp: Any, g: Cotangent, s: Any) -> list[Cotangent | None]:
        if type(g) is Bundle and not self.primitive.gaps:
            g = self._without_gaps(xp, g, s)
        turned = g if not self.conjugates else _conjugate(xp, g)
        if self.primitive.begin is not None:
            turned = self.primitive.begin(xp, turned, s)
        results: list[Any] = []
        for rule in self.rules:
            if rule is SAME:
                results.append(g)
            elif rule is ZERO:
                results.append(xp.zeros_like(g))
            else:
                result = rule(xp, turned, s)
                results.append(xp.conj(result) if self.conjugates else result)
        if self.fits is not None:
            results = [
                r if r is None or f is None else fit(xp, r, *f) for r, f in zip(results, self.fits)
            ]
        return results

    def _without_gaps(self, xp: Any, bundle: Bundle, s: Any) -> Bundle:
        """Return zeros where an output of several was not used."""
        outputs = (getattr(s, name) for name in self.primitive.outputs)
        return Bundle(xp.zeros_like(o) if g is None else g for g, o in zip(bundle, outputs))

    def _pull_rare(self, cotangent: Cotangent) -> Sequence[Cotangent | None]:
        """Run the rules unrecorded: on Tensors if any value is dual, else on raw arrays."""
        parts = cotangent if type(cotangent) is Bundle else (cotangent,)
        s = self._restored(lambda name, value: value)
        tensors = [
            v for v in (*parts, *(getattr(s, n) for n in self.saved_values)) if v is not None
        ]
        if not any(isinstance(v, Tensor) and v.is_dual for v in tensors):
            for name in self.saved_values:
                setattr(s, name, _raw(getattr(s, name)))
            g = Bundle(map(_raw, parts)) if type(cotangent) is Bundle else _raw(cotangent)
            first = next(p for p in map(_raw, parts) if p is not None)
            return self._run_rules(backend_of(first), g, s)
        as_tensors = [None if p is None else p if isinstance(p, Tensor) else wrap(p) for p in parts]
        g = Bundle(as_tensors) if type(cotangent) is Bundle else as_tensors[0]
        for name in self.saved_values:
            value = getattr(s, name)
            setattr(s, name, value if isinstance(value, Tensor) else wrap(value))
        return self._run_rules(late_bound.namespace, g, s)

    def _with_history(self) -> SimpleNamespace:
        """Return the saved values as Tensors, joined to the nodes that they came from."""
        return self._restored(self._joined)

    def _restored(self, finish: Callable[[str, Any], Any]) -> SimpleNamespace:
        s = SimpleNamespace()
        for name in self.saved_facts:
            setattr(s, name, getattr(self, name))
        for name in self.saved_values:
            value = getattr(self, name)
            if self.is_stored:
                value = restored(value)
            setattr(s, name, finish(name, value))
        return s

    def _joined(self, name: str, value: Any) -> Tensor:
        array, tangents = (
            (value.array, value.tangents) if isinstance(value, Tensor) else (value, None)
        )
        if name in self.primitive.inputs:
            index = self.primitive.inputs.index(name)
            if index not in self.wanted:
                return wrap(array, None, tangents)
            return wrap(array, self.edges[self.wanted.index(index)], tangents)
        if name == "out":
            return wrap(array, self, tangents)
        return wrap(array, OutputNode.of(self, self.primitive.outputs.index(name)), tangents)


def _raw(value: Any) -> Any:
    return value.array if isinstance(value, Tensor) else value


def _server(cotangent: Cotangent) -> Any:
    """Return the backend of a cotangent that consists of raw arrays; else None."""
    if type(cotangent) is not Bundle:
        return backend_of_type(type(cotangent))
    found = None
    for part in cotangent:
        if part is not None:
            found = backend_of_type(type(part))
            if found is None:
                return None
    return found


def _conjugate(xp: Any, g: Cotangent) -> Cotangent:
    if type(g) is not Bundle:
        return xp.conj(g)
    # None is a gap: a result that nothing was computed from.
    return Bundle(each if each is None else xp.conj(each) for each in g)


_ndarray = np.ndarray


class OneEdge(OpNode, eq=False):
    """The fast case of one edge: one rule, a real result."""

    rule: ClassVar[Any]

    def pull(self, cotangent: Cotangent) -> Sequence[Cotangent | None]:
        if not self.is_stored and type(cotangent) is _ndarray:
            contribution = self.rule(NUMPY, cotangent, self)
            if self.fits is not None:
                contribution = fit(NUMPY, contribution, *self.fits[0])
            return (contribution,)
        return OpNode.pull(self, cotangent)


class TwoEdges(OpNode, eq=False):
    """The fast case of two edges: a rule for each, a real result."""

    def pull(self, cotangent: Cotangent) -> Sequence[Cotangent | None]:
        if self.is_stored or type(cotangent) is not _ndarray:
            return OpNode.pull(self, cotangent)
        first, second = self.rules
        left = cotangent if first is SAME else first(NUMPY, cotangent, self)
        right = cotangent if second is SAME else second(NUMPY, cotangent, self)
        if self.fits is not None:
            first, second = self.fits
            left = left if first is None else fit(NUMPY, left, *first)
            right = right if second is None else fit(NUMPY, right, *second)
        return (left, right)


class PassOn(OpNode, eq=False):
    """Every edge receives the cotangent as it is."""

    def pull(self, cotangent: Cotangent) -> Sequence[Cotangent | None]:
        fits = self.fits
        if fits is None:
            return (cotangent,) * len(self.edges)
        if type(cotangent) is not _ndarray:
            return OpNode.pull(self, cotangent)
        return [cotangent if f is None else fit(NUMPY, cotangent, *f) for f in fits]


def variant(primitive: Primitive, mask: int, is_complex: bool) -> type[OpNode]:
    """Return the node class for calls whose inputs in `mask` (a bit each) need a gradient."""
    key = -mask if is_complex else mask
    found = primitive.variants.get(key)
    if found is None:
        found = primitive.variants[key] = _make_variant(primitive, mask, is_complex)
    kind: type[OpNode] = found
    return kind


def _make_variant(primitive: Primitive, mask: int, is_complex: bool) -> type[OpNode]:
    wanted = tuple(i for i in range(len(primitive.inputs)) if mask >> i & 1)
    if not isinstance(primitive.vjp, Sequence):
        raise InternalError(f"{primitive.name} has no derivatives, so no call of it is recorded")
    rules: tuple[Any, ...] = tuple(primitive.vjp[i] for i in wanted)
    read = {name for i in wanted for name in primitive.saves[i].split()} | {*primitive.outputs}
    values = tuple(n for n in (*primitive.inputs, "out", *primitive.outputs) if n in read)
    facts = {
        slot: (primitive.inputs.index(n), a) for slot, n, a in primitive.facts if f"{n}.{a}" in read
    }
    facts |= {option: (-1, option) for option in primitive.options}
    conjugates = is_complex and primitive.holomorphic
    base: type[OpNode] = OpNode
    extra: dict[str, Any] = {}
    if all(rule is SAME for rule in rules):
        base = PassOn
    elif not conjugates and not primitive.outputs and ZERO not in rules and primitive.begin is None:
        if len(rules) == 1:
            base = OneEdge
            extra["rule"] = staticmethod(rules[0])
        elif len(rules) == 2:
            base = TwoEdges
    kind: Any = msgspec.defstruct(
        f"{primitive.name}_{mask}",
        [
            (name, Any, None)
            for name in (*values, *facts, *(("known",) if primitive.outputs else ()))
        ],
        bases=(base,),
        namespace={
            "primitive": primitive,
            "rules": rules,
            "wanted": wanted,
            "saved_values": values,
            "saved_facts": tuple(facts),
            "conjugates": conjugates,
            **extra,
        },
        eq=False,
        weakref=True,
    )
    order = (*primitive.inputs, *(primitive.outputs or ("out",)))
    kind.plan = tuple(order.index(name) for name in values)
    kind.saves = sum(1 << place for place in kind.plan)
    kind.facts_plan = tuple(facts.values())
    made: type[OpNode] = kind
    return made


class OutputNode(_Optional, Hooked, eq=False):
    """One output of a node with several: its cotangent goes to its slot of the bundle."""

    edges: tuple[Node, ...]
    key: int
    index: int
    size: int

    @classmethod
    def of(cls, node: Any, index: int) -> "OutputNode":
        """Return the node of output `index`; it is newer than the node itself, and so runs first.

        It stays the same as long as anything holds it (`node` must not: that would be a cycle),
        so that a result restored from a saved value has the gradient of the result itself.
        """
        size = node.output_count()
        if node.known is None:
            node.known = [None] * size
        found: OutputNode | None = None if node.known[index] is None else node.known[index]()
        if found is None:
            found = cls((node,), next_key(), index, size)
            node.known[index] = weakref.ref(found)
        return found

    def name(self) -> str:
        return str(self.edges[0].name())

    def as_function(self) -> Any:
        return self.edges[0]

    def as_input(self) -> tuple[Any, int]:
        return self.edges[0], self.index

    def pull(self, cotangent: Cotangent) -> Sequence[Cotangent | None]:
        return (Bundle.single(self.size, self.index, cotangent),)

    pull_recorded = pull
