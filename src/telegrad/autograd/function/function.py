"""``Function``: an operation with user-written derivatives, and how its calls are recorded.

1. ``forward`` runs unrecorded, on stand-ins for its arguments, without tangents. Writing to a
   stand-in changes nothing outside.
2. If an argument requires grad, a FunctionNode is made, and the results become its outputs.
3. For each dual level, outermost first, ``jvp`` runs on values without the tangents of that level
   and of the levels further in; so levels nest as for the built-in primitives.
4. The values named by ``save_for_backward`` are stored, tangents included.
"""

import functools
import inspect
from collections.abc import Sequence
from typing import Any

from telegrad.autograd.function.context import (
    FunctionCtx,
    for_jvp,
    replace_attributes,
    savings_of,
)
from telegrad.autograd.function.node import FunctionNode, describe
from telegrad.errors import DTypeError, GradientError, NotDifferentiable, ShapeError, UsageError
from telegrad.tensors import Tensor, history_of, wrap
from telegrad.tensors.describe import no_tensor
from telegrad.tensors.forward.duals import attach, restricted
from telegrad.tensors.forward.levels import Level
from telegrad.tensors.late_bound import late_bound
from telegrad.tensors.likeness import check_like
from telegrad.tensors.recording.anomaly import where_recorded
from telegrad.tensors.recording.modes import MODE, no_grad


class Function:
    """A base class: define static ``forward`` and ``backward``, call ``apply``.

    Either ``forward(ctx, *args)``, or ``forward(*args)`` with ``setup_context(ctx, inputs,
    output)``. ``backward(ctx, *cotangents)`` takes one for each result and returns a gradient (or
    None) for each argument. ``jvp(ctx, *tangents)`` takes one for each argument and returns a
    tangent for each result.

    Examples:
        >>> class Double(tg.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         return x * 2
        ...
        ...     @staticmethod
        ...     def backward(ctx, cotangent):
        ...         return cotangent * 2
        >>> x = tg.tensor([1.0, 2.0], requires_grad=True)
        >>> Double.apply(x).sum().backward()
        >>> x.grad
        tensor([2., 2.])
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        raise UsageError(
            f"expected {type(self).__name__}.apply(...), got an attempt to make an instance; a "
            "Function has static methods only"
        )

    @staticmethod
    def forward(*args: Any, **options: Any) -> Any:
        """Compute the result; to be overridden."""
        raise UsageError("expected a static method forward in the Function, got none")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Save what the derivatives need; override it to write ``forward`` without ctx."""

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """Return the gradients of the arguments; to be overridden."""
        raise NotDifferentiable(
            f"{savings_of(ctx).name} has no backward; define a static method "
            "backward(ctx, *cotangents)"
        )

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        """Return the tangents of the results; to be overridden."""
        raise NotDifferentiable(
            f"{savings_of(ctx).name} has no jvp, but an argument carries a tangent; define a "
            "static method jvp(ctx, *tangents), or pass unpack_dual(x).primal if its tangent "
            "should be ignored"
        )

    @classmethod
    def apply(cls, *args: Any, **options: Any) -> Any:
        """Call the Function.

        With ``setup_context``, which gets every argument of ``forward`` in its place, arguments may
        be named or left to their defaults.
        """
        return _Call(cls, _placed(cls, args, options)).run()


@functools.cache
def named(name: str, kind: type[Function]) -> type[Function]:
    """Return a subclass of `kind` with a name for graphs and errors."""
    return type(name, (kind,), {})


class _Call:
    """One call of a Function."""

    def __init__(self, function: Any, args: tuple[Any, ...]) -> None:
        self.function = function
        self.args = args
        self.needs = tuple(isinstance(a, Tensor) and a.node is not None for a in args)
        self.has_setup = _has_setup(function)
        self.context = self._fresh_context()
        self.seen = tuple(_stand_in(a) for a in args)
        self.raw: list[Any] = []
        self.outputs: list[Any] = []
        self.node: FunctionNode | None = None
        self.is_tuple = False

    def _fresh_context(self) -> FunctionCtx:
        return FunctionCtx(self.function.__name__, self.needs)

    def run(self) -> Any:
        mode = MODE.get()
        tensors = [a for a in self.args if isinstance(a, Tensor)]
        levels = {level for x in tensors for level in (x.tangents or ())}
        with no_grad():
            if self.has_setup:
                result = self.function.forward(*self.seen)
                self.function.setup_context(self.context, self.seen, result)
            else:
                result = self.function.forward(self.context, *self.seen)
        self.is_tuple = isinstance(result, tuple)
        self.raw = list(result) if self.is_tuple else [result]
        if mode.recording and any(self.needs):
            self.node = self._node(mode.anomaly)
        self.outputs = self._made_outputs()
        for level in sorted(levels, key=lambda each: each.depth):
            self._push(level)
        if levels and self.has_setup:
            # Again, now with tangents, so that values it computes for backward have them, too.
            seen = tuple(_stand_in(a, keep_tangents=True) for a in self.args)
            self._keep(self._set_up(seen, self.outputs), seen, self.outputs)
        else:
            self._keep(self.context, self.seen, self.raw)
        return tuple(self.outputs) if self.is_tuple else self.outputs[0]

    def _set_up(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> FunctionCtx:
        """Return a new context, set up with arguments and results that have tangents."""
        context = self._fresh_context()
        output = tuple(outputs) if self.is_tuple else outputs[0]
        with no_grad():
            self.function.setup_context(context, tuple(inputs), output)
        return context

    def _node(self, remembers_line: bool) -> FunctionNode:
        wanted = tuple(i for i, needed in enumerate(self.needs) if needed)
        edges: Any = tuple(history_of(self.args[i]) for i in wanted)
        arguments = tuple((a.shape, a.dtype) if isinstance(a, Tensor) else None for a in self.args)
        node = FunctionNode(self.function, self.context, edges, wanted, arguments)
        node.outputs = tuple(map(describe, self.raw))
        if remembers_line:
            node.metadata = {"traceback": where_recorded()}
        return node

    def _made_outputs(self) -> list[Any]:
        """Return the results as the caller gets them, with their nodes."""
        made = []
        for j, out in enumerate(self.raw):
            if not isinstance(out, Tensor):
                made.append(out)
                continue
            if out.node is not None or out.tangents or any(out is s for s in self.seen):
                # An argument or a value from outside must not be changed.
                result = wrap(out.array)
            else:
                result = out
            is_constant = out.dtype.kind not in "fc" or savings_of(self.context).is_constant(out)
            if self.node is not None and not is_constant:
                result.node = self.node.of_output(j)
            made.append(result)
        return made

    def _push(self, level: Level) -> None:
        """Run ``jvp`` for one level and attach the tangents."""
        inputs = [restricted(a, level) if isinstance(a, Tensor) else a for a in self.args]
        outputs = [restricted(o, level) if isinstance(o, Tensor) else o for o in self.outputs]
        if self.has_setup:
            context = for_jvp(self._set_up(inputs, outputs), {})
        else:
            by_id = {
                id(seen): stand_in
                for seen, stand_in in zip((*self.seen, *self.raw), (*inputs, *outputs))
                if isinstance(seen, Tensor)
            }
            context = for_jvp(self.context, by_id)
        tangents = [self._tangent(a, level, context) for a in self.args]
        answer = self.function.jvp(context, *tangents)
        parts = tuple(answer) if isinstance(answer, (tuple, list)) else (answer,)
        name = self.function.__name__
        if len(parts) != len(self.outputs):
            raise ShapeError(
                f"expected {len(self.outputs)} tangents from {name}.jvp, one for each result, got "
                f"{len(parts)}; return None for those without"
            )
        for j, (output, tangent) in enumerate(zip(self.outputs, parts)):
            if tangent is None or not isinstance(output, Tensor):
                continue
            if output.dtype.kind not in "fc" or savings_of(self.context).is_constant(self.raw[j]):
                raise GradientError(
                    f"expected None from {name}.jvp for result {j}, which is a constant, got "
                    f"{type(tangent).__name__}"
                )
            if not isinstance(tangent, Tensor):
                raise no_tensor(tangent, f"from {name}.jvp for result {j}", "a Tensor or None")
            check_like(tangent, output, f"the tangent from {name}.jvp for result {j}", "the result")
            attach(output, level, tangent)

    def _tangent(self, argument: Any, level: Level, context: FunctionCtx) -> Any:
        if not isinstance(argument, Tensor) or argument.dtype.kind not in "fc":
            return None
        found = (argument.tangents or {}).get(level)
        if found is None and context.materialize_grads:
            return late_bound.namespace.zeros_like(argument)
        return found

    def _keep(self, context: FunctionCtx, seen: Sequence[Any], raw: Sequence[Any]) -> None:
        if self.node is None:
            return
        self.node.context = context
        inputs = {id(s): a for s, a in zip(seen, self.args) if isinstance(a, Tensor)}
        places = {id(r): j for j, r in enumerate(raw) if isinstance(r, Tensor)}
        savings_of(context).keep(inputs, places, self.outputs, self.node, MODE.get())
        replace_attributes(context, inputs)


def _has_setup(function: Any) -> bool:
    return function.setup_context is not Function.setup_context


def _placed(function: Any, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, ...]:
    """Return all arguments by position, as ``setup_context`` expects them."""
    forward = function.forward
    lost = set(options)
    if _has_setup(function):
        if not options and not getattr(forward, "__defaults__", True):
            return args
        bound = inspect.signature(forward).bind(*args, **options)
        bound.apply_defaults()
        args, lost = bound.args, lost & bound.kwargs.keys()
    if lost:
        raise DTypeError(
            f"expected the arguments of {function.__name__}.apply by position, got {sorted(lost)} "
            "by name; with setup_context, those that forward takes by position may be named"
        )
    return args


def _stand_in(argument: Any, keep_tangents: bool = False) -> Any:
    if not isinstance(argument, Tensor):
        return argument
    tangents = argument.tangents if keep_tangents else None
    return wrap(argument.array, history_of(argument), tangents)
