"""Arguments by the names that users of PyTorch know them by.

Operations call their operands x and y, as the mathematics does; PyTorch calls them input and
other. ``rename`` gives a function PyTorch's names for its parameters without a cost in calls;
``by_other_names`` serves NumPy's axis and keepdims, which PyTorch takes too, and ``out``.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable
from types import CodeType, FunctionType
from typing import Any

from .. import memory_formats

__all__: list[str] = []

USUAL = {"x": "input", "y": "other"}

UNUSUAL = {
    "addcdiv": {"x": "input", "y": "tensor1", "z": "tensor2"},
    "addcmul": {"x": "input", "y": "tensor1", "z": "tensor2"},
    "bmm": {"x": "input", "y": "mat2"},
    "bucketize": {"values": "input", "edges": "boundaries"},
    "cumulative_trapezoid": {},
    "dot": {"x": "input", "y": "tensor"},
    "lerp": {"x": "input", "y": "end"},
    "mm": {"x": "input", "y": "mat2"},
    "mv": {"x": "input", "y": "vec"},
    "outer": {"x": "input", "y": "vec2"},
    "searchsorted": {"edges": "sorted_sequence"},
    "split": {"x": "tensor"},
    "swapaxes": {"x": "input", "dim0": "axis0", "dim1": "axis1"},
    "tensordot": {"x": "a", "y": "b"},
    "trapezoid": {},
    "trapz": {},
    "vander": {},
    "vector_norm": {},
}
"""Functions whose parameters PyTorch calls otherwise."""

LINALG = {"x": "A", "y": "B"}

AXIS = {"axis": "dim", "keepdims": "keepdim"}

OLDER = "older"
"""The parameter of what comes by position where PyTorch once had other arguments; not shown."""


PLAIN: dict[Any, Any] = {}
"""Functions that are ``remembered``, as they were before."""


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
        variables, count = code.co_varnames, code.co_argcount
        parameters = variables[:count]
        wanted = {
            old: new for old, new in names.items() if old in parameters and new not in variables
        }
        if wanted:
            function.__code__ = renamed(code, wanted)
            shown = function.__dict__.get("__signature__")
            if shown is not None:
                new_names = tuple([wanted.get(n, n) for n in shown.parameters])
                function.__dict__["__signature__"] = signature_of(new_names)


def by_name(name: str, function: Any) -> Any:
    """A plain ``function`` under another name, so that its parameters may be called otherwise."""
    made = FunctionType(
        function.__code__, function.__globals__, name, function.__defaults__, function.__closure__
    )
    made.__doc__ = f"The same as ``{function.__name__}``."
    made.__annotations__ = function.__annotations__
    return made


@functools.cache
def signature_of(names: tuple[str, ...]) -> inspect.Signature:
    """That of a function of operands that anything may be given for."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature([inspect.Parameter(name, kind) for name in names])


def renamed(code: CodeType, names: dict[str, str]) -> CodeType:
    """``code`` with other names of its variables."""

    def new(old: tuple[str, ...]) -> tuple[str, ...]:
        return tuple([names.get(name, name) for name in old])

    return code.replace(co_varnames=new(code.co_varnames), co_cellvars=new(code.co_cellvars))


def by_other_names(
    function: Callable[..., Any], names: dict[str, Any], *args: Any, **kwargs: Any
) -> Any:
    """Call ``function`` again with what came as axis and keepdims in dim and keepdim, or as out.

    args: the arguments that it got, in the order of its parameters.
    """
    out = _out_of(function, names)
    parameters = list(inspect.signature(function).parameters)
    given = dict(zip(parameters, args, strict=False)) | kwargs
    for name, value in names.items():
        if name not in AXIS:
            raise TypeError(f"{function.__name__}() got an unexpected keyword argument '{name}'")
        given[AXIS[name]] = value
    return function(**given) if out is None else into(function.__name__, function, out, (), given)


def made_by_names(
    function: Callable[..., Any], names: dict[str, Any], size: tuple, **options: Any
) -> Any:
    """Call ``function``, which takes sizes one by one, again with what came as size or as out."""
    name, out = function.__name__, _out_of(function, names)
    check_memory(name, names)
    if names:
        size = sizes_by_name(name, names, "size", size)
    return function(*size, **options) if out is None else into(name, function, out, size, options)


def lower_limit(function: str, names: dict[str, Any], limit: Any) -> Any:
    """What came as ``from``, which no parameter of Python can be called, else ``limit``."""
    if set(names) - {"from"} or limit is not None:
        unknown = next(iter(set(names) - {"from"}), "from")
        raise TypeError(f"{function}() got an unexpected keyword argument '{unknown}'")
    return names["from"]


OPTIONS = ("dtype", "device", "requires_grad", "generator")


def made_plainly(
    function: Callable[..., Any], names: dict[str, Any], args: tuple, *given: Any
) -> Any:
    """Call ``function``, which makes a tensor, again without what asks for nothing, or with out.

    given: its dtype, device, requires_grad and perhaps generator.
    """
    options = dict(zip(OPTIONS, given, strict=False))
    name, out = function.__name__, _out_of(function, names)
    check_memory(name, names)
    if names:
        raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(names))}'")
    return function(*args, **options) if out is None else into(name, function, out, args, options)


def check_memory(name: str, names: dict[str, Any]) -> None:
    """Take layout and pin_memory from ``names``: all tensors are dense, in common memory."""
    memory_formats.check_layout(name, names.pop("layout", None))
    names.pop("pin_memory", None)


def _out_of(function: Callable[..., Any], names: dict[str, Any]) -> Any:
    """``out``, taken from ``names``, where the caller is the form of ``function`` that takes it:
    ``out.py`` gives that a code object of its own."""
    plain = PLAIN.get(function, function)
    if "out" in names and sys._getframe(2).f_code is not plain.__code__:
        return names.pop("out")
    return None


def into(*args: Any) -> Any:
    """``out.into``."""
    from .out import into as found  # a higher family

    return found(*args)


def sizes_by_name(function: str, names: dict[str, Any], name: str, given: tuple) -> tuple:
    """Sizes that came as keyword ``name`` instead of one by one."""
    if given or set(names) != {name}:
        unknown = next(iter(set(names) - {name}), name)
        raise TypeError(f"{function}() got an unexpected keyword argument '{unknown}'")
    return (names[name],)
