"""What to write instead of a name or an option that is PyTorch's, or NumPy's, and not telegrad's.

Two tables of rows, a familiar name and our way, and one of options. They are read only when
something has failed already: a name of the first is a descriptor that raises, not a `__getattr__`,
which would slow down every attribute of every tensor (CPython 3.11 does not specialise those).

Invariant: nothing here makes a name work. `hasattr` says False for each of them, and `dir` does not
list them.
"""

from collections.abc import Iterable, Mapping
from typing import NoReturn, TypeVar

__all__ = ["advice_on_function", "advises", "unexpected", "without_advice"]

_Class = TypeVar("_Class", bound=type)

_IN_PLACE = "write x = x {0} y, or x {0}= y; a leaf changes under telegrad.no_grad()"
_ON_CPU = "a tensor stays where its array is, and new ones are on the CPU: leave it out"

_OF_MATRICES = ("cholesky", "det", "qr", "svd")
# fmt: off
_ONLY_FUNCTIONS = (
    "acos", "argsort", "asin", "atan", "cosh", "diag", "diagonal", "digamma", "erf", "erfc",
    "expm1", "flip", "isfinite", "isinf", "isnan", "kron", "lgamma", "log10", "log1p", "log2",
    "logical_not", "maximum", "minimum", "moveaxis", "nonzero", "outer", "reciprocal", "roll",
    "sinh", "sort", "take", "tan", "trace", "tril", "triu", "trunc",
)
# fmt: on

_METHODS: dict[str, str] = {
    "add": "write x + y",
    "sub": "write x - y",
    "mul": "write x * y",
    "div": "write x / y",
    "neg": "write -x",
    "mm": "write x @ y",
    "bmm": "write x @ y",
    "eq": "write x == y",
    "ne": "write x != y",
    "lt": "write x < y",
    "le": "write x <= y",
    "gt": "write x > y",
    "ge": "write x >= y",
    "add_": _IN_PLACE.format("+"),
    "sub_": _IN_PLACE.format("-"),
    "mul_": _IN_PLACE.format("*"),
    "div_": _IN_PLACE.format("/"),
    "zero_": "write x.copy_(0.0); to forget a gradient write x.grad = None",
    "fill_": "write x.copy_(value)",
    "clamp_": "write x.copy_(x.clip(low, high))",
    "detach_": "write x = x.detach()",
    "data": "write x.detach() to read, x.copy_(values) under telegrad.no_grad() to write",
    "zero_grad": "write x.grad = None",
    "cuda": _ON_CPU,
    "is_cuda": "compare x.device",
    "int": "write x.to(telegrad.int32)",
    "bool": "write x != 0",
    "half": "there are no 16-bit floats: write x.float()",
    "bfloat16": "there are no 16-bit floats: write x.float()",
    "type": "write x.dtype to ask, x.to(dtype) to convert",
    "type_as": "write x.to(other.dtype)",
    "new_zeros": "write telegrad.zeros(shape, dtype=x.dtype)",
    "new_ones": "write telegrad.ones(shape, dtype=x.dtype)",
    "new_tensor": "write telegrad.tensor(data, dtype=x.dtype)",
    "view_as": "write x.reshape(other.shape)",
    "reshape_as": "write x.reshape(other.shape)",
    "expand_as": "write x.expand(other.shape)",
    "repeat": "write telegrad.tile(x, counts); telegrad.repeat repeats each element",
    "repeat_interleave": "write telegrad.repeat(x, counts, axis=...)",
    "amax": "write x.max(axis)",
    "amin": "write x.min(axis)",
    "gather": "write telegrad.take_along_axis(x, indices, axis=...)",
    "index_select": "write telegrad.take(x, indices, axis=...)",
    "masked_select": "write x[mask]",
    "scatter_": "write x = x.at[index].set(values), or telegrad.scatter",
    "scatter_add_": "write x = x.at[index].add(values), or telegrad.scatter_add",
    "index_put_": "write x = x.at[index].set(values)",
    "index_add_": "write x = x.at[index].add(values)",
    "masked_fill_": "write x = x.masked_fill(mask, value)",
    "cumprod": "write telegrad.cumulative_prod(x, axis=...)",
    "split": "take slices: x[:n], x[n:]",
    "chunk": "take slices: x[:n], x[n:]",
    "narrow": "take a slice: x[start:start + length]",
    "unbind": "write telegrad.unstack(x, axis=...)",
    "topk": "write telegrad.sort(x, descending=True), or telegrad.argsort, and take a slice",
    "inverse": "write telegrad.linalg.inv(x)",
    "rsqrt": "write 1 / x.sqrt()",
    "swapaxes": "write x.transpose(dim0, dim1)",
    "is_contiguous": "tensors have no strides: leave it out",
    "stride": "tensors have no strides: leave it out",
    "share_memory_": "workers share large arrays by themselves: leave it out",
    **dict.fromkeys(_OF_MATRICES, "write telegrad.linalg.{0}(x)"),
    **dict.fromkeys(_ONLY_FUNCTIONS, "write telegrad.{0}(x, ...)"),
}
"""Of a Tensor. `{0}` stands for the name itself."""

_FUNCTIONS: dict[str, str] = {
    "distributed": "write `import telegrad.distributed` first",
    "interop": "write `import telegrad.interop` first",
    "profiler": "write `import telegrad.profiler` first",
    "testing": "write `import telegrad.testing` first",
    "cat": "write telegrad.concat(tensors, axis=...)",
    "hstack": "write telegrad.concat(tensors, axis=1)",
    "vstack": "write telegrad.concat(tensors, axis=0)",
    "mm": "write x @ y",
    "bmm": "write x @ y",
    "dot": "write x @ y, or telegrad.vecdot(x, y)",
    "mul": "write x * y, or telegrad.multiply(x, y)",
    "sub": "write x - y, or telegrad.subtract(x, y)",
    "div": "write x / y, or telegrad.divide(x, y)",
    "neg": "write -x",
    "eq": "write x == y",
    "gt": "write x > y",
    "lt": "write x < y",
    "clamp": "write telegrad.clip(x, low, high)",
    "amax": "write telegrad.max(x, axis=...)",
    "amin": "write telegrad.min(x, axis=...)",
    "cumsum": "write telegrad.cumulative_sum(x, axis=...)",
    "cumprod": "write telegrad.cumulative_prod(x, axis=...)",
    "norm": "write telegrad.linalg.vector_norm(x)",
    "det": "write telegrad.linalg.det(x)",
    "inverse": "write telegrad.linalg.inv(x)",
    "svd": "write telegrad.linalg.svd(x)",
    "flatten": "write x.flatten()",
    "ravel": "write x.flatten()",
    "numel": "write x.size",
    "permute": "write telegrad.permute_dims(x, axes)",
    "transpose": "write x.transpose(dim0, dim1), x.T or x.mT",
    "swapaxes": "write x.transpose(dim0, dim1)",
    "t": "write x.T",
    "unsqueeze": "write telegrad.expand_dims(x, axis=...)",
    "unbind": "write telegrad.unstack(x, axis=...)",
    "split": "take slices: x[:n], x[n:]",
    "chunk": "take slices: x[:n], x[n:]",
    "topk": "write telegrad.sort(x, descending=True), or telegrad.argsort, and take a slice",
    "index_select": "write telegrad.take(x, indices, axis=...)",
    "masked_select": "write x[mask]",
    "rsqrt": "write 1 / telegrad.sqrt(x)",
    "randperm": "write telegrad.permutation(n)",
    "normal": "write mean + std * telegrad.randn(shape)",
    "seed": "write telegrad.manual_seed(seed)",
    "from_numpy": "write telegrad.asarray(array), which copies, or with copy=False shares",
    "as_tensor": "write telegrad.asarray(data)",
    "array": "write telegrad.tensor(data)",
    "Parameter": "write telegrad.nn.Parameter(tensor)",
    "Variable": "write telegrad.tensor(data, requires_grad=True)",
    "is_tensor": "write isinstance(x, telegrad.Tensor)",
    "allclose": "write numpy.allclose(x.detach(), y.detach())",
    "Size": "a shape is a tuple",
    "device": "a device is a string: leave it out, or compare x.device",
    "cuda": _ON_CPU,
    "set_default_dtype": "say dtype= where a tensor is made; the default is float32",
    "get_default_dtype": "the default is telegrad.float32",
    "float": "write telegrad.float32",
    "double": "write telegrad.float64",
    "int": "write telegrad.int32",
    "long": "write telegrad.int64",
    "half": "there are no 16-bit floats: write telegrad.float32",
    "float16": "there are no 16-bit floats: write telegrad.float32",
    "bfloat16": "there are no 16-bit floats: write telegrad.float32",
    "func": "see telegrad.autograd.functional",
    "jit": "nothing is compiled: leave it out",
    "compile": "nothing is compiled: leave it out",
    "utils": "checkpoint is telegrad.autograd.checkpoint, the rest is in telegrad.nn.utils",
}
"""Of the module `telegrad`."""

_OPTIONS: dict[str, str] = {
    "dim": "use axis=",
    "dims": "use axis=",
    "keepdim": "use keepdims=",
    "diagonal": "use k=",
    "p": "use ord=",
    "unbiased": "use correction=1 for unbiased=True, correction=0 for False",
    "ddof": "use correction=",
    "requires_grad": "call .requires_grad_() of the result",
    "device": "new tensors are on the CPU, leave it out",
    "out": "use what is returned",
}
"""What stands for an option: another one, or none."""


class _Elsewhere:
    """In the place of a method: raises and says what to write."""

    __slots__ = ("_advice",)

    def __init__(self, name: str, way: str) -> None:
        self._advice = f"a Tensor has no {name!r}: {way.format(name)}"

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise AttributeError(self._advice)


def advises(cls: _Class) -> _Class:
    """Let a class say what to write instead of a familiar method that it lacks."""
    for name, way in _METHODS.items():
        setattr(cls, name, _Elsewhere(name, way))
    return cls


def without_advice(names: Iterable[str]) -> list[str]:
    """The names that are there, of those that `dir` finds."""
    return [name for name in names if name not in _METHODS]


def advice_on_function(name: str) -> AttributeError:
    """The error for a name that the module `telegrad` lacks."""
    way = _FUNCTIONS.get(name)
    said = f"module 'telegrad' has no attribute {name!r}"
    return AttributeError(said if way is None else f"{said}: {way}")


def unexpected(function: str, options: Mapping[str, object]) -> TypeError:
    """The error for options that a function does not have, by keyword."""
    name = next(iter(options))
    said = f"{function}() has no option {name!r}"
    way = _OPTIONS.get(name)
    return TypeError(said if way is None else f"{said}: {way}")
