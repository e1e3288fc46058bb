"""What the code of a function names: globals and attributes, modules that it imports, its closure.

``finder.py`` follows these.
"""

from __future__ import annotations

import builtins
import dis
import functools
import types
from contextlib import suppress

__all__ = ["filled", "globals_of", "imported_by", "names_of", "set_by"]
__all__ += ["undefined_in"]


@functools.lru_cache(maxsize=4096)
def names_of(code: types.CodeType) -> frozenset[str]:
    """Names of globals and attributes in ``code`` and the functions inside it, as words too."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, str) and constant.isidentifier():
            names.add(constant)
        if isinstance(constant, types.CodeType):
            names |= names_of(constant)
    return frozenset(names)


@functools.lru_cache(maxsize=4096)
def _operands(code: types.CodeType, operations: tuple[str, ...]) -> frozenset[str]:
    """The names that instructions in ``code`` and the functions inside it are about."""
    names = {i.argval for i in dis.get_instructions(code) if i.opname in operations}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _operands(constant, operations)
    return frozenset(names)


def set_by(code: types.CodeType) -> frozenset[str]:
    """Names of attributes that ``code`` and the functions inside it set."""
    return _operands(code, ("STORE_ATTR",))


def globals_of(code: types.CodeType) -> frozenset[str]:
    """Names of globals that ``code`` and the functions inside it read or write."""
    names = _operands(code, _GLOBAL)
    return names if "globals" not in names else names | names_of(code)


def undefined_in(code: types.CodeType) -> frozenset[str]:
    """Names of globals that ``code`` and the functions inside it read, and Python does not have."""
    return _operands(code, ("LOAD_GLOBAL",)) - vars(builtins).keys()


_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "STORE_NAME", "DELETE_GLOBAL")


@functools.lru_cache(maxsize=4096)
def imported_by(code: types.CodeType, package: str) -> frozenset[str]:
    """Names of modules that ``code`` and the functions inside it import, or may look up."""
    found: set[str] = set()
    instructions = [i for i in dis.get_instructions(code) if i.opname != "EXTENDED_ARG"]
    for k, each in enumerate(instructions):
        if each.opname == "IMPORT_NAME":
            level, taken = [before.argval for before in instructions[k - 2 : k]]
            name = each.argval
            if level:
                name = ".".join([*package.split(".")[: 1 - level or None], *filter(None, [name])])
            parts = name.split(".")
            found.update([".".join(parts[: n + 1]) for n in range(len(parts))])
            found.update([f"{name}.{part}" for part in taken or ()])
    looks_up = not _LOOK_UP.isdisjoint(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= imported_by(constant, package)
        elif looks_up and isinstance(constant, str):
            found.add(constant)
    return frozenset(found)


_LOOK_UP = frozenset(("modules", "import_module", "__import__"))


def filled(function: types.FunctionType) -> list[types.CellType]:
    """The closure cells of ``function`` that hold something."""
    cells = []
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # an empty cell
            _ = cell.cell_contents
            cells.append(cell)
    return cells
