"""The order of the layers, read from the source: what is allowed is what is used.

A *room* is a folder of the package, or a module that stands in the package itself. ``USES`` says
which rooms each imports at run time, wherever in it; imports for type checkers alone don't count,
nor do those between a folder and a folder inside of it.
"""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import telegrad

ROOT = Path(telegrad.__file__).parent
DESIGN = ROOT.parents[1] / "docs" / "design.md"
MOST_LINES = 450
MOST_LINES_OF_A_FUNCTION = 80

USES: dict[str, str] = {
    "_version": "",
    "arrays": "errors",
    "arrays/numpy": "arrays/plain errors",
    "arrays/plain": "errors",
    "autograd": "arrays engine errors graph ops tensors tensors/forward tensors/recording",
    "autograd/function": "arrays errors graph tensors tensors/forward tensors/recording",
    "autograd/functional": "arrays errors graph ops tensors tensors/forward tensors/recording",
    "autograd/solvers": (
        "autograd/function autograd/functional errors ops tensors tensors/recording"
    ),
    "data": "",
    "distributed": "autograd errors graph nn rpc rpc/calls rpc/references rpc/wire tensors",
    "distributed/cluster": (
        "distributed/survival errors pictures rpc rpc/calls rpc/debugger rpc/membership "
        "rpc/security rpc/transport rpc/wire"
    ),
    "distributed/cluster/on_ray": "errors rpc rpc/membership rpc/security",
    "distributed/contexts": (
        "arrays autograd/functional errors graph nn rpc rpc/calls rpc/references rpc/wire "
        "tensors tensors/forward tensors/recording"
    ),
    "distributed/optim": (
        "distributed/contexts errors nn optim pictures rpc rpc/calls rpc/references tensors"
    ),
    "distributed/passes": (
        "arrays autograd distributed/contexts engine errors graph rpc rpc/calls "
        "rpc/references rpc/wire tensors tensors/recording"
    ),
    "distributed/survival": "distributed/contexts errors rpc rpc/references serialization tensors",
    "distributed/tools": (
        "autograd distributed/contexts errors pictures rpc rpc/calls rpc/wire tensors "
        "tensors/recording"
    ),
    "engine": "arrays errors graph",
    "errors": "",
    "fft": "errors ops rules tensors",
    "graph": "",
    "interop": "",
    "interop/jax": (
        "arrays autograd autograd/function distributed engine errors graph interop/torch rpc "
        "rpc/calls tensors tensors/recording"
    ),
    "interop/torch": (
        "arrays autograd distributed distributed/contexts engine errors graph rpc "
        "rpc/membership rpc/transport tensors tensors/recording"
    ),
    "interop/torch/devices": (
        "arrays distributed/contexts errors interop/torch/values nn rpc rpc/calls rpc/wire tensors"
    ),
    "interop/torch/graph": (
        "autograd distributed distributed/contexts engine errors graph "
        "interop/torch/values tensors tensors/forward tensors/recording"
    ),
    "interop/torch/values": (
        "distributed/contexts errors interop/torch/devices rpc/wire tensors tensors/forward"
    ),
    "jax": "interop/jax",
    "linalg": "errors ops rules tensors",
    "namespace": "fft linalg ops rules tensors",
    "nn": "arrays errors graph ops rules tensors tensors/recording",
    "nn/functional": "arrays arrays/plain errors ops rules tensors",
    "ops": (
        "arrays arrays/plain errors graph rules tensors tensors/forward tensors/numpy "
        "tensors/recording"
    ),
    "optim": "arrays errors ops tensors tensors/recording",
    "pictures": "",
    "profiler": "distributed distributed/tools errors pictures rpc",
    "rpc": "errors",
    "rpc/calls": "errors rpc/references rpc/security rpc/wire tracebacks",
    "rpc/debugger": "errors rpc/calls rpc/transport rpc/wire",
    "rpc/driver": "errors rpc/calls rpc/protocol rpc/security rpc/transport rpc/wire",
    "rpc/membership": "_version errors rpc/calls rpc/driver rpc/security rpc/transport rpc/wire",
    "rpc/protocol": "errors",
    "rpc/references": "errors rpc/calls rpc/protocol rpc/security rpc/wire",
    "rpc/security": "errors",
    "rpc/transport": "errors rpc/security",
    "rpc/wire": "errors rpc/security tracebacks",
    "rules": "arrays/plain errors",
    "serialization": "arrays errors tensors",
    "tensors": "arrays errors graph rules",
    "tensors/forward": "arrays errors graph rules tensors/recording",
    "tensors/numpy": "errors",
    "tensors/recording": "arrays errors graph rules tensors/forward",
    "torch": (
        "distributed distributed/contexts distributed/optim errors interop/torch "
        "interop/torch/graph rpc rpc/references rpc/wire tensors"
    ),
    "torch/rpc": (
        "distributed errors interop/torch rpc rpc/calls rpc/membership rpc/references "
        "rpc/transport rpc/wire"
    ),
    "torch/rpc/profile": "errors interop/torch rpc rpc/calls rpc/references",
    "tracebacks": "errors",
}
"""What each room imports, below it."""

ON_TOP = ("__init__", "__main__", "cli", "demo", "testing", "testing/simulation")
"""May import anything, and nothing imports them."""

CYCLES = {
    frozenset({"telegrad.interop.torch.bridge", "telegrad.interop.torch.graph.joined_pass"}): (
        "a pass over both graphs looks for entries, and an entry starts such a pass"
    ),
}
"""Pairs of modules that need each other while they run, and why; the first imports late."""

NO_EDGE = {"asyncio", "os", "random", "secrets", "select", "socket", "threading", "time"}
"""What touches the world: not for modules that only decide."""


def files() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def room_of(parts: tuple[str, ...]) -> str:
    """The room that a module of this path is in."""
    folder = ROOT
    found = []
    for part in parts:
        folder = folder / part
        if not folder.is_dir():
            break
        found.append(part)
    return "/".join(found) or (parts[0] if parts else "__init__")


def room_of_file(path: Path) -> str:
    return room_of(path.relative_to(ROOT).with_suffix("").parts)


def run_time_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a tree but those for type checkers alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from run_time_nodes(child)


@cache
def imports(path: Path) -> list[tuple[int, str]]:
    """The modules that a file imports at run time, wherever in it, with the line."""
    found: list[tuple[int, str]] = []
    for node in run_time_nodes(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: write the import out"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                found.append((node.lineno, name if is_module(name) else str(node.module)))
    return found


def is_module(name: str) -> bool:
    path = ROOT.parent.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def is_inside(room: str, other: str) -> bool:
    return room == other or room.startswith(f"{other}/")


def used() -> dict[str, str]:
    """What each room imports, as it is."""
    found: dict[str, set[str]] = {}
    for path in files():
        room = room_of_file(path)
        if room in ON_TOP:
            continue
        uses = found.setdefault(room, set())
        for _, name in imports(path):
            top, *rest = name.split(".")
            if top == "telegrad":
                other = room_of(tuple(rest))
                if not is_inside(room, other) and not is_inside(other, room):
                    uses.add(other)
    return {room: " ".join(sorted(uses)) for room, uses in sorted(found.items())}


def test_what_each_room_may_import_is_what_it_imports() -> None:
    assert used() == USES


def test_nothing_imports_what_is_on_top() -> None:
    assert {room: uses for room, uses in used().items() if set(uses.split()) & set(ON_TOP)} == {}


def test_the_parts_of_the_package_have_no_circle() -> None:
    left: dict[str, set[str]] = {}
    for room, uses in USES.items():
        part = room.partition("/")[0]
        below = {use.partition("/")[0] for use in uses.split()} - {part}
        left.setdefault(part, set()).update(below)
    placed: set[str] = set()
    while left:
        ready = [part for part, below in left.items() if below <= placed]
        assert ready, f"a circle among {sorted(left)}"
        placed.update(ready)
        for part in ready:
            del left[part]


def test_no_modules_need_each_other_while_they_run() -> None:
    """But for those that say why."""
    modules = {name_of(path): path for path in files()}
    edges = {
        name: {other for _, other in imports(path) if other in modules and other != name}
        for name, path in modules.items()
    }
    for pair in CYCLES:
        first, second = sorted(pair)
        assert second in edges[first]
        edges[first].discard(second)
    while edges:
        imported = set().union(*edges.values())
        # Neither what imports nothing that is left nor what nothing imports is in a circle.
        ends = {name for name, below in edges.items() if not below or name not in imported}
        if not ends:
            break
        edges = {name: below - ends for name, below in edges.items() if name not in ends}
    assert {name: sorted(below) for name, below in edges.items()} == {}


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")


def test_the_drawing_in_the_design_is_what_is_used() -> None:
    drawn = DESIGN.read_text()
    parts: dict[str, set[str]] = {}
    for room, uses in USES.items():
        part = room.partition("/")[0]
        parts.setdefault(part, set()).update(use.partition("/")[0] for use in uses.split())
    for part, uses in parts.items():
        below = sorted(uses - {part, "errors"})
        line = f"{part:<14} {' '.join(below)}".rstrip()
        assert f"\n{line}\n" in drawn, line


@pytest.mark.parametrize(
    "path", sorted((ROOT / "rules").glob("*.py")), ids=lambda path: str(path.name)
)
def test_rules_need_nothing_but_the_namespace_they_are_given(path: Path) -> None:
    for line, name in imports(path):
        top = name.partition(".")[0]
        assert top == "telegrad" or top in sys.stdlib_module_names, f"line {line}: {name}"


@pytest.mark.parametrize(
    "path", sorted((ROOT / "rpc" / "protocol").glob("*.py")), ids=lambda path: str(path.name)
)
def test_the_protocol_decides_without_touching_the_world(path: Path) -> None:
    met = {name.partition(".")[0] for _, name in imports(path)}
    assert met & NO_EDGE == set()


def test_a_file_and_a_function_fit_into_a_readers_head() -> None:
    long = []
    for path in files():
        text = path.read_text()
        if text.count("\n") > MOST_LINES:
            long.append(name_of(path))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                assert node.end_lineno is not None
                if node.end_lineno - node.lineno >= MOST_LINES_OF_A_FUNCTION:
                    long.append(f"{name_of(path)}:{node.name}")
    assert long == []
