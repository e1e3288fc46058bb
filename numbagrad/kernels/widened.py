"""Kernels of the CPU on float16 and bfloat16: on float32 copies, whose results are rounded once.

A formula reads and writes halves itself, and so do kernels that say so (``Kernel.takes_halves``,
outside of compiled steps ``loads_halves``) or that only move elements. All others see float32: what
they read is copied for them, what they write is rounded into the halves afterwards. The copies go
through the verbs, so that a recorded step has them as loops, which fuse with what stands before and
after.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import config

from . import machine
from .expr import symbol
from .formula import Formula
from .halves import FLOAT32, HALVES
from .loops import ElementwiseKernel

__all__ = ["copy_kernel", "extent", "holds_halves", "launch_widened", "launched", "takes"]

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


def takes(kernel: Any, args: tuple[Any, ...]) -> bool:
    """Whether ``kernel`` takes the halves among ``args`` itself. Those written by hand take arrays
    of one dtype, formulas any; what only moves elements has them as words."""
    if getattr(kernel, "moves", False):
        return bool(args[0].itemsize == 2)
    if getattr(kernel, "loads_halves", False):
        return not machine.is_compiling() and not config.DISABLE_JIT
    if not getattr(kernel, "takes_halves", False):
        return False
    dtype = args[0].dtype
    return type(kernel) is ElementwiseKernel or all([a.dtype == dtype for a in _arrays(args)])


def launched(kernel: Any, args: tuple[Any, ...]) -> bool:
    """``launch_widened`` where that is needed; whether it was."""
    needed = holds_halves(args) and not takes(kernel, args)
    if needed:
        launch_widened(kernel, args)
    return needed


def extent(array: Any) -> tuple[int, int]:
    """Where the memory of ``array`` begins and ends, in bytes."""
    start = machine.address_of(array)
    steps = [s * (n - 1) for n, s in zip(array.shape, array.strides, strict=True)]
    low = start + sum([s for s in steps if s < 0])
    return low, start + sum([s for s in steps if s > 0]) + array.itemsize


class _Copies:
    """The float32 copies of one launch: one of each array, or one of the memory of several that
    overlap, of which a kernel may read what it has written."""

    def __init__(self, arrays: list[Any]):
        self.made: dict[Any, tuple[Any, Any]] = {}
        self.shared: list[tuple[int, int, Any]] = []  # where the memory lies, and its copy
        halves = {_key(a): a for a in arrays if a.dtype in HALVES and a.size}
        spans = sorted([(*extent(a), a) for a in halves.values()], key=lambda span: span[:2])
        group = spans[:1]
        for span in spans[1:]:
            if span[0] < max([end for _, end, _ in group]):
                group.append(span)
            else:
                self._share(group)
                group = [span]
        self._share(group)

    def _share(self, group: list[Any]) -> None:
        """Let arrays that overlap have one copy, of all the memory between the first and last."""
        if len(group) < 2 or len({a.dtype for _, _, a in group}) > 1:
            return
        low, end, first = group[0][0], max([end for _, end, _ in group]), group[0][2]
        size = (end - low) // first.itemsize
        if type(first) is np.ndarray:  # whose memory goes on where others of the group have theirs
            upwards = tuple([slice(None, None, -1 if s < 0 else 1) for s in first.strides])
            whole = np.lib.stride_tricks.as_strided(first[upwards], (size,), (first.itemsize,))
        else:
            offset = (low - machine.address_of(first)) // first.itemsize
            whole = machine.view(first, (size,), (1,), offset)
        wide = machine.empty(whole.shape, FLOAT32)
        machine.launch(copy_kernel, wide, whole)
        self.shared.append((low, end, wide))

    def of(self, arg: Any, reads: bool) -> Any:
        """What the kernel gets for ``arg``. reads: whether its elements matter."""
        if type(arg) is list:
            return [self.of(a, reads) for a in arg]
        if not isinstance(arg, np.ndarray) or arg.dtype not in HALVES:
            return arg
        found = self.made.get(_key(arg))
        if found is None:
            found = self.made[_key(arg)] = arg, self._copy(arg, reads)
        return found[1]

    def _copy(self, arg: Any, reads: bool) -> Any:
        place = machine.address_of(arg)
        for low, end, wide in self.shared:
            if arg.size and low <= place < end:
                strides = tuple([s // arg.itemsize for s in arg.strides])
                return machine.view(wide, arg.shape, strides, (place - low) // arg.itemsize)
        wide = machine.empty(arg.shape, FLOAT32)
        if reads:
            machine.launch(copy_kernel, wide, arg)
        return wide

    def give_back(self, outputs: tuple[Any, ...]) -> None:
        """Round what was written among ``outputs`` into the arrays that it belongs to."""
        written = {_key(a): self.made[_key(a)] for a in _arrays(outputs) if _key(a) in self.made}
        for old, wide in written.values():
            machine.launch(copy_kernel, old, wide)


def _key(array: Any) -> tuple[Any, ...]:
    return machine.address_of(array), array.shape, array.strides


def launch_widened(kernel: Any, args: tuple[Any, ...]) -> None:
    """Launch ``kernel`` on float32 copies of the halves among ``args``.

    Of a function that says nothing of its outputs every array may be written.
    """
    outputs = getattr(kernel, "outputs", len(args))
    copies = _Copies(list(_arrays(args)))
    for a in args[outputs:]:
        copies.of(a, True)
    wide = [copies.of(a, not (isinstance(a, np.ndarray) and machine.is_new(a))) for a in args]
    machine.launch(kernel, *wide)
    copies.give_back(args[:outputs])
