"""Modules that hold other modules: in sequence, in a list, by name."""

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any

from telegrad.errors import UsageError
from telegrad.nn.module import Module


class _Numbered(Module):
    """Modules with the names "0", "1", …: what Sequential and ModuleList share."""

    def _hold(self, modules: Iterable[Module]) -> None:
        for name in self.own_modules():
            delattr(self, name)
        for i, module in enumerate(modules):
            self.add_module(str(i), _module(module))

    def __len__(self) -> int:
        return len(self.own_modules())

    def __iter__(self) -> Iterator[Module]:
        return iter(self.own_modules().values())

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, slice):
            return list(self)[index]
        return type(self)._of(dict(list(self.own_modules().items())[index]))

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, list(self.own_modules())[index], _module(module))

    def __delitem__(self, index: int | slice) -> None:
        held = list(self)
        del held[index]
        self._hold(held)

    def append(self, module: Module) -> Any:
        """Add a module at the end."""
        number = len(self)
        # A slice keeps the names of its modules, so this number may be taken already.
        while str(number) in vars(self):
            number += 1
        self.add_module(str(number), _module(module))
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        """Add modules at the end."""
        for module in modules:
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Any:
        """Put a module before the one at `index`."""
        held = list(self)
        held.insert(index, _module(module))
        self._hold(held)
        return self

    def pop(self, index: int = -1) -> Module:
        """Take a module out and give it back."""
        found = list(self)[index]
        del self[index]
        return found

    @classmethod
    def _of(cls, modules: dict[str, Module]) -> "_Numbered":
        """Return a container with these modules, by their names in the sliced one."""
        raise NotImplementedError


class Sequential(_Numbered):
    """Modules called one after another, each with the result of the one before.

    Arguments:
        *modules: The modules, named "0", "1", …; or one dict of modules by name.

    Examples:
        >>> model = tg.nn.Sequential(tg.nn.Linear(3, 4), tg.nn.ReLU(), tg.nn.Linear(4, 2))
        >>> model(tg.ones(1, 3)).shape
        (1, 2)
    """

    def __init__(self, *modules: Any) -> None:
        super().__init__()
        first = modules[0] if len(modules) == 1 else None
        if isinstance(first, Mapping) and not isinstance(first, Module):
            for name, module in first.items():
                self.add_module(name, _module(module))
        else:
            self._hold(modules)

    @classmethod
    def _of(cls, modules: dict[str, Module]) -> "Sequential":
        return cls(modules)

    def forward(self, x: Any) -> Any:
        for module in self.own_modules().values():
            x = module(x)
        return x


class ModuleList(_Numbered):
    """A list of modules; what is done with them is up to the module that holds it.

    Arguments:
        modules: The modules, in order.

    Examples:
        >>> layers = tg.nn.ModuleList([tg.nn.Linear(2, 2), tg.nn.Linear(2, 2)])
        >>> len(list(layers.parameters()))
        4
    """

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        if not isinstance(modules, Iterable):
            raise UsageError(f"expected modules in a list, got {type(modules).__name__}")
        self._hold(modules)

    def __add__(self, others: Iterable[Module]) -> "ModuleList":
        return ModuleList([*self, *others])

    @classmethod
    def _of(cls, modules: dict[str, Module]) -> "ModuleList":
        return cls(modules.values())


class ModuleDict(Module, MutableMapping[str, Module]):
    """Modules by name; what is done with them is up to the module that holds it.

    Arguments:
        modules: The modules by name.

    Examples:
        >>> heads = tg.nn.ModuleDict({"digit": tg.nn.Linear(4, 10), "parity": tg.nn.Linear(4, 2)})
        >>> heads["parity"](tg.ones(1, 4)).shape
        (1, 2)
    """

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        self.update(modules or {})

    def __getitem__(self, name: str) -> Module:
        found = vars(self).get(name)
        if not isinstance(found, Module):
            raise KeyError(f"expected one of {', '.join(self)}, got {name!r}")
        return found

    def __setitem__(self, name: str, module: Module) -> None:
        self.add_module(name, _module(module))

    def __delitem__(self, name: str) -> None:
        self[name]
        delattr(self, name)

    def __len__(self) -> int:
        return len(self.own_modules())

    def __iter__(self) -> Iterator[str]:
        return iter(self.own_modules())


def _module(value: Any) -> Module:
    if not isinstance(value, Module):
        several = isinstance(value, (list, tuple))
        raise UsageError(
            f"expected a Module in a container, got {type(value).__name__}; "
            + ("write Sequential(*modules)" if several else "wrap a function in a Module of yours")
        )
    return value
