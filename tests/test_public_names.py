"""The public face: every name is written out, and every name of the array API standard is there."""

from types import ModuleType

import telegrad
from telegrad.arrays import standard

CONSTANTS = ("e", "inf", "nan", "newaxis", "pi")
DTYPES = telegrad.__array_namespace_info__().dtypes()


def test_all_names_of_the_module_are_public_and_the_other_way_round() -> None:
    declared = set(telegrad.__all__)
    assert len(telegrad.__all__) == len(declared)
    found = {
        name
        for name, value in vars(telegrad).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    modules = {name for name in declared if isinstance(getattr(telegrad, name), ModuleType)}
    special = {name for name in declared if name.startswith("__")}
    assert declared - modules - special == found
    assert {"autograd", "fft", "linalg"} <= modules


def test_every_name_of_the_standard_is_there() -> None:
    names = {
        *standard.ELEMENTWISE,
        *standard.CREATION,
        *standard.OTHER,
        *CONSTANTS,
        *DTYPES,
        "__array_api_version__",
        "__array_namespace_info__",
    }
    assert sorted(names - set(telegrad.__all__)) == []
    assert [name for name in standard.LINALG if not hasattr(telegrad.linalg, name)] == []
    assert [name for name in standard.FFT if not hasattr(telegrad.fft, name)] == []


def test_the_constants_are_python_numbers() -> None:
    assert all(type(getattr(telegrad, name)) is float for name in CONSTANTS if name != "newaxis")
    assert telegrad.newaxis is None


def test_public_functions_have_docstrings() -> None:
    bare = [
        name
        for name in telegrad.__all__
        if callable(value := getattr(telegrad, name)) and not value.__doc__
    ]
    assert bare == []
