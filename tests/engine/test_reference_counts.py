"""Two leaves never share a gradient's memory, whatever the code that counts references is."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import telegrad

CHECK = """
import numpy as np
import telegrad as tg
from telegrad.optim import SGD

def leaves():
    return [tg.tensor(np.arange(6.0).reshape(2, 3) + i, requires_grad=True) for i in range(3)]

a, b, c = leaves()
(a + b).sum().backward()
assert not np.shares_memory(a.grad.array, b.grad.array)
a, b, c = leaves()
y = a + b + c
y.backward(tg.ones((2, 3), dtype=tg.float64))
found = [each.grad.array for each in (a, b, c)]
for i, one in enumerate(found):
    assert all(not np.shares_memory(one, other) for other in found[i + 1:])
(a + b).sum().backward()
a, b, c = leaves()
(a.T + b.T).sum().backward()
assert not np.shares_memory(a.grad.array, b.grad.array)
# What must change in place changes nothing that somebody else holds.
a, b, c = leaves()
kept = a.array
a.detach().copy_(tg.zeros((2, 3), dtype=tg.float64))
(a * b).sum().backward()
SGD([a], lr=1.0).step()
assert (kept == np.arange(6.0).reshape(2, 3)).all()
"""


def run(script, *path):
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": ":".join(map(str, path)), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


SOURCE = Path(telegrad.__file__).parent.parent


def test_where_references_are_counted_as_they_are():
    run(CHECK, SOURCE)


COUNTING_LESS = """
import sys
import numpy, msgspec
# As it is for a compiled module beside interpreted ones, such as those that count at its import.
count, chosen = sys.getrefcount, {chosen!r}

def lower(value):
    # Beside the caller's reference there is this function's.
    is_chosen = sys._getframe(1).f_globals["__name__"] in chosen
    return count(value) - 1 - is_chosen

sys.getrefcount = lower
"""
COUNTING = [
    "telegrad.engine.local",
    "telegrad.engine.ordered",
    "telegrad.optim.optimizer",
    "telegrad.tensors.exchange",
    "telegrad.tensors.recording.accumulation",
    "telegrad.tensors.tensor",
]


@pytest.mark.parametrize("chosen", [[each] for each in COUNTING] + [COUNTING], ids=str)
def test_where_some_modules_count_one_reference_less(chosen):
    run(COUNTING_LESS.format(chosen=chosen) + CHECK, SOURCE)


def test_where_modules_are_compiled(tmp_path):
    """Needs a C compiler, which the tests do not bring."""
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler")
    shutil.copytree(SOURCE / "telegrad", tmp_path / "telegrad")
    files = [
        str(tmp_path / (each.replace(".", "/") + ".py")) for each in COUNTING[:1] + COUNTING[4:5]
    ]
    build = [sys.executable, "-m", "Cython.Build.Cythonize", "-i", "-3", *files]
    done = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    loaded = "import telegrad.engine.local as m; assert m.__file__.endswith('.so'), m.__file__\n"
    run(loaded + CHECK, tmp_path)
