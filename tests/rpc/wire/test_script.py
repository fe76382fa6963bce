"""What of the script goes by name: what it had defined, and only where all workers run it."""

import sys
from types import ModuleType

import pytest

from telegrad.rpc.security.introduction import Limits
from telegrad.rpc.wire import script
from telegrad.rpc.wire.codec import Codec

SOURCE = """
class Kind:
    def method(self):
        return 1

def helper():
    return 2

use = lambda: helper()
not_of_the_script = len
"""


@pytest.fixture
def main(monkeypatch):
    module = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    exec(SOURCE, module.__dict__)
    return module


def test_functions_and_classes_of_the_script_have_names_and_nothing_else_has(main):
    names = script.defined_names()
    assert names.keys() == {"Kind", "helper", "use"}
    assert script.script_name(main.helper, names) == "__main__:helper"
    assert script.script_name(main.Kind.method, names) == "__main__:Kind.method"
    for other in (main.use, len, main.Kind().method, 3):
        assert script.script_name(other, names) is None
    main.later = lambda: 1
    assert script.script_name(main.later, names) is None


def test_a_name_that_was_bound_anew_is_not_given_to_what_had_it_before(main):
    names, before = script.defined_names(), main.helper
    main.helper = lambda: 3
    assert script.script_name(before, names) is None


def test_what_the_script_defines_anew_after_it_joined_goes_by_value(main):
    names = script.defined_names()
    again = ModuleType("__main__")
    exec(SOURCE, again.__dict__)
    main.helper, main.Kind = again.helper, again.Kind
    for redefined in (main.helper, main.Kind, main.Kind.method):
        assert script.script_name(redefined, names) is None


def test_the_bytes_of_a_function_for_one_cluster_are_not_used_for_another(main):
    shared, apart = Codec(), Codec()
    shared.script = script.defined_names()
    by_name = shared.pack_call(main.use, (), None)
    by_value = apart.pack_call(main.use, (), None)
    assert by_name.code != by_value.code
    assert shared.pack_call(main.use, (), None).code == by_name.code
    main.helper = lambda: 20
    for codec, parcel, result in ((shared, by_name, 20), (apart, by_value, 2)):
        header, buffers = codec.seal(parcel, None)
        sealed, slots = codec.unseal(header, buffers, Limits())
        function, args, kwargs = codec.open_call(sealed, slots, buffers)
        assert function(*args, **kwargs) == result


def test_a_script_without_a_file_is_like_no_other(main):
    assert script.digest_of_script() == ""
    main.__file__ = __file__
    assert script.digest_of_script() != ""
