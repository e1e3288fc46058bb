"""Functions that remember what they launched, where an argument has a history: ``TapedMemory``.

Of such a call a plan makes the node too, where all that the function records is one built-in op on
its own arguments: it takes 2 us, where the function, ``Op.apply`` and what that saves take 4 to 6.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from ..autograd.recorded import Recorded
from ..later import OUR_FILES
from ..tape import Edge, SavedOutput, next_sequence, split_edge, user_location
from ..tensor import Tensor, wrap
from . import remembered
from .op_memory import notes_of
from .plans import TENSORS, Plan, plan_of
from .remembered import MOST, Memory, is_taped

__all__: list[str] = []  # nothing that users call

_OF_EACH = frozenset(
    "_edges _needs _sequence _hooks _outputs _output_meta _saved _to_save _rare _where".split()
)
"""What every node of an op has; the rest is what the op noted."""

_KNOWN = {
    "Edge": Edge,
    "SavedOutput": SavedOutput,
    "next_sequence": next_sequence,
    "save": Recorded._save,
    "getframe": sys._getframe,
    "user_location": user_location,
    "OUR_FILES": OUR_FILES,
}


SKIPPED = 1024
"""Calls that go to the function after one that could not be remembered: to compare kinds takes 3
us, and others of its shape may be remembered."""


class TapedMemory(Memory):
    """What a function launched and recorded where some of its arguments need gradients.

    skips: by what ``_outline`` gives, how many calls go to the function without a look,
    for one like them could not be remembered; 0 where one could.
    """

    def __init__(self, function: Callable[..., Any], last: dict[tuple[Any, ...], Any]):
        super().__init__(function, False)
        self.last = last
        self.skips: dict[Any, int] = {}

    def kind_of(self, names: tuple[Any, ...], flat: tuple[Any, ...]) -> Any:
        """The same, and which arguments have a history."""
        kind = super().kind_of(names, flat)
        return None if kind is None else (tuple([is_taped(a) for a in flat]), *kind)

    def look_up(self, names: Any, flat: tuple[Any, ...], args: Any, options: Any) -> Any:
        """The same, but at once where ``skips`` says so: to compare kinds would take 3 us."""
        outline = _outline(flat)
        left = self.skips.get(outline, 0)
        if left > 0:
            self.skips[outline] = left - 1 or SKIPPED
        if left <= 1:
            return super().look_up(names, flat, args, options)
        return self.function(*args, **options)

    def _watch(self, key: Any, names: Any, flat: tuple[Any, ...], args: Any, options: Any) -> Any:
        """The same; notes what came of it in ``skips``."""
        result = super()._watch(key, names, flat, args, options)
        outline, found = _outline(flat), self.plans.get(key)
        if len(self.skips) >= MOST:
            self.skips.clear()
        if callable(found):
            self.skips[outline] = 0
        elif self.skips.get(outline) != 0:
            self.skips[outline] = SKIPPED
            if found is not None:  # it took too long this time: the calls until the next look
                self.skips[outline] = remembered.AFTER - found
                self.plans[key] = remembered.AFTER
        return result

    def forget(self) -> None:
        """Begin anew."""
        super().forget()
        self.skips.clear()

    def call(self, plan: Plan, flat: tuple[Any, ...], args: tuple[Any, ...]) -> Any:
        """What a plan gives."""
        return plan(flat, True)

    def plan_of(self, launches: Any, flat: Any, result: Any, args: Any) -> Plan | None:
        """How to do again what was watched, or None."""
        several = isinstance(result, tuple)
        results = result if several else (result,)
        fresh = all([type(r) is Tensor and r._base is None for r in results])
        if launches.written or not fresh:
            return None
        made, values, arrays = [], {}, []
        edges = [r._edge for r in results if r._edge is not None]
        if edges:
            node = split_edge(edges[0])[0]
            found = _node_again(node, flat, results)
            if found is None:
                return None
            made, values, arrays = found
        names = "".join([f"t{k}, " for k in range(len(results))])
        made.append(f"return make(({names}))" if several else "return t0")
        bare = tuple([wrap(r._array, r._dtype) for r in (*results, *arrays)])
        values |= _KNOWN
        text = "\n".join([_same_needs(flat), *made])
        return plan_of(launches, flat, bare, text, type(result), history="False", **values)


def _outline(flat: tuple[Any, ...]) -> Any:
    """What tells most kinds of calls apart, at little cost."""
    return len(flat), flat[0]._array.shape if type(flat[0]) in TENSORS else None


def _node_again(node: Any, flat: tuple[Any, ...], results: tuple[Tensor, ...]) -> Any:
    """What ``notes_of`` gives, for all of the node that made ``results``; None where something else
    was recorded, too."""
    op = getattr(node, "_op", None)
    if op is None or not op._remembers:
        return None
    if any([r._edge is not None and split_edge(r._edge)[0] is not node for r in results]):
        return None
    edges, saved = _edges_again(node, flat), _saved_again(node, flat, results)
    notes = notes_of(node, _OF_EACH, len(results))
    if edges is None or saved is None or notes is None:
        return None
    lines, values, arrays = notes
    made = ["ctx = new(Made)", f"ctx._edges = ({edges})", "ctx._needs = needs"]
    made.append("ctx._sequence = next_sequence()")
    values |= {"Made": type(node), "needs": node._needs}
    for name in ("_outputs", "_output_meta"):
        if name in vars(node):
            values[f"made{name}"] = vars(node)[name]
            made.append(f"ctx.{name} = made{name}")
    for k, r in enumerate(results):
        if r._edge is not None:
            edge = "ctx" if r._edge is node else f"Edge(ctx, {r._edge.index})"
            made.append(f"t{k}._edge = {edge}")
    return [*made, *lines, *saved], values, arrays


def _same_needs(flat: tuple[Any, ...]) -> str:
    """Text that looks at the histories of arguments, e0, e1 ..., and gives up at other ones."""
    places = [k for k, a in enumerate(flat) if type(a) in TENSORS]
    lines = [f"e{k} = args[{k}]._edge" for k in places]
    others = [f"e{k} is {'' if is_taped(flat[k]) else 'not '}None" for k in places]
    return "\n".join([*lines, f"if {' or '.join(others)}: return 0"])


def _edges_again(node: Any, flat: tuple[Any, ...]) -> str | None:
    """Text of the members of a node's edges, where all are those of arguments."""
    taped = {id(a): (f"e{k}", a._edge) for k, a in enumerate(flat) if is_taped(a)}
    places = {id(edge): name for name, edge in taped.values()}
    if len(places) != len(taped):  # whose it is nobody can tell
        return None
    found = ["None" if e is None else places.get(id(e)) for e in node._edges]
    return None if None in found else "".join([f"{name}, " for name in found])


def _saved_again(node: Any, flat: tuple[Any, ...], results: Sequence[Tensor]) -> list[str] | None:
    """Text that saves in ``ctx`` what was saved, where this is arguments and results."""
    if not node._saved:
        return []
    held = {id(a): f"args[{k}]" for k, a in enumerate(flat)} | {id(None): "None"}
    outputs = {id(r._array): k for k, r in enumerate(results)}
    names: list[str] = []
    for value in node._saved:
        if type(value) is not SavedOutput and id(value) in held:
            names.append(held[id(value)])
        elif type(value) is SavedOutput and id(value._array) in outputs:
            names.append(f"SavedOutput(t{outputs[id(value._array)]}, {value.index})")
        else:
            return None
    counters = [f"{name}._counter is None" for name in names if name.startswith("args")]
    lines = [f"saved = ({', '.join(names)},)"]
    lines += [f"if {' and '.join(counters) or 'True'}:"]
    # What ``Recorded._save`` does, written out: 0.5 us less.
    lines += [" ctx._saved, frame = saved, getframe(2)"]
    lines += [" if frame.f_code.co_filename in OUR_FILES: ctx._where = user_location(3)"]
    lines += [" else: ctx._where = (frame.f_code, frame.f_lasti)"]
    return [*lines, "else: save(ctx, saved)"]
