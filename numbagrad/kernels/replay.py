"""Launches that were watched once, run again by one native call on other arrays of the same kinds.

An operation on a few numbers takes its time in Python: checks, sizes, views, one launch after the
other. What it launches depends on shapes, strides, dtypes and plain arguments alone, so that the
second time it need only be told where the arrays are. ``Launches`` watches, ``Replay`` is what it
makes of that, and ``_replay`` the function that compares arguments and runs.

A replay is an array of words: a head, a record for each argument that says what it must be, the
words of all launches as they were, where in these the addresses of arrays belong, and the launches.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import NativeValue, intrinsic, models, register_model, unbox

from . import store
from .intrinsics import load, pointer, stack, start
from .intrinsics import store as put
from .layout import TOTAL
from .loops import ElementwiseKernel
from .machine import Kernel
from .nest import walk_address, walk_at
from .numba_compiler import way_by_words
from .pieces import CALLED
from .product import ProductKernel, StridedGemmKernel
from .table import TableType
from .vectors import WORD

__all__ = ["Launches", "Replay", "replay", "shared"]

# The head, then the records of the arguments.
COUNT, TENSOR, ALSO, ARRAY_NAME, EDGE_NAME, BASE_NAME, NONE, WRITTEN = range(8)
IMAGE, IMAGE_WORDS, PLACES, PLACE_COUNT, STEPS, STEP_COUNT, OUTS, TEMPS = range(8, 16)
HEAD = 16

ARRAY, SAME, EQUAL, REAL, AGAIN = range(5)
"""Kinds of records. Of an array: its dtype's address, its rank, the bytes before and after its
first element, which array before it shares its memory (-1: none) and how far from that it begins,
its sizes and strides; of an object that came before its place among the arguments; of others the
value's address, its type's, its bits."""

FLAT, NESTED, KERNEL, CHECK = range(4)
"""Kinds of launches: a formula on numbers in a row, on a nest, a kernel by words; a look at a flag.
"""

MOST_ROOTS, MOST_WORDS, MOST_TEMPS = 16, 1024, 2048
"""Most arrays, words of launches, and words of memory in between: they lie on the stack."""

REFUSED, DONE, TAPED = range(3)
"""What ``replay`` gives: nothing was done, for these are other arguments, or a kernel found fault;
all was; nothing was, for an argument has a history."""

_INT32 = ir.IntType(32)
_LOW = (1 << 32) - 1


class ObjectType(types.CPointer):
    """A Python object, as its words in memory."""

    def __init__(self) -> None:
        super().__init__(types.int64)
        self.name = "object"


register_model(ObjectType)(models.PointerModel)
_SIZE = (tuple.__basicsize__ - object.__basicsize__) // 8 + 1  # the place of a tuple's length
_ITEMS = _SIZE + 1
_TYPE = 1
_DATA, _RANK, _SHAPE, _STRIDES, _DTYPE = (object.__basicsize__ // 8 + k for k in (0, 1, 2, 3, 5))
_FLOAT = object.__basicsize__ // 8


@unbox(ObjectType)
def _unbox_object(kind, obj, c):
    return NativeValue(c.builder.bitcast(obj, WORD.as_pointer()))


def _of_python(name: str, result: Any, given: int) -> Any:
    """The C function of Python that takes so many words and gives one."""

    def made(builder: Any) -> Any:
        kind = ir.FunctionType(result, [WORD] * given)
        return cgutils.get_or_insert_function(builder.module, kind, name)

    return made


@intrinsic
def _attribute(typing, owner, name):
    """The address of an attribute, which is held elsewhere too."""
    get = _of_python("PyObject_GetAttr", WORD, 2)
    release = _of_python("Py_DecRef", ir.VoidType(), 1)

    def generate(context, builder, signature, args):
        found = builder.call(get(builder), args)
        builder.call(release(builder), [found])
        return found

    return types.int64(types.int64, types.int64), generate


@intrinsic
def _equal(typing, value, other):
    """Whether two objects of one plain type are equal."""
    compare = _of_python("PyObject_RichCompareBool", _INT32, 3)

    def generate(context, builder, signature, args):
        # The last parameter is a C int: its upper half is not looked at.
        found = builder.call(compare(builder), [*args, WORD(2)])
        return builder.icmp_signed("==", found, _INT32(1))

    return types.boolean(types.int64, types.int64), generate


@intrinsic
def _call_pieces(typing, address, places, n):
    """Call a formula's second way in."""

    def generate(context, builder, signature, args):
        callee = builder.inttoptr(args[0], CALLED.as_pointer())
        builder.call(callee, [args[1], args[2]])
        return context.get_dummy_value()

    return types.void(types.int64, places, types.int64), generate


@intrinsic
def _call_words(typing, address, words):
    """Call a kernel by words; its status."""
    kind = ir.FunctionType(_INT32, [WORD.as_pointer()]).as_pointer()

    def generate(context, builder, signature, args):
        found = builder.call(builder.inttoptr(args[0], kind), [args[1]])
        return builder.sext(found, WORD)

    return types.int64(types.int64, words), generate


@intrinsic
def _moved(typing, words, k):
    """The pointer to word ``k``."""

    def generate(context, builder, signature, args):
        return builder.gep(args[0], [args[1]])

    return words(words, types.int64), generate


def _replay(plan, args, outs, taped):
    """Run the launches of ``plan``, where ``args`` are as it says: see ``REFUSED``."""
    p = pointer(start(plan), np.int64)
    if load(args, _SIZE) != load(p, COUNT):
        return REFUSED
    roots = stack(MOST_ROOTS, 0)
    low = stack(MOST_ROOTS, 0)
    high = stack(MOST_ROOTS, 0)
    count, at = 0, HEAD
    for i in range(load(p, COUNT)):
        item = load(args, _ITEMS + i)
        kind, value = load(p, at), load(p, at + 1)
        if kind == ARRAY:
            its_type = load(pointer(item, np.int64), _TYPE)
            if its_type != load(p, TENSOR) and its_type != load(p, ALSO):
                return REFUSED
            array = pointer(_attribute(item, load(p, ARRAY_NAME)), np.int64)
            rank = load(p, at + 2)
            if load(array, _DTYPE) != value or (load(array, _RANK) & _LOW) != rank:
                return REFUSED
            sizes = pointer(load(array, _SHAPE), np.int64)
            strides = pointer(load(array, _STRIDES), np.int64)
            for d in range(rank):
                if load(sizes, d) != load(p, at + 7 + d):
                    return REFUSED
                if load(strides, d) != load(p, at + 7 + rank + d):
                    return REFUSED
            if taped and _attribute(item, load(p, EDGE_NAME)) != load(p, NONE):
                return TAPED
            if count == load(p, WRITTEN) and _attribute(item, load(p, BASE_NAME)) != load(p, NONE):
                return REFUSED
            data, leader = load(array, _DATA), load(p, at + 5)
            if leader >= 0 and data - load(roots, leader) != load(p, at + 6):
                return REFUSED
            put(roots, count, data)
            put(low, count, data - load(p, at + 3))
            put(high, count, data + load(p, at + 4))
            count += 1
            at += 7 + 2 * rank
        else:
            if kind == AGAIN:
                value = load(args, _ITEMS + value)
            if item != value:
                if kind == SAME or kind == AGAIN:
                    return REFUSED
                if load(pointer(item, np.int64), _TYPE) != load(p, at + 2):
                    return REFUSED
                if kind == REAL:
                    if load(pointer(item, np.int64), _FLOAT) != load(p, at + 3):
                        return REFUSED
                elif not _equal(item, value):
                    return REFUSED
            at += 4
    written = load(p, WRITTEN)
    if written >= 0:
        for k in range(count):
            if k != written and load(low, k) < load(high, written):
                if load(low, written) < load(high, k):
                    return REFUSED
    for k in range(load(p, OUTS)):
        out = pointer(load(outs, _ITEMS + k), np.int64)
        put(roots, count, load(out, _DATA))
        count += 1
    temps = stack(MOST_TEMPS, 0)
    put(roots, count, start(temps))
    image = stack(MOST_WORDS, 0)
    at = load(p, IMAGE)
    for k in range(load(p, IMAGE_WORDS)):
        put(image, k, load(p, at + k))
    at = load(p, PLACES)
    for _ in range(load(p, PLACE_COUNT)):
        where = load(roots, load(p, at + 1)) + load(p, at + 2)
        put(image, load(p, at), where)
        at += 3
    at = load(p, STEPS)
    for _ in range(load(p, STEP_COUNT)):
        kind, address = load(p, at), load(p, at + 1)
        words, more = _moved(image, load(p, at + 2)), load(p, at + 3)
        if kind == FLAT:
            _call_pieces(address, words, more)
        elif kind == NESTED:
            walk_at(address, more, start(words), 0, load(p, at + 4))
        elif kind == KERNEL:
            if _call_words(address, words) != 0:
                return REFUSED
        elif load(pointer(load(words, 0), np.int64), 0) >= 0:
            return REFUSED
        at += 5
    return DONE


@functools.cache
def replay() -> Callable[[np.ndarray, tuple, tuple, bool], int]:
    """``replay(words, arguments, outputs, taped)``, compiled; see ``REFUSED``.

    taped: whether a history of an argument counts now.
    """
    body: Any = _replay
    signature = TableType(), ObjectType(), ObjectType(), types.boolean
    return store.entry_of_compiled(store.jit(body, nogil=False), signature)


_FIXED = -2


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

    def made(self, array: np.ndarray) -> None:
        """Note new memory."""
        self._known.append(_Memory(array))
        if not array.size:
            self.possible = False

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
        if args[0].size >= kernel.grain:
            self.possible = False  # by how many threads is for each call to say
            return
        found = kernel.planned(args)
        if found is None:
            return
        place = len(self._image)
        for k, a in enumerate(args):
            if type(a) is np.ndarray:
                self._address(a, k < kernel.outputs)
            else:
                self._number(a)
        address, plan = found
        self._kept.append(kernel)
        if plan is None:
            self._steps.append((FLAT, address, place, args[0].size, 0))
        else:
            self._kept.append(plan)
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
    ) -> Replay | None:
        """The replay, which writes into new arrays of the layout of ``results``; None where there
        can be none.

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
        fits = big < MOST_ROOTS and len(self._image) <= MOST_WORDS and room <= 8 * MOST_TEMPS
        written = self.written & set(range(self._given))
        if not (self.possible and fits and len(written) <= 1):
            return None
        places = [(at, m.root, m.offset + offset) for at, m, offset in self._places]
        words = [*head, *written] if written else [*head, -1]
        words += [0] * (HEAD - len(words))
        for record in records:
            words += record
        words[OUTS] = len(results)
        for name, count, rows in (
            (IMAGE, IMAGE_WORDS, [self._image]),
            (PLACES, PLACE_COUNT, places),
            (STEPS, STEP_COUNT, self._steps),
        ):
            words[name] = len(words)
            words[count] = len(self._image) if name == IMAGE else len(rows)
            for row in rows:
                words += row
        return Replay(words, self._kept)


class Replay:
    """What ``replay`` runs: its ``words``, and what must live as long as they do."""

    __slots__ = ("kept", "words")

    def __init__(self, words: Sequence[int], kept: Sequence[Any]):
        self.words = np.array(words, np.int64)
        self.kept = tuple(kept)


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
        if not kernel.is_small(args):
            return None
        many = False
    dispatcher = kernel.parallel if many else kernel.serial
    if isinstance(kernel, StridedGemmKernel):
        (found,) = [v for k, v in dispatcher.overloads.items() if k[0].dtype == _type_of(args[0])]
    else:
        seen = args
        if kernel.moves and args[0].itemsize == 2:
            seen = tuple([a.view(np.int16) if getattr(a, "itemsize", 0) == 2 else a for a in args])
        signature = tuple([dispatcher.typeof_pyval(a) for a in seen])
        found = dispatcher.overloads.get(signature)
    if found is None:
        return None
    address = found.library.get_pointer_to_function(way_by_words(found.fndesc.llvm_func_name))
    return (address, dispatcher) if address else None


def _type_of(array: np.ndarray) -> Any:
    return numba.from_dtype(array.dtype)
