"""Vector instructions: registers of this CPU, rows of them in memory, and functions made of them.

What LLVM does not find in a loop by itself is written in its instructions here: see ``tile.py`` for
products of matrices and ``copies.py`` for moving numbers.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from llvmlite.ir.values import MDValue
from numba import config, types
from numba.core import cgutils

from .half_type import HalfType
from .half_vectors import SHORT, HalfVector, narrowed, widened
from .inner import Intrinsic
from .processor import features

__all__ = ["VECTOR_BYTES", "WORD", "Rows", "as_written", "at", "by_halves", "bytes_of"]
__all__ += ["call_llvm", "counted", "in_machine_code", "load_number", "overlapping", "parts_of"]
__all__ += ["places_from", "shuffled", "spread", "store_number"]


def _vector_bytes() -> int:
    """Bytes in a vector register that can multiply, add and load parts; 0 where there is none."""
    has = features()
    if "+avx512f" in has:
        return 64
    return 32 if {"+avx2", "+fma"} <= has else 0


VECTOR_BYTES = 0 if config.DISABLE_JIT else _vector_bytes()

WORD = ir.IntType(64)


_FLOAT_BYTES = {ir.FloatType: 4, ir.DoubleType: 8}


class _MachineCode(Intrinsic):
    """What stands for a function of ``in_machine_code`` until a call of it is compiled."""

    function_in: Callable[[Any, Any], Any]

    def __init__(self, written: Callable[..., Any], build: Callable[..., None]):
        super().__init__(written, False)
        self._build = build

    @functools.cached_property
    def _numba_type_(self) -> Any:
        # Numba reads the names of the parameters here.
        words = list(inspect.signature(self._build).parameters.values())[2:]
        first = list(inspect.signature(self._define).parameters.values())[:2]
        setattr(self._define, "__signature__", inspect.Signature([*first, *words]))  # noqa: B010
        return super()._numba_type_


def in_machine_code(build: Callable[..., None], name: str = "") -> Any:
    """The function of compiled code that ``build(builder, kind, *words)`` writes.

    It is called with an array or pointer, of whose numbers ``kind`` is the vector, and int64; of
    halves ``kind`` is a ``HalfVector``, of float32. It stays a function in machine code: inlined it
    would be optimised again in each place, which takes LLVM longer than all the rest. name: by
    default that of ``build``.
    """
    count = build.__code__.co_argcount - 2
    name = name or build.__name__

    def made(module: Any, real: Any) -> Any:
        place = f"numbagrad_{name}_{real}"
        if place in module.globals:
            return module.globals[place]
        kind = ir.FunctionType(ir.VoidType(), [WORD] * count)
        function = ir.Function(module, kind, place)
        function.linkage = "internal"
        function.attributes.add("noinline")
        builder = ir.IRBuilder(function.append_basic_block("entry"))
        build(builder, _vector_of(real), *function.args)
        builder.ret_void()
        return function

    def written(typing, like, *given):
        def generate(context, builder, signature, args):
            half = isinstance(like.dtype, HalfType)
            real = like.dtype.name if half else context.get_value_type(like.dtype)
            builder.call(made(builder.module, real), args[1:])
            return context.get_dummy_value()

        return types.void(like, *[types.int64] * count), generate

    written.__name__, written.__doc__ = name, build.__doc__
    result = _MachineCode(written, build)
    result.function_in = made  # of an LLVM module, for one kind of floats
    return result


def _vector_of(real: Any) -> Any:
    """A register of numbers of an LLVM type, or of halves of a name."""
    if isinstance(real, str):
        return HalfVector(VECTOR_BYTES // 4, real)
    return ir.VectorType(real, VECTOR_BYTES // (_FLOAT_BYTES.get(type(real)) or real.width // 8))


def bytes_of(kind: Any) -> int:
    """Bytes in memory of a number of a vector."""
    return 2 if isinstance(kind, HalfVector) else VECTOR_BYTES // kind.count


def load_number(builder: ir.IRBuilder, kind: Any, address: Any) -> Any:
    """The number at an address as one of a vector of ``kind``."""
    if isinstance(kind, HalfVector):
        return widened(builder, builder.load(at(builder, address, SHORT), align=2), kind.half)
    return builder.load(at(builder, address, kind.element), align=bytes_of(kind))


def store_number(builder: ir.IRBuilder, kind: Any, value: Any, address: Any) -> None:
    """Write a number of a vector of ``kind`` to an address."""
    if isinstance(kind, HalfVector):
        value = narrowed(builder, value, kind.half)
    builder.store(value, at(builder, address, value.type), align=bytes_of(kind))


def at(builder: ir.IRBuilder, address: Any, kind: Any) -> Any:
    """The pointer to a ``kind`` at an address."""
    return builder.inttoptr(address, kind.as_pointer())


def spread(builder: ir.IRBuilder, value: Any, lanes: int) -> Any:
    """A vector with ``value`` in each lane."""
    kind = ir.VectorType(value.type, lanes)
    nothing = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(nothing, value, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), lanes), None)
    return builder.shuffle_vector(first, nothing, zeros)


def as_written(module: Any) -> Any:
    """What the last branch of a loop says lest LLVM unroll or vectorise it: a tile's chain of sums
    takes as long either way, and one of one row would become eight; a loop over dimensions would
    become a hundred instructions. Such a node names itself: it is for one loop.
    """
    told = (
        module.add_metadata(["llvm.loop.unroll.disable"]),
        module.add_metadata(["llvm.loop.vectorize.enable", ir.IntType(1)(0)]),
    )
    node = MDValue(module, told, str(len(module.metadata)))
    node.operands = (node, *told)
    return node


@contextmanager
def counted(builder: ir.IRBuilder, count: Any) -> Iterator[Any]:
    """A loop that LLVM shall not unroll, from 0 to before ``count``."""
    before = builder.block
    test, body, after = (builder.append_basic_block(name) for name in ("test", "body", "after"))
    builder.branch(test)
    builder.position_at_end(test)
    i = builder.phi(WORD)
    i.add_incoming(WORD(0), before)
    builder.cbranch(builder.icmp_signed("<", i, count), body, after)
    builder.position_at_end(body)
    yield i
    i.add_incoming(builder.add(i, WORD(1)), builder.block)
    builder.branch(test).set_metadata("llvm.loop", as_written(builder.module))
    builder.position_at_end(after)


def shuffled(builder: ir.IRBuilder, x: Any, y: Any, places: list[int]) -> Any:
    """Lanes of the vector ``x`` and, counted on, of ``y``: those at ``places``."""
    numbers = ir.VectorType(ir.IntType(32), len(places))
    return builder.shuffle_vector(x, y, ir.Constant(numbers, places))


def parts_of(builder: ir.IRBuilder, count: Any, size: int) -> Any:
    """How many parts of ``size`` make up ``count``, the last of which may be smaller."""
    return builder.udiv(builder.add(count, WORD(size - 1)), WORD(size))


def places_from(builder: ir.IRBuilder, first: Any, height: int, count: Any) -> list[Any]:
    """So many places from ``first`` on, where there are fewer of ``count`` the last one again."""
    last = builder.sub(count, WORD(1))
    places = [builder.add(first, WORD(i)) for i in range(height)]
    return [builder.select(builder.icmp_signed("<", i, last), i, last) for i in places]


def overlapping(builder: ir.IRBuilder, lanes: int, count: Any) -> Iterator[tuple[int, Any]]:
    """``count`` elements by whole vectors, the last of which may lie over the one before it; fewer
    than that by halves of a vector, or halves of those. Yields the lanes and the first element.

    What is written for an element is written again with the same result.
    """
    width = lanes
    while width:
        fits = builder.icmp_signed(">=", count, WORD(width))
        if width < lanes:
            fits = builder.and_(fits, builder.icmp_signed("<", count, WORD(2 * width)))
        with builder.if_then(fits):
            last = builder.sub(count, WORD(width))
            blocks = builder.udiv(builder.add(count, WORD(width - 1)), WORD(width))
            with counted(builder, blocks) as block:
                begin = builder.mul(block, WORD(width))
                inside = builder.icmp_signed("<", begin, last)
                yield width, builder.select(inside, begin, last)
        width //= 2


def by_halves(builder: Any, value: Any, join: Callable[..., Any]) -> Any:
    """The lanes of a vector as one number, its halves joined again and again."""
    width = value.type.count
    while width > 1:
        width //= 2
        low, high = (shuffled(builder, value, value, list(range(k, k + width))) for k in (0, width))
        value = join(builder, low, high)
    return builder.extract_element(value, ir.IntType(32)(0))


class Rows:
    """Loads and stores of rows of so many vectors, of which only ``columns`` lanes of the last
    are touched; None: all of them. Halves are float32 when loaded, and rounded when stored."""

    def __init__(self, builder: ir.IRBuilder, kind: Any, vectors: int, columns: Any):
        self.builder, self.kind, self.vectors = builder, kind, vectors
        lanes = kind.count
        self.half = kind.half if isinstance(kind, HalfVector) else ""
        self.memory = ir.VectorType(SHORT, lanes) if self.half else kind
        self.align = bytes_of(kind)
        self.mask = None
        if columns is None:
            return
        places = ir.Constant(ir.VectorType(WORD, lanes), list(range(lanes)))
        self.mask = builder.icmp_signed("<", places, spread(builder, columns, lanes))

    def load(self, address: Any) -> list[Any]:
        found = [
            self.builder.load(self.place(address, j), align=self.align)
            for j in range(self.vectors - (self.mask is not None))
        ]
        if self.mask is not None:
            nothing = ir.Constant(self.memory, None)
            found.append(self._masked("load", self.memory, [self._last(address)], [nothing]))
        if self.half:
            return [widened(self.builder, bits, self.half) for bits in found]
        return found

    def store(self, values: list[Any], address: Any) -> None:
        if self.half:
            values = [narrowed(self.builder, value, self.half) for value in values]
        whole = values if self.mask is None else values[:-1]
        for j, value in enumerate(whole):
            self.builder.store(value, self.place(address, j), align=self.align)
        if self.mask is not None:
            self._masked("store", ir.VoidType(), [values[-1], self._last(address)], [])

    def prefetch(self, address: Any, writes: bool = True) -> None:
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = cgutils.get_or_insert_function(
            self.builder.module,
            ir.FunctionType(ir.VoidType(), [byte, number, number, number]),
            "llvm.prefetch.p0",
        )
        for j in range(self.vectors):
            place = self.builder.bitcast(self.place(address, j), byte)
            self.builder.call(function, [place, number(int(writes)), number(3), number(1)])

    def place(self, address: Any, j: int) -> Any:
        size = self.kind.count * self.align
        moved = self.builder.add(address, WORD(j * size)) if j else address
        return at(self.builder, moved, self.memory)

    def _last(self, address: Any) -> Any:
        return self.place(address, self.vectors - 1)

    def _masked(self, what: str, result: Any, first: list[Any], rest: list[Any]) -> Any:
        args = [*first, ir.Constant(ir.IntType(32), self.align), self.mask, *rest]
        return call_llvm(self.builder, f"masked.{what}", self.memory, ".p0", result, args)


def call_llvm(builder: Any, name: str, kind: Any, suffix: str, result: Any, args: list[Any]) -> Any:
    """Call an intrinsic of LLVM that is overloaded on a vector."""
    element = kind.element
    real = "f32" if isinstance(element, ir.FloatType) else "f64"
    real = f"i{element.width}" if isinstance(element, ir.IntType) else real
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(result, [a.type for a in args]),
        f"llvm.{name}.v{kind.count}{real}{suffix}",
    )
    return builder.call(function, args)
