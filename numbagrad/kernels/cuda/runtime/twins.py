"""From a CPU kernel to its twin on the GPU.

A kernel of ``kernels/cpu/x.py`` has its twin under the same name in ``kernels/cuda/x.py``: a
function of the same parameters that chooses a launch shape. A user's kernel gets one by
``@kernel.cuda``. A kernel without a twin raises, and so do arrays of two devices; nothing is copied
silently.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import FrameType, FunctionType
from typing import Any

import numpy as np

from ....devices import mixed
from ....errors import NoTwinError
from ...lists import ListKernel
from ...loops import ElementwiseKernel
from ...origin import ours
from . import again, device, elementwise

__all__ = ["is_cuda", "needed_twin", "of_a_user", "run_twin", "twin_of"]

_twins: dict[Any, Callable[..., None]] = {}


def twin_of(kernel: Any) -> Callable[..., None] | None:
    """The function that does on the GPU what ``kernel`` does on the CPU, or None."""
    found = _twins.get(kernel)
    if found is None:
        found = getattr(kernel, "twin", None)
        function = getattr(kernel, "function", None)
        package, _, name = getattr(function, "__module__", "").rpartition(".")
        if found is None and package.endswith("kernels.cpu"):
            try:
                module = importlib.import_module(f"{package[:-3]}cuda.{name}")
            except ModuleNotFoundError as error:
                if not (error.name or "").startswith("numbagrad"):
                    raise
            else:
                found = getattr(module, kernel.__name__, None)
        if found is not None:
            _twins[kernel] = found
    return found


def needed_twin(kernel: Any) -> Callable[..., None]:
    """The twin of ``kernel``; raises where there is none."""
    twin = twin_of(kernel)
    if twin is None:
        name = getattr(kernel, "__name__", repr(kernel))
        raise NoTwinError(
            f"{name}: there is no GPU kernel for this operation yet. Compute it on the CPU, "
            f"x.cpu(), and move the result back with .cuda(), outside of a compiled step; for a "
            f"kernel of your own register one with @{name}.cuda."
        )
    return twin


def run_twin(kernel: Any, args: tuple[Any, ...]) -> None:
    """Run the twin of ``kernel`` on arguments of which some are on the device."""
    for i, a in enumerate(args):
        if isinstance(a, np.ndarray) or (type(a) is list and np.ndarray in map(type, a)):
            if not _stays(kernel, i):
                raise mixed(_operation(kernel), "cuda:0", "cpu")
    if type(kernel) is ElementwiseKernel:
        elementwise.run(kernel, args)
        return
    if is_cuda(kernel):
        kernel(*[device.lent(a) for a in args])
        return
    twin = needed_twin(kernel)
    if isinstance(kernel, ListKernel):
        operands, scalars = args[:-1], args[-1]
        first = next(a for a in operands if type(a) is list)
        twin(*operands, [a.size for a in first], first[0], *scalars())
    elif of_a_user(kernel):
        twin(*[device.lent(a) for a in args])
    else:
        again.run(twin, args)


def of_a_user(kernel: Any) -> bool:
    """Whether ``kernel`` was given its twin by ``@kernel.cuda``; those of formulas have theirs
    too."""
    twin = getattr(kernel, "twin", None)
    if twin is None or isinstance(kernel, ListKernel):
        return False
    return not (isinstance(twin, FunctionType) and ours(twin))


def is_cuda(kernel: Any) -> bool:
    """Whether ``kernel`` is a user's ``@cuda.jit`` function with its launch configuration."""
    return (type(kernel).__module__ or "").startswith("numba.cuda")


def _stays(kernel: Any, position: int) -> bool:
    """Whether the twin of ``kernel`` reads this argument on the host: its file says so."""
    twin: Any = twin_of(kernel)
    names = getattr(sys.modules.get(getattr(twin, "__module__", "")), "ON_THE_HOST", ())
    return bool(names) and twin.__code__.co_varnames[position] in names


def _operation(kernel: Any) -> str:
    """What the user called that came to launch ``kernel``: the outermost function of the ops."""
    name = kernel.__name__ if hasattr(kernel, "__name__") else repr(kernel)
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module, found = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        if module.startswith(_OPERATIONS) and module not in _VERBS:
            name = name if found[0] == "_" or found in ("forward", "backward") else found
        frame = frame.f_back
    return name


_OPERATIONS = "numbagrad.ops.", "numbagrad.nn.functional", "numbagrad.nn.utils", "numbagrad.optim."
_VERBS = "numbagrad.ops.base", "numbagrad.ops.inplace"
