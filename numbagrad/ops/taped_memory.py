"""Functions that remember what they launched, where an argument has a history: ``TapedMemory``.

Of such a call a plan makes the nodes too, see ``taped_nodes.py``: one takes 0.6 us, where the
function, ``Op.apply`` and what that saves take 4 to 6.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..tensor import Tensor
from .plans import TENSORS, Plan, plan_of
from .remembered import MOST, Memory, is_taped
from .taped_nodes import nodes_again

__all__: list[str] = []  # nothing that users call

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
        return result

    def forget(self) -> None:
        """Begin anew."""
        super().forget()
        self.skips.clear()

    def call(self, plan: Plan, flat: tuple[Any, ...], args: tuple[Any, ...]) -> Any:
        """What a plan gives."""
        return plan(flat, True)

    def plan_of(self, seen: Any, flat: Any, result: Any, args: Any) -> Plan | None:
        """How to do again what was watched, or None."""
        several = isinstance(result, tuple)
        results = result if several else (result,)
        if seen.launches.written or not all([type(r) is Tensor for r in results]):
            return None
        found = nodes_again(flat, results, seen)
        if found is None:
            return None
        lines, values, made = found
        names = "".join([f"t{k}, " for k in range(len(results))])
        lines.append(f"return make(({names}))" if several else "return t0")
        text = "\n".join([_same_needs(flat), *lines])
        kind = type(result)
        return plan_of(seen.launches, flat, tuple(made), text, kind, history="False", **values)


def _outline(flat: tuple[Any, ...]) -> Any:
    """What tells most kinds of calls apart, at little cost."""
    return len(flat), flat[0]._array.shape if type(flat[0]) in TENSORS else None


def _same_needs(flat: tuple[Any, ...]) -> str:
    """Text that looks at the histories of arguments, e0, e1 ..., and gives up at other ones."""
    places = [k for k, a in enumerate(flat) if type(a) in TENSORS]
    lines = [f"e{k} = args[{k}]._edge" for k in places]
    others = [f"e{k} is {'' if is_taped(flat[k]) else 'not '}None" for k in places]
    return "\n".join([*lines, f"if {' or '.join(others)}: return 0"])
