"""A primitive: what a function computes, and both of its derivatives, side by side.

``forward(xp, *inputs, **options)`` or the name of a function of the namespace.

``vjp``: for each input, ``rule(xp, g, s)``: the input's contribution for the cotangent `g` of the
result. ``jvp``: for each input, ``rule(xp, t, s)``: the result's tangent for the input's tangent
`t`. ``s`` holds the inputs by name, ``out`` (the result) and the options, as attributes. A vjp rule
reads only what ``saves`` names for its input, since only that is kept until the backward pass:
``saves=("y", "y out")`` keeps `y` for the first input's rule, `y` and the result for the second's;
``"x.shape"`` keeps just the shape, as ``s.x_shape``. What the vjp rules of several inputs have in
common is computed once by ``begin(xp, g, s)``, and its result is their `g`. A jvp rule runs during
the forward pass and may read everything.

Words that stand for a rule:

- SAME: the gradient (or tangent) passes as it is, up to broadcasting;
- LINEAR (jvp): zero in, zero out, the others fixed: the tangent is the function itself at the
  tangent;
- ZERO: the derivative is zero wherever it exists;
- None for an input that carries no derivative (indices, masks).

A primitive without derivatives has ``vjp=NOT_DIFFERENTIABLE``; its result is a constant.

Nothing in a primitive undoes broadcasting or dtype promotion: that is done once, on the edge
(``arrays.broadcasting``). Nor does it conjugate. A vjp is written as the plain transposed Jacobian;
for complex results of holomorphic functions the edge conjugates before and after, which gives the
conjugate Wirtinger convention: conj(J^T conj(g)) = J^H g. A function that is not holomorphic
(``abs``, ``real``, ``eigh`` …) says so and writes the convention itself.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Literal, TypeAlias

Rule: TypeAlias = Callable[[Any, Any, Any], Any]


class Word:
    """A named stand-in for a rule."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def __call__(self, xp: Any, value: Any, s: Any) -> Any:
        raise TypeError(f"{self.name} is a word, not a function")


SAME: Final = Word("SAME")
LINEAR: Final = Word("LINEAR")
ZERO: Final = Word("ZERO")
NOT_DIFFERENTIABLE: Final = Word("NOT_DIFFERENTIABLE")

_INPUT_NAMES = {0: (), 1: ("x",), 2: ("x", "y"), 3: ("x", "y", "z")}


class Primitive:
    """One primitive; see the module's docstring."""

    __slots__ = (
        "begin",
        "by_itself",
        "differentiable",
        "elementwise",
        "exact",
        "facts",
        "floating",
        "forward",
        "gaps",
        "holomorphic",
        "inputs",
        "jvp",
        "kernels",
        "name",
        "options",
        "outputs",
        "poles",
        "push",
        "saves",
        "variants",
        "vjp",
    )

    def __init__(
        self,
        name: str,
        *,
        forward: Callable[..., Any] | str | None = None,
        saves: Sequence[str] = (),
        vjp: Sequence[Rule | None] | Word,
        jvp: Sequence[Rule | None] | Word = NOT_DIFFERENTIABLE,
        inputs: Sequence[str] | None = None,
        options: Sequence[str] = (),
        outputs: Sequence[str] = (),
        holomorphic: bool = True,
        elementwise: bool = False,
        floating: bool = False,
        exact: bool = False,
        gaps: bool = False,
        poles: bool = False,
        begin: Rule | None = None,
        by_itself: Literal["", "zeros", "nothing"] = "",
    ) -> None:
        self.name = name
        self.forward = name if forward is None else forward
        self.vjp = vjp
        self.differentiable = not isinstance(vjp, Word)
        self.jvp = jvp
        count = 1 if isinstance(vjp, Word) else len(vjp)
        self.inputs = tuple(inputs) if inputs is not None else _INPUT_NAMES[count]
        self.saves = tuple(saves) or ("",) * count
        named = {word for words in self.saves for word in words.split() if "." in word}
        self.facts = tuple((f.replace(".", "_"), *f.split(".")) for f in sorted(named))
        """The attributes of inputs that ``saves`` names: (as rules read it, input, attribute)."""
        self.options = tuple(options)
        self.outputs = tuple(outputs)
        self.holomorphic = holomorphic
        self.elementwise = elementwise
        """Whether inputs are broadcast and promoted together."""
        self.floating = floating
        """Whether integers are taken as float32, since the result is a fraction."""
        self.exact = exact
        """Whether vjp rules give the input's shape and dtype, so the edge need not look."""
        self.gaps = gaps
        """Whether the vjp rules take None, rather than zeros, for an output that nothing used."""
        self.poles = poles
        """Elementwise: whether a slope may be infinite or NaN where the value is a number."""
        self.begin = begin
        """What every vjp rule begins with, once for all inputs: they take its result as `g`."""
        self.by_itself = by_itself
        """Of a linear function, whose gradient does not depend on its input: what differentiating
        that gradient by the input gives, as in PyTorch; empty: an error. See ``link_node.py``."""
        self.kernels: dict[str, Callable[..., Any]] = {}
        """The forward function by backend, resolved at first use."""
        self.variants: dict[Any, Any] = {}
        """For the layer that records: node classes, by the inputs that need a gradient."""
        self.push: Any = None
        """For the layer that carries tangents: the function it has made of this primitive."""

    def kernel(self, xp: Any) -> Callable[..., Any]:
        """Return the forward function with the namespace bound."""
        found = self.kernels.get(xp.name)
        if found is None:
            if isinstance(self.forward, str):
                found = xp
                for part in self.forward.split("."):
                    found = getattr(found, part)
            else:
                found = partial(self.forward, xp)
            self.kernels[xp.name] = found
        return found

    def __repr__(self) -> str:
        return f"<primitive {self.name}>"


def of_slopes(
    name: str,
    saves: Sequence[str],
    *slopes: Rule,
    forward: Callable[..., Any] | None = None,
    inputs: Sequence[str] | None = None,
    options: Sequence[str] = (),
    floating: bool = True,
    poles: bool = False,
) -> Primitive:
    """Return an elementwise primitive: a rule an input, ``slope(xp, v, s)``, for both modes."""
    return Primitive(
        name,
        forward=forward,
        saves=saves,
        vjp=slopes,
        jvp=slopes,
        inputs=inputs,
        options=options,
        elementwise=True,
        floating=floating,
        poles=poles,
    )
