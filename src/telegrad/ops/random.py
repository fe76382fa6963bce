"""Random tensors from seeded generators.

A ``Generator`` is a stream of random numbers: the same seed gives the same numbers, bit for bit,
with the same version of NumPy. Functions take one as ``generator=``; without it they draw from the
generator of the process, which ``manual_seed`` starts anew.

The streams are NumPy's Philox, which is made for many independent ones (``spawn``). NumPy loads its
random numbers when first used, and so does this module.
"""

import copy
import operator
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from telegrad.arrays.cupy import is_cupy
from telegrad.errors import DTypeError, UsageError
from telegrad.ops.arguments import shape_of
from telegrad.ops.filled import made
from telegrad.ops.rng_replay import stream_of
from telegrad.tensors import Tensor
from telegrad.tensors.dtypes import as_dtype

Shape: TypeAlias = int | Sequence[int]


class Generator:
    """A stream of random numbers; safe to share between threads, which then share the stream.

    Arguments:
        seed: Where the stream starts; None for anywhere.

    Raises:
        UsageError: If the seed is negative or not a whole number.

    Examples:
        >>> generator = tg.Generator(0)
        >>> tg.randint(0, 10, (4,), generator=generator)
        tensor([1, 0, 9, 2])
    """

    __slots__ = ("_numbers", "_seeds")

    def __init__(self, seed: int | None = None) -> None:
        if seed is not None and (not isinstance(seed, (int, np.integer)) or seed < 0):
            raise UsageError(f"expected a seed of 0 or more, or None for any, got {seed!r}")
        self._start(np.random.SeedSequence(seed))

    def _start(self, seeds: "np.random.SeedSequence") -> None:
        self._seeds = seeds
        self._numbers = np.random.Generator(np.random.Philox(seeds))

    def manual_seed(self, seed: int) -> "Generator":
        """Start the stream of this seed, from its beginning."""
        self._start(Generator(seed)._seeds)
        return self

    @property
    def initial_seed(self) -> int:
        """The seed that this stream began with."""
        return int(self._seeds.entropy)  # type: ignore[arg-type]

    def spawn(self, count: int) -> list["Generator"]:
        """Return new streams, independent of this one and of each other, e.g. one a worker."""
        children = []
        for seeds in self._seeds.spawn(count):
            child = Generator.__new__(Generator)
            child._start(seeds)
            children.append(child)
        return children

    def get_state(self) -> dict[str, Any]:
        """Return where the stream is: numbers and small arrays that can be saved."""
        return copy.deepcopy(dict(self._numbers.bit_generator.state))

    def set_state(self, state: dict[str, Any]) -> None:
        """Go back, or on, to where ``get_state`` was called."""
        self._numbers.bit_generator.state = state

    @property
    def numpy(self) -> "np.random.Generator":
        """The same stream as NumPy's generator, for distributions that are not here."""
        return stream_of(self, self._numbers)

    def __repr__(self) -> str:
        return f"Generator(seed={self.initial_seed})"


_OF_THIS_PROCESS: dict[str, Generator] = {}
"""The generator of the process, once it was asked for."""


def default_generator() -> Generator:
    """Return the generator of this process, from which functions draw that are given none.

    Examples:
        >>> tg.manual_seed(3) is tg.default_generator()
        True
    """
    found = _OF_THIS_PROCESS.get("generator")
    if found is not None:
        return found
    # Threads that ask at the same time must get the same one, or a seed would be lost.
    return _OF_THIS_PROCESS.setdefault("generator", Generator())


def manual_seed(seed: int) -> Generator:
    """Start the generator of this process anew.

    Raises:
        UsageError: If the seed is negative or not a whole number.

    Examples:
        >>> tg.manual_seed(3)
        Generator(seed=3)
    """
    return default_generator().manual_seed(seed)


def rand(
    *shape: Any,
    generator: Generator | None = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Draw numbers from 0 up to, not including, 1, all equally likely.

    Arguments:
        *shape: The lengths of the axes, as numbers or as one tuple; none for one number.
        generator: The stream to draw from; that of the process by default.
        dtype: Float32 (the default) or float64.
        device: Where the result is to be; the CPU by default.
        requires_grad: Whether gradients are wanted for the result.

    Raises:
        DTypeError: If the dtype is neither float32 nor float64.

    Examples:
        >>> tg.rand(2, 3).shape
        (2, 3)
    """
    numbers = _stream(generator).random(_shape(shape), dtype=_real(dtype, "rand"))
    return _made(numbers, device, requires_grad)


def randn(
    *shape: Any,
    generator: Generator | None = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Draw numbers from the normal distribution of mean 0 and variance 1, also complex ones.

    The other arguments are those of ``rand``.

    Arguments:
        dtype: Float32 (the default), float64 or a complex dtype.

    Raises:
        DTypeError: If the dtype is neither floating nor complex.

    Examples:
        >>> tg.randn(2, 3, dtype=tg.float64).dtype
        dtype('float64')
    """
    numbers, size = _stream(generator), _shape(shape)
    kind = np.dtype(np.float32 if dtype is None else dtype)
    if kind.kind != "c":
        drawn = numbers.standard_normal(size, dtype=_real(dtype, "randn"))
        return _made(drawn, device, requires_grad)
    part = np.dtype(f"float{kind.itemsize * 4}")
    pairs = numbers.standard_normal((*size, 2), dtype=_real(part, "randn"))
    return _made((pairs * part.type(np.sqrt(0.5))).view(kind)[..., 0], device, requires_grad)


def randint(
    low: int,
    high: int | None = None,
    shape: Shape = (),
    *,
    generator: Generator | None = None,
    dtype: Any = None,
    device: Any = None,
) -> Tensor:
    """Draw whole numbers from `low` up to, not including, `high`.

    Arguments:
        low: The smallest number; without `high` the end, and the numbers start at 0.
        high: The end, which is left out.
        shape: The lengths of the axes; none for one number.
        generator: The stream to draw from; that of the process by default.
        dtype: An integer dtype; int64 by default.
        device: Where the result is to be; the CPU by default.

    Raises:
        UsageError: If `high` is not above `low`.
        DTypeError: If the bounds are not whole numbers, or the dtype is not of integers.

    Examples:
        >>> int(tg.randint(5, 6))
        5
    """
    if high is None:
        low, high = 0, low
    if isinstance(high, tuple | list):
        raise DTypeError(
            f"expected a whole number as high in randint, got {type(high).__name__}; for "
            "numbers from 0 write randint(0, high, shape)"
        )
    low, high = _whole(low, "low in randint"), _whole(high, "high in randint")
    if low >= high:
        raise UsageError(f"expected high above low in randint, got {low} and {high}")
    kind = np.dtype(np.int64 if dtype is None else dtype)
    if kind.kind not in "iu":
        raise DTypeError(f"expected an integer dtype in randint, got {kind}")
    return _made(_stream(generator).integers(low, high, _shape((shape,)), dtype=kind.type), device)


def permutation(n: int, /, *, generator: Generator | None = None, device: Any = None) -> Tensor:
    """Draw the numbers from 0 to n - 1 in a random order.

    Arguments:
        n: How many.
        generator: The stream to draw from; that of the process by default.
        device: Where the result is to be; the CPU by default.

    Raises:
        UsageError: If n is negative.

    Examples:
        >>> tg.sort(tg.permutation(4))
        tensor([0, 1, 2, 3])
    """
    count = _whole(n, "n in permutation")
    if count < 0:
        raise UsageError(f"expected n of 0 or more in permutation, got {count}")
    return _made(_stream(generator).permutation(count).astype(np.int64, copy=False), device)


def bernoulli(
    probability: float,
    shape: Shape = (),
    *,
    generator: Generator | None = None,
    dtype: Any = None,
    device: Any = None,
) -> Tensor:
    """Draw ones with this probability, zeros otherwise.

    Arguments:
        probability: From 0 to 1, one for all.
        shape: The lengths of the axes; none for one number.
        generator: The stream to draw from; that of the process by default.
        dtype: The dtype of the result; float32 by default.
        device: Where the result is to be; the CPU by default.

    Raises:
        UsageError: If the probability is not from 0 to 1.

    Examples:
        >>> tg.bernoulli(1.0, (3,))
        tensor([1., 1., 1.])
    """
    if np.ndim(probability):
        raise DTypeError(
            f"expected one probability for all in bernoulli, got shape {np.shape(probability)}; "
            "for one each write (telegrad.rand_like(p) < p).to(p.dtype)"
        )
    if not 0 <= probability <= 1:
        raise UsageError(f"expected a probability from 0 to 1 in bernoulli, got {probability}")
    hit = _stream(generator).random(_shape((shape,))) < probability
    return _made(np.asarray(hit).astype(np.float32 if dtype is None else as_dtype(dtype)), device)


def rand_like(
    x: Tensor, /, *, generator: Generator | None = None, requires_grad: bool = False
) -> Tensor:
    """Draw numbers as ``rand`` in the shape and dtype of x, beside it.

    Arguments:
        x: The tensor to be like.
        generator: The stream to draw from; that of the process by default.
        requires_grad: Whether gradients are wanted for the result.

    Examples:
        >>> tg.rand_like(tg.zeros(2, 3)).shape
        (2, 3)
    """
    return _like(rand(x.shape, generator=generator, dtype=x.dtype), x, requires_grad)


def randn_like(
    x: Tensor, /, *, generator: Generator | None = None, requires_grad: bool = False
) -> Tensor:
    """Draw numbers as ``randn`` in the shape and dtype of x, beside it.

    The arguments are those of ``rand_like``.

    Examples:
        >>> tg.randn_like(tg.zeros(2, 3)).shape
        (2, 3)
    """
    return _like(randn(x.shape, generator=generator, dtype=x.dtype), x, requires_grad)


def _stream(generator: Generator | None) -> "np.random.Generator":
    if generator is None:
        return default_generator().numpy
    if not isinstance(generator, Generator):
        raise DTypeError(
            f"expected a telegrad.Generator as generator, got {type(generator).__name__}"
        )
    return generator.numpy


def _whole(number: Any, what: str) -> int:
    try:
        return operator.index(number)
    except TypeError:
        raise DTypeError(
            f"expected a whole number as {what}, got {type(number).__name__}"
        ) from None


def _shape(shape: tuple[Any, ...]) -> tuple[int, ...]:
    """Return a shape given as several numbers, as one tuple or number; none is for one number."""
    return shape_of(*shape) if shape else ()


def _real(dtype: Any, name: str) -> Any:
    kind = np.dtype(np.float32 if dtype is None else dtype)
    if kind not in (np.float32, np.float64):
        raise DTypeError(f"expected float32 or float64 in {name}, got {kind}")
    return kind.type


def _made(numbers: Any, device: Any, requires_grad: bool = False) -> Tensor:
    # Drawn on the host, so that a seed gives the same numbers on every device.
    result = made(np.asarray(numbers), device)
    return result.requires_grad_() if requires_grad else result


def _like(drawn: Tensor, x: Tensor, requires_grad: bool) -> Tensor:
    result = drawn.to_device(x.device) if is_cupy(x.array) else drawn
    return result.requires_grad_() if requires_grad else result
