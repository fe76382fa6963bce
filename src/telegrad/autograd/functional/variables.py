"""The variables of one transform: its inputs as fresh nodes, and its results made ordinary again.

A transform differentiates with respect to *its* variables only, whatever else its inputs depend on.
So each input becomes a new node with the same value. If the input requires grad outside, the node
leads to the input's own, so results stay differentiable from outside; else the graph ends there.

After the function has run, one walk over its graph tells whether it reaches anything outside (a
leaf, or a variable of an enclosing transform). If not, the derivative need not be recorded, and the
transform's results are constants. This makes transforms pure and nesting them exact.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from telegrad.autograd.backward import grad
from telegrad.autograd.trees import Tree, map_leaves
from telegrad.errors import DTypeError
from telegrad.graph import reachable
from telegrad.ops.creation import asarray
from telegrad.ops.filled import zeros_like
from telegrad.tensors import Tensor, history_of, wrap
from telegrad.tensors.forward.duals import alias_node
from telegrad.tensors.forward.levels import Tangents
from telegrad.tensors.recording.modes import MODE, Recording

VARIABLES: ContextVar[frozenset[Any]] = ContextVar("telegrad.variables", default=frozenset())
"""The nodes of the variables of all transforms whose functions are running."""


def depend_on_variables(tensors: Iterable[Tensor]) -> bool:
    """Tell whether a transform whose function is running may need gradients of these."""
    nodes = [x.node for x in tensors if not x.is_leaf]
    return not VARIABLES.get().isdisjoint(reachable(nodes))


def as_variable(value: Any, name: str) -> Tensor:
    """Return a value to differentiate with respect to: a Tensor, or data that makes one."""
    made = value if isinstance(value, Tensor) else None
    if made is None:
        try:
            made = asarray(value)
        except (TypeError, ValueError) as error:
            raise DTypeError(
                f"expected tensors or numbers, in tuples, lists or dicts, as {name}, got "
                f"{type(value).__name__}"
            ) from error
    if made.dtype.kind not in "fc":
        raise DTypeError(
            f"expected floating or complex values as {name}, got {made.dtype}; convert them, or "
            "leave them out with argnums"
        )
    return made


class Variables:
    """Fresh variables for some values; see the module's docstring."""

    def __init__(self, values: Sequence[Tensor]) -> None:
        self._records_outside = MODE.get().recording
        self._free: set[Any] = set()
        self._inside: set[Any] = set()
        """Nodes known to reach nothing outside."""
        self._roots = [self._fresh(value) for value in values]
        self.tensors = [wrap(x.array, x.node, x.tangents) for x in self._roots]
        """Copies for the function, which may rebind their values: ``x *= y``."""

    def _fresh(self, value: Tensor) -> Tensor:
        if value.node is not None and self._records_outside:
            node = alias_node(history_of(value))
        else:
            node = alias_node()
            self._free.add(node)
        return wrap(value.array, node, value.tangents)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the function's operations inside the block, also under ``no_grad``."""
        token = VARIABLES.set(VARIABLES.get() | {x.node for x in self._roots})
        try:
            with Recording(True):
                yield
        finally:
            VARIABLES.reset(token)

    def pull(
        self, outputs: Sequence[Tensor], cotangents: Sequence[Tensor | None], *, again: bool
    ) -> list[Tensor]:
        """Return the weighted gradients of the outputs for each variable; zeros if there is none.

        With `again`, the graph is kept for another pull.
        """
        pairs = [(y, g) for y, g in zip(outputs, cotangents) if y.node is not None]
        if not pairs:
            return [zeros_like(x) for x in self._roots]
        create = any(
            self.reach_outside(y) or (g is not None and self.reach_outside(g)) for y, g in pairs
        )
        found = grad(
            [y for y, _ in pairs],
            self._roots,
            [g for _, g in pairs],
            retain_graph=again or create,
            create_graph=create,
            allow_unused=True,
        )
        full = [zeros_like(x) if g is None else g for x, g in zip(self._roots, found)]
        return [self._settled(g) for g in full] if create else full

    def reach_outside(self, output: Tensor) -> bool:
        """Tell whether the graph of `output` reaches anything outside of the transform."""
        if not self._records_outside:
            return False
        node = history_of(output)
        if node is not None and self._leads_outside(node):
            return True
        return any(map(self.reach_outside, (output.tangents or {}).values()))

    def settle(self, tree: Tree) -> Tree:
        """Return the transform's results: constants where they depend on nothing outside."""
        return map_leaves(lambda x: self._settled(x) if isinstance(x, Tensor) else x, tree)

    def _settled(self, x: Tensor) -> Tensor:
        node = history_of(x)
        if x.tangents:
            tangents = Tangents({level: self._settled(t) for level, t in x.tangents.items()})
        else:
            tangents = None
        if node is None or (self._records_outside and self._leads_outside(node)):
            return x if tangents is None else wrap(x.array, node, tangents)
        return wrap(x.array, None, tangents)

    def _leads_outside(self, node: Any) -> bool:
        """Tell whether a walk from `node` ends anywhere but at a free one of these variables."""
        inside, free = self._inside, self._free
        if node in inside:
            return False
        stack = [node]
        seen = {node}
        while stack:
            node = stack.pop()
            edges = node.edges
            if not edges and node not in free:
                return True
            for edge in edges:
                if edge not in seen and edge not in inside:
                    seen.add(edge)
                    stack.append(edge)
        inside |= seen
        return False
