"""Arguments by the names that users of PyTorch know them by.

Operations call their operands x and y, as the mathematics does; PyTorch calls them input and
other. ``rename`` gives a function PyTorch's names for its parameters without a cost in calls;
``by_other_names`` serves NumPy's axis and keepdims, which PyTorch takes too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from types import CodeType, FunctionType
from typing import Any

__all__: list[str] = []

USUAL = {"x": "input", "y": "other"}

UNUSUAL = {
    "addcdiv": {"x": "input", "y": "tensor1", "z": "tensor2"},
    "addcmul": {"x": "input", "y": "tensor1", "z": "tensor2"},
    "bmm": {"x": "input", "y": "mat2"},
    "bucketize": {"values": "input", "edges": "boundaries"},
    "cdist": {"x": "x1", "y": "x2"},
    "dot": {"x": "input", "y": "tensor"},
    "lerp": {"x": "input", "y": "end"},
    "mm": {"x": "input", "y": "mat2"},
    "mv": {"x": "input", "y": "vec"},
    "outer": {"x": "input", "y": "vec2"},
    "searchsorted": {"edges": "sorted_sequence"},
    "split": {"x": "tensor"},
    "swapaxes": {"x": "input", "dim0": "axis0", "dim1": "axis1"},
    "tensordot": {"x": "a", "y": "b"},
    "vander": {},
    "vector_norm": {},
}
"""Functions whose parameters PyTorch calls otherwise."""

LINALG = {"x": "A", "y": "B"}

AXIS = {"axis": "dim", "keepdims": "keepdim"}


def rename(functions: Iterable[Any], usual: dict[str, str] = USUAL) -> None:
    """Give the parameters of plain ``functions`` PyTorch's names, in place.

    A parameter's name is an entry of its function's code object, which only keywords and
    tracebacks look at. A wrapper that translates would add a tenth to the cost of a small call.
    """
    for function in functions:
        if not isinstance(function, FunctionType):
            continue
        code = function.__code__
        names = UNUSUAL.get(function.__name__, usual)
        count = code.co_argcount
        wanted = {
            old: new
            for old, new in names.items()
            if old in code.co_varnames[:count] and new not in code.co_varnames
        }
        if wanted:
            function.__code__ = _renamed(code, wanted)


def _renamed(code: CodeType, names: dict[str, str]) -> CodeType:
    def new(old: tuple[str, ...]) -> tuple[str, ...]:
        return tuple([names.get(name, name) for name in old])

    return code.replace(co_varnames=new(code.co_varnames), co_cellvars=new(code.co_cellvars))


def by_other_names(
    function: Callable[..., Any], names: dict[str, Any], *args: Any, **kwargs: Any
) -> Any:
    """Call ``function`` again with what came as axis and keepdims in dim and keepdim.

    args: the arguments that it got, in the order of its parameters.
    """
    parameters = list(inspect.signature(function).parameters)
    given = dict(zip(parameters, args, strict=False)) | kwargs
    for name, value in names.items():
        if name not in AXIS:
            raise TypeError(f"{function.__name__}() got an unexpected keyword argument '{name}'")
        given[AXIS[name]] = value
    return function(**given)


def sizes_by_name(function: str, names: dict[str, Any], name: str, given: tuple) -> tuple:
    """Sizes that came as keyword ``name`` instead of one by one."""
    if given or set(names) != {name}:
        unknown = next(iter(set(names) - {name}), name)
        raise TypeError(f"{function}() got an unexpected keyword argument '{unknown}'")
    return (names[name],)
