"""Merging loops: chains, broadcasts, siblings that read the same, and the loops that sum them.

Two loops become one when they run over the same elements (perhaps written as other shapes), every
value that one makes for the other is read at the index where it is made, and nothing between them
minds. Start reading at ``fuse``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ..kernels.expr import Expr, build, expr, inputs_of, symbol, topological
from .program import Instruction, Line, Loop, Operand, Program, Store, Value, View

Suits = Callable[[Loop], bool]

LOOK_BACK = 64
"""How many instructions back a partner is looked for."""
OPERANDS = 24
"""Most arrays of one loop: beyond, LLVM runs out of registers."""
OPERATIONS = 300
"""Most operations of one loop, as 60 steps of a solver: LLVM's time grows faster than they do, and
loops that are equal are compiled once."""


def fuse(program: Program, suits: Suits | None = None) -> Program:
    """Merge every loop into an earlier one that it shares data with, where that is possible.

    suits: says of a merged loop whether it may be.
    """
    items: list[Instruction] = []
    readers: dict[Value, int] = {}
    for i in program.instructions:
        for value in set(i.used):
            readers[value] = readers.get(value, 0) + 1
    for i in program.instructions:
        if not (isinstance(i, Loop) and _placed(items, i, readers, suits)):
            items.append(i)
    return program.with_instructions(items)


def _placed(
    items: list[Instruction], loop: Loop, readers: dict[Value, int], suits: Suits | None
) -> bool:
    """Merge ``loop`` into one of ``items``, moving it up or that one down.

    readers: how many instructions use each value; kept up to date.
    """
    for at in range(len(items) - 1, max(-1, len(items) - 1 - LOOK_BACK), -1):
        earlier = items[at]
        if not isinstance(earlier, Loop) or not _related(earlier, loop):
            continue
        between = items[at + 1 :]
        up = not any(_conflict(i, loop) for i in between)
        down = up or not any(_conflict(earlier, i) for i in between)
        if not down:
            continue
        merged = _joined(earlier, loop)
        if merged is None or not (suits is None or suits(merged)):
            continue
        for value in set(earlier.used) & set(loop.used):
            readers[value] -= 1  # two readers are one now
        merged = _without_inner(merged, loop, readers)
        if len(merged.ins) + len(merged.outs) > OPERANDS or _operations(merged) > OPERATIONS:
            for value in set(earlier.used) & set(loop.used):
                readers[value] += 1
            continue
        for value in {o.value for o in earlier.outs} & set(loop.used):
            if value not in set(merged.used):
                readers[value] -= 1
        if up:
            items[at] = merged
        else:
            del items[at]
            items.append(merged)
        return True
    return False


def _operations(loop: Loop) -> int:
    """How many operations one index takes; lines are few where they are."""
    if len(loop.lines) > OPERATIONS:
        return len(loop.lines)
    return sum([1 for node in topological([line.expr for line in loop.lines]) if node.args])


def _without_inner(merged: Loop, b: Loop, readers: dict[Value, int]) -> Loop:
    """``merged``, tidied, without storing what the loop before ``b`` makes for ``b`` alone."""
    used = set(b.used)
    alive = [
        o.buffer.lasts or o.value not in used or readers.get(o.value, 0) > 1 for o in merged.outs
    ]
    if all(alive):
        return tidy(merged)
    outs = tuple(o for o, keep in zip(merged.outs, alive, strict=True) if keep)
    stores = tuple(s for s, keep in zip(merged.stores, alive, strict=True) if keep)
    buffers = {o.buffer for o in outs}
    kept = tuple(v for v in merged.kept if v.buffer in buffers)
    return tidy(replace(merged, outs=outs, stores=stores, kept=kept))


def _conflict(a: Instruction, b: Instruction) -> bool:
    """Whether the order of two instructions matters."""
    if a.effect and b.effect:
        return True
    if (a.effect and any(x.lasts for x in b.written)) or (
        b.effect and any(x.lasts for x in a.written)
    ):
        return True
    return not (a.written.isdisjoint(b.touched) and b.written.isdisjoint(a.touched))


def _related(a: Loop, b: Loop) -> bool:
    """Whether ``b`` reads what ``a`` makes or reads."""
    values = {o.value for o in a.ins} | {o.value for o in a.outs}
    return any(o.value in values for o in b.ins)


def merge(a: Loop, b: Loop) -> Loop | None:
    """``a`` then ``b`` as one loop, or None."""
    merged = _joined(a, b)
    return None if merged is None else tidy(merged)


def _joined(a: Loop, b: Loop) -> Loop | None:
    """``merge`` before anything is left out of its lines."""
    spaces = common_space(a.space, b.space)
    if spaces is None:
        a, b = as_it_lies(a), as_it_lies(b)
        spaces = common_space(a.space, b.space)
    if spaces is None:
        return None
    a, b = in_space(a, spaces), in_space(b, spaces)
    made: dict[Value, list[tuple[Operand, Store]]] = {}
    for o, s in zip(a.outs, a.stores, strict=True):
        made.setdefault(o.value, []).append((o, s))
    names: dict[str, str] = {}
    ins, loads = list(a.ins), list(a.loads)
    taken = {*loads, *(n for n, _ in a.scalars), *(line.name for line in a.lines)}
    for operand, name in zip(b.ins, b.loads, strict=True):
        if operand.value in made:
            there = [s for o, s in made[operand.value] if o.view == operand.view]
            if not there or there[0].mode != "store":
                return None
            names[name] = there[0].line
        elif operand in ins:
            names[name] = loads[ins.index(operand)]
        else:
            names[name] = _new_name("x", taken)
            ins.append(operand)
            loads.append(names[name])
    if not _memory_agrees(a, b):
        return None
    scalars = list(a.scalars)
    for name, number in b.scalars:
        same = [n for n, s in scalars if s == number]
        names[name] = same[0] if same else _new_name("f", taken)
        if not same:
            scalars.append((names[name], number))
    lines = list(a.lines)
    for line in b.lines:
        renamed = renaming(line.expr, names)
        names[line.name] = _new_name("v", taken)
        lines.append(replace(line, name=names[line.name], expr=renamed))
    stores = tuple(replace(s, line=names.get(s.line, s.line)) for s in b.stores)
    values, left = {o.value for o in a.outs}, _left_of(a, b)
    return Loop(
        (*(o for o, _ in left), *b.outs),
        tuple(ins),
        tuple(dict.fromkeys((*a.kept, *(v for v in b.kept if v not in values)))),
        tuple(dict.fromkeys((*a.sources, *b.sources))),
        space=a.space,
        loads=tuple(loads),
        scalars=tuple(scalars),
        lines=tuple(lines),
        stores=(*(store for _, store in left), *stores),
    )


def _left_of(a: Loop, b: Loop) -> list[tuple[Operand, Store]]:
    """What ``a`` stores that ``b`` does not store anew; where they store other parts of the same
    memory, as parts of the value that ``b`` makes."""
    left = []
    for o, store in zip(a.outs, a.stores, strict=True):
        later = [x for x in b.outs if x.buffer is o.buffer]
        if all(x.view != o.view for x in later):
            left.append((replace(o, value=later[0].value) if later else o, store))
    return left


def _memory_agrees(a: Loop, b: Loop) -> bool:
    """Whether running index by index touches shared memory as running one after the other does."""
    for out in b.outs:
        for other in (*a.ins, *a.outs):
            shared = other.buffer is out.buffer
            if shared and not (other.view == out.view or other.view.apart(out.view)):
                return False
    summed = {o.buffer for o, s in zip(a.outs, a.stores, strict=True) if s.mode == "sum"}
    summed_b = {o.buffer for o, s in zip(b.outs, b.stores, strict=True) if s.mode == "sum"}
    touched = {o.buffer for o in (*b.ins, *b.outs)}
    touched_a = {o.buffer for o in (*a.ins, *a.outs)}
    return not (summed & touched) and not (summed_b & touched_a)


def _new_name(prefix: str, taken: set[str]) -> str:
    k = 0
    while f"{prefix}{k}" in taken:
        k += 1
    taken.add(f"{prefix}{k}")
    return f"{prefix}{k}"


def renaming(root: Expr, names: dict[str, str]) -> Expr:
    """``root`` with inputs renamed."""
    return rebuilt(root, {old: symbol(new) for old, new in names.items()})


def rebuilt(root: Expr, inputs: dict[str, Expr]) -> Expr:
    """``root`` with inputs replaced, simplified where that is exact."""
    done: dict[Expr, Expr] = {}
    for node in topological([root]):
        if node.op == "input":
            done[node] = inputs.get(node.value, node)
        elif node.args:
            args = [done[x] for x in node.args]
            same = all(x is y for x, y in zip(args, node.args, strict=True))
            done[node] = node if same else _built(node.op, args)
        else:
            done[node] = node
    return done[root]


def _built(op: str, args: list[Expr]) -> Expr:
    # Not mul by a literal 0: the product of NaN or infinity with it is NaN.
    if op in ("mul", "div") and any(x.op == "const" and x.value == 0 for x in args):
        return expr(op, *args)
    return build(op, *args)


# -- spaces ----------------------------------------------------------------------------------------

Cut = list[list[int]]


def common_space(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    """The sizes into which both shapes split, in the same order of elements; None if they do not.

    >>> common_space((6, 4), (24,)), common_space((2, 12), (6, 4)), common_space((2, 3), (3, 2))
    ((6, 4), (2, 3, 4), None)
    """
    if 0 in a or 0 in b:
        return a if a == b else None
    left, right = [n for n in a if n != 1], [n for n in b if n != 1]
    sizes: list[int] = []
    while left and right:
        n, m = left[-1], right[-1]
        g = min(n, m)
        if n % g or m % g:
            return None
        sizes.append(g)
        left[-1], right[-1] = n // g, m // g
        if left[-1] == 1:
            left.pop()
        if right[-1] == 1:
            right.pop()
    return None if left or right else tuple(reversed(sizes))


def split_view(view: View, space: tuple[int, ...]) -> View:
    """``view`` with its dims split into ``space``."""
    strides: list[int] = []
    dims = [(n, s) for n, s in zip(view.shape, view.strides, strict=True) if n != 1]
    for size in reversed(space):
        n, s = dims.pop()
        strides.append(s)
        if n != size:
            dims.append((n // size, s * size))
    return View(space, tuple(reversed(strides)), view.offset)


def in_space(loop: Loop, space: tuple[int, ...]) -> Loop:
    """``loop`` over a finer ``space``."""
    if loop.space == space:
        return loop

    def split(o: Operand) -> Operand:
        return Operand(o.value, split_view(o.view, space))

    return replace(
        loop, space=space, ins=tuple(map(split, loop.ins)), outs=tuple(map(split, loop.outs))
    )


def in_memory_order(loop: Loop) -> list[int]:
    """The dims of more than one index, outermost first, so that what is stored (or else what is
    read) is walked as it lies in memory."""
    stored = [o for o, s in zip(loop.outs, loop.stores, strict=True) if s.mode == "store"]
    guides = [o for o in (*stored, *loop.ins) if all(o.view.strides)] or list(loop.ins)
    dims = [d for d, n in enumerate(loop.space) if n != 1]
    if not guides:
        return dims
    return sorted(dims, key=lambda d: -abs(guides[0].view.strides[d]))


def as_it_lies(loop: Loop) -> Loop:
    """``loop`` over its dims in the order of ``in_memory_order``."""
    order = in_memory_order(loop)
    if order == sorted(order):
        return loop

    def turned(o: Operand) -> Operand:
        of = o.view.strides
        return Operand(o.value, View(space, tuple([of[d] for d in order]), o.view.offset))

    space = tuple([loop.space[d] for d in order])
    return replace(
        loop, space=space, ins=tuple(map(turned, loop.ins)), outs=tuple(map(turned, loop.outs))
    )


def collapsed(loop: Loop, outer: int = 0) -> Loop:
    """``loop`` over as few dims as its operands allow; the first ``outer`` stay as they are."""
    operands = (*loop.ins, *loop.outs)
    dims: list[list[int]] = []
    order = in_memory_order(loop)
    for d in [*range(outer), *(d for d in order if d >= outer)]:
        size = loop.space[d]
        steps = [o.view.strides[d] for o in operands]
        if len(dims) > outer and all(
            p == s * size for p, s in zip(dims[-1][1:], steps, strict=True)
        ):
            dims[-1] = [dims[-1][0] * size, *steps]
        else:
            dims.append([size, *steps])
    space = tuple(d[0] for d in dims)

    def view(k: int, o: Operand) -> Operand:
        return Operand(o.value, View(space, tuple(d[1 + k] for d in dims), o.view.offset))

    found = [view(k, o) for k, o in enumerate(operands)]
    return replace(
        loop, space=space, ins=tuple(found[: len(loop.ins)]), outs=tuple(found[len(loop.ins) :])
    )


# -- lines -----------------------------------------------------------------------------------------


def tidy(loop: Loop) -> Loop:
    """Write a line that is used once, or is no more than a name or a literal, into its user; drop
    lines, loads and scalars that nobody uses.
    """
    stored = {s.line for s in loop.stores}
    lines: list[Line] = []
    inlined: dict[str, tuple[Line, Expr]] = {}
    uses = _uses(loop)
    kinds = {n: o.dtype for n, o in zip(loop.loads, loop.ins, strict=True)}
    for line in loop.lines:
        replacing = {n: e for n, (p, e) in inlined.items() if _fits(p, line)}
        lost = [n for n, (p, _) in inlined.items() if not _fits(p, line)]
        body = rebuilt(line.expr, replacing) if replacing else line.expr
        for name in lost:  # a line of another type stays a line
            if name in inputs_of(body) and all(x.name != name for x in lines):
                lines.append(replace(inlined[name][0], expr=inlined[name][1]))
        exact = line.compute == line.dtype and not (body.is_bool or line.rounded)
        simple = body.op == "const" or (body.op == "input" and _same_type(body, line, kinds, lines))
        alone = simple or uses.get(line.name, 0) == 1
        if exact and alone and line.name not in stored and not _large(body):
            inlined[line.name] = (line, body)
        else:
            lines.append(replace(line, expr=body))
    read = {n for line in lines for n in inputs_of(line.expr)} | stored
    alive = [n in read for n in loop.loads]
    return replace(
        loop,
        ins=tuple(o for o, a in zip(loop.ins, alive, strict=True) if a),
        loads=tuple(n for n, a in zip(loop.loads, alive, strict=True) if a),
        scalars=tuple((n, s) for n, s in loop.scalars if n in read),
        lines=tuple(_needed(lines, stored)),
    )


def _needed(lines: list[Line], stored: set[str]) -> list[Line]:
    read = set(stored)
    kept: list[Line] = []
    for line in reversed(lines):
        if line.name in read:
            kept.append(line)
            read |= inputs_of(line.expr)
    return kept[::-1]


def _fits(producer: Line, consumer: Line) -> bool:
    return producer.compute == producer.dtype == consumer.compute


def _same_type(body: Expr, line: Line, kinds: Mapping[str, object], lines: list[Line]) -> bool:
    """Whether the name in ``body`` already has the type that ``line`` would give it."""
    if body.value in kinds:
        return str(kinds[body.value]) == line.dtype
    return any(x.name == body.value and x.dtype == line.dtype for x in lines)


def _large(body: Expr) -> bool:
    """Whether ``body`` is an integer that may leave int64 where its user is folded with it."""
    return body.op == "const" and isinstance(body.value, int) and abs(body.value) >= 1 << 31


def _uses(loop: Loop) -> dict[str, int]:
    uses: dict[str, int] = {}
    for line in loop.lines:
        for node in topological([line.expr]):
            for argument in node.args:
                if argument.op == "input":
                    uses[argument.value] = uses.get(argument.value, 0) + 1
        if line.expr.op == "input":
            uses[line.expr.value] = uses.get(line.expr.value, 0) + 1
    return uses
