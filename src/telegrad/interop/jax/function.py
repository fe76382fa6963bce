"""``from_jax``: functions of JAX, with trees of arrays in and out, as functions of telegrad.

The arguments of a call are taken apart: Tensors of floating and complex dtypes are the reals of a
program, and everything else that JAX accepts as an array is passed along. There is one program for
each nesting, each choice of reals and each set of static arguments; for new shapes and dtypes, JAX
compiles again by itself.

The function that users get refers only to functions and constants. So it can be sent to other
workers like any function, by name or by value, and what was compiled stays in the process.
"""

import functools
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final, overload

import jax
from jax import numpy as jnp
from jax import tree_util

from telegrad.errors import DTypeError, UsageError
from telegrad.interop.jax.arrays import is_array, to_jax_value
from telegrad.interop.jax.operation import run
from telegrad.interop.jax.program import Program
from telegrad.interop.jax.statics import Statics, as_tuple
from telegrad.rpc.calls.request import current_request
from telegrad.tensors import Tensor
from telegrad.tensors.describe import kind_of


@overload
def from_jax(
    f: Callable[..., Any],
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
) -> Callable[..., Any]: ...


@overload
def from_jax(
    f: None = None,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]: ...


def from_jax(
    f: Callable[..., Any] | None = None,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
) -> Callable[..., Any]:
    """Make a function of JAX one of telegrad, compiled, with every derivative.

    It has reverse mode, forward mode, any order and any mixture, on this worker or on another. A
    call and its backward pass run the function once: what JAX keeps in between stays on the worker
    that ran it, until the graph is freed. It is also a decorator, with or without options. ::

        @from_jax
        def energy(state):
            return {"kinetic": (state["v"] ** 2).sum(), "potential": jnp.cos(state["x"]).sum()}

        energy({"x": tg.ones(3), "v": tg.ones(3)})["kinetic"].backward()

    Arguments:
        f: A pure function, as ``jax.jit`` takes it. Its arguments and results may be nested in any
            way that JAX knows as a pytree. It sees an array of JAX for each Tensor; NumPy's arrays,
            JAX's own, numbers and random keys are constants. If an argument is a tensor of
            PyTorch's, so are the results.
        static_argnums: Which positional arguments are static, as for ``jax.jit``: any hashable
            values; for each new one, JAX compiles again.
        static_argnames: The same, by name.

    Returns:
        The function. Its results are Tensors, nested as f nests them. Its ``__wrapped__`` is f
        itself, for use inside of other functions of JAX.

    Raises:
        DTypeError: On a call with 64-bit numbers while JAX's x64 is off, or with a leaf that is no
            array.
        UsageError: On a call with arguments for which JAX can't trace f.

    Examples:
        >>> from jax import numpy as jnp
        >>> from telegrad.jax import from_jax
        >>> x = tg.tensor([1.0, 2.0], requires_grad=True)
        >>> from_jax(lambda x: jnp.sum(x**3))(x).backward()
        >>> x.grad
        tensor([ 3., 12.])
    """
    numbers = as_tuple(static_argnums, int, "static_argnums")
    names = as_tuple(static_argnames, str, "static_argnames")
    if f is None:
        return functools.partial(from_jax, static_argnums=numbers, static_argnames=names)
    if not callable(f):
        raise UsageError(f"expected a function of JAX for from_jax, got {kind_of(f)}")
    Statics(f, numbers, names)

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        return caller_of(call, f, numbers, names)(args, kwargs)

    return call


_CONFIG: Any = jax.config
_CALLERS: Final["weakref.WeakKeyDictionary[Any, _Caller]"] = weakref.WeakKeyDictionary()


def caller_of(
    function: Any, f: Callable[..., Any], numbers: tuple[int, ...], names: tuple[str, ...]
) -> "_Caller":
    """Return what this process compiled for a function that ``from_jax`` made."""
    found = _CALLERS.get(function)
    if found is None:
        if current_request.get() is not None:
            # This process's first use of JAX serves another worker, which waits for the result, so
            # another thread of JAX's is only a detour. If JAX has started already, with the user's
            # own choice, this has no effect.
            _CONFIG.update("jax_cpu_enable_async_dispatch", False)
        found = _CALLERS.setdefault(function, _Caller(f, Statics(f, numbers, names)))
    return found


class _Caller:
    """The programs of one function."""

    def __init__(self, f: Callable[..., Any], statics: Statics) -> None:
        self._f = f
        self._statics = statics
        self._name = getattr(f, "__name__", type(f).__name__)
        self._programs: dict[Any, Program] = {}

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        steering, moving = self._statics.split(args, kwargs)
        leaves, structure = tree_util.tree_flatten(moving)
        bridge = _bridge_for(leaves)
        if bridge:
            kind = bridge.torch.Tensor
            leaves = [bridge.from_torch(x) if isinstance(x, kind) else x for x in leaves]
        are_real = tuple([isinstance(x, Tensor) and x.dtype.kind in "fc" for x in leaves])
        program = self._program(structure, are_real, steering)
        reals = [x for x, is_real in zip(leaves, are_real) if is_real]
        others = [self._other(i, x, moving) for i, x in enumerate(leaves) if not are_real[i]]
        try:
            results = run(program, reals, others)
        except (jax.errors.JAXTypeError, jax.errors.JAXIndexError) as error:
            raise UsageError(
                f"expected a pure function that JAX can trace, but {self._name} asks for more than "
                f"shapes and dtypes of its arguments ({type(error).__name__}): use jax.numpy and "
                "jax.lax inside, keep nothing from one call to the next, and give what steers "
                "Python's if and for as static_argnames"
            ) from error
        if bridge:
            return tree_util.tree_map(
                lambda x: bridge.to_torch(x) if isinstance(x, Tensor) else x, results
            )
        return results

    def _program(self, structure: Any, are_real: tuple[bool, ...], steering: Any) -> Program:
        key = structure, are_real, steering
        found = self._programs.get(key)
        if found is None:

            def flat(reals: Sequence[Any], others: Sequence[Any]) -> Any:
                real, other = iter(reals), iter(others)
                leaves = [next(real if is_real else other) for is_real in are_real]
                moving = tree_util.tree_unflatten(structure, leaves)
                args, kwargs = self._statics.joined(steering, moving)
                return self._arrays(self._f(*args, **kwargs))

            found = self._programs.setdefault(key, Program(self._name, sum(are_real), flat))
        return found

    def _arrays(self, results: Any) -> Any:
        """Return the results with an array of JAX for each leaf."""
        for path, leaf in tree_util.tree_leaves_with_path(results):
            if not is_array(leaf):
                raise DTypeError(
                    f"expected arrays as the results of {self._name}, a function of JAX, got "
                    f"{kind_of(leaf)} at result{tree_util.keystr(path)}; return it from another "
                    "function"
                )
        return tree_util.tree_map(jnp.asarray, results)

    def _other(self, index: int, leaf: Any, moving: Any) -> Any:
        """Return what JAX gets for a leaf without a derivative."""
        if isinstance(leaf, jax.core.Tracer):
            raise UsageError(
                f"expected values for {self._name}, which from_jax made, got a tracer of JAX at "
                f"{_place(index, moving)}; inside of jax.jit, jax.grad and the like, call the "
                f"function itself: {self._name}.__wrapped__"
            )
        if not isinstance(leaf, Tensor) and not is_array(leaf):
            raise DTypeError(
                f"expected Tensors, arrays and numbers for {self._name}, a function of JAX, got "
                f"{kind_of(leaf)} at {_place(index, moving)}; what steers the function is named in "
                "static_argnames"
            )
        return to_jax_value(leaf)


def _place(index: int, moving: Any) -> str:
    """Return the place of a leaf among the arguments, in words."""
    path = tree_util.tree_leaves_with_path(moving)[index][0]
    (side, first), rest = ((path[0].idx, path[1]), path[2:])
    return f"{('args', 'kwargs')[side]}{tree_util.keystr((first, *rest))}"


def _bridge_for(leaves: Sequence[Any]) -> Any:
    """Return the bridge to PyTorch, which is imported only if a leaf is one of its tensors."""
    kind = getattr(sys.modules.get("torch"), "Tensor", None)
    if kind is None or not any(isinstance(leaf, kind) for leaf in leaves):
        return None
    # Imported so that passes over workers know that graphs may lead into PyTorch's.
    import telegrad.interop.torch.framework  # noqa: F401
    from telegrad.interop.torch import bridge

    return bridge
