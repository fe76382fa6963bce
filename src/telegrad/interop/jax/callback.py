"""``to_jax``: functions of telegrad inside of JAX's programs, by JAX's callbacks.

1. Under ``jax.grad`` the function runs once, recorded, in a distributed context of its own where
   this process has a worker; the graph is kept here, and JAX carries a *ticket* for it.
2. The backward pass hands the ticket in, and the graph is used and freed. JAX may call pure
   functions as often as it likes: for a ticket that is gone already, the function runs again.
3. If there are too many tickets, the oldest are dropped.

Callbacks run on threads of JAX's, so each runs in a context (of contextvars) of its own.
"""

import itertools
import threading
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Any

import jax
import numpy as np
from jax import tree_util

import telegrad.autograd as tg_autograd
from telegrad.distributed import autograd
from telegrad.errors import DTypeError, NotDifferentiable, ShapeError, UsageError
from telegrad.interop.jax.arrays import is_inexact, to_jax_value
from telegrad.rpc.current import default_worker
from telegrad.tensors import LEAF, Tensor, wrap
from telegrad.tensors.describe import kind_of
from telegrad.tensors.recording.modes import no_grad

_MOST_TICKETS = 64
_Spec: Any = jax.ShapeDtypeStruct


def to_jax(g: Callable[..., Any], *, results: Any = None) -> Callable[..., Any]:
    """Make a function of telegrad one of JAX, for use inside of ``jax.jit`` and ``jax.grad``.

    It may call other workers. First derivatives in reverse mode; ``jax.vmap`` runs it once for each
    element. Derivatives go to its arguments alone: what else it uses is a constant to JAX. ::

        @jax.jit
        def loss(w):
            return jnp.sum(to_jax(remote_layer)(w) ** 2)

        jax.grad(loss)(w)

    Arguments:
        g: A pure function of Tensors; arguments and results may be nested in any way that JAX knows
            as a pytree. It must not call JAX's own functions.
        results: The shapes and dtypes of the results, as arrays or ``jax.ShapeDtypeStruct``, nested
            like the results. By default, g is called once with zeros for each new set of shapes.

    Examples:
        >>> import jax
        >>> from telegrad.jax import to_jax
        >>> jax.grad(to_jax(lambda x: x**3))(2.0).item()
        12.0
    """
    if not callable(g):
        raise UsageError(f"expected a function of telegrad for to_jax, got {kind_of(g)}")
    bridges: dict[Any, _Bridge] = {}

    def call(*args: Any) -> Any:
        leaves, structure = tree_util.tree_flatten(args)
        inputs = tuple(_spec(leaf) for leaf in leaves)
        key = structure, tuple((each.shape, each.dtype) for each in inputs)
        bridge = bridges.get(key)
        if bridge is None:
            bridge = bridges.setdefault(key, _Bridge(_Flat(g, structure, inputs, results)))
        return tree_util.tree_unflatten(bridge.flat.structure_out, bridge.call(*leaves))

    return call


def _spec(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        raise DTypeError(
            "expected arrays of JAX for a function that to_jax made, got a Tensor; call the "
            "function of telegrad itself with Tensors"
        )
    return _Spec(np.shape(leaf), jax.numpy.result_type(leaf))


class _Flat:
    """A function of telegrad, on flat sequences of NumPy's arrays, and its graphs."""

    def __init__(self, g: Callable[..., Any], structure: Any, inputs: Any, results: Any) -> None:
        self.g = g
        self.name = getattr(g, "__name__", type(g).__name__)
        self.structure = structure
        self.inputs = inputs
        self.reals = [i for i, each in enumerate(inputs) if is_inexact(each)]
        self._graphs: dict[int, _Graph] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        if results is None:
            zeros = [wrap(np.zeros(each.shape, each.dtype)) for each in inputs]
            with no_grad():
                results = g(*tree_util.tree_unflatten(structure, zeros))
            results = tree_util.tree_map(_described, results)
        found, self.structure_out = tree_util.tree_flatten(results)
        self.outputs = tuple(_Spec(each.shape, each.dtype) for each in found)
        self.inexact = [i for i, each in enumerate(self.outputs) if is_inexact(each)]

    def run(self, *leaves: Any) -> Any:
        """Return the results."""
        return Context().run(self._run_quietly, leaves)

    def _run_quietly(self, leaves: Sequence[Any]) -> Any:
        with no_grad():
            return self._arrays(self._results([wrap(np.asarray(each)) for each in leaves]))

    def run_recorded(self, *leaves: Any) -> Any:
        """Return the results and a ticket for the graph."""
        graph = _Graph(self, leaves)
        with self._lock:
            ticket = next(self._numbers) % (1 << 31)
            self._graphs[ticket] = graph
            forgotten = [self._graphs.pop(k) for k in list(self._graphs)[:-_MOST_TICKETS]]
        for each in forgotten:
            each.close()
        return self._arrays(graph.outputs), np.int32(ticket)

    def pull(self, ticket: Any, leaves: Sequence[Any], cotangents: Sequence[Any]) -> Any:
        """Return the gradients of the floating and complex inputs."""
        with self._lock:
            graph = self._graphs.pop(int(ticket), None)
        if graph is None:
            graph = _Graph(self, leaves)
        try:
            return graph.pull(cotangents)
        finally:
            graph.close()

    def _results(self, tensors: Sequence[Tensor]) -> list[Any]:
        result = self.g(*tree_util.tree_unflatten(self.structure, tensors))
        leaves: list[Any]
        structure: Any
        leaves, structure = tree_util.tree_flatten(result)
        if structure != self.structure_out:
            raise ShapeError(
                f"expected results of {self.name} nested as {self.structure_out}, got {structure}"
            )
        return leaves

    def _arrays(self, results: Sequence[Any]) -> tuple[Any, ...]:
        made = []
        for i, (result, spec) in enumerate(zip(results, self.outputs, strict=True)):
            array = np.asarray(result.detach() if isinstance(result, Tensor) else result)
            if array.shape != spec.shape or array.dtype != spec.dtype:
                raise ShapeError(
                    f"expected shape {spec.shape} and dtype {spec.dtype} for result {i} of "
                    f"{self.name}, as when JAX traced it, got {array.shape} and {array.dtype}; "
                    "say what it gives with to_jax(..., results=...)"
                )
            made.append(array)
        return tuple(made)


def _described(leaf: Any) -> Any:
    if not isinstance(leaf, Tensor):
        raise DTypeError(f"expected Tensors from the function for to_jax, got {kind_of(leaf)}")
    value = to_jax_value(leaf)
    return _Spec(value.shape, value.dtype)


class _Graph:
    """One recorded run: its inputs and outputs as Tensors, and its distributed context."""

    def __init__(self, flat: _Flat, leaves: Sequence[Any]) -> None:
        self.flat = flat
        self._scope = Context()
        self._context: autograd.context | None = None
        self._scope.run(self._record, leaves)

    def _record(self, leaves: Sequence[Any]) -> None:
        if default_worker() is not None:
            self._context = autograd.context()
            self._context.__enter__()
        try:
            # Copies: JAX's arrays must not be kept after the callback.
            self.inputs = [wrap(np.array(each)) for each in leaves]
            for place in self.flat.reals:
                self.inputs[place].node = LEAF
            self.outputs = self.flat._results(self.inputs)
        except BaseException:
            self._leave()
            raise

    def pull(self, cotangents: Sequence[Any]) -> Any:
        """Return the gradients of the inexact inputs, given cotangents of the inexact results."""
        pulled: Any = self._scope.run(self._pull, cotangents)
        return pulled

    def _pull(self, cotangents: Sequence[Any]) -> Any:
        flat = self.flat
        ends = [self.inputs[i] for i in flat.reals]
        pairs = [
            (self.outputs[i], wrap(_conjugated(np.asarray(v))))
            for i, v in zip(flat.inexact, cotangents, strict=True)
            if isinstance(self.outputs[i], Tensor) and self.outputs[i].node is not None
        ]
        if not pairs:
            return tuple(np.zeros(each.shape, each.dtype) for each in ends)
        roots, weights = zip(*pairs)
        found = tg_autograd.grad(roots, ends, weights, materialize_grads=True)
        return tuple(_conjugated(np.array(each.detach().numpy())) for each in found)

    def close(self) -> None:
        """Free the graph, on every worker."""
        self._scope.run(self._leave)

    def _leave(self) -> None:
        self.outputs = []
        context, self._context = self._context, None
        if context is not None:
            context.__exit__(None, None, None)


def _conjugated(array: Any) -> Any:
    """Convert between JAX's convention for complex gradients and telegrad's."""
    return array.conj() if array.dtype.kind == "c" else array


class _Bridge:
    """The same function for JAX: three callbacks, joined by ``jax.custom_vjp``."""

    def __init__(self, flat: _Flat) -> None:
        self.flat = flat
        gradients = tuple(flat.inputs[i] for i in flat.reals)
        recorded = _once(flat, flat.run_recorded, (flat.outputs, _Spec((), "int32")))
        pulled = _once(flat, flat.pull, gradients)

        @jax.custom_vjp
        def call(*leaves: Any) -> Any:
            return jax.pure_callback(flat.run, flat.outputs, *leaves, vmap_method="sequential")

        def forward(*leaves: Any) -> Any:
            results, ticket = recorded(*leaves)
            return results, (ticket, leaves)

        def backward(residuals: Any, cotangents: Any) -> Any:
            given = tuple(cotangents[i] for i in flat.inexact)
            found = dict(zip(flat.reals, pulled(*residuals, given), strict=True))
            return tuple(found.get(i) for i in range(len(flat.inputs)))

        call.defvjp(forward, backward)
        self.call = call


def _once(flat: _Flat, function: Callable[..., Any], results: Any) -> Callable[..., Any]:
    """Return a function of JAX that calls back; differentiating it raises."""

    @jax.custom_jvp
    def call(*values: Any) -> Any:
        return jax.pure_callback(function, results, *values, vmap_method="sequential")

    @call.defjvp
    def refuse(primals: Any, tangents: Any) -> Any:
        raise NotDifferentiable(
            f"{flat.name}, which to_jax made a function of JAX, has first derivatives in reverse "
            "mode only: differentiate again with telegrad's functions, and take what JAX does in "
            "between over with from_jax"
        )

    return call
