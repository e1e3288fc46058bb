"""What a program asks about compilation: PyTorch's ``torch.compiler``, as far as it applies here.

``reset`` forgets what has been recorded, ``disable`` keeps a function out of compiled ones, and
``is_compiling`` tells whether the code that asks is being recorded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .compiled import compile
from .compiled.step import FUNCTIONS
from .errors import RecordingError
from .kernels import machine
from .ops.argument_names import rename

__all__ = ["compile", "disable", "is_compiling", "is_dynamo_compiling", "is_exporting", "reset"]


rename([compile], {"function": "model"})


def is_compiling() -> bool:
    """Whether this code is being recorded, to become a part of a compiled function.

    The branch that is taken then is the compiled one.

    >>> is_compiling(), compile(lambda x: x + is_compiling())(ng.tensor(1.0)).item()
    (False, 2.0)
    """
    return machine.is_compiling()


def is_dynamo_compiling() -> bool:
    """``is_compiling`` by its older name."""
    return machine.is_compiling()


def is_exporting() -> bool:
    """False: nothing is exported here."""
    return False


def disable(
    fn: Callable[..., Any] | None = None, recursive: bool = True, *, reason: str | None = None
) -> Any:
    """``fn``, or what is decorated, as a function that is never compiled.

    ``compile`` gives it back as it is. Inside of another compiled function it raises
    RecordingError, with ``reason``: a compiled function is one piece, out of which no call leads.
    recursive: without it only ``compile`` of ``fn`` itself has no effect.

    >>> @disable
    ... def shown(x):
    ...     return float(x)
    >>> compile(shown) is shown, shown(ng.tensor(2.0))
    (True, 2.0)
    """
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)

    @functools.wraps(fn)
    def called(*args: Any, **kwargs: Any) -> Any:
        if recursive and machine.is_compiling():
            raise RecordingError(
                f"{getattr(fn, '__qualname__', repr(fn))} is kept from being compiled by "
                f"compiler.disable{f' ({reason})' if reason else ''}. Call it outside of the "
                f"compiled function."
            )
        return fn(*args, **kwargs)

    called._never_compiled = True  # type: ignore[attr-defined]
    return called


def reset() -> None:
    """Forget what all compiled functions have recorded; their next calls record anew.

    Compiled code stays on disk, so that the same programs are found there.
    """
    for function in list(FUNCTIONS):
        function.cache_clear()
