"""What an operation launches, noted while it runs, and made a replay of: ``Launches``."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import machine
from .crew import load_crew
from .from_python import spread_address
from .half_type import memory_type, signature_of
from .layout import TOTAL
from .loops import Compiled, ElementwiseKernel
from .machine import Kernel
from .nest import parts_address, walk_address, words_for_parts
from .numba_compiler import address_by_words
from .product import GemmKernel, ProductKernel, StridedGemmKernel
from .replay import (
    CHECK,
    FLAT,
    HEAD,
    IMAGE,
    IMAGE_WORDS,
    KERNEL,
    LONG,
    MOST_ROOTS,
    MOST_TEMPS,
    MOST_WORDS,
    NESTED,
    OUTS,
    PLACE_COUNT,
    PLACES,
    SHARED,
    SPREAD,
    STEP_COUNT,
    STEPS,
)

__all__ = ["Launches", "bits", "bounds", "shared"]

_FIXED = -2

LARGE = 1 << 20
"""Most bytes of memory between launches, so many as a second cache has: it is made anew by each
call."""

LONG_BYTES = 1 << 18
"""Bytes of arrays from which on a replay lets go of Python's lock meanwhile: 0.1 us."""


class _Memory:
    """Memory that launches use: of an argument, or made meanwhile.

    root: its place among the arrays of a replay, ``_FIXED`` of numbers that stay; offset: where it
    begins there, in bytes.
    """

    def __init__(self, array: np.ndarray, root: int = -1):
        self.array, self.root, self.offset = array, root, 0
        self.first, self.before, self.after = bounds(array)


def bounds(array: np.ndarray) -> tuple[int, int, int]:
    """The address of the first element, the bytes that lie before it, and those from it on."""
    first = array.__array_interface__["data"][0]
    if not array.size:
        return first, 0, 0
    steps = [s * (n - 1) for n, s in zip(array.shape, array.strides, strict=True)]
    before = -sum(s for s in steps if s < 0)
    return first, before, sum(s for s in steps if s > 0) + array.itemsize


def shared(arrays: Sequence[np.ndarray]) -> list[tuple[int, int]]:
    """Of each array which one before it may share its memory, or -1, and how far from that it
    begins: between such arrays nobody can tell whose an address is, but their distance does."""
    found = []
    spans = [bounds(a) for a in arrays]
    for k, (first, before, after) in enumerate(spans):
        for j, (other, low, high) in enumerate(spans[:k]):
            if first - before < other + high and other - low < first + after:
                found.append((j, first - other))
                break
        else:
            found.append((-1, 0))
    return found


class Launches:
    """What was launched, on which memory.

    possible: becomes False at what cannot be run again.
    """

    def __init__(self, given: Sequence[np.ndarray]):
        self.possible = True
        self._known = [_Memory(a, k) for k, a in enumerate(given)]
        self._given = len(given)
        self._image: list[int] = []
        self._places: list[tuple[int, _Memory, int]] = []
        self._steps: list[tuple[int, int, int, int, int]] = []
        self._kept: list[Any] = []
        self.written: set[int] = set()
        if not all(m.after for m in self._known):
            self.possible = False

    def stays(self, array: Any) -> bool:
        """Whether ``array`` lies in a table, which is the same for all calls."""
        first, before, after = bounds(array)
        for memory in self._known:
            if memory.root == _FIXED and memory.first <= first - before:
                if first + after <= memory.first + memory.after:
                    return True
        return False

    def around(self, array: np.ndarray) -> np.ndarray | None:
        """The new array in whose memory ``array`` lies; None where there is none."""
        first, before, after = bounds(array)
        for memory in self._known:
            if memory.root == -1 and memory.first <= first - before:
                if first + after <= memory.first + memory.after:
                    return memory.array
        return None

    def made(self, array: np.ndarray) -> None:
        """Note new memory."""
        if array.size:
            self._known.append(_Memory(array))

    def table(self, values: np.ndarray) -> None:
        """Note numbers that are the same for all calls."""
        self._known.append(_Memory(values, _FIXED))
        self._kept.append(values)

    def note(self, kernel: Any, args: tuple[Any, ...]) -> None:
        """Note that ``kernel`` has run on ``args``."""
        if not self.possible:
            return
        if type(kernel) is ElementwiseKernel:
            self._note_formula(kernel, args)
        elif isinstance(kernel, Kernel):
            self._note_kernel(kernel, args)
        else:
            self.possible = False

    def look(self, flag: np.ndarray) -> None:
        """Note that a flag was looked at."""
        if self.possible:
            place = len(self._image)
            self._address(flag)
            self._steps.append((CHECK, 0, place, 0, 0))

    def _address(self, array: np.ndarray, written: bool = False) -> None:
        """Add the word that is the address of ``array``."""
        first, before, after = bounds(array)
        if not after:  # nobody reads it
            self._image.append(0)
            return
        for memory in self._known:
            if memory.first - memory.before <= first - before:
                if first + after <= memory.first + memory.after:
                    if memory.root == _FIXED:
                        self._image.append(first)
                        self.possible = self.possible and not written
                        return
                    self._places.append((len(self._image), memory, first - memory.first))
                    self._image.append(0)
                    if written and memory.root >= 0:
                        self.written.add(memory.root)
                    return
        self.possible = False

    def _number(self, value: Any) -> None:
        """Add the word that a number is passed as."""
        if type(value) in (bool, int) and -(1 << 63) <= value < 1 << 63:
            self._image.append(int(value))
        elif type(value) is float:
            self._image.append(bits(value))
        else:
            self.possible = False

    def _note_formula(self, kernel: ElementwiseKernel, args: tuple[Any, ...]) -> None:
        found = kernel.planned(args)
        if found is None:
            return
        shared = args[0].size >= kernel.grain
        if shared:
            load_crew()
        place = len(self._image)
        for k, a in enumerate(args):
            if type(a) is np.ndarray:
                self._address(a, k < kernel.outputs)
            else:
                self._number(a)
        self._kept += [kernel, found]
        if isinstance(found, Compiled):
            words = found.description.__array_interface__["data"][0]
            step = (SPREAD, spread_address(), place, args[0].size, words)
            self._steps.append(step if shared else (FLAT, found.address, *step[2:]))
            return
        plan = found
        # When the number of threads changes all is forgotten.
        threads = machine.threads() if shared else 1
        if threads > 1:
            words = len(self._image)
            self._image += words_for_parts(plan, threads)
            self._steps.append((SHARED, parts_address(), words, place, 0))
        else:
            where = plan.__array_interface__["data"][0]
            self._steps.append((NESTED, walk_address(), place, where, int(plan[TOTAL])))

    def _note_kernel(self, kernel: Kernel, args: tuple[Any, ...]) -> None:
        found = _compiled_kernel(kernel, args)
        if found is None:
            self.possible = False
            return
        address, keep = found
        self._kept.append(keep)
        place = len(self._image)
        for k, a in enumerate(args):
            if type(a) is np.ndarray:
                self._image += [0, 0, a.size, a.itemsize]
                self._address(a, k < kernel.outputs)
                self._image += [*a.shape, *a.strides]
            else:
                self._number(a)
        self._steps.append((KERNEL, address, place, 0, 0))

    def finish(
        self, head: Sequence[int], records: Sequence[Sequence[int]], results: Sequence[np.ndarray]
    ) -> tuple[np.ndarray, list[Any], int] | None:
        """The words of the replay, which writes into new arrays of the layout of ``results``, what
        must live as long as they do, and the bytes of one more array that it is given after these,
        0 where it needs none; None where there can be no replay.

        head: the words up to ``NONE``. records: of the arguments.
        """
        for k, result in enumerate(results):
            memory = next((m for m in self._known if m.root == -1 and _is_all(m, result)), None)
            if memory is None:
                return None
            memory.root = self._given + k
        room, big = 0, self._given + len(results)
        for memory in self._known:
            if memory.root == -1:
                memory.root, memory.offset = big, room
                room += -(-memory.after // 64) * 64
        more = room if room > 8 * MOST_TEMPS else 0
        fits = big + bool(more) < MOST_ROOTS and len(self._image) <= MOST_WORDS and more <= LARGE
        written = self.written & set(range(self._given))
        if not (self.possible and fits and len(written) <= 1):
            return None
        places = [(at, m.root, m.offset + offset) for at, m, offset in self._places]
        words = [*head, *written] if written else [*head, -1]
        words += [0] * (HEAD - len(words))
        for record in records:
            words += record
        words[OUTS] = len(results) + bool(more)
        words[LONG] = sum([m.array.nbytes for m in self._known]) > LONG_BYTES
        for name, count, rows in (
            (IMAGE, IMAGE_WORDS, [self._image]),
            (PLACES, PLACE_COUNT, places),
            (STEPS, STEP_COUNT, self._steps),
        ):
            words[name] = len(words)
            words[count] = len(self._image) if name == IMAGE else len(rows)
            for row in rows:
                words += row
        return np.array(words, np.int64), self._kept, more


def bits(value: float) -> int:
    """The word of a float's eight bytes."""
    return int(struct.unpack("q", struct.pack("d", value))[0])


def _is_all(memory: _Memory, array: np.ndarray) -> bool:
    """Whether ``array`` is all of new memory, in whichever order of dimensions."""
    return bounds(array) == (memory.first, 0, array.nbytes) and memory.array.nbytes == array.nbytes


def _compiled_kernel(kernel: Kernel, args: tuple[Any, ...]) -> tuple[int, Any] | None:
    """The address by words of what runs ``args``, and what must be kept for it."""
    arrays = [a for a in args if type(a) is np.ndarray]
    plain = all([type(a) in (np.ndarray, int, float, bool) for a in args])
    if not plain or not arrays:
        return None
    grain = kernel.grain
    many = grain is not None and any([a.size >= grain for a in arrays])
    if isinstance(kernel, ProductKernel):
        many = kernel.takes_threads(args)
    dispatcher = kernel.parallel if many else kernel.serial
    if isinstance(kernel, StridedGemmKernel):
        kind = memory_type(args[0].dtype)
        (found,) = [v for k, v in dispatcher.overloads.items() if k[0].dtype == kind]
    elif isinstance(kernel, GemmKernel) and args[0].itemsize == 2:
        found = dispatcher.overloads.get(signature_of(args, kernel.layout))
    elif kernel.loads_halves and any([a.itemsize == 2 for a in arrays]):
        found = dispatcher.overloads.get(signature_of(args, "C"))
    else:
        seen = args
        if kernel.moves and args[0].itemsize == 2:
            seen = tuple([a.view(np.int16) if getattr(a, "itemsize", 0) == 2 else a for a in args])
        signature = tuple([dispatcher.typeof_pyval(a) for a in seen])
        found = dispatcher.overloads.get(signature)
    if found is None:
        return None
    address = address_by_words(found)
    return (address, dispatcher) if address else None
