"""Small programs before and after passes, by their prints; what ``verify`` refuses."""

from __future__ import annotations

import itertools
import random
import re
from dataclasses import replace

import pytest

from numbagrad.compiled import passes
from numbagrad.compiled.fusion import collapsed, common_space, fuse, merge
from numbagrad.compiled.memory import ALIGN, assign
from numbagrad.compiled.parts import parts_alone
from numbagrad.compiled.passes import accumulate, common, copy_to_result, dead_code, forward_copies
from numbagrad.compiled.program import Instruction, Loop, Operand, Program, Value, View
from numbagrad.compiled.verify import verify
from numbagrad.kernels.expr import constant

from .interpret import changed
from .made import COPY, DOUBLE, MADE, SUM, Maker, accumulation, parts, sums, whole


def text(program: Program) -> list[str]:
    """The instructions as lines, without their heads and comments."""
    lines = [line.strip() for i in program.instructions for line in repr(i).splitlines()]
    return [line for line in lines if not line.startswith("#")]


def maker(*buffers: str, size: int = 6) -> Maker:
    """A Maker with buffers written as ``kind name``."""
    made = Maker()
    for each in buffers:
        kind, name = each.split()
        made.buffer(kind, name, size)
    return made


V = whole(6)


@pytest.mark.parametrize("name", MADE)
def test_passes_keep_what_made_programs_compute(name: str) -> None:
    made = MADE[name]()
    assert changed(made.program(), made.given()) is None


# ---------------------------------------------------------------- what verify refuses


def chain() -> Maker:
    """``t = 2 x; z = 2 t``."""
    made = maker("input x", "work t", "fresh z")
    made.loop(("t", V), DOUBLE, ("x", V))
    made.loop(("z", V), DOUBLE, ("t", V))
    return made


def with_operand(i: Loop, side: str, value: Value | None = None, view: View | None = None) -> Loop:
    """``i`` with another first operand on one side."""
    first, *rest = getattr(i, side)
    changed = Operand(value or first.value, view or first.view)
    return replace(i, **{side: (changed, *rest)})


def malformed() -> dict[str, Program]:
    """Programs that break one rule each."""
    good = chain().program()
    first, second = good.instructions
    assert isinstance(first, Loop) and isinstance(second, Loop)
    t = first.outs[0].buffer
    named = replace(second, lines=(replace(second.lines[0], expr=SUM),))

    def of(*instructions: Instruction) -> Program:
        return replace(good, instructions=instructions)

    return {
        "uses": of(second),  # before it is made
        "now t.2": of(
            first, with_operand(first, "outs", Value(t, 2)), second
        ),  # after it was overwritten
        "leaves": of(first, with_operand(second, "ins", view=View((6,), (1,), 1))),
        "leaves t": of(first, with_operand(second, "ins", view=View((6,), (2,), 0))),
        "unknown buffer": replace(good, buffers=tuple(b for b in good.buffers if b is not t)),
        "is not of the space": of(first, with_operand(second, "ins", view=whole(2, 3))),
        "made twice": of(first, first, second),
        "reads an unknown name": of(first, named),
        "is made twice in": of(first, replace(second, lines=(second.lines[0],) * 2)),
        "nothing called": of(
            first, replace(second, stores=(replace(second.stores[0], line="v9"),))
        ),
        "is written twice": of(first, with_operand(second, "outs", view=View((6,), (0,), 0))),
    }


@pytest.mark.parametrize("words", malformed())
def test_verify_refuses(words: str) -> None:
    verify(chain().program())
    with pytest.raises(AssertionError, match=re.escape(words)):
        verify(malformed()[words])


# ---------------------------------------------------------------- dead code and copies


def test_dead_code_keeps_only_what_is_seen() -> None:
    made = chain()
    made.buffer("work", "u", 6)
    made.loop(("u", V), DOUBLE, ("x", V))
    program = made.program()
    assert len(program.instructions) == 3
    assert text(dead_code(program)) == text(chain().program())


def test_dead_code_keeps_what_a_partial_write_leaves() -> None:
    made = maker("input x", "fresh z")
    made.loop(("z", V), DOUBLE, ("x", V))
    made.loop(("z", View((2,), (1,), 1)), COPY, ("x", View((2,), (1,), 0)))
    assert len(dead_code(made.program()).instructions) == 2


def copied(late: bool) -> Program:
    """``t = x; (x = 2 x;) z = 2 t``."""
    made = maker("state x", "work t", "fresh z")
    made.loop(("t", V), COPY, ("x", V))
    if late:
        made.loop(("x", V), DOUBLE, ("x", V))
    made.loop(("z", V), DOUBLE, ("t", V))
    return made.program()


def test_a_copy_is_read_at_its_source() -> None:
    program = verify(forward_copies(copied(late=False)))
    (i,) = program.instructions
    assert repr(i.ins[0]) == "x (6)"


def test_a_copy_of_what_changes_later_stays() -> None:
    program = copied(late=True)
    assert forward_copies(program).instructions == program.instructions


def test_a_value_is_made_where_its_copy_goes() -> None:
    made = maker("input x", "input y", "fresh result", "work t", size=16)
    made.product("t", "x", "y")
    made.loop(("result", whole(16)), COPY, ("t", whole(16)))
    (product,) = verify(copy_to_result(made.program())).instructions
    assert product.outs[0].buffer.name == "result"


# ---------------------------------------------------------------- common and accumulate


def test_common_computes_once() -> None:
    made = maker("input x", "work t", "work u", "fresh z")
    made.loop(("t", V), DOUBLE, ("x", V))
    made.loop(("u", V), DOUBLE, ("x", V))
    made.loop(("z", V), SUM, ("t", V), ("u", V))
    program = verify(common(made.program()))
    assert [i.outs[0].buffer.name for i in program.instructions] == ["t", "z"]


def test_common_tells_values_of_one_buffer_apart() -> None:
    made = maker("state x", "work t", "work u", "fresh z")
    made.loop(("t", V), DOUBLE, ("x", V))
    made.loop(("x", V), DOUBLE, ("x", V))
    made.loop(("u", V), DOUBLE, ("x", V))
    made.loop(("z", V), SUM, ("t", V), ("u", V))
    assert len(common(made.program()).instructions) == 4


def test_products_are_accumulated() -> None:
    (product,) = verify(accumulate(accumulation().program())).instructions
    assert repr(product) == "h.1 (4, 4) += x (4, 4) @ y (4, 4)"


@pytest.mark.parametrize("case", ["disturbed", "itself"])
def test_products_are_not_accumulated_where_that_differs(case: str) -> None:
    program = accumulation(**{case: True}).program()
    assert accumulate(program).instructions == program.instructions


# ---------------------------------------------------------------- loops


def test_common_space() -> None:
    assert common_space((6, 4), (24,)) == (6, 4)
    assert common_space((2, 12), (6, 4)) == (2, 3, 4)
    assert common_space((2, 3), (3, 2)) is None
    assert common_space((1, 5, 1), (5,)) == (5,)
    assert common_space((), (1,)) == ()
    assert common_space((0, 3), (0, 3)) == (0, 3)
    assert common_space((0, 3), (3, 0)) is None
    assert common_space((4,), (5,)) is None


def test_merge_writes_inner_values_into_one_expression() -> None:
    a, b = chain().program().instructions
    assert isinstance(a, Loop) and isinstance(b, Loop)
    merged = merge(a, b)
    assert merged is not None
    assert [o.buffer.name for o in merged.outs] == ["t", "z"]
    program = verify(dead_code(fuse(chain().program())))
    assert text(program) == ["for (6):", "x0 = x", "v1: float64 = (x0 * 2.0) * 2.0", "z.1 = v1"]


def test_loops_over_other_views_of_what_is_written_are_not_merged() -> None:
    made = MADE["shifted"]()
    program = verify(fuse(made.program()))
    assert not any({"x.1", "z.1"} <= {repr(o.value) for o in i.outs} for i in program.instructions)


def test_a_sum_is_not_read_in_its_own_loop() -> None:
    program = verify(fuse(sums().program()))
    made, reading = program.instructions
    assert {o.buffer.name for o in made.outs} >= {"rows", "columns", "all"}
    assert [o.buffer.name for o in reading.outs] == ["z"]


def test_collapsed_joins_dims_that_follow_each_other() -> None:
    made = maker("input x", "fresh z")
    made.loop(("z", whole(2, 3)), DOUBLE, ("x", whole(2, 3)))
    (loop,) = made.program().instructions
    assert isinstance(loop, Loop)
    assert collapsed(loop).space == (6,)
    turned = with_operand(loop, "ins", view=View((2, 3), (1, 2)))
    assert len(collapsed(turned).space) == 2


# ---------------------------------------------------------------- parts of zeros


def test_parts_that_lie_apart_are_written() -> None:
    program = parts_alone(parts(4, 2, 0).program())
    assert text(program)[0] == "g.1 (6) = uninitialised"
    assert not any("+" in line for line in text(program))
    assert any("+" in line for line in text(parts_alone(parts(0, 1, 3).program())))


def test_parts_that_leave_something_out_keep_the_zeros() -> None:
    program = text(parts_alone(parts(3, 0).program()))
    assert program[:3] == ["for (6):", "v0: float64 = 0", "g.1 = v0"]
    assert not any("+" in line for line in program)


def test_parts_are_written_by_the_loops_that_make_them() -> None:
    made = maker("input x", "work g", "work a", "work b", "fresh z", size=6)
    half, ahead = whole(3), View((3,), (1,), 3)
    made.loop(("g", V), constant(0))
    made.loop(("a", half), DOUBLE, ("x", half))
    made.loop(("b", half), COPY, ("a", half))
    made.loop(("g", half), COPY, ("a", half))
    made.loop(("g", ahead), SUM, ("g", ahead), ("b", half))
    made.loop(("z", V), DOUBLE, ("g", V))
    loops = [i for i in passes.optimise(made.program()).instructions if isinstance(i, Loop)]
    assert [(i.space, len(i.outs)) for i in loops] == [((3,), 2), ((6,), 1)]
    assert len({o.value for o in loops[0].outs}) == 1


@pytest.mark.parametrize("seed", range(40))
def test_views_lie_apart_where_no_element_is_in_both(seed: int) -> None:
    draw = random.Random(seed)
    apart = 0
    for _ in range(100):
        shape = tuple([draw.randint(1, 4) for _ in range(draw.randint(1, 3))])
        strides, step = [], draw.choice([1, 1, 2, 3])
        for n in shape:
            strides.append(step * draw.choice([1, 1, -1]))
            step = step * n + draw.choice([0, 0, 1, 3])
        turned = draw.sample(range(len(shape)), len(shape))
        x = View(shape, tuple(strides), 60)
        y = View(
            tuple([shape[d] for d in turned]),
            tuple([strides[d] for d in turned]),
            60 + draw.randint(-30, 30),
        )
        assert x.apart(y) == y.apart(x) == (not elements(x) & elements(y))
        apart += x.apart(y)
    assert 0 < apart < 100


def elements(view: View) -> set[int]:
    """Where the elements of a view are."""
    every = itertools.product(*map(range, view.shape))
    return {
        view.offset + sum(i * s for i, s in zip(index, view.strides, strict=True))
        for index in every
    }


# ---------------------------------------------------------------- memory


def alone(program: Program) -> list:
    """Every instruction as a group."""
    return [(i,) for i in program.instructions]


def test_memory_is_used_again() -> None:
    made = maker("input x", "work a", "work b", "work c", "fresh z")
    for out, x in (("a", "x"), ("b", "a"), ("c", "b"), ("z", "c")):
        made.loop((out, V), DOUBLE, (x, V))
    offsets, total = assign(alone(made.program()))
    assert set(offsets.values()) == {0}  # each loop writes where it has just read
    assert total == ALIGN


def test_memory_that_is_needed_later_is_kept() -> None:
    made = maker("input x", "work a", "work b", "fresh z")
    made.loop(("a", V), DOUBLE, ("x", V))
    made.loop(("b", V), DOUBLE, ("x", V))
    made.loop(("z", V), SUM, ("a", V), ("b", V))
    offsets, total = assign(alone(made.program()))
    assert sorted(offsets.values()) == [0, ALIGN] and total == 2 * ALIGN


def test_memory_is_not_inherited_where_it_is_read_elsewhere() -> None:
    made = maker("input x", "work a", "work b", "fresh z")
    made.loop(("a", V), DOUBLE, ("x", V))
    made.loop(("b", V), COPY, ("a", View((6,), (-1,), 5)))
    made.loop(("z", V), DOUBLE, ("b", V))
    offsets, _ = assign(alone(made.program()))
    assert len(set(offsets.values())) == 2


def test_every_pass_is_named_here_or_elsewhere() -> None:
    """A new pass must come with a test of its own."""
    tested = (
        "dead_code forward_copies constants common accumulate by_columns fuse copy_to_result "
        "beside_products turned_products joined_in_place biased_products parts_alone"
    )
    assert {p.__name__ for p in passes.PASSES} == set(tested.split())
