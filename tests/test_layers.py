"""Nothing imports upwards: the order of the layers, read from the source."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import telegrad

ROOT = Path(telegrad.__file__).parent

_LOCAL = ["errors", "arrays", "graph", "engine", "rules", "tensors", "ops", "autograd"]

MAY_IMPORT: dict[str, list[str]] = {
    "errors": [],
    "_version": [],
    "arrays": ["errors"],
    "graph": ["errors", "arrays"],
    "engine": ["errors", "arrays", "graph"],
    "rules": ["errors", "arrays"],
    "tensors": ["errors", "arrays", "graph", "engine", "rules"],
    "ops": ["errors", "arrays", "graph", "rules", "tensors"],
    "linalg": ["errors", "rules", "tensors", "ops"],
    "fft": ["errors", "rules", "tensors", "ops"],
    "lending": ["rules", "tensors", "ops", "linalg", "fft"],
    "autograd": ["errors", "arrays", "graph", "engine", "rules", "tensors", "ops"],
    "rpc": ["errors", "arrays"],
    "nn": [*_LOCAL, "linalg", "fft"],
    "optim": [*_LOCAL, "nn"],
    "saving": ["errors", "tensors"],
    "data": _LOCAL,
    "pictures": [],
    "distributed": [*_LOCAL, "rpc", "nn", "optim", "saving", "pictures"],
    "profiler": ["errors", "rpc", "distributed", "pictures"],
    "interop": [*_LOCAL, "nn", "optim", "saving", "rpc", "distributed"],
}
"""What each part of the package may import, beside itself. Those on top are missing here."""

ON_TOP = ["__init__", "__main__", "cli", "demo", "testing"]
"""May import anything."""

NO_EDGE = {"asyncio", "os", "random", "secrets", "select", "socket", "threading", "time"}
"""What touches the world: not for modules that only decide."""


def part_of(path: Path) -> str:
    """The part of the package that a file belongs to: its folder, or the module itself."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def files() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """The modules that a file imports, wherever in it, with the line."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: write the import out"
            if node.module == "telegrad":
                for alias in node.names:
                    yield node.lineno, f"telegrad.{alias.name}"
            else:
                yield node.lineno, str(node.module)


def test_every_part_of_the_package_has_its_place_among_the_layers() -> None:
    parts = {part_of(path) for path in files()}
    assert parts - set(MAY_IMPORT) - set(ON_TOP) == set()


def test_the_layers_have_no_circle() -> None:
    placed: set[str] = set()
    left = dict(MAY_IMPORT)
    while left:
        ready = [part for part, below in left.items() if set(below) <= placed]
        assert ready, f"a circle among {sorted(left)}"
        placed.update(ready)
        for part in ready:
            del left[part]


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_from_below(path: Path) -> None:
    part = part_of(path)
    if part in ON_TOP:
        return
    allowed = {part, *MAY_IMPORT[part]}
    for line, name in imports(path):
        top, _, rest = name.partition(".")
        if top == "telegrad":
            below = rest.partition(".")[0] or "__init__"
            assert below in allowed, f"line {line}: {part} must not import {name}"


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
