"""The functions that run on the callee where calling the user's function is not enough.

Functions marked ``async_execution`` return torch futures, TorchScript functions are sent by name,
and only the owner of a value can look up a proxy's method. Handlers that run any function they are
given are not exposed: strict workers refuse them.
"""

from importlib import import_module
from types import CoroutineType
from typing import Any

import torch

from telegrad.rpc.calls.future import Future
from telegrad.rpc.calls.incoming import async_execution
from telegrad.rpc.current import current_worker
from telegrad.rpc.references.rref import RRef
from telegrad.rpc.wire.functions import expose
from telegrad.torch.rpc.failures import RpcMisused
from telegrad.torch.rpc.functions import is_async
from telegrad.torch.rpc.future import outcome_of
from telegrad.torch.rpc.internal import OTHER_PICKLERS

Prepared = tuple[Any, tuple[Any, ...], dict[str, Any], str | None]


def prepared(function: Any, args: Any, kwargs: Any) -> Prepared:
    """Return the function and arguments to send for a user's call, and its name in errors."""
    if not callable(function):
        raise TypeError(f"function should be callable, got {type(function).__name__}")
    if OTHER_PICKLERS:
        raise RpcMisused(
            f"expected calls with telegrad's own pickler, got {OTHER_PICKLERS[-1]!r} by "
            "_use_rpc_pickler, which telegrad does not ask; leave the block before you call, and "
            "give a class that can't be pickled a __reduce__ of its own"
        )
    args, kwargs = tuple(args or ()), dict(kwargs or {})
    if is_async(function):
        said = str(getattr(function, "__qualname__", function))
        return run_async, (function, args, kwargs), {}, said
    if is_builtin(function):
        return run_builtin, (function.__name__, args, kwargs), {}, function.__name__
    if isinstance(function, torch.jit.ScriptFunction):
        name = str(function.qualified_name)
        return run_script, (name, args, kwargs), {}, name.rpartition(".")[2]
    return function, args, kwargs, args[1] if function is call_method else None


def is_builtin(function: Any) -> bool:
    """Tell whether a function is one of PyTorch's C++ builtins, whose ``__module__`` is None."""
    return (
        getattr(function, "__module__", "") is None
        and getattr(torch, function.__name__, None) is function
    )


def run_builtin(name: str, args: Any, kwargs: Any) -> Any:
    """Run a C++ builtin of PyTorch by name."""
    function = getattr(torch, name)
    if not is_builtin(function):
        raise AttributeError(f"expected the name of a builtin function of torch, got {name!r}")
    return function(*args, **kwargs)


@async_execution
def run_async(function: Any, args: Any, kwargs: Any) -> Future[Any]:
    """Run an ``async_execution`` function; answer with the value of its torch future."""
    return outcome_of(_checked(function(*args, **kwargs)))


def run_script(qualified_name: str, args: Any, kwargs: Any) -> Any:
    """Run a TorchScript function, which can't be pickled, by its qualified name."""
    path = qualified_name.removeprefix("__torch__.").split(".")
    if len(path) == 1:
        # TorchScript leaves out the name of the main module.
        path.insert(0, "__main__")
    found: Any = None
    for end in range(len(path) - 1, 0, -1):
        try:
            found = import_module(".".join(path[:end]))
        except ModuleNotFoundError:
            continue
        for name in path[end:]:
            found = getattr(found, name)
        break
    if found is None:
        raise AttributeError(f"expected the TorchScript function {qualified_name} to be importable")
    try:
        return found(*args, **kwargs)
    except torch.jit.Error as error:
        # As PyTorch's calls do: its interpreter's errors are not RuntimeErrors.
        raise RuntimeError(str(error)) from error


@async_execution
def call_method(reference: RRef, name: str, args: Any, kwargs: Any) -> Future[Any]:
    """Call a method of an RRef's value; if it is ``async_execution``, answer with its value."""
    method = getattr(reference.local_value(), name)
    result = method(*args, **kwargs)
    if type(result) is CoroutineType:
        return current_worker().incoming.coroutines.run(result)
    if is_async(method):
        return outcome_of(_checked(result))
    done: Future[Any] = Future()
    done.set_result(result)
    return done


def type_on_owner(reference: RRef) -> type:
    """Return the type of an RRef's value."""
    return type(reference.local_value())


@expose
def wait_for_value(reference: RRef) -> None:
    """Wait until an RRef's value has been made."""
    reference.local_value()


def _checked(future: Any) -> Any:
    if not isinstance(future, torch._C.Future):
        raise RuntimeError(
            "Functions decorated with @rpc.async_function must return a torch.futures.Future "
            f"object, but got {type(future).__name__}"
        )
    return future
