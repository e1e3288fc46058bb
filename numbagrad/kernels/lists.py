"""Kernels over whole lists of arrays: all parameters of an optimiser in one launch.

``@list_kernel`` makes one; ``launch(kernel, [arrays], [arrays], ..., scalars)`` runs it, so that a
recorder sees in one launch which arrays are written (the first ``outputs`` arguments) and which
are read. The last argument is a callable that returns the scalars: hyper-parameters that a
scheduler moves are read at each run, and a recorded step calls it again each time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .machine import Kernel, threads, widens

__all__ = ["DATA_FIELD", "ListKernel", "list_kernel"]

DATA_FIELD = object.__basicsize__
"""Bytes from the start of an ndarray object to its data pointer: the first field after CPython's
object header, in every NumPy. Reading it in the kernel costs 60 ns an array, against 1 us for
``array.__array_interface__``; a test compares the two."""


class ListKernel(Kernel):
    """A kernel whose array arguments are lists, all of one length or empty where not used.

    The compiled function gets, for each list, the int64 ids of its arrays; for each array, the
    array; then ``sizes`` (elements of each array of the first list), ``like`` (the first array of
    the first list flattened: its dtype is theirs) and the scalars.

    by_element: each element of the arrays depends on those at its own place alone, so that the
    kernel may be run on parts of them.
    """

    by_element = False

    def __call__(self, *args: Any) -> None:
        """Run on ``args``: lists of C-contiguous arrays, single arrays, the scalars' callable."""
        operands, scalars = args[:-1], args[-1]
        first = next(a for a in operands if type(a) is list)
        if first[0].itemsize == 2 and widens(self, args):
            return
        sizes = [a.size for a in first]
        tables = [
            np.fromiter(map(id, a), np.int64, len(a)) if type(a) is list else a for a in operands
        ]
        compiled = self._serial or self.serial
        if self.grain is not None and sum(sizes) >= self.grain and threads() > 1:
            compiled = self.parallel
        compiled(*tables, np.array(sizes), first[0].reshape(-1), *scalars())


def list_kernel(
    *, outputs: int = 1, grain: int | None = None, by_element: bool = False, **options: Any
) -> Callable[[Callable[..., None]], ListKernel]:
    """Make a function on tables of arrays a ``ListKernel``; ``grain`` counts all elements."""

    def decorate(function: Callable[..., None]) -> ListKernel:
        kernel = ListKernel(function, outputs, grain, **options)
        kernel.by_element = by_element
        return kernel

    return decorate
