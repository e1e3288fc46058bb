"""A loop instruction as source text: a nest around scalar code, with sums, for one thread or many.

With threads the outermost dim is cut into chunks whose number depends on sizes alone, each with
sums of its own that are added up in order: the result does not depend on the threads.
"""

from __future__ import annotations

import math
import re

from ..kernels.expr import inputs_of
from ..kernels.halves import half_name, is_floating
from ..kernels.loops import COSTLY, is_costly
from ..kernels.writer import Writer, cast
from .emit_text import Text
from .memory import rounded
from .program import Buffer, Loop, Operand, Store
from .shown import without_parentheses

CHUNKS = 64
"""Most chunks of a shared loop."""
WIDE, FEWER_CHUNKS, ROWS_OF_SUMS = 64, 16, 16
"""Sums of columns from which their rows, one for each chunk, would not stay in the first cache;
most chunks then, and least rows of one. On one thread 1024 sums of 1024 rows take 1.03 times as
long as without chunks (1.1 in 64 of them), 50,000 of 64 rows 1.23 times (1.9)."""
WORTH_THREADS = 1 << 16
"""Iterations, those with a function such as exp counted eight times, from which a loop gets a
compilation with threads of its own: 0.2 s once, to save 5 us and more each time. From 2^19 on a
transformer's step took 4.96 ms on two threads, and 4.65 so."""


SHORT = range(9, 33)
"""Lengths of inner loops that LLVM would unroll, and then vectorise the loop around them: adding a
bias to 16 by 32 numbers took 0.2 us instead of 0.1."""

FEW = range(2, 64)
"""Lengths of loops around others that LLVM would unroll in a loop for several threads, all that is
inside with them: 256 products of 10 and 1568 numbers took 22 s to compile instead of 0.9."""

_LITERAL = re.compile(r"\b(float32|float64|int64)\((-?[0-9][0-9.]*(?:e[-+]?[0-9]+)?)\)")


def effort(loop: Loop) -> int:
    """About how many plain iterations the loop is worth."""
    from ..kernels.expr import topological

    nodes = topological([line.expr for line in loop.lines])
    return loop.size * (1 + 7 * sum(node.op in COSTLY for node in nodes))


def _most_chunks(loop: Loop) -> int:
    """In how many chunks threads share out a loop at most."""
    for o, store in zip(loop.outs, loop.stores, strict=True):
        strides = o.view.strides
        if store.mode != "store" and not strides[0] and any(strides):
            kept = [n for n, s in zip(loop.space, strides, strict=True) if s]
            if math.prod(kept) >= WIDE:
                return max(1, min(loop.space[0] // ROWS_OF_SUMS, FEWER_CHUNKS))
    return CHUNKS


class LoopText:
    """Writes one collapsed loop.

    shared: with ``prange`` over chunks; among_threads: within such a loop.
    """

    def __init__(self, emitter: Text, loop: Loop, shared: bool, among_threads: bool = False):
        self.e = emitter
        self.loop = loop
        self.shared = shared
        self.among_threads = shared or among_threads
        self.number = emitter.loops
        emitter.loops += 1
        self.dims = len(loop.space)
        self.first: list[str] = []  # before everything
        self.last: list[str] = []  # after everything
        self.before: list[list[str]] = [[] for _ in range(self.dims + 1)]  # the loop over dim d
        self.after: list[list[str]] = [[] for _ in range(self.dims + 1)]
        self.body: list[str] = []
        self.second: list[str] = []  # a loop of its own over the last dim, after that of ``body``
        self.costly = is_costly([line.expr for line in loop.lines])
        self.outer = 0  # dims whose loops are others' too
        self.scratch = 0
        self.sums = 0
        self.parts_of_sums = 0
        self.parts = 0  # of memory that the loop touches, which never meet
        self.chunks = min(loop.space[0], _most_chunks(loop)) if shared else 1

    def lines(self, outer: int = 0) -> list[str]:
        """The text, without the loops over the first ``outer`` dims."""
        loop, e = self.loop, self.e
        k, self.outer = self.number, outer
        pieces = self.piece_of = self.pieces()
        names = self.names = {n: f"{n}_{k}" for n in (*loop.loads, *(x.name for x in loop.lines))}
        self.body += [
            f"{names[n]} = {e.use('load_apart')}({e.pointer(o.buffer)}, {e.index(o, self.dims)}, "
            f"{pieces[o.buffer]!r})"
            for n, o in zip(loop.loads, loop.ins, strict=True)
        ]
        kinds = {n: e.type(o.dtype) for n, o in zip(loop.loads, loop.ins, strict=True)}
        for n, s in loop.scalars:
            names[n] = e.float_argument(s)
            kinds[n] = "float64" if isinstance(s.value, float) else "int64"
        self.scalar_code(names, kinds)
        kinds |= {line.name: line.dtype for line in loop.lines}
        for o, store in zip(loop.outs, loop.stores, strict=True):
            if store.mode == "store":
                value = names[store.line]
                if kinds[store.line] != e.type(o.dtype):
                    value = f"{e.type(o.dtype)}({value})"
                at = e.index(o, self.dims)
                to = f"{e.use('store_apart')}({e.pointer(o.buffer)}"
                self.body.append(f"{to}, {at}, {value}, {pieces[o.buffer]!r})")
            else:
                self.summed(o, store, names[store.line])
        e.scratch = max(e.scratch, self.scratch)
        if self.costly:
            e.use("wide")
        return [*self.first, *self.nest(outer), *self.last]

    def pieces(self) -> dict[Buffer, str]:
        """Which buffers of this loop share memory: the piece of each."""
        groups: list[list[Buffer]] = []
        for o in (*self.loop.ins, *self.loop.outs):
            meeting = [g for g in groups if any(self.e.share(o.buffer, b) for b in g)]
            groups = [g for g in groups if g not in meeting]
            groups.append([o.buffer, *(b for g in meeting for b in g)])
        rows_of_sums = sum(store.mode != "store" for store in self.loop.stores)
        self.parts_of_sums = rows_of_sums
        self.parts = len(groups) + rows_of_sums * (2 if self.costly else 1)
        return {b: self.piece(k) for k, group in enumerate(groups) for b in group}

    def piece(self, k: int) -> str:
        """The k-th of the parts, in the words of ``load_apart``."""
        return f"{self.number}.{k}.{self.parts}"

    def nest(self, outer: int) -> list[str]:
        """The loops from dim ``outer`` on."""
        lines: list[str] = []
        indent = ""
        if self.shared:
            lines.append(f"for c in prange({self.e.number(self.chunks)}):")
            indent = "    "
            lines += [f"{indent}wide()"] if self.costly else []
        for d in range(outer, self.dims):
            lines += [indent + line for line in self.before[d]]
            size = self.e.number(self.loop.space[d])
            span = size
            if d == 0 and self.shared:
                chunks = self.e.number(self.chunks)
                span = f"{size} * c // {chunks}, {size} * (c + 1) // {chunks}"
            if self.hides_length(d):
                span = f"{self.e.use('unknown')}({size})"
            lines.append(f"{indent}for i{d} in range({span}):")
            indent += "    "
        inside = [*self.before[self.dims], *self.body, *self.after[self.dims]]
        lines += [indent + line for line in inside]
        for d in reversed(range(outer, self.dims)):
            indent = indent[4:]
            if self.second and d == self.dims - 1:
                lines.append(f"{indent}for i{d} in range({span}):")
                lines += [f"{indent}    {line}" for line in self.second]
            lines += [indent + line for line in self.after[d]]
        return lines

    def hides_length(self, d: int) -> bool:
        """Whether LLVM must not see how often the loop over dim ``d`` runs."""
        if d == self.dims - 1:
            return d > 0 and self.loop.space[d] in SHORT
        return d > 0 and self.among_threads and self.loop.space[d] in FEW

    def scalar_code(self, names: dict[str, str], kinds: dict[str, str]) -> None:
        """The lines of the loop as Python."""
        e, kinds = self.e, dict(kinds)
        read = {n for line in self.loop.lines for n in inputs_of(line.expr)}
        read |= {store.line for store in self.loop.stores if store.mode != "store"}
        halves = {
            n: half_name(o.dtype) for n, o in zip(self.loop.loads, self.loop.ins, strict=True)
        }
        for line in self.loop.lines:
            same = line.expr.op == "input" and kinds[line.expr.value] == line.dtype
            if same and line.rounded in ("", halves.get(line.expr.value)):
                halves[line.name] = halves.get(line.expr.value, "")
                names[line.name] = names[line.expr.value]  # another name for the same
                kinds[line.name] = line.dtype
                continue
            t = e.type(line.compute)
            inputs = {
                n: names[n] if kinds[n] == t else f"{t}({names[n]})" for n in kinds if n in names
            }
            integer = t == "int64"
            writer = Writer([line.expr], integer, t, inputs, e.temporaries, self.picks())
            e.temporaries += len(writer.lines)
            self.body += [self.marked(text) for text in writer.lines]
            for op in writer.helpers:
                e.helpers[op, t] = None
            e.simd.update(writer.simd)
            value = cast(writer.names[line.expr], line.expr.is_bool, e.type(line.dtype), t)
            value = without_parentheses(self.marked(value))
            if line.rounded and line.name in read:  # as if it had been stored and loaded
                e.halves[f"round_{line.rounded}"] = None
                value = f"round_{line.rounded}({value})"
            self.body.append(f"{names[line.name]} = {value}")
            kinds[line.name] = line.dtype

    def picks(self) -> bool:
        """Whether choices are made by an instruction, see ``Writer``."""
        if any([store.mode != "store" for store in self.loop.stores]):
            return False
        inner = [o.view.strides[-1] for o in self.loop.ins if o.view.strides]
        masked = any([o.dtype.kind == "b" for o in self.loop.ins])
        return bool(self.loop.scalars) or 0 in inner or masked

    def marked(self, text: str) -> str:
        """``text`` with markers for its numbers: 1 / n of a mean is another for another batch."""

        def mark(m: re.Match[str]) -> str:
            value = int(m[2]) if m[1] == "int64" else float(m[2])
            fits = value not in (0, 1) and abs(value) < 1 << 53
            return f"{m[1]}({self.e.number(value)})" if fits else m[0]

        return _LITERAL.sub(mark, text)

    def summed(self, o: Operand, store: Store, value: str) -> None:
        """A sum over the dims where ``o`` has stride 0, in float64 or int64."""
        e = self.e
        wide = e.type("float64" if is_floating(o.dtype) else "int64")
        strides = o.view.strides
        inner = self.dims
        while inner and strides[inner - 1] == 0:
            inner -= 1
        share = f" / {e.number(store.divisor)}" if store.divisor != 1 else ""
        e.use("store")
        result = (
            f"store({e.pointer(o.buffer)}, {e.index(o, self.dims)}, {e.type(o.dtype)}({{}}{share}))"
        )
        total = f"sum_{self.number}_{self.sums}"
        self.sums += 1
        add = "{0} = {0} + {1}"
        if wide == "float64":
            add = f"{{0}} = {e.use('plus')}({{0}}, {{1}})"
        add = add.format(total, f"{wide}({value})")
        if all(strides[d] for d in range(inner)):  # in a register
            self.before[inner].append(f"{total} = {wide}(0)")
            self.body.append(add)
            if not (self.shared and inner == 0):
                self.after[inner].append(result.format(total))
                return
            sums = self.room(self.chunks, wide)
            self.after[0].append(f"store({sums}, c, {total})")
            e.use("load")
            self.last += [
                f"{total} = {wide}(0)",
                f"for c in range({e.number(self.chunks)}):",
                f"    {total} = {total} + load({sums}, c)",
                result.format(total),
            ]
            return
        self.columns(o, value, wide, total, result)

    def columns(self, o: Operand, value: str, wide: str, total: str, result: str) -> None:
        """Sums of columns: a row of sums in memory, over which the inner loop runs."""
        assert not self.outer, "sums of columns run over all rows"
        e, strides = self.e, o.view.strides
        e.use("load")
        kept = [d for d in range(self.dims) if strides[d]]
        sizes = [self.loop.space[d] for d in kept]
        count = math.prod(sizes)
        cut = self.shared and strides[0] == 0
        sums = self.room(count * (self.chunks if cut else 1), wide)
        step, terms = 1, []
        for d, n in zip(reversed(kept), reversed(sizes), strict=True):
            terms.append(f"i{d}" if step == 1 else f"i{d} * {e.number(step)}")
            step *= n
        spot = " + ".join(reversed(terms))
        mine = f"c * {e.number(count)} + {spot}" if cut else spot
        (self.before[0] if cut else self.first).extend(
            [
                f"for j in range({e.number(count)}):",
                f"    store({sums}, {f'c * {e.number(count)} + j' if cut else 'j'}, {wide}(0))",
            ]
        )
        own = repr(self.piece(self.parts - self.sums))
        old = f"{e.use('load_apart')}({sums}, {mine}, {own})"
        body = self.body
        if self.costly and wide == "float64" and len(strides) > 1 and strides[-1]:
            again = self.read_back(value) or self.kept_row(value)
            if again:  # beside float64 the formula would be vectorised for numbers of its width
                body, value = self.second, again
        body.append(f"{e.use('store_apart')}({sums}, {mine}, {old} + {wide}({value}), {own})")
        if cut:  # the rows of the other chunks are added to the first, one after another
            length, first, other = e.number(count), f"{e.loops}.0.2", f"{e.loops}.1.2"
            e.loops += 1
            old = f"load_apart({sums}, j, {first!r})"
            self.last += [
                f"for c in range(1, {e.number(self.chunks)}):",
                f"    for j in range({length}):",
                f"        more = load_apart({sums}, c * {length} + j, {other!r})",
                f"        store_apart({sums}, j, {old} + more, {first!r})",
            ]
        indent = ""
        for d in kept:
            self.last.append(f"{indent}for i{d} in range({e.number(self.loop.space[d])}):")
            indent += "    "
        self.last.append(indent + result.format(f"load({sums}, {spot})"))

    def read_back(self, value: str) -> str:
        """What reads a value that the loop also stores, all of it; "" if it does not."""
        e, width = self.e, {line.name: line.dtype for line in self.loop.lines}
        for o, store in zip(self.loop.outs, self.loop.stores, strict=True):
            same = store.mode == "store" and self.names[store.line] == value
            if same and o.view.strides[-1] and width.get(store.line) == e.type(o.dtype):
                at, piece = e.index(o, self.dims), self.piece_of[o.buffer]
                return f"{e.use('load_apart')}({e.pointer(o.buffer)}, {at}, {piece!r})"
        return ""

    def kept_row(self, value: str) -> str:
        """What reads a float32 value of the loop from a row of scratch memory; "" for others."""
        e, d = self.e, self.dims - 1
        if {self.names[line.name]: line.dtype for line in self.loop.lines}.get(value) != "float32":
            return ""
        size = self.loop.space[d]
        row = self.room(size * self.chunks, "float32", "row")
        at = f"c * {e.number(size)} + i{d}" if self.shared else f"i{d}"
        own = repr(self.piece(self.parts - self.parts_of_sums - self.sums))
        self.body.append(f"{e.use('store_apart')}({row}, {at}, {value}, {own})")
        return f"{e.use('load_apart')}({row}, {at}, {own})"

    def room(self, count: int, wide: str, what: str = "sums") -> str:
        """A pointer to scratch memory of this loop."""
        e = self.e
        name = f"{what}_{self.number}_{self.sums}"
        e.declared.append(f"{name} = pointer(work + {e.spot(e.work + self.scratch)}, {wide})")
        self.scratch += rounded(8 * count)
        return name
