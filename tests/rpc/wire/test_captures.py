"""The bytes of a function by value are used again only if they would come out the same."""

import math
import sys
import types

import cloudpickle
import numpy as np
import pytest

from telegrad.rpc.security.introduction import Limits
from telegrad.rpc.wire import pickler
from telegrad.rpc.wire.captures import capture, is_same
from telegrad.rpc.wire.codec import Codec
from telegrad.rpc.wire.functions import code_of

STEP = 2


def importable(x):
    return x


def make(source, **names):
    """Return the function `f` of a program that is not importable, as a notebook's is."""
    namespace = {"__name__": "__main__", **names}
    exec(source, namespace)
    return namespace["f"]


def result_of(function, *args):
    """Send the function and run it as the other side would."""
    codec = Codec()
    parcel = codec.pack_call(function, args, None)
    header, buffers = codec.seal(parcel, None)
    sealed, slots = codec.unseal(header, buffers, Limits())
    there, args, kwargs = codec.open_call(sealed, slots, buffers)
    return there(*args, **kwargs)


def count_dumps(monkeypatch):
    seen = []
    dumps = pickler.dumps
    monkeypatch.setattr(pickler, "dumps", lambda *args: (seen.append(1), dumps(*args))[1])
    return seen


@pytest.mark.parametrize(
    "function",
    [
        make("f = lambda x: x + 1"),
        make("import math\ndef f(x, y=2, *, z='a'):\n    return math.sqrt(x)"),
        make("def g(x): return x\ndef f(x): return g(x)"),
        make("def f(x): return f(x - 1) if x else 0"),
        make("def f(x): return h(x)", h=importable),
        make("def outer(k):\n    return lambda x: x + k\nf = outer((1, 'two', 3.0))"),
        make("def f(x: int) -> float: return float(x)"),
    ],
    ids=["lambda", "module", "calls its like", "recursive", "importable", "closure", "annotated"],
)
def test_functions_of_constants_are_pickled_once(function, monkeypatch):
    seen = count_dumps(monkeypatch)
    first = code_of(function)
    for _ in range(3):
        assert code_of(function) == first
    assert len(seen) == 1


@pytest.mark.parametrize(
    "held",
    [[1], {"a": 1}, np.ones(2), object(), types.SimpleNamespace(a=1), (1, [2]), {1}, bytearray(1)],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("where", ["global", "cell", "default", "attribute"])
def test_what_holds_something_changeable_is_pickled_each_time(held, where):
    sources = {
        "global": "def f(): return HELD",
        "cell": "def outer(h):\n    return lambda: h\nf = outer(HELD)",
        "default": "def f(x=HELD): return x",
        "attribute": "def f(): pass\nf.held = HELD",
    }
    assert capture(make(sources[where], HELD=held)) is None


def test_a_changed_global_shows_at_the_next_call():
    f = make("STEP = 1\ndef f(x): return x + STEP")
    assert result_of(f, 1) == 2
    f.__globals__["STEP"] = 10
    assert result_of(f, 1) == 11
    del f.__globals__["STEP"]
    with pytest.raises(NameError):
        result_of(f, 1)


def test_a_changed_variable_of_a_closure_shows_at_the_next_call():
    namespace = {"__name__": "__main__"}
    source = (
        "def outer():\n    n = 0\n    def bump():\n        nonlocal n\n        n += 1\n"
        "    return bump, lambda: n\nbump, f = outer()"
    )
    exec(source, namespace)
    assert result_of(namespace["f"]) == 0
    namespace["bump"]()
    assert result_of(namespace["f"]) == 1


def test_a_variable_of_a_closure_that_is_none_is_not_one_that_was_not_bound_yet():
    namespace = {"__name__": "__main__"}
    source = (
        "def outer():\n    def bind():\n        nonlocal n\n        n = None\n    f = lambda: n\n"
        "    return bind, f\n    n = 1\nbind, f = outer()"
    )
    exec(source, namespace)
    with pytest.raises(NameError, match="'n'"):
        result_of(namespace["f"])
    namespace["bind"]()
    assert result_of(namespace["f"]) is None


def test_a_function_of_very_many_parts_is_pickled_each_time():
    assert capture(make("def f(x): return N", N=tuple(range(100)))) is not None
    assert capture(make("def f(x): return N", N=tuple(range(1000)))) is None


def test_a_changed_function_that_it_calls_shows_at_the_next_call():
    f = make("def g(x): return x\ndef f(x): return g(x)")
    assert result_of(f, 1) == 1
    f.__globals__["g"].__defaults__ = (7,)
    exec("def g(x): return -x", f.__globals__)
    assert result_of(f, 1) == -1


def test_changed_defaults_code_and_attributes_show_at_the_next_call():
    f = make("def f(x=1, *, y=2): return (x, y)")
    assert result_of(f) == (1, 2)
    f.__defaults__ = (10,)
    assert result_of(f) == (10, 2)
    f.__kwdefaults__["y"] = 20
    assert result_of(f) == (10, 20)
    f.__code__ = make("def f(x=1, *, y=2): return y").__code__
    assert result_of(f) == 20
    before = code_of(f)
    f.__dict__["mark"] = True
    assert code_of(f) != before


def test_numbers_of_another_type_count_as_changed():
    f = make("STEP = 1\ndef f(): return STEP")
    for value in (1, 1.0, True):
        f.__globals__["STEP"] = value
        assert type(result_of(f)) is type(value)


def test_modules_named_for_going_by_value_are_looked_at_each_time(monkeypatch):
    f = make("import math\ndef f(): return math.pi")
    seen = count_dumps(monkeypatch)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        code_of(f)
        code_of(f)
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    assert len(seen) == 2


def test_a_function_that_is_gone_is_not_kept():
    import gc
    import weakref

    f = make("def f(x): return f(x)")
    code_of(f)
    gone = weakref.ref(f)
    f.__globals__.clear()
    del f
    gc.collect()
    assert gone() is None


def test_a_module_that_is_not_importable_is_changeable():
    assert capture(make("def f(): return m", m=types.ModuleType("made_up"))) is None
    assert capture(make("def f(): return m.pi", m=math)) is not None


def test_captures_compare_by_identity_or_by_equal_integers_and_text():
    f = make("A = 1.5\ndef f(): return A")
    before = capture(f)
    assert is_same(before, capture(f))
    for other in (float("1.5"), 2.5, "1.5"):
        f.__globals__["A"] = other
        assert not is_same(before, capture(f))
    for one, other in ((10**9, 10**9 + 0 * len("")), ("a b", " ".join("ab"))):
        f.__globals__["A"] = one
        before = capture(f)
        f.__globals__["A"] = other
        assert is_same(before, capture(f))
