"""The vector instructions of our matrix product: what LLVM does not find in a loop by itself.

``strip`` keeps blocks of the result in registers while it walks along the inner dimension,
``transpose`` turns a square block over, and ``copy_rectangle`` moves short lines. All are written
for the widest vectors of this CPU. The loops around them are in ``cpu/gemm.py`` and, for the last,
``cpu/conv.py``. How such a product is built up: Goto and van de Geijn, "Anatomy of High-Performance
Matrix Multiplication", ACM TOMS 34 (2008).
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding
from llvmlite import ir
from llvmlite.ir.values import MDValue
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = [
    "VECTOR_BYTES",
    "WIDE",
    "copy_rectangle",
    "middle_strip",
    "narrow_strip",
    "scratch",
    "transpose",
    "wide_strip",
]


def _vector_bytes() -> int:
    """Bytes in a vector register that can multiply, add and load parts; 0 where there is none."""
    told = config.CPU_FEATURES
    if told is None:
        try:
            told = llvmlite.binding.get_host_cpu_features().flatten()
        except RuntimeError:  # LLVM does not know this CPU
            return 0
    has = set(told.split(","))
    if "+avx512f" in has:
        return 64
    return 32 if {"+avx2", "+fma"} <= has else 0


VECTOR_BYTES = 0 if config.DISABLE_JIT else _vector_bytes()

WIDE = 4 if VECTOR_BYTES == 64 else 2
"""Vectors of columns in the widest tile."""

FULL = VECTOR_BYTES == 32
"""Whether ``wide_strip`` takes whole vectors only. AVX-512 loads and stores parts as fast; a store
of a part of 256 bits takes 12 cycles on a Zen 3."""

HEIGHTS = {
    # Tiles of 24 of the 32 registers of AVX-512, 12 of the 16 of AVX2. 4 by 6 takes 10 loads for
    # 24 products where 2 by 12 takes 14, and what limits the clock of busy AVX-512 is power: with
    # the same instructions on zeros it is 1.5 times as fast. Narrower ones are for last columns.
    4: (6, 4, 2, 1),
    2: (12, 4, 2, 1) if VECTOR_BYTES == 64 else (6, 4, 2, 1),
    1: (8, 4, 2, 1),
}
"""Rows of a tile by its vectors of columns, the tallest first; every size is made up of them."""

PANEL = HEIGHTS[WIDE][0]
"""Rows of the tallest and widest tile: a left factor is packed in panels of so many."""

_WORD = ir.IntType(64)


def _at(builder: ir.IRBuilder, address: Any, kind: Any) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


def _spread(builder: ir.IRBuilder, value: Any, lanes: int) -> Any:
    """A vector with ``value`` in each lane."""
    kind = ir.VectorType(value.type, lanes)
    nothing = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(nothing, value, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), lanes), None)
    return builder.shuffle_vector(first, nothing, zeros)


class _Rows:
    """Loads and stores of rows of so many vectors, of which only ``columns`` lanes of the last
    are touched; None: all of them."""

    def __init__(self, builder: ir.IRBuilder, kind: Any, vectors: int, columns: Any):
        self.builder, self.kind, self.vectors = builder, kind, vectors
        lanes = kind.count
        self.align = VECTOR_BYTES // lanes
        self.mask = None
        if columns is None:
            return
        places = ir.Constant(ir.VectorType(_WORD, lanes), list(range(lanes)))
        self.mask = builder.icmp_signed("<", places, _spread(builder, columns, lanes))

    def load(self, address: Any) -> list[Any]:
        whole = [
            self.builder.load(self._place(address, j), align=self.align)
            for j in range(self.vectors - (self.mask is not None))
        ]
        if self.mask is None:
            return whole
        nothing = ir.Constant(self.kind, None)
        return [*whole, self._masked("load", self.kind, [self._last(address)], [nothing])]

    def store(self, values: list[Any], address: Any) -> None:
        whole = values if self.mask is None else values[:-1]
        for j, value in enumerate(whole):
            self.builder.store(value, self._place(address, j), align=self.align)
        if self.mask is not None:
            self._masked("store", ir.VoidType(), [values[-1], self._last(address)], [])

    def prefetch(self, address: Any) -> None:
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = cgutils.get_or_insert_function(
            self.builder.module,
            ir.FunctionType(ir.VoidType(), [byte, number, number, number]),
            "llvm.prefetch.p0",
        )
        for j in range(self.vectors):
            place = self.builder.bitcast(self._place(address, j), byte)
            self.builder.call(function, [place, number(1), number(3), number(1)])

    def _place(self, address: Any, j: int) -> Any:
        moved = self.builder.add(address, _WORD(j * VECTOR_BYTES)) if j else address
        return _at(self.builder, moved, self.kind)

    def _last(self, address: Any) -> Any:
        return self._place(address, self.vectors - 1)

    def _masked(self, what: str, result: Any, first: list[Any], rest: list[Any]) -> Any:
        args = [*first, ir.Constant(ir.IntType(32), self.align), self.mask, *rest]
        return _llvm(self.builder, f"masked.{what}", self.kind, ".p0", result, args)


def _llvm(builder: Any, name: str, kind: Any, suffix: str, result: Any, args: list[Any]) -> Any:
    """Call an intrinsic of LLVM that is overloaded on a vector."""
    real = "f32" if isinstance(kind.element, ir.FloatType) else "f64"
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(result, [a.type for a in args]),
        f"llvm.{name}.v{kind.count}{real}{suffix}",
    )
    return builder.call(function, args)


def _as_written(module: Any) -> Any:
    """A loop that LLVM shall not unroll: each tile's chain of sums takes as long either way, and a
    tile of one row would become eight. Such a node stands for one loop by naming itself."""
    told = module.add_metadata(["llvm.loop.unroll.disable"])
    node = MDValue(module, [told], str(len(module.metadata)))
    node.operands = (node, told)
    return node


def _tile(builder: Any, rows: int, lines: _Rows, *operands: Any) -> None:
    """``out = start + x y`` for so many rows of ``k, x, y, start, out``: x is (address, row,
    column), the others (address, row), where row and column are bytes from one to the next."""
    k, x, y, start, out = operands
    kind = lines.kind
    real, itemsize = kind.element, VECTOR_BYTES // kind.count
    zero = ir.Constant(kind, None)
    # A base for every third row: the others are at + row and + 2 row, which the address of an
    # instruction can hold, so that few registers go to addresses.
    thrice, twice = builder.mul(x[1], _WORD(3)), builder.add(x[1], x[1])
    bases = [x[0]]
    while 3 * len(bases) < rows:
        bases.append(builder.add(bases[-1], thrice))
    to = out[0]
    for _ in range(rows):  # what the sums are added to, or written over, comes meanwhile
        lines.prefetch(to)
        to = builder.add(to, out[1])
    before = builder.block
    loop, after = builder.append_basic_block("along"), builder.append_basic_block("sum")
    builder.branch(loop)  # k is at least 1

    builder.position_at_end(loop)
    step = builder.phi(_WORD)
    places = [builder.phi(_WORD) for _ in (y, *bases)]
    sums = [[builder.phi(kind) for _ in range(lines.vectors)] for _ in range(rows)]
    y_line = lines.load(places[0])
    new = []
    for i, row in enumerate(sums):
        place = places[1 + i // 3]
        if i % 3:
            place = builder.add(place, x[1] if i % 3 == 1 else twice)
        factor = _spread(
            builder, builder.load(_at(builder, place, real), align=itemsize), kind.count
        )
        pairs = zip(y_line, row, strict=True)
        new.append([_llvm(builder, "fma", kind, "", kind, [factor, *pair]) for pair in pairs])
    last = builder.add(step, _WORD(1))
    phis = [step, *places, *[phi for row in sums for phi in row]]
    firsts = [_WORD(0), y[0], *bases] + [zero] * (rows * lines.vectors)
    moved = [builder.add(places[0], y[1])] + [builder.add(p, x[2]) for p in places[1:]]
    nexts = [last, *moved, *[value for row in new for value in row]]
    for phi, first, later in zip(phis, firsts, nexts, strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(later, loop)
    again = builder.cbranch(builder.icmp_signed("<", last, k), loop, after)
    again.set_metadata("llvm.loop", _as_written(builder.module))

    builder.position_at_end(after)
    with builder.if_else(builder.icmp_signed("!=", start[0], _WORD(0))) as (added, alone):
        with added:
            at, to = start[0], out[0]
            for row in new:
                old = lines.load(at)
                lines.store([builder.fadd(*pair) for pair in zip(old, row, strict=True)], to)
                at, to = builder.add(at, start[1]), builder.add(to, out[1])
        with alone:
            to = out[0]
            for row in new:
                lines.store(row, to)
                to = builder.add(to, out[1])


def _function(module: Any, name: str, words: int) -> tuple[Any, ir.IRBuilder]:
    """A function of its own in machine code, of so many integers: inlined it would be optimised
    again in each place, which takes LLVM longer than all the rest."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [_WORD] * words), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    return function, ir.IRBuilder(function.append_basic_block("entry"))


def _vector(real: Any) -> ir.VectorType:
    return ir.VectorType(real, VECTOR_BYTES // (4 if isinstance(real, ir.FloatType) else 8))


def _strip_function(module: Any, real: Any, vectors: int, full: bool) -> Any:
    """The machine function of ``strip``: a loop of the tallest tiles, then the shorter ones."""
    name = f"numbagrad_strip_{real}_{vectors}{'_full' if full else ''}"
    if name in module.globals:
        return module.globals[name]
    function, builder = _function(module, name, 13)
    n, k, x, x_row, x_col, x_gap, y, y_row, start, start_row, out, out_row, columns = function.args
    kind = _vector(real)
    lines = _Rows(builder, kind, vectors, None if full else columns)
    moving = {}  # what moves down the strip
    for name, first in (("left", n), ("x", x), ("start", start), ("out", out)):
        moving[name] = builder.alloca(_WORD)
        builder.store(first, moving[name])
    for height in HEIGHTS[vectors]:
        test, body, after = (
            builder.append_basic_block(f"{what}_{height}") for what in ("test", "tile", "after")
        )
        builder.branch(test)
        builder.position_at_end(test)
        left = builder.load(moving["left"])
        builder.cbranch(builder.icmp_signed(">=", left, _WORD(height)), body, after)
        builder.position_at_end(body)
        now = {name: builder.load(place) for name, place in moving.items()}
        _tile(
            *(builder, height, lines, k, (now["x"], x_row, x_col), (y, y_row)),
            *((now["start"], start_row), (now["out"], out_row)),
        )
        for name, row in (("x", x_row), ("start", start_row), ("out", out_row)):
            step = builder.mul(row, _WORD(height))
            if name == "x" and height == HEIGHTS[vectors][0]:
                step = builder.add(step, x_gap)
            builder.store(builder.add(now[name], step), moving[name])
        builder.store(builder.sub(now["left"], _WORD(height)), moving["left"])
        builder.branch(test)
        builder.position_at_end(after)
    builder.ret_void()
    return function


def _strip(vectors: int, full: bool = False) -> Any:
    @intrinsic
    def strip(
        typing, like,
        n, k, x, x_row, x_col, x_gap, y, y_row, start, start_row, out, out_row, columns,
    ):  # fmt: skip
        """``out = start + x y`` in a strip of columns, all addresses; ``start`` 0: ``out = x y``.

        x is n by k, at least 1 by 1; ``*_row``, ``*_col``: bytes from one to the next; columns: how
        many there are in the last vector. With ``start_row`` 0 the start is the same in each row.
        """

        def generate(context, builder, signature, args):
            real = context.get_value_type(like.dtype)
            builder.call(_strip_function(builder.module, real, vectors, full), args[1:])
            return context.get_dummy_value()

        return types.void(like, *[types.int64] * 13), generate

    return strip


def _transpose_function(module: Any, real: Any) -> Any:
    """The machine function of ``transpose``."""
    name = f"numbagrad_transpose_{real}"
    if name in module.globals:
        return module.globals[name]
    function, builder = _function(module, name, 6)
    x, x_row, rows, columns, out, out_row = function.args
    kind = _vector(real)
    lanes = kind.count
    given = _Rows(builder, kind, 1, columns)
    last = builder.sub(rows, _WORD(1))
    lines = []
    for i in range(lanes):
        within = builder.icmp_signed("<", _WORD(i), last)
        row = builder.select(within, _WORD(i), last)
        lines += given.load(builder.add(x, builder.mul(row, x_row)))
    # To interleave line i with line i + lanes / 2, log2(lanes) times over, is to transpose.
    numbers, half = ir.VectorType(ir.IntType(32), lanes), lanes // 2
    low = ir.Constant(numbers, [i // 2 + lanes * (i % 2) for i in range(lanes)])
    high = ir.Constant(numbers, [half + i // 2 + lanes * (i % 2) for i in range(lanes)])
    for _ in range(lanes.bit_length() - 1):
        pairs = list(zip(lines[:half], lines[half:], strict=True))
        lines = [builder.shuffle_vector(*p, order) for p in pairs for order in (low, high)]
    for line in lines:
        builder.store(line, _at(builder, out, kind), align=given.align)
        out = builder.add(out, out_row)
    builder.ret_void()
    return function


@intrinsic
def transpose(typing, like, x, x_row, rows, columns, out, out_row):
    """Write ``rows`` by ``columns`` numbers, at most a square of lanes, as columns by rows.

    x, out: addresses; x_row, out_row: bytes from row to row. ``out`` has room for the whole square;
    what lies outside the part asked for is undefined.
    """

    def generate(context, builder, signature, args):
        real = context.get_value_type(like.dtype)
        builder.call(_transpose_function(builder.module, real), args[1:])
        return context.get_dummy_value()

    return types.void(like, *[types.int64] * 6), generate


def _panels_function(module: Any, real: Any) -> Any:
    """The machine function of ``copy_panels``."""
    name = f"numbagrad_copy_panels_{real}"
    if name in module.globals:
        return module.globals[name]
    function, builder = _function(module, name, 6)
    out, out_panel, x, x_row, rows, panels = function.args
    kind = _vector(real)
    width = PANEL * VECTOR_BYTES // kind.count
    vectors = -(-PANEL // kind.count)
    lines = _Rows(builder, kind, vectors, _WORD(PANEL - (vectors - 1) * kind.count))
    whole = _Rows(builder, kind, vectors, None)
    with cgutils.for_range(builder, rows) as row:
        start = builder.add(x, builder.mul(row.index, x_row))
        first = builder.add(out, builder.mul(row.index, _WORD(width)))
        with cgutils.for_range(builder, panels) as panel:
            values = lines.load(builder.add(start, builder.mul(panel.index, _WORD(width))))
            whole.store(values, builder.add(first, builder.mul(panel.index, out_panel)))
    builder.ret_void()
    return function


@intrinsic
def copy_panels(typing, like, out, out_panel, x, x_row, rows, panels):
    """Write ``rows`` of ``PANEL * panels`` numbers from the address x to as many panels at out.

    A panel has rows of ``PANEL`` numbers without gaps, of which the last may write a vector more;
    x_row, out_panel: bytes from one to the next.
    """

    def generate(context, builder, signature, args):
        real = context.get_value_type(like.dtype)
        builder.call(_panels_function(builder.module, real), args[1:])
        return context.get_dummy_value()

    return types.void(like, *[types.int64] * 6), generate


def _lines_function(module: Any, real: Any) -> Any:
    """The machine function of ``copy_lines``."""
    name = f"numbagrad_copy_lines_{real}"
    if name in module.globals:
        return module.globals[name]
    function, builder = _function(module, name, 4)
    out, x, x_row, rows = function.args
    lines = _Rows(builder, _vector(real), WIDE, None)
    with cgutils.for_range(builder, rows) as row:
        values = lines.load(builder.add(x, builder.mul(row.index, x_row)))
        lines.store(values, builder.add(out, builder.mul(row.index, _WORD(WIDE * VECTOR_BYTES))))
    builder.ret_void()
    return function


@intrinsic
def copy_lines(typing, like, out, x, x_row, rows):
    """Write ``rows`` of ``WIDE`` vectors from the address x to out, without gaps; x_row: bytes."""

    def generate(context, builder, signature, args):
        real = context.get_value_type(like.dtype)
        builder.call(_lines_function(builder.module, real), args[1:])
        return context.get_dummy_value()

    return types.void(like, *[types.int64] * 4), generate


def _rectangle_function(module: Any, real: Any) -> Any:
    """The machine function of ``copy_rectangle``."""
    name = f"numbagrad_copy_rectangle_{real}"
    if name in module.globals:
        return module.globals[name]
    function, builder = _function(module, name, 6)
    out, out_row, x, x_row, rows, columns = function.args
    kind = _vector(real)
    lanes = _WORD(kind.count)
    blocks = builder.udiv(builder.add(columns, _WORD(kind.count - 1)), lanes)
    with cgutils.for_range(builder, blocks) as block:
        shift = builder.mul(block.index, _WORD(VECTOR_BYTES))
        line = _Rows(builder, kind, 1, builder.sub(columns, builder.mul(block.index, lanes)))
        with cgutils.for_range(builder, rows) as row:
            at = builder.add(builder.add(x, shift), builder.mul(row.index, x_row))
            to = builder.add(builder.add(out, shift), builder.mul(row.index, out_row))
            line.store(line.load(at), to)
    builder.ret_void()
    return function


@intrinsic
def copy_rectangle(typing, like, out, out_row, x, x_row, rows, columns):
    """Write ``rows`` by ``columns`` numbers from the address x to out; ``*_row``: bytes.

    A line of ten takes 4 ns, LLVM's own loop over it 6. To add lines to one another its loop is
    the faster one: what a masked store wrote is slow to read again.
    """

    def generate(context, builder, signature, args):
        real = context.get_value_type(like.dtype)
        builder.call(_rectangle_function(builder.module, real), args[1:])
        return context.get_dummy_value()

    return types.void(like, *[types.int64] * 6), generate


@intrinsic(prefer_literal=True)
def scratch(typing, nbytes):
    """The address of ``nbytes``, a constant, on the stack of the calling function."""
    size = nbytes.literal_value

    def generate(context, builder, signature, args):
        with builder.goto_entry_block():  # not cgutils.alloca_once: it would write zeros
            room = builder.alloca(ir.IntType(8), size=_WORD(size))
        room.align = 64
        return builder.ptrtoint(room, _WORD)

    return types.int64(nbytes), generate


wide_strip, middle_strip, narrow_strip = _strip(WIDE, full=FULL), _strip(2), _strip(1)
