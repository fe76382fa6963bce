"""Plain values as types: also where many threads do so for the first time at once."""

import ast
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import telegrad
from telegrad.rpc.wire.conversion import converter

SOURCE = Path(telegrad.__file__).parent

FIRST_USES = """
import msgspec, sys, threading
from telegrad.rpc.wire.conversion import converter

sys.setswitchinterval(1e-6)
for _ in range(500):
    class Place(msgspec.Struct, array_like=True):
        number: int
        shape: list[int]

    class Fact(msgspec.Struct, array_like=True):
        said: str
        place: "Place | None"

    convert, begin, found = converter(Fact), threading.Barrier(6), []

    def run():
        begin.wait()
        found.append(convert(["a", [1, [2, 3]]]).place.shape)

    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[2, 3]] * 6, found
print("all were converted")
"""


def test_threads_may_convert_for_the_first_time_at_once():
    # With `msgspec.convert` in its place, the process is ended by a segmentation fault.
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", FIRST_USES],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, "all were converted\n"), done.stderr


def test_other_values_are_refused():
    class Fact(msgspec.Struct, array_like=True):
        number: int

    with pytest.raises(msgspec.ValidationError, match="Expected `int`, got `str`"):
        converter(Fact)(["a"])


def test_nothing_is_converted_in_another_way():
    found = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            is_attribute = isinstance(node, ast.Attribute) and node.attr == "convert"
            is_imported = isinstance(node, ast.ImportFrom) and node.module == "msgspec"
            if (is_attribute and ast.unparse(node.value) == "msgspec") or (
                is_imported and any(alias.name == "convert" for alias in node.names)
            ):
                found.append(path.relative_to(SOURCE).as_posix())
    assert found == ["rpc/wire/conversion.py"]
