"""Kernels of the CPU on float16 and bfloat16: on float32 copies, whose results are rounded once.

A formula reads and writes halves itself, and so do kernels that say so (``Kernel.takes_halves``) or
that only move elements. All others see float32: what they read is copied for them, what they write
is rounded into the halves afterwards. The copies go through the verbs, so that a recorded step has
them as loops, which fuse with what stands before and after.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from . import machine
from .expr import symbol
from .formula import Formula
from .halves import FLOAT32, HALVES
from .loops import ElementwiseKernel

__all__ = ["copy_kernel", "holds_halves", "launch_widened"]

copy_kernel = ElementwiseKernel(Formula("copy", ("x",), symbol("x")))
"""``out = x``, whatever the dtypes of the two."""


def _arrays(args: Any) -> Iterator[Any]:
    for a in args:
        if isinstance(a, np.ndarray):
            yield a
        elif type(a) is list:
            yield from _arrays(a)


def holds_halves(args: tuple[Any, ...]) -> bool:
    """Whether arrays of the host among the arguments of a kernel hold float16 or bfloat16."""
    return any([a.itemsize == 2 and a.dtype in HALVES for a in _arrays(args)])


class _Copies:
    """The float32 copies of one launch; arguments that are one array have one copy."""

    def __init__(self) -> None:
        self.made: dict[Any, tuple[Any, Any]] = {}

    def of(self, arg: Any, reads: bool) -> Any:
        """What the kernel gets for ``arg``. reads: whether its elements matter."""
        if type(arg) is list:
            return [self.of(a, reads) for a in arg]
        if not isinstance(arg, np.ndarray) or arg.dtype not in HALVES:
            return arg
        key = machine.address_of(arg), arg.shape, arg.strides
        found = self.made.get(key)
        if found is None:
            wide = machine.empty(arg.shape, FLOAT32)
            found = self.made[key] = arg, wide
            if reads:
                machine.launch(copy_kernel, wide, arg)
        return found[1]

    def give_back(self, outputs: tuple[Any, ...]) -> None:
        """Round what was written among ``outputs`` into the arrays that it belongs to."""
        done = set()
        for a in _arrays(outputs):
            key = machine.address_of(a), a.shape, a.strides
            if key in self.made and key not in done:
                done.add(key)
                machine.launch(copy_kernel, *self.made[key])


def launch_widened(kernel: Any, args: tuple[Any, ...]) -> None:
    """Launch ``kernel`` on float32 copies of the halves among ``args``.

    Of a function that says nothing of its outputs every array may be written.
    """
    outputs = getattr(kernel, "outputs", len(args))
    copies = _Copies()
    for a in args[outputs:]:
        copies.of(a, True)
    wide = [copies.of(a, not (isinstance(a, np.ndarray) and machine.is_new(a))) for a in args]
    machine.launch(kernel, *wide)
    copies.give_back(args[:outputs])
