"""What holds of every program: ``verify`` raises where it does not."""

from __future__ import annotations

from ..kernels.expr import inputs_of
from .program import Buffer, Loop, Program, Value


def verify(program: Program) -> Program:
    """Raise AssertionError unless the program is well formed; returns it.

    Each value is made once, before it is used, and not used after its memory was overwritten; views
    stay inside their buffers; operands of loops have the shape of the space.
    """
    known = set(program.buffers)
    current: dict[Buffer, Value] = {
        b: Value(b, 0) for b in program.buffers if b.kind in ("input", "state", "constant")
    }
    for i in program.instructions:
        for v in i.used:
            assert v.buffer in known, f"{v} of an unknown buffer in {i!r}"
            assert current.get(v.buffer) == v, f"{i!r} uses {v}, now {current.get(v.buffer)}"
        for o in (*i.ins, *i.outs):
            low, high = o.view.bounds
            assert 0 <= low and high <= max(o.buffer.size, low), f"{o!r} leaves {o.buffer.name}"
        made = set()
        for o in i.outs:
            assert o.value not in made or not isinstance(i, Loop) or _parts(i, o.value), i
            held = current.get(o.buffer)
            older = -1 if held is None else held.version
            assert o.value.version > older or o.value in made, f"{o.value} made twice: {i!r}"
            made.add(o.value)
            current[o.buffer] = o.value
        if isinstance(i, Loop):
            _verify_loop(i)
    return program


def _parts(loop: Loop, value: Value) -> bool:
    """Whether what ``loop`` makes of ``value`` lies apart."""
    views = [o.view for o in loop.outs if o.value == value]
    return all(x.apart(y) for k, x in enumerate(views) for y in views[k + 1 :])


def _verify_loop(loop: Loop) -> None:
    names = [*loop.loads, *(n for n, _ in loop.scalars)]
    assert len(loop.loads) == len(loop.ins) and len(loop.stores) == len(loop.outs), loop
    for o in (*loop.ins, *loop.outs):
        assert o.view.shape == loop.space, f"{o!r} is not of the space of {loop!r}"
    for line in loop.lines:
        assert inputs_of(line.expr) <= set(names), f"{line!r} reads an unknown name in {loop!r}"
        assert line.name not in names, f"{line.name} is made twice in {loop!r}"
        names.append(line.name)
    for o, store in zip(loop.outs, loop.stores, strict=True):
        assert store.line in names, f"nothing called {store.line} in {loop!r}"
        assert store.mode == "sum" or o.view.distinct, f"{o!r} is written twice in {loop!r}"
