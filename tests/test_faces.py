"""The public face of each module is what its ``__all__`` says, no more and no less."""

import ast
import importlib
import pkgutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import telegrad

PUBLIC = [
    "telegrad",
    "telegrad.autograd",
    "telegrad.autograd.forward_ad",
    "telegrad.autograd.functional",
    "telegrad.autograd.graph",
    "telegrad.distributed",
    "telegrad.distributed.autograd",
    "telegrad.distributed.optim",
    "telegrad.distributed.rpc",
    "telegrad.errors",
    "telegrad.fft",
    "telegrad.jax",
    "telegrad.torch.autograd",
    "telegrad.torch.nn",
    "telegrad.torch.optim",
    "telegrad.torch.rpc",
    "telegrad.linalg",
    "telegrad.nn",
    "telegrad.nn.functional",
    "telegrad.optim",
    "telegrad.pictures",
    "telegrad.profiler",
    "telegrad.testing",
]
"""The modules that users import; all others are telegrad's own."""

HEAVY = ("cryptography", "jax", "rich", "scipy.linalg", "scipy.special", "torch")


def module_names() -> list[str]:
    """Every module that can be imported without doing something."""
    found = (each.name for each in pkgutil.walk_packages(telegrad.__path__, "telegrad."))
    return ["telegrad", *sorted(name for name in found if not name.endswith(".__main__"))]


MODULES = module_names()


def imported(name: str) -> types.ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if str(error.name).startswith("telegrad"):
            raise
        pytest.skip(f"needs {error.name}, which is not installed here")


def public_names(module: types.ModuleType) -> set[str]:
    """A package shows what it gathers from its modules; a module what was written in it."""
    shown = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    if hasattr(module, "__path__"):
        return {name for name, value in shown.items() if not isinstance(value, types.ModuleType)}
    return {name for name, value in shown.items() if _is_written_in(module, value)}


def _is_written_in(module: types.ModuleType, value: Any) -> bool:
    is_written = isinstance(value, (type, types.FunctionType))
    return is_written and value.__module__ == module.__name__


@pytest.mark.parametrize("name", MODULES)
def test_all_names_what_is_there_each_name_once(name: str) -> None:
    module = imported(name)
    names = getattr(module, "__all__", [])
    assert len(set(names)) == len(names)
    assert [each for each in names if not hasattr(module, each)] == []


@pytest.mark.parametrize("name", [name for name in PUBLIC if name in MODULES])
def test_all_of_a_public_module_is_every_public_name_it_has(name: str) -> None:
    module = imported(name)
    assert public_names(module) - set(module.__all__) == set()


def test_importing_telegrad_leaves_heavy_libraries_alone() -> None:
    code = f"import sys, telegrad; print([m for m in {HEAVY} if m in sys.modules])"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"


def test_calling_other_workers_needs_posix_and_the_error_says_so() -> None:
    code = "import os, telegrad; os.name = 'nt'; import telegrad.distributed"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.returncode == 1
    assert "ImportError: telegrad.rpc, telegrad.distributed and the telegrad" in answer.stderr
    assert "need a POSIX system (Linux or macOS), got 'nt'" in answer.stderr


def test_no_field_hides_the_module_that_a_type_in_its_class_names() -> None:
    # From Python 3.14 types are looked up when they are asked for: the field is found there.
    root = Path(telegrad.__file__).parent
    hidden = [
        f"{path.relative_to(root)}: {each.name}.{type_.value.id}"
        for path in sorted(root.rglob("*.py"))
        for each in ast.walk(ast.parse(path.read_text()))
        if isinstance(each, ast.ClassDef)
        for fields in [[line for line in each.body if isinstance(line, ast.AnnAssign)]]
        for field in fields
        for type_ in ast.walk(field.annotation)
        if isinstance(type_, ast.Attribute) and isinstance(type_.value, ast.Name)
        if type_.value.id in {ast.unparse(each.target) for each in fields}
    ]
    assert hidden == []
