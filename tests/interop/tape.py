"""A framework of its own, in one file: values with a tape, which join telegrad's calls and passes.

Its cotangents are values, too. A node of the tape is one of telegrad's engine, so that nothing has
to be cut but where the tape begins (`Entry`) and ends (`Landing`, and values that are leaves).
"""

import threading
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np

from telegrad.distributed import frameworks
from telegrad.errors import GradientError
from telegrad.graph import LeafNode, next_key, reachable
from telegrad.rpc.wire import kinds
from telegrad.tensors import wrap
from telegrad.tensors.recording.hooked import HookedStruct

MODES = threading.local()


@contextmanager
def off(is_off=True):
    """Record nothing on this thread; or do again."""
    before, MODES.off = getattr(MODES, "off", False), is_off
    try:
        yield
    finally:
        MODES.off = before


class Value(LeafNode):
    """Numbers that remember what they were computed from."""

    is_leaf = True
    hooks = None

    def __init__(self, numbers, is_parameter=False, node=None):
        self.numbers = np.asarray(numbers, np.float64)
        self.is_parameter = is_parameter
        self.node = node
        self.grad = None

    def name(self):
        return "Value"

    @property
    def history(self):
        return self if self.is_parameter else self.node

    def __add__(self, other):
        return computed(self.numbers + other.numbers, (self, lambda g: g), (other, lambda g: g))

    def __mul__(self, other):
        rules = (
            lambda g: Value(g.numbers * other.numbers),
            lambda g: Value(g.numbers * self.numbers),
        )
        return computed(self.numbers * other.numbers, (self, rules[0]), (other, rules[1]))

    def sum(self):
        shape = self.numbers.shape
        return computed(self.numbers.sum(), (self, lambda g: Value(np.full(shape, g.numbers))))


class Step(HookedStruct, eq=False):
    """What the tape keeps of one operation; also the ends of the tape."""

    key: int
    edges: tuple[Any, ...]
    rules: tuple[Any, ...]
    freed: ClassVar[bool] = False

    def name(self):
        return "Step"

    def pull(self, cotangent):
        return [rule(cotangent) for rule in self.rules]

    def pull_recorded(self, cotangent):
        raise GradientError("expected no create_graph: a tape is not recorded twice")


def computed(numbers, *inputs):
    known = [(each, rule) for each, rule in inputs if each.history is not None]
    if not known or getattr(MODES, "off", False):
        return Value(numbers)
    edges = tuple(each.history for each, _ in known)
    return Value(numbers, node=Step(next_key(), edges, tuple(rule for _, rule in known)))


class Tape(frameworks.Framework):
    """The seam: each method with what it must do is in ``telegrad/interop/README.md``."""

    type = Value

    class namespace:
        clone = staticmethod(lambda value: Value(value.numbers.copy()))
        zeros_like = staticmethod(lambda value: Value(np.zeros_like(value.numbers)))

    def is_recording(self):
        return not getattr(MODES, "off", False)

    def default_modes(self, scope, keeps_recording):
        return scope if keeps_recording or self.is_recording() else ordinarily(scope)

    def adopted(self, value, is_gradient):
        return wrap(value.numbers, None if is_gradient else entry_of(value))

    def node(self, value, name):
        if value.history is None:
            raise GradientError(f"expected a value with a history as {name}")
        return value.history

    def leave(self, values, worker, levels, to, is_recorded):
        places = [i for i, value in enumerate(values) if isinstance(value, Value)]
        if not places or not is_recorded:
            return values
        given = values.copy()
        for i in places:
            given[i] = wrap(None, entry_of(values[i]))
            values[i] = Value(values[i].numbers)
        return given

    def arrive(self, values, worker, frm):
        return None

    def join(self, value, stand_in):
        if stand_in is None:
            return Value(value.numbers)
        landing = Step(next_key(), (stand_in.node,), (lambda cotangent: cotangent.numbers,))
        return Value(value.numbers, node=landing)

    def cut(self, entries, keep_graph, targets, is_plain):
        ends = [node for node in reachable(entries) if isinstance(node, Value) or node in targets]
        return frameworks.Cut({}, {node: node for node in ends if isinstance(node, (Value, Step))})

    def completed(self, leaves, gradients, context, loans):
        return {leaf: g for leaf, g in zip(leaves, gradients) if g is not None}


@contextmanager
def ordinarily(scope):
    with off(False), scope as entered:
        yield entered


def entry_of(value):
    if value.history is None:
        return None
    return Step(next_key(), (value.history,), (Value,))


def enlist():
    """Make values of tapes known to this process, and how they are sent."""
    if not any(isinstance(each, Tape) for each in frameworks.known):
        frameworks.enlist(Tape())
    kinds.register(
        Value,
        lambda value: ([value.numbers], [value.is_parameter]),
        lambda parts, facts: Value(parts[0], *facts),
        tag="tests.Value",
    )


# What is called.


def times(x, y):
    return x * y


def with_both(value, tensor):
    return value * value, tensor * tensor


def is_recording():
    return Tape().is_recording()
