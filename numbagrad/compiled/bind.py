"""A template with everything it needs: compiled code, and a table filled with addresses."""

from __future__ import annotations

import ctypes
import struct
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import types

from ..kernels import machine, store
from ..kernels.apart import helped
from ..kernels.blas import load_blas
from ..kernels.flat import FlatType
from ..kernels.half_type import memory_type
from ..kernels.lists import DATA_FIELD
from ..kernels.native import dispatcher_of, native
from ..kernels.product import load_products, what_multiplies
from ..kernels.store import address_of_compiled, entry_of_compiled
from ..kernels.table import TableType
from .counts import Move, words
from .program import Buffer, Operand, Scalar
from .template import FIRST_CHECK, KernelUse, Template, type_of_argument
from .traced import Memory

_ALIGN = 64


class Workspace:
    """Memory for work buffers, shared by all programs of one compiled function."""

    def __init__(self) -> None:
        self.address = 0
        self._memory = np.empty(0, np.uint8)
        self._room = 0
        self._users: weakref.WeakSet[Bound] = weakref.WeakSet()

    def reserve(self, nbytes: int, user: Bound) -> None:
        """Make room for ``nbytes``; where that moves the memory, tell all users."""
        self._users.add(user)
        if nbytes > self._room or not self.address:
            self._memory = np.empty(nbytes + _ALIGN, np.uint8)
            start = machine.address_of(self._memory)
            self.address = -(-start // _ALIGN) * _ALIGN
            self._room = nbytes
            for each in list(self._users):
                each.place_work()


@dataclass
class Variant:
    """Compiled code: the numbers it reads from the table, its entry, and addresses of its parts."""

    varying: dict[int, str]
    run: Callable[..., int]
    text: str
    parts: list[int]
    kept: list[Any]


class Code:
    """Compiled functions of one template text: for given numbers, or for any.

    fastmath: whether LLVM may reorder what they calculate.
    """

    def __init__(self, fastmath: bool = False) -> None:
        self.fastmath = fastmath
        self.first: list[int | float] | None = None
        self.variants: list[Variant] = []

    def find(self, template: Template) -> Variant:
        """The compiled code for the numbers of ``template``; compiled where none fits."""
        if self.first is None:
            self.first = list(template.numbers)
        moved = {
            k
            for k, (a, b) in enumerate(zip(self.first, template.numbers, strict=True))
            if a != b or type(a) is not type(b)
        }
        for variant in self.variants:
            varying = variant.varying
            if moved <= set(varying) and _one_number_per_name(varying, template.numbers):
                return variant
        for variant in self.variants:
            moved |= set(variant.varying)
        names: dict[Any, str] = {}
        chosen = {}
        for k in sorted(moved):
            a, b = self.first[k], template.numbers[k]
            # Numbers that were equal both times are one size, unless a third time shows otherwise.
            same: Any = (a, b, type(a), type(b)) if len(self.variants) < 2 else k
            chosen[k] = names.setdefault(same, f"n{len(names)}")
        found = _compile(template, chosen, self.fastmath)
        self.variants.append(found)
        return found


def _one_number_per_name(varying: dict[int, str], numbers: Sequence[int | float]) -> bool:
    seen: dict[str, int | float] = {}
    return all(seen.setdefault(name, numbers[k]) == numbers[k] for k, name in varying.items())


def _compile(template: Template, varying: dict[int, str], fastmath: bool) -> Variant:
    table = types.Array(types.int64, 1, "C")
    options = {"allocates": False, "reassoc": fastmath}
    parts, texts = [], []
    for k, part in enumerate(template.parts):
        text, name = template.part_source(k, varying)
        dispatcher = store.compile_source(
            text, name, parallel=part.threads, no_cpython_wrapper=True, **options
        )
        parts.append((dispatcher, (table, *part.kinds)))
        texts.append(text)
    text, name = template.source(varying)
    main = store.compile_source(text, name, nogil=template.heavy, program=True, **options)
    signature = [TableType()]
    signature += [FlatType(memory_type(a.buffer.dtype)) for a in template.arguments]
    signature += map(type_of_argument, template.floats)
    signature += [t for _, kinds in template.hyper for t in kinds]
    whole = main, tuple(signature)
    uses = [entry.what for entry in template.table if entry.kind == "kernel"]
    called = [(dispatcher_of(use.kernel, use.parallel), use.signature) for use in uses]
    load_blas()
    with helped([*parts, whole, *called, *map(what_multiplies, template.products)]) as ours:
        for dispatcher, types_of_it in ours:
            dispatcher.compile(types_of_it)
        addresses = [address_of_compiled(*part) for part in parts]
        run = entry_of_compiled(*whole)
        for use in uses:
            native(use.kernel, use.signature, use.parallel)
        for dtype in template.products:
            load_products(dtype)
    return Variant(varying, run, "\n\n".join([*texts, text]), addresses, [d for d, _ in parts])


class Bound:
    """A template with its table. arrays: of buffers whose memory is told by ``rebind``."""

    how = ""  # said by ``explain`` of programs on a GPU

    def __init__(
        self,
        template: Template,
        code: Code,
        workspace: Workspace,
        arrays: dict[Buffer, np.ndarray | None],
    ):
        self.template = template
        self.variant = code.find(template)
        self.run = self.variant.run
        self.arrays = arrays
        self.kept: list[Any] = []  # what the table refers to
        self.failure: BaseException | None = None
        names: dict[str, int] = {}
        for k, name in self.variant.varying.items():
            names.setdefault(name, k)
        numbers = [template.numbers[k] for k in names.values()]
        self.table = np.zeros(len(template.table) + len(numbers), np.int64)
        self.table[len(template.table) :] = [
            n if isinstance(n, int) else struct.unpack("q", struct.pack("d", n))[0] for n in numbers
        ]
        self.workspace = workspace
        self._fill()
        workspace.reserve(template.work, self)
        self.place_work()

    @property
    def source(self) -> str:
        """The generated text."""
        return self.variant.text

    def place_work(self) -> None:
        """Write the addresses that depend on where the workspace is."""
        for k, entry in enumerate(self.template.table):
            if entry.kind == "work":
                self.table[k] = self.workspace.address
            elif entry.kind == "address":
                self.table[k] = self.workspace.address + entry.offset

    def _fill(self) -> None:
        own = machine.address_of(self.table)
        for k, entry in enumerate(self.template.table):
            if entry.kind == "table":
                self.table[k] = own
            elif entry.kind == "place":
                self.table[k] = own + 8 * entry.what
            elif entry.kind in ("number", "offset"):
                self.table[k] = entry.what
            elif entry.kind == "pointer to":
                self.table[k] = own + 8 * entry.what - DATA_FIELD
            elif entry.kind == "buffer":
                self.table[k] = self._address(entry.what)
            elif entry.kind == "kernel":
                use: KernelUse = entry.what
                self.table[k] = native(use.kernel, use.signature, use.parallel)
            elif entry.kind == "part":
                self.table[k] = self.variant.parts[entry.what]
            elif entry.kind == "python":
                self.table[k] = self._callback(*entry.what)

    def _address(self, buffer: Buffer) -> int:
        if buffer in self.arrays:
            array = self.arrays[buffer]
            return 0 if array is None else machine.address_of(array)
        memory: Memory = buffer.memory  # type: ignore[assignment]
        assert memory.array is not None, f"{buffer.name} has no memory"
        self.kept.append(memory.array)
        if memory.size == 0:
            return machine.address_of(memory.array)
        return int(np.lib.array_utils.byte_bounds(memory.array)[0])

    def rebind(self, buffer: Buffer, array: np.ndarray) -> None:
        """Let ``array`` be the memory of ``buffer``."""
        for k, entry in enumerate(self.template.table):
            if entry.kind == "buffer" and entry.what is buffer:
                self.table[k] = machine.address_of(array)

    def guard(self, number: int, tensor: Any, array: np.ndarray, expected: tuple[int, int]) -> None:
        """Say which objects hold persistent memory ``number``, and how many references they have
        while nobody else holds it."""
        values = {
            "tensor id": id(tensor),
            "array id": id(array),
            "tensor references": expected[0],
            "array references": expected[1],
        }
        for k, entry in enumerate(self.template.table):
            if entry.kind in values and entry.what == number:
                self.table[k] = values[entry.kind]

    def count(self, moves: list[Move]) -> None:
        """Say which version counters the code is to move, if it does."""
        at = [k for k, entry in enumerate(self.template.table) if entry.kind == "count"]
        if at:
            self.table[at] = words(moves)
            self.kept.append(moves)

    def _callback(self, function: Any, spots: list[tuple[int | None, Any]]) -> int:
        """The address of a C function that runs a Python function on the program's arrays."""
        reference = weakref.ref(self)

        def run(_: int) -> int:
            bound = reference()
            assert bound is not None
            try:
                function(*[bound._python_argument(at, what) for at, what in spots])
            except BaseException as error:
                bound.failure = error
                return 1
            return 0

        wrapped = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(run)
        self.kept.append(wrapped)
        return ctypes.cast(wrapped, ctypes.c_void_p).value or 0

    def _python_argument(self, at: int | None, what: Any) -> Any:
        if at is None:
            return what.value
        if isinstance(what, Scalar):
            bits = self.table[at : at + 1]
            return bits.view(np.float64).item() if isinstance(what.value, float) else bits.item()
        operand: Operand = what
        view, dtype = operand.view, operand.dtype
        low, high = view.bounds
        start = int(self.table[at]) - (operand.view.offset - low) * dtype.itemsize
        count = max(high - low, 1) * dtype.itemsize
        whole: Any = (ctypes.c_char * count).from_address(start)
        memory = np.frombuffer(whole, dtype)
        strides = [s * dtype.itemsize for s in view.strides]
        return np.ndarray(view.shape, dtype, memory, (view.offset - low) * dtype.itemsize, strides)

    def fail(self, status: int) -> None:
        """Raise what a failed check stands for."""
        if self.failure is not None:
            error, self.failure = self.failure, None
            raise error
        fail, at = self.template.checks[status - FIRST_CHECK]
        fail(int(self.table[at]))
        raise AssertionError(f"check {status - FIRST_CHECK} did not raise")
