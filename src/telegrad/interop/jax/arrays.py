"""Values between telegrad and JAX: what goes in, what comes out, and what is refused.

On the way in, the compiled function itself copies NumPy's memory; on the way out memory is shared,
since arrays of JAX never change. Arrays of other libraries, such as CuPy's on a GPU, go both ways
by DLPack. Without x64, JAX silently turns 64 bits into 32; here that is an error, never a rounded
gradient.
"""

from collections.abc import Callable
from typing import Any, Final

import jax
import numpy as np

from telegrad.arrays import backend_of
from telegrad.errors import DTypeError
from telegrad.tensors import Tensor, wrap
from telegrad.tensors.shared import plain

_TURN_ON: Final = (
    "turn on 64 bits with jax.config.update('jax_enable_x64', True), on every worker that runs JAX "
    "and before its first array, or convert to 32 bits with .to(telegrad.float32)"
)
_CONFIG: Any = jax.config
_NUMPYS: Final = frozenset("biufc")
_NEVER_NARROWED: Final = frozenset(map(np.dtype, "?bhiBHIefF"))
"""The dtypes of at most 32 bits, or of two such parts."""
_NARROW_INTEGERS: Final = {"i": np.iinfo(np.int32), "u": np.iinfo(np.uint32)}


def is_array(leaf: Any) -> bool:
    """Say whether JAX accepts a leaf, one that is no Tensor, as an array."""
    return isinstance(leaf, (jax.Array, np.ndarray, np.generic, bool, int, float, complex))


def is_inexact(leaf: Any) -> bool:
    """Say whether a leaf of JAX's is floating or complex, and so has a derivative."""
    return bool(jax.numpy.issubdtype(jax.numpy.result_type(leaf), jax.numpy.inexact))


def to_jax_value(leaf: Any) -> Any:
    """Return what to pass to a compiled function of JAX for a Tensor or another leaf."""
    if isinstance(leaf, Tensor):
        leaf = leaf.array
        if not isinstance(leaf, (np.ndarray, np.generic)):
            refuse_narrowing(backend_of(leaf).dtype_of(leaf), leaf)
            flags = getattr(leaf, "flags", None)
            if flags is not None and not flags.c_contiguous:
                # JAX does not accept memory in which one number stands for many elements.
                leaf = leaf.copy()
            return jax.numpy.from_dlpack(leaf)
        leaf = plain(leaf)
    if isinstance(leaf, (np.ndarray, np.generic)):
        refuse_narrowing(leaf.dtype, leaf)
    return leaf


def refuse_narrowing(dtype: np.dtype[Any], array: Any) -> None:
    """Raise if JAX would silently narrow the numbers."""
    if dtype in _NEVER_NARROWED:
        return
    kind = dtype.kind
    if kind not in _NUMPYS:
        raise DTypeError(f"expected numbers for a function of JAX, got an array of {dtype}")
    if _CONFIG.jax_enable_x64:
        return
    if kind in _NARROW_INTEGERS and isinstance(array, (np.ndarray, np.generic)):
        # Integers are int64 by default, here and in PyTorch, and most of them fit.
        bounds = _NARROW_INTEGERS[kind]
        if array.size == 0 or (array.min() >= bounds.min and array.max() <= bounds.max):
            return
    raise DTypeError(f"JAX without x64 would make 32-bit numbers of {dtype} silently; {_TURN_ON}")


def maker_for(leaves: Any) -> Callable[[Any], Any]:
    """Return the function that makes results in the library of the arguments' arrays."""
    for leaf in leaves:
        if isinstance(leaf, Tensor) and not isinstance(leaf.array, (np.ndarray, np.generic)):
            return backend_of(leaf.array).namespace.from_dlpack  # type: ignore[no-any-return]
    return np.asarray


def from_jax_array(leaf: Any, make: Callable[[Any], Any] = np.asarray) -> Any:
    """Return a result of JAX's as a Tensor; a random key, which only JAX understands, as it is."""
    dtype = leaf.dtype
    if not isinstance(dtype, np.dtype):
        return leaf
    if dtype.kind not in _NUMPYS:
        raise DTypeError(
            f"expected results of dtypes that NumPy has from a function of JAX, got {dtype}; "
            "convert them inside, e.g. with .astype(jax.numpy.float32)"
        )
    return wrap(make(leaf))
