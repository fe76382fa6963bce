"""``checkpoint``: recompute values in the backward pass instead of keeping them.

1. The function runs recorded as usual, but instead of each value to be saved for the backward pass,
   only the value's index in the order of saving is kept.
2. When the backward pass first needs such a value, the function runs again on the same arguments.
   Now the values are caught, in the same order, and the run is stopped after the last one. It draws
   the same random numbers as the first run.
3. Each value is handed over once. If it is needed again (in a second pass through a retained
   graph), the function runs once more.

The graph is that of the first run, so nothing changes for hooks, ``create_graph`` or duals.
Arguments are kept as they were. Other leaves that the function uses are noted, and it is an error
if one has changed by the second run. A few numbers of each value are kept, too: if the second run
computes others (since another worker drew random numbers, or has new parameters), its values don't
belong to the graph, which is an error. A checkpoint inside a checkpoint keeps its own arguments by
the rules of the outer one.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, TypeAlias

from telegrad.autograd.samples import Sample, alike, sample
from telegrad.autograd.trees import flatten, unflatten
from telegrad.errors import GradientError, UsageError
from telegrad.graph import next_key
from telegrad.ops.rng_replay import Drawn
from telegrad.tensors import Tensor, history_of, wrap
from telegrad.tensors.forward.levels import Level, Tangents
from telegrad.tensors.recording.modes import MODE, Mode, ModeScope
from telegrad.tensors.recording.saved_values import restored, stored

_Lasting: TypeAlias = "dict[Level, tuple[Any, Any, _Lasting]]"


def checkpoint(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Return ``function(*args, **options)``, without keeping intermediate values for backward.

    The backward pass runs the function a second time, which must compute the same: the function has
    no side effects that matter, and parameters that it uses but does not take as arguments change
    only after the backward pass. If it computes other numbers, an error is raised. Random numbers
    of this process's generators are the same in both runs, and the second run does not advance the
    generators; other threads must not use them meanwhile. Calls to other workers are made again,
    and values that those saved the first time stay there: to avoid that, put the checkpoint into
    the called function.

    Arguments:
        function: The function, which runs twice.
        *args: Its positional arguments.
        **options: Its keyword arguments.

    Raises:
        UsageError: If PyTorch's `use_reentrant` is given.

    Examples:
        >>> x = tg.tensor([1.0, 2.0], requires_grad=True)
        >>> tg.autograd.checkpoint(lambda x: tg.exp(tg.sin(x)), x).sum().backward()
        >>> x.grad
        tensor([ 1.2534, -1.0331])
    """
    if "use_reentrant" in options:
        raise UsageError(
            "expected no use_reentrant in checkpoint, which always runs as PyTorch's does with "
            "use_reentrant=False; leave it out"
        )
    mode = MODE.get()
    if not mode.recording:
        return function(*args, **options)
    segment = _Segment(function, args, options, mode)
    start = next_key()
    with ModeScope(pack=(segment.count, segment.value)), segment.drawn.noted():
        result = function(*args, **options)
    segment.note_leaves(result, start)
    return result


class SecondRun:
    """The scope of every second run in this process, which ``distributed`` sets."""

    scope: ClassVar[Callable[[], AbstractContextManager[Any]]] = nullcontext


class _Enough(BaseException):
    """Ends a second run once all values are caught. A user's ``except Exception`` lets it pass."""


class _KeptArgument:
    """A tensor argument as it was at the call, saved by the rules around the checkpoint."""

    __slots__ = ("history", "kept", "sample", "tangents")

    def __init__(self, tensor: Tensor, mode: Mode) -> None:
        self.history = history_of(tensor)
        self.tangents = _lasting(tensor.tangents)
        self.sample = sample(tensor.array)
        self.kept = stored(tensor, mode, "checkpoint")

    def restore(self, levels: dict[Level, Level]) -> Tensor:
        return wrap(restored(self.kept).array, self.history, _again(self.tangents, levels))


def _lasting(tangents: dict[Level, Tensor] | None) -> _Lasting:
    """Return tangents in a form that is kept when their levels close."""
    return {
        level: (t.array, history_of(t), _lasting(t.tangents))
        for level, t in (tangents or {}).items()
    }


def _again(tangents: _Lasting, levels: dict[Level, Level]) -> Tangents | None:
    """Return the tangents that ``_lasting`` kept, at the levels that `levels` maps theirs to."""
    if not tangents:
        return None
    return Tangents(
        {
            levels[level]: wrap(array, history, _again(further_out, levels))
            for level, (array, history, further_out) in tangents.items()
        }
    )


def _levels_of(tangents: _Lasting) -> set[Level]:
    further_out = (_levels_of(inner) for _, _, inner in tangents.values())
    return set(tangents).union(*further_out)


class _Segment:
    """One checkpointed call."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        options: dict[str, Any],
        mode: Mode,
    ) -> None:
        leaves, self._structure = flatten((args, options))
        self._leaves = [_KeptArgument(x, mode) if isinstance(x, Tensor) else x for x in leaves]
        self._function = function
        self._mode = mode
        self._saved: list[tuple[Any, Any, Sample]] = []
        """(shape, dtype, sample) of each value that the first run saved, in order."""
        self._used: dict[Any, Any] = {}
        """The other leaves that the first run used, each with its array at that time."""
        self._caught: dict[int, Tensor] = {}
        self.drawn = Drawn()

    def count(self, tensor: Tensor) -> int:
        """Note a saved value and return its index: the pack hook of the first run."""
        self._saved.append((tensor.shape, tensor.dtype, sample(tensor.array)))
        return len(self._saved) - 1

    def note_leaves(self, result: Any, start: int) -> None:
        """Note the leaves of the graph recorded since the key `start`.

        Their arrays are referenced, so that an update in place must make a new one and is noticed.
        """
        arguments = {x.history for x in self._leaves if isinstance(x, _KeptArgument)}
        stack = [x.node for x in flatten(result)[0] if isinstance(x, Tensor) and not x.is_leaf]
        seen = set(stack)
        while stack:
            for edge in stack.pop().edges:
                if edge in seen:
                    continue
                seen.add(edge)
                if edge.key >= start:
                    stack.append(edge)
                elif edge.is_leaf and edge not in arguments:
                    self._used[edge] = edge.array

    def value(self, place: int) -> Tensor:
        """Return a value by its index: the unpack hook of the first run."""
        found = self._caught.pop(place, None)
        if found is None:
            # Without a lock, since it may wait for other workers: two concurrent passes may both
            # run it, and each can use the other's values.
            caught = dict(enumerate(self._run_again()))
            found = caught.pop(place)
            self._caught = caught
        return found

    def _run_again(self) -> list[Tensor]:
        for leaf, array in self._used.items():
            if leaf.array is not array:
                raise GradientError(
                    f"expected what the checkpointed function {self._name()} uses beside its "
                    f"arguments to be as it was at the call, got a leaf of shape {leaf.shape} that "
                    "was changed since; change it after the backward pass, or pass it as an "
                    "argument"
                )
        caught: list[Tensor] = []

        def catch(tensor: Tensor) -> int:
            place = len(caught)
            if place == len(self._saved):
                return place  # The function caught `_Enough`, and runs to its own end.
            *kind, numbers = self._saved[place]
            if kind != [tensor.shape, tensor.dtype]:
                raise self._differs(f"value {place} has shape {tensor.shape} of {tensor.dtype}")
            if exact and not alike(sample(tensor.array), numbers, tensor.dtype):
                raise self._differs(f"value {place} has other numbers")
            caught.append(tensor)
            if len(caught) == len(self._saved):
                raise _Enough
            return place

        levels = self._levels()
        leaves = [x.restore(levels) if isinstance(x, _KeptArgument) else x for x in self._leaves]
        # Not exact if hooks around the checkpoint kept its arguments in fewer bits.
        exact = all(
            sample(x.array) == kept.sample
            for x, kept in zip(leaves, self._leaves)
            if isinstance(kept, _KeptArgument)
        )
        args, options = unflatten(self._structure, leaves)
        mode = self._mode
        scope = ModeScope(
            recording=True,
            inference=False,
            anomaly=mode.anomaly,
            check_nan=mode.check_nan,
            pack=(catch, caught.__getitem__),
        )
        try:
            with scope, SecondRun.scope(), self.drawn.again():
                self._function(*args, **options)
        except _Enough:
            pass
        finally:
            for level, now in levels.items():
                if now is not level:
                    now.close()
        if len(caught) < len(self._saved):
            raise self._differs(f"it saved {len(caught)} values")
        return caught

    def _levels(self) -> dict[Level, Level]:
        """Map each level of the arguments to itself or, if it was left, to a new level.

        A second run must save the same values as the first, so it pushes the same tangents.
        """
        kept = (x.tangents for x in self._leaves if isinstance(x, _KeptArgument))
        met: set[Level] = set().union(*map(_levels_of, kept))
        return {
            level: level if level.is_open else Level(records=level.records, depth=level.depth)
            for level in met
        }

    def _name(self) -> str:
        return getattr(self._function, "__name__", repr(self._function))

    def _differs(self, what: str) -> GradientError:
        return GradientError(
            f"expected the checkpointed function {self._name()} to do the same when run again for "
            f"the backward pass, saving {len(self._saved)} values, but {what}; take what varies "
            "out of it, or out of the checkpoint"
        )
