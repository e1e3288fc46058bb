"""Passes broken on purpose: the checks of random programs must notice each.

A mutation replaces words of the source of one function; a test fails when those words are gone, so
that the mutation is brought up to date with the pass.
"""

from __future__ import annotations

import inspect
from types import ModuleType

import pytest

from numbagrad.compiled import fusion, memory, parts, passes, rows
from numbagrad.errors import RecordingError

from .interpret import changed, differs
from .made import MADE
from .random_programs import Function, drawn

pytestmark = pytest.mark.interpreted

MUTATIONS = {
    "dead code drops what a partial write keeps": (
        passes, "dead_code",
        "needed.update(i.used)", "needed.update(o.value for o in i.ins)",
    ),
    "copies are forwarded though the original changes later": (
        passes, "forward_copies",
        "settled = writes[out.buffer] == 1 and", "settled = True or",
    ),
    "common takes views of different values for one": (
        passes, "_meaning",
        "i.ins, i.space", "tuple((o.buffer, o.view) for o in i.ins), i.space",
    ),
    "a result takes the place of a value that is written later": (
        passes, "copy_to_result",
        "if target in touched or last > at:", "if target in touched:",
    ),
    "products are accumulated over writes in between": (
        passes, "accumulate",
        "if same and quiet and undisturbed and apart", "if same and quiet and apart",
    ),
    "products are accumulated into what they read": (
        passes, "accumulate",
        "if same and quiet and undisturbed and apart", "if same and quiet and undisturbed",
    ),
    "loops are fused whatever they read of each other": (
        fusion, "_joined",
        "if o.view == operand.view]", "]",
    ),
    "loops are fused whatever they write over": (
        fusion, "_memory_agrees",
        "other.view == out.view or other.view.apart(out.view)", "True",
    ),
    "loops are moved over what they depend on": (
        fusion, "_conflict",
        "return not (a.written.isdisjoint(b.touched) and b.written.isdisjoint(a.touched))",
        "return False",
    ),
    "the last use of memory is forgotten": (
        memory, "lifetimes",
        "last[b] = at", "last.setdefault(b, at)",
    ),
    "memory is inherited by loops that read it elsewhere": (
        memory, "_inherited",
        "all(other.view == mine[0].view for other in loop.ins if other.buffer is b)", "True",
    ),
    "parts that meet are written over one another": (
        parts, "_written",
        "if adds and not there.any():", "if adds:",
    ),
    "zeros are left out though a part is missing": (
        parts, "_written",
        "if not reads and taken.all():", "if True:",
    ),
    "a part is forgotten when the next one is made with it": (
        fusion, "_left_of",
        "if all(x.view != o.view for x in later):", "if not later:",
    ),
    "loops run row by row though rows meet": (
        rows, "_row_by_row",
        "and not _same_rows(o, other)", "and False",
    ),
}  # fmt: skip


def mutated(module: ModuleType, name: str, old: str, new: str) -> object:
    """The function ``name`` with ``old`` in its source replaced."""
    source = inspect.getsource(getattr(module, name))
    assert old in source, f"{name} no longer says {old!r}: mutate it otherwise"
    made: dict = {}
    exec(compile(source.replace(old, new), f"<mutated {name}>", "exec"), vars(module), made)
    return made[name]


def caught(programs: int) -> str | None:
    """What the checks of programs say first; None if they find nothing."""
    for name, make in MADE.items():
        made = make()
        found = changed(made.program(), made.given())
        if found:
            return f"{name}: {found}"
    for seed in range(programs):
        recipe, kind, _ = drawn(seed)
        function = Function(recipe, kind)
        try:
            found = differs(function, *function.arguments(0))
        except (RecordingError, RuntimeError):
            continue  # no program: it raises eagerly too
        if found:
            return f"seed {seed}: {found}"
    return None


def test_no_mutation_is_caught_where_there_is_none() -> None:
    """The passes as they are keep what these programs compute, as of others another test says."""
    assert caught(40) is None


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_mutation_is_caught(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken pass changes what some random program computes."""
    module, name, old, new = MUTATIONS[mutation]
    original, broken = getattr(module, name), mutated(module, name, old, new)
    monkeypatch.setattr(module, name, broken)
    chain = tuple(broken if each is original else each for each in passes.PASSES)
    monkeypatch.setattr(passes, "PASSES", chain)
    assert caught(300), mutation
