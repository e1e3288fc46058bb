"""What stands before a function that remembers: a function with the same parameters.

So a call in any form comes to the same arguments, and a wrong one raises as before. Its text is
written and compiled when it is first called: to do so for all would add a tenth to the time of the
import. Until then its code is a stub. Start reading at ``wrapped``.
"""

from __future__ import annotations

import builtins
import functools
import sys
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CodeType, FrameType, FunctionType
from typing import Any

from .. import devices
from ..kernels import machine
from ..tape import grad_mode
from .operand import check_operands
from .plans import GENERATED
from .selected import Unsized

__all__: list[str] = []  # nothing that users call

TAPED = 2  # as in ``kernels/replay.py``, which is not imported before it is needed

_STARS = CO_VARARGS | CO_VARKEYWORDS
_COPIED = ("__kwdefaults__", "__doc__", "__qualname__", "__annotations__")


def _stub() -> Any:
    """Stands for the body of every wrapper; it uses none of its arguments by name."""
    return _wake(sys._getframe())


def wrapped(function: Any, memory: Any, spread: str) -> Any:
    """A function that tries the plans of ``memory`` before it calls ``function``.

    spread: a parameter whose members, a list's or tuple's, are arguments by themselves.
    """
    code = function.__code__
    stub = _STUB.replace(
        co_argcount=code.co_argcount,
        co_posonlyargcount=code.co_posonlyargcount,
        co_kwonlyargcount=code.co_kwonlyargcount,
        co_nlocals=_count(code),
        co_varnames=code.co_varnames[: _count(code)],
        co_flags=_STUB.co_flags | code.co_flags & _STARS,
        co_filename=GENERATED,
    )
    known: dict[str, Any] = {
        "sys": sys,
        "_wake": _wake,
        "_function": function,
        "_memory": memory,
        "_last": memory.last,
        "_recorded": memory.recorded,
        "_machine": machine,
        "_grad_mode": grad_mode,
        "_cpu": devices.cpu,
        "_elsewhere": _elsewhere,
        "_Unsized": Unsized,
        "_check": functools.partial(check_operands, function.__name__),
        "_spread": spread and code.co_varnames.index(spread),
        "__name__": function.__module__,
        "__builtins__": builtins,
    }
    call = known["_call"] = FunctionType(stub, known, function.__name__, function.__defaults__)
    for name in _COPIED:
        setattr(call, name, getattr(function, name))
    call.__dict__.update({k: v for k, v in vars(function).items() if k != "__wrapped__"})
    return call


_STUB = _stub.__code__


@functools.cache
def _device_memory() -> Any:
    """The module, which is not imported before a GPU is in use."""
    from . import device_memory

    return device_memory


def _elsewhere(*given: Any) -> Any:
    return _device_memory().elsewhere(*given)


def _count(code: CodeType) -> int:
    """How many parameters there are."""
    stars = bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
    return code.co_argcount + code.co_kwonlyargcount + stars


def _wake(frame: FrameType) -> Any:
    """Give the wrapper whose stub runs in ``frame`` its code, and call it again."""
    known, code = frame.f_globals, frame.f_code
    call: Any = known["_call"]
    made: dict[str, Any] = {}
    exec(compile(_text(code, known["_spread"]), GENERATED, "exec"), made)
    call.__code__ = made["call"].__code__
    first, last, star, double = _parameters(code)
    given = frame.f_locals
    args = [given[name] for name in first] + [a for name in star for a in given[name]]
    options = {name: given[name] for name in last}
    for name in double:
        options |= given[name]
    return call(*args, **options)


def _parameters(code: CodeType) -> tuple[tuple[str, ...], ...]:
    """The names of parameters by position, by keyword only, of ``*`` and of ``**``."""
    n, names = code.co_argcount, code.co_varnames
    m = n + code.co_kwonlyargcount
    end = m + bool(code.co_flags & CO_VARARGS)
    double = names[end : end + bool(code.co_flags & CO_VARKEYWORDS)]
    return names[:n], names[n:m], names[m:end], double


def _text(code: CodeType, spread: Any) -> str:
    """The text of a wrapper with the parameters of ``code``."""
    first, last, star, double = _parameters(code)
    stars, doubles = [f"*{name}" for name in star], [f"**{name}" for name in double]
    header = [*first, *(stars or (["*"] if last else [])), *last, *doubles]
    args = f"({', '.join([*first, *stars])},)"
    options = f"{{{', '.join([*[f'{k!r}: {k}' for k in last], *doubles])}}}"
    flat = [name if k != spread else "*_parts" for k, name in enumerate(first)]
    lines = [f"def call({', '.join(header)}):"]
    lines += [" if not (_machine.closed or _machine.autocasting):"]
    if spread != "":
        parts = first[spread]
        lines += [f"  if type({parts}) is tuple or type({parts}) is list:"]
        lines += [f"   _parts = (*{parts}, type({parts}))", f"  else: _parts = ({parts},)"]
    lines += [f"  _flat = ({', '.join([*flat, *stars, *last])},)"]
    names = "()"
    for name in double:
        names = "_names"
        lines += [f"  if {name}: _names, _flat = tuple({name}), (*_flat, *{name}.values())"]
        lines += ["  else: _names = ()"]
    lines += ["  if _machine.away is not None and getattr(_flat[0], '_device', None) is not _cpu:"]
    lines += [f"   return _elsewhere(_memory, {names}, _flat, {args}, {options})"]
    lines += [
        "  _known, _taped = _last, _grad_mode.enabled",
        "  if _taped and _flat and getattr(_flat[0], '_edge', None) is not None:",
        "   _known = _recorded",
        f"  for _again in _known.get({names}, ()):",
        "   _result = _again(_flat, _taped)",
        "   if type(_result) is not int: return _result",
        f"   if _result == {TAPED}:",
        f"    for _again in _recorded.get({names}, ()):",
        "     _result = _again(_flat, True)",
        "     if type(_result) is not int: return _result",
        "    break",
        f"  return _memory.find({names}, _flat, {args}, {options})",
        f" return _function(*{args}{', **' + options if last or double else ''})",
    ]
    tried = [lines[0], " try:", *[f" {line}" for line in lines[1:]]]
    tried += [" except _Unsized as _error: _looked = _error"]
    tried += [f" except AttributeError as _error: _check(_error, {args}); raise"]
    tried += [f" return _looked.instead(_function, {args}, {options})"]
    return "\n".join(tried)
