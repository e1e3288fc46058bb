"""``type`` of traced floats, in the place of Python's where the user's code calls it.

``type(k) is float`` and ``TABLE[type(k)]`` are to find a float where a traced one stands. The code
of functions that call ``type`` is exchanged meanwhile for one that calls ``type_of`` there; where
it is an object, as in ``type(x) is type``, it stays what it is. Start reading at ``tracing_types``.
"""

from __future__ import annotations

import builtins
import dis
import functools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

from .traced_float import TracedFloat

__all__ = ["tracing_types"]

_NAME = "__numbagrad_type_of__"
"""By which exchanged code knows ``type_of``: among Python's own names, so that no module of the
user has one more while others look through it."""

_MOST_NAMES = 127
"""Names of a code up to which one byte tells one more of them, beside a bit."""


def type_of(x: Any) -> type:
    """``type(x)``, of a traced float the type of its value."""
    return type(x.value) if type(x) is TracedFloat else type(x)


setattr(builtins, _NAME, type_of)


@functools.lru_cache(maxsize=4096)
def _exchanged(code: CodeType) -> CodeType:
    """``code``, with ``type_of`` where it, or a function inside it, calls ``type`` of one thing."""
    inside = tuple([_exchanged(c) if isinstance(c, CodeType) else c for c in code.co_consts])
    if any([c is not old for c, old in zip(inside, code.co_consts, strict=True)]):
        code = code.replace(co_consts=inside)
    if "type" not in code.co_names or len(code.co_names) > _MOST_NAMES:
        return code
    text, at = bytearray(code.co_code), 2 * len(code.co_names)
    steps = [i for i in dis.get_instructions(code) if i.opname != "CACHE"]
    for k, each in enumerate(steps):
        if each.opname == "LOAD_GLOBAL" and each.argval == "type" and _is_call(steps[k + 1 :]):
            text[each.offset + 1] = at | (text[each.offset + 1] & 1)  # the bit: a NULL before it
    if text == code.co_code:
        return code
    return code.replace(co_code=bytes(text), co_names=(*code.co_names, _NAME))


def _is_call(steps: list[dis.Instruction]) -> bool:
    """Whether what was just named is called with what ``steps`` make, and nothing else."""
    depth = 0
    for each in steps:
        if each.opname in ("PRECALL", "CALL") and depth == each.arg == 1:
            return True
        if each.opname.startswith(("JUMP", "POP_JUMP", "RETURN", "FOR_ITER")):
            return False
        depth += dis.stack_effect(each.opcode, each.arg)
        if depth < 0:  # it was an argument, say
            return False
    return False


@contextmanager
def tracing_types(functions: Iterable[FunctionType]) -> Iterator[None]:
    """A block in which ``type(x)`` in these functions is the type of the number that a traced float
    stands for. Others that run them meanwhile get what they would."""
    plain = [f for f in functions if getattr(f, "__builtins__", 0) is vars(builtins)]
    changed = [(f, f.__code__) for f in plain if _exchanged(f.__code__) is not f.__code__]
    try:
        for function, code in changed:
            function.__code__ = _exchanged(code)
        yield
    finally:
        for function, code in changed:
            function.__code__ = code
