"""The reference: every public name says what it takes and shows an example, and each example runs.

An example is what stands after ``>>>`` in a docstring, ``...`` in what it prints stands for
anything. `tg` is telegrad, `rpc` and `dist_autograd` are ``telegrad.distributed.rpc`` and
``.autograd``. Those of ``telegrad.distributed`` speak for the worker "main" of a cluster with the
workers "ps" and "trainer", but for a few that start one.
"""

import doctest
import importlib
import inspect
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import telegrad as tg
from telegrad.distributed import LocalCluster, rpc
from telegrad.distributed import autograd as dist_autograd
from telegrad.rpc.security.keys import ClusterKey

LOCAL = [
    "telegrad",
    "telegrad.autograd",
    "telegrad.autograd.forward_ad",
    "telegrad.autograd.functional",
    "telegrad.autograd.graph",
    "telegrad.data",
    "telegrad.fft",
    "telegrad.jax",
    "telegrad.linalg",
    "telegrad.nn",
    "telegrad.nn.functional",
    "telegrad.nn.init",
    "telegrad.nn.utils",
    "telegrad.optim",
    "telegrad.optim.lr_scheduler",
    "telegrad.pictures",
    "telegrad.serialization",
    "telegrad.testing",
    "telegrad.testing.simulation",
    "telegrad.torch",
]
OVER_WORKERS = [
    "telegrad.distributed",
    "telegrad.distributed.autograd",
    "telegrad.distributed.optim",
    "telegrad.distributed.rpc",
    "telegrad.profiler",
]
STARTING = {
    "telegrad.distributed.JoinedCluster",
    "telegrad.distributed.LocalCluster",
    "telegrad.distributed.join",
    "telegrad.distributed.rpc.init_rpc",
    "telegrad.distributed.rpc.shutdown",
}
"""Whose examples make the process a worker, which it must not be yet."""
FOR_LAYERS_ABOVE = {
    *(f"Simulation.{name}" for name in ("at", "start", "wake")),
    *(f"Worker.{name}_service" for name in ("ask", "notify", "register", "send")),
    *("RRef.handle", "Worker.loss"),
}
"""Methods that telegrad's own layers call, of classes that users have."""
NAMESPACE = {"__name__": "__main__", "tg": tg, "rpc": rpc, "dist_autograd": dist_autograd}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
NOUNS = {"A", "An", "Each", "How", "That", "The", "What", "Where", "Whether", "Which"}
"""With which the docstring of a function does not begin: it says what to do."""


def public(module: str) -> Iterator[tuple[str, Any]]:
    """The functions and classes of a module's ``__all__`` that telegrad wrote; errors apart."""
    try:
        face = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != "jax":
            raise
        return
    for name in face.__all__:
        value = getattr(face, name)
        is_error = isinstance(value, type) and issubclass(value, BaseException)
        if callable(value) and value.__module__.startswith("telegrad") and not is_error:
            yield f"{module}.{name}", value


EVERYTHING = [pair for module in (*LOCAL, *OVER_WORKERS) for pair in public(module)]


def parameters(value: Any) -> list[str]:
    """The names of what a caller may give."""
    if hasattr(value, "__struct_fields__"):
        return list(value.__struct_fields__)
    made = value.__init__ if isinstance(value, type) else value
    found = list(inspect.signature(made).parameters.values())
    if isinstance(value, type):
        found = found[1:]
    return [each.name for each in found if each.name != "unknown"]


def test_every_public_name_has_an_example():
    assert [name for name, value in EVERYTHING if ">>> " not in (value.__doc__ or "")] == []


def described(name: str, value: Any) -> set[str]:
    """The parameters that a docstring describes: itself, or in another that it names."""
    text = inspect.getdoc(value) or ""
    found = set(re.findall(r"^    \*{0,2}(\w+): ", text, re.M))
    for other in re.findall(r"arguments are those of\s+``([\w.]+)``", text):
        path = f"{name.rpartition('.')[0]}.{other}"
        face, _, named = path.rpartition(".")
        face = face if hasattr(importlib.import_module(face), named) else "telegrad"
        found |= described(f"{face}.{named}", getattr(importlib.import_module(face), named))
    return found


def test_a_name_with_more_than_two_parameters_says_what_each_is():
    lacking = {}
    for name, value in EVERYTHING:
        asked = parameters(value)
        unsaid = set(asked) - described(name, value) if len(asked) > 2 else set()
        if unsaid:
            lacking[name] = unsaid
    assert lacking == {}


def test_so_does_a_method_of_more_than_two_or_says_where():
    lacking = {}
    for name, value in EVERYTHING:
        for method, function in vars(value).items() if isinstance(value, type) else ():
            made = getattr(function, "__func__", function)
            called = f"{name.rpartition('.')[2]}.{method}"
            if method[0] == "_" or not inspect.isfunction(made) or called in FOR_LAYERS_ABOVE:
                continue
            asked = list(inspect.signature(made).parameters)[1:]
            # One that another class redefines has the docstring of the first.
            text = inspect.getdoc(getattr(value, method)) or ""
            said = re.findall(r"^    \*{0,2}(\w+): ", text, re.M)
            if len(asked) > 2 and "; see ``" not in text and said[: len(asked)] != asked:
                lacking[called] = asked
    assert lacking == {}


def test_an_argument_that_a_docstring_names_is_one():
    for name, value in EVERYTHING:
        text = inspect.getdoc(value) or ""
        section = re.search(r"^Arguments:\n((?:    .*\n?)+)", text, re.M)
        named = re.findall(r"^    \*{0,2}(\w+): ", section[1], re.M) if section else []
        assert [each for each in named if each not in parameters(value)] == [], name


def test_the_docstring_of_a_function_says_what_to_do_in_one_line():
    for name, value in EVERYTHING:
        lines = (inspect.getdoc(value) or "").splitlines()
        assert lines[0].endswith("."), f"{name}: {lines[0]}"
        assert len(lines) == 1 or not lines[1], f"{name}: {lines[1]}"
        if not isinstance(value, type):
            assert lines[0].split()[0] not in NOUNS, f"{name}: {lines[0]}"


def run(names: Sequence[tuple[str, Any]]) -> None:
    """Runs examples, each docstring in a namespace of its own."""
    runner = doctest.DocTestRunner(verbose=False, optionflags=FLAGS)
    for name, value in names:
        test = doctest.DocTestParser().get_doctest(
            value.__doc__ or "", dict(NAMESPACE), name, None, None
        )
        said: list[str] = []
        if runner.run(test, out=said.append).failed:
            pytest.fail("".join(said))


@pytest.mark.parametrize("module", LOCAL)
def test_every_example_prints_what_it_says(module):
    if module in ("telegrad.jax", "telegrad.torch"):
        pytest.importorskip(module.rpartition(".")[2], reason="it is not installed")
    run(list(public(module)))


@pytest.mark.processes
@pytest.mark.parametrize("name", sorted(STARTING))
def test_an_example_that_starts_a_cluster_prints_what_it_says(name, tmp_path, monkeypatch):
    ClusterKey.fresh().save(tmp_path / "key")
    monkeypatch.setenv("TELEGRAD_KEY_FILE", str(tmp_path / "key"))
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "0")
    run([(name, dict(EVERYTHING)[name])])


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(["ps", "trainer"]) as cluster:
        yield cluster


@pytest.mark.processes
@pytest.mark.parametrize("module", OVER_WORKERS)
def test_every_example_over_workers_prints_what_it_says(module, cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run([(name, value) for name, value in public(module) if name not in STARTING])


def test_a_wrong_example_fails():
    def wrong():
        """Say two.

        >>> 1 + 1
        3
        """

    with pytest.raises(pytest.fail.Exception, match=r"Expected:\n +3\nGot:\n +2"):
        run([("wrong", wrong)])
