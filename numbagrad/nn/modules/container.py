"""Modules and parameters in sequences and mappings: ``Sequential ModuleList ModuleDict ...``."""

from __future__ import annotations

import itertools
import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...tensor import Tensor
from ..parameter import Parameter
from .module import Module

__all__ = ["ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


class _Sequence(Module):
    """Members of one table, named by their position: ``"0"``, ``"1"``, ..."""

    _table = "_modules"

    def _held(self) -> dict[str, Any]:
        return self.__dict__[self._table]

    def _set_all(self, members: Iterable[Any]) -> None:
        for name in list(self._held()):
            delattr(self, name)
        for i, member in enumerate(members):
            self._set(str(i), member)

    def _set(self, name: str, member: Any) -> None:
        member = self._checked(member)
        if member is None and self._table == "_modules":
            self.add_module(name, None)
        else:
            setattr(self, name, member)

    def _checked(self, member: Any) -> Any:
        if not isinstance(member, Module) and member is not None:
            raise TypeError(f"{type(self).__name__}: {type(member).__name__} is not a Module.")
        return member

    def _name_at(self, index: Any) -> str:
        position = index.__index__()
        names = list(self._held())
        if not -len(names) <= position < len(names):
            raise IndexError(f"index {position} is out of range for {len(names)} members")
        return names[position]

    def __len__(self) -> int:
        return len(self._held())

    def __iter__(self) -> Iterator[Any]:
        return iter(self._held().values())

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            part = type(self)()
            part._set_all(list(self)[index])
            return part
        return self._held()[self._name_at(index)]

    def __setitem__(self, index: Any, member: Any) -> None:
        setattr(self, self._name_at(index), self._checked(member))

    def __delitem__(self, index: Any) -> None:
        members = list(self)
        del members[index if isinstance(index, slice) else index.__index__()]
        self._set_all(members)

    def append(self, module: Any) -> Any:
        """Add a member at the end; returns the container."""
        self._set(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Any]) -> Any:
        """Add members at the end; returns the container."""
        for module in list(modules):
            self.append(module)
        return self

    def insert(self, index: int, module: Any) -> Any:
        """Add a member before position ``index``; returns the container."""
        members = list(self)
        members.insert(index, module)
        self._set_all(members)
        return self

    def pop(self, index: int = -1) -> Any:
        """Take the member at ``index`` out and return it."""
        member = self[index]
        del self[index]
        return member


class Sequential(_Sequence):
    """Modules called one after the other, each on the result of the one before.

    Takes modules, or one dict of names and modules. Iterates, indexes and slices like a list.

    >>> Sequential(Module(), Module())
    Sequential(
      (0): Module()
      (1): Module()
    )
    """

    def __init__(self, *args: Any):
        super().__init__()
        if len(args) == 1 and isinstance(args[0], Mapping):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for i, module in enumerate(args):
                self.add_module(str(i), module)

    def forward(self, input: Any) -> Any:
        """Lead ``input`` through all modules."""
        for module in self._modules.values():
            input = module(input)
        return input

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)(dict(list(self._modules.items())[index]))
        return super().__getitem__(index)

    def __add__(self, other: Sequential) -> Sequential:
        return Sequential(*self, *other)

    def __iadd__(self, other: Sequential) -> Sequential:
        return self.extend(other)

    def __mul__(self, times: int) -> Sequential:
        if times <= 0:
            raise ValueError(f"Sequential: expected to be repeated once or more, got {times}.")
        return Sequential(*list(self) * times)

    __rmul__ = __mul__

    def __imul__(self, times: int) -> Sequential:
        return self.extend(list(self * times)[len(self) :])


class ModuleList(_Sequence):
    """A list of modules whose parameters are found; it has no forward of its own."""

    def __init__(self, modules: Iterable[Module] | None = None):
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __iadd__(self, modules: Iterable[Module]) -> Any:
        return self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def _child_lines(self) -> list[str]:
        """Runs of members that print alike take one line."""
        lines = []
        texts = [(name, repr(module)) for name, module in self._modules.items()]
        for text, run in itertools.groupby(texts, key=lambda item: item[1]):
            names = [name for name, _ in run]
            if len(names) == 1:
                lines.append(f"({names[0]}): {text}")
            else:
                lines.append(f"({names[0]}-{names[-1]}): {len(names)} x {text}")
        return lines


class ParameterList(_Sequence):
    """A list of parameters that the module lists as its own; tensors become Parameters.

    Other values are kept in their places as they are; they are no part of ``state_dict``.

    >>> len(list(ParameterList([ng.ones(2), "label"]).parameters()))
    1
    """

    _table = "_parameters"

    def __init__(self, values: Iterable[Any] | None = None):
        super().__init__()
        if values is not None:
            self.extend(values)

    def _held(self) -> dict[str, Any]:
        own = vars(self)
        tables = (own["_parameters"], own["_modules"], own)
        found: dict[str, Any] = {}
        for i in itertools.count():
            name = str(i)
            for table in tables:
                if name in table:
                    found[name] = table[name]
                    break
            else:
                return found
        return found

    def _checked(self, member: Any) -> Any:
        return _as_parameter(self, member) if isinstance(member, Tensor) else member

    def __iadd__(self, values: Iterable[Any]) -> Any:
        return self.extend(values)

    def _child_lines(self) -> list[str]:
        return [
            f"({name}): {_describe(p) if isinstance(p, Tensor) else repr(p)}"
            for name, p in self._held().items()
        ]


class _Dict(Module):
    """Members of one table, under names that the user gives."""

    _table = "_modules"

    def __init__(self, values: Any = None):
        super().__init__()
        if values is not None:
            self.update(values)

    def _held(self) -> dict[str, Any]:
        return self.__dict__[self._table]

    def __getitem__(self, key: str) -> Any:
        return self._held()[key]

    def __setitem__(self, key: str, value: Any) -> None:
        if key in self._held():
            setattr(self, key, value)
        else:
            self.add_module(key, value)

    def __delitem__(self, key: str) -> None:
        if key not in self._held():
            raise KeyError(key)
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._held())

    def __iter__(self) -> Iterator[str]:
        return iter(self._held())

    def __contains__(self, key: Any) -> bool:
        return key in self._held()

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._held().keys()

    def values(self) -> Iterable[Any]:
        """The members."""
        return self._held().values()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names and members."""
        return self._held().items()

    def update(self, values: Any) -> None:
        """Add or replace members from a mapping or from pairs."""
        for key, value in values.items() if hasattr(values, "items") else values:
            self[key] = value

    def pop(self, key: str) -> Any:
        """Take a member out and return it."""
        value = self[key]
        del self[key]
        return value

    def clear(self) -> None:
        """Take all members out."""
        for key in list(self):
            del self[key]


class ModuleDict(_Dict):
    """A dict of modules whose parameters are found; it has no forward of its own."""

    def __init__(self, modules: Any = None):
        super().__init__(modules)


class ParameterDict(_Dict):
    """A dict of parameters that the module lists as its own; tensors become Parameters."""

    def __init__(self, parameters: Any = None):
        super().__init__(parameters)

    _table = "_parameters"

    def __setitem__(self, key: str, value: Any) -> None:
        value = _as_parameter(self, value)
        if key in self._held():
            setattr(self, key, value)
        else:
            self.register_parameter(key, value)

    def update(self, values: Any) -> None:
        """Add or replace members from a mapping or from pairs; a plain dict's in the order of
        their names, which is then that of ``parameters()``."""
        if isinstance(values, Mapping) and not isinstance(values, OrderedDict):
            values = sorted(values.items(), key=operator.itemgetter(0))
        super().update(values)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self))

    def __or__(self, other: ParameterDict) -> ParameterDict:
        return self.copy().__ior__(other)

    def __ior__(self, other: ParameterDict) -> Any:
        self.update(other)
        return self

    def get(self, key: str, default: Any = None) -> Any:
        """The parameter of that name, or ``default``."""
        return self[key] if key in self else default

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The parameter of that name, which is ``default`` if there was none."""
        if key not in self:
            self[key] = default
        return self[key]

    def popitem(self) -> tuple[str, Any]:
        """Take the newest out and return its name and itself."""
        name = next(reversed(self))
        return name, self.pop(name)

    def copy(self) -> ParameterDict:
        """Another dict of the same parameters."""
        return type(self)(self)

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A dict that has ``default`` under each of ``keys``."""
        return type(self)(dict.fromkeys(keys, default))

    def _child_lines(self) -> list[str]:
        return [f"({name}): {_describe(p)}" for name, p in self._parameters.items()]


def _as_parameter(owner: Module, value: Any) -> Parameter:
    if not isinstance(value, Tensor):
        raise TypeError(f"{type(owner).__name__}: {type(value).__name__} is not a Tensor.")
    return value if isinstance(value, Parameter) else Parameter(value)


def _describe(parameter: Any) -> str:
    size = "x".join(map(str, parameter.shape))
    return f"Parameter containing: [{parameter.dtype} of size {size}]"
