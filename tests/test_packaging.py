"""The distribution as it would be published, and what ``make`` installs for what.

Both kinds are built and installed in environments that have what is declared and nothing else,
linked from the one that runs the tests: no index is asked. It takes ten to thirty seconds.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.interpreter import IS_LOCKED
from tools import release

import telegrad

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist, and the wheel made from it."""
    return release.build(tmp_path_factory.mktemp("dist"))


def test_the_wheel_has_the_package_alone_and_the_sdist_all_that_builds_it(built):
    release.check_contents(*built)


def test_the_metadata_says_what_the_package_is(built):
    names, described = release.wheel_of(built[1])
    assert "telegrad/py.typed" in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert described["Version"] == telegrad.__version__
    assert described["License-Expression"] == "Apache-2.0"
    assert described["Requires-Python"] == ">=3.11"
    assert "Typing :: Typed" in described.get_all("Classifier")
    assert {need.split(">=")[0] for need in release.needs_of(built[1])} == {
        "cloudpickle",
        "msgspec",
        "numpy",
        "safetensors",
        "scipy",
    }


@pytest.mark.processes
@pytest.mark.parametrize("kind", ["sdist", "wheel"])
def test_it_works_where_only_what_it_declares_is_installed(kind, built, tmp_path):
    distribution = built[0 if kind == "sdist" else 1]
    python = release.environment_with(distribution, tmp_path / "venv", release.needs_of(built[1]))
    assert release.try_out(python, tmp_path) == telegrad.__version__


def test_a_wheel_that_lacks_a_file_is_not_one_to_publish(built, monkeypatch, tmp_path):
    (tmp_path / "src/telegrad").mkdir(parents=True)
    (tmp_path / "src/telegrad/forgotten.py").touch()
    monkeypatch.setattr(release, "ROOT", tmp_path)
    with pytest.raises(RuntimeError, match=r"the wheel and src differ: .*telegrad/forgotten\.py"):
        release.check_contents(*built)


# What make installs.


@pytest.fixture
def clone(tmp_path, monkeypatch):
    if shutil.which("make") is None:
        pytest.skip("needs make, which is not installed here")
    # What the make that runs the tests was told, such as VENV=.venv-3.13, is for that one alone.
    for name in ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "VENV", "PYTHON"):
        monkeypatch.delenv(name, raising=False)
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def would_run(clone, *target):
    """The commands that make would run for a target in a fresh clone."""
    command = ["make", "--dry-run", "--no-print-directory", *target]
    return subprocess.run(
        command, cwd=clone, capture_output=True, text=True, check=True
    ).stdout.splitlines()


def installs(clone, target):
    """What make would install, part by part, and what it says before each."""
    lines = would_run(clone, target)
    parts = [line.rsplit("'", 2)[1] for line in lines if " pip install " in line]
    said = [line for line in lines if line.startswith("echo") and ("MB" in line or "GB" in line)]
    return parts, said


def test_the_demo_installs_the_library_alone_and_says_so(clone):
    parts, said = installs(clone, "demo")
    assert parts == [".[cli]"]
    assert said == [
        'echo "installing telegrad with NumPy, SciPy and rich into .venv (about 230 MB)"'
    ]


def test_the_tests_install_the_rest_and_say_so(clone):
    parts, said = installs(clone, "test")
    assert parts == [".[cli]", ".[test,bench,cli,tls,docs]"]
    assert "PyTorch" in said[1]


def test_tests_of_free_threaded_python_have_an_environment_of_their_own(clone):
    parts, (said,) = installs(clone, "test-free-threaded")
    assert parts == [".[test-free-threaded,bench,tls,docs]"]
    assert ".venv-free-threaded" in said
    assert not any(".venv/" in line for line in would_run(clone, "test-free-threaded"))


def test_a_python_with_a_lock_is_not_taken_for_a_free_threaded_one(clone):
    if not IS_LOCKED:
        pytest.skip("needs a Python with a lock")
    command = ["make", "test-free-threaded", f"PYTHON={sys.executable}"]
    done = subprocess.run(command, cwd=clone, capture_output=True, text=True)
    assert done.returncode
    assert f"expected a free-threaded Python, got {sys.version.split()[0]}" in done.stderr
    assert "PYTHON=python3.14t" in done.stderr
    assert not (clone / ".venv-free-threaded").exists()


def test_another_python_has_an_environment_of_its_own(clone):
    lines = would_run(clone, "test", "VENV=.venv-3.13", "PYTHON=python3.13")
    assert "test -x .venv-3.13/bin/python || python3.13 -m venv .venv-3.13" in lines
    assert not any(".venv/" in line for line in lines)


def test_the_docs_install_what_builds_them(clone):
    parts, said = installs(clone, "docs")
    assert parts == [".[cli]", ".[docs]"]
    assert "Sphinx" in said[1]


def test_what_is_installed_is_kept_while_the_declarations_stay_the_same(clone):
    (stamp,) = [line.split()[-1] for line in would_run(clone, "demo") if line.startswith("touch")]
    (clone / ".venv").mkdir()
    (clone / stamp).touch()
    assert installs(clone, "demo") == ([], [])
    with (clone / "pyproject.toml").open("a") as declarations:
        declarations.write("\n# another dependency\n")
    assert installs(clone, "demo")[0] == [".[cli]"]
