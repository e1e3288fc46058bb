"""What the forward of an op remembers, and what it notes in its node: ``OpMemory``."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

import numpy as np

from .. import dtypes
from ..kernels import machine
from ..tensor import Tensor, wrap
from .device_kinds import is_away
from .plans import Plan, is_constant, plan_of
from .remembered import Memory

__all__: list[str] = []  # nothing that users call


class OpMemory(Memory):
    """What the forward of an op remembers, and what it notes in its node.

    An op that has one saves only arguments and results, and notes what is the same for all calls of
    a kind, or an array that it made or a tuple of them. Its ``forward`` depends on nothing that the
    node has before, but for what needs a gradient.
    """

    def __init__(self, forward: Callable[..., Any]):
        super().__init__(forward, False)

    def forward(self, ctx: Any, args: tuple[Any, ...]) -> Any:
        """``forward(ctx, *args)``; grad mode is off."""
        if machine.closed:
            return self.function(ctx, *args)
        needs = ctx._needs
        if machine.away is not None and is_away(args):
            return self.away.call(needs, args, (ctx, *args), {}, ctx)
        for again in self.last.get(needs, ()):
            result = again(ctx, args)
            if type(result) is not int:
                return result
        return self.find(needs, args, (ctx, *args), {})

    def call(self, plan: Plan, flat: tuple[Any, ...], args: tuple[Any, ...]) -> Any:
        """What a plan gives."""
        return plan(args[0], flat)

    def plan_of(self, seen: Any, flat: Any, result: Any, args: Any) -> Plan | None:
        """How to do again what was watched, or None."""
        ctx, launches = args[0], seen.launches
        several = isinstance(result, tuple)
        results = list(result) if several else [result]
        names = ", ".join([f"t{k}" for k in range(len(results))])
        tail = [f"return make(({names},))" if several else "return t0"]
        held = {id(None): "None"} | {id(v): f"args[{k}]" for k, v in enumerate(flat)}
        held |= {id(v): f"t{k}" for k, v in enumerate(results)}
        if launches.written or not all([id(v) in held for v in ctx._to_save]):
            return None
        if ctx._to_save:
            tail.insert(0, f"ctx._to_save = ({', '.join([held[id(v)] for v in ctx._to_save])},)")
        notes = notes_of(ctx, ("_needs", "_to_save"), len(results), "ctx")
        if notes is None:
            return None
        lines, values, arrays = notes
        text = "\n".join([*lines, *tail])
        return plan_of(launches, flat, (*results, *arrays), text, of_op=True, **values)


def notes_of(
    ctx: Any, apart: Container[str], first: int, called: str
) -> tuple[list[str], dict[str, Any], list[Tensor]] | None:
    """The text that notes in ``ctx`` what an op noted, the values that it names, and the arrays
    among these that the op made; None where a note is another in each call.

    apart: what are no notes. first: how many arrays the plan has already. called: what ``ctx`` is
    called in the text.
    """
    lines: list[str] = []
    values: dict[str, Any] = {}
    made: list[Tensor] = []
    for name, value in vars(ctx).items():
        if name in apart:
            continue
        arrays = (value,) if type(value) is np.ndarray else value
        if type(arrays) is tuple and arrays and all([type(v) is np.ndarray for v in arrays]):
            places = [f"a{first + len(made) + k}" for k in range(len(arrays))]
            noted = places[0] if arrays is not value else f"({', '.join(places)},)"
            lines.append(f"{called}.{name} = {noted}")
            made += [wrap(v, dtypes.from_numpy(v.dtype)) for v in arrays]
        elif is_constant(value):
            values[f"note_{called}_{name}"] = value
            lines.append(f"{called}.{name} = note_{called}_{name}")
        else:
            return None
    return lines, values, made
