"""The text by which a call reads the slots of a recording and writes them: see ``carried.py``.

Start reading at ``reading``.
"""

from __future__ import annotations

from typing import Any

from ..item_dict import ItemDict
from ..kernels import machine
from ..kernels.options import Options
from ..tree import LEAF
from .slots import Slot

__all__ = ["indented", "reading", "writing"]


def indented(lines: list[str]) -> list[str]:
    """The lines, one step further in."""
    return [f"    {line}" for line in lines]


def reading(names: dict[str, Any], k: int, slot: Slot, spec: Any) -> list[str]:
    """Lines that append the leaves of a slot, as text because a call must cost little."""
    held = slot.holders[0]
    read = f"value = slot{k}.read()"
    if type(held) is dict or isinstance(held, ItemDict):
        names |= {f"held{k}": held, f"key{k}": slot.key}
        read = f"value = held{k}.get(key{k}, ABSENT)"
    if slot.number is not None:
        test = f"if value.__class__ is not {slot.number.__name__}:"
        return [read, test, "    return MISS", "leaves.append(value)"]
    if spec is LEAF:
        return [read, "leaves.append(value)"]  # that it is one, the recording looks at
    if spec == ("tuple", (LEAF,) * len(spec[1])):
        test = f"value.__class__ is not tuple or len(value) != {len(spec[1])}"
        return [read, f"if {test}:", "    return MISS", "leaves += value"]
    return [read, f"if not same_form(flatten(value, leaves), spec{k}):", "    return MISS"]


def writing(names: dict[str, Any], k: int, slot: Slot, inside: bool) -> list[str]:
    """Lines that put the result ``left[k]`` into a slot."""
    if inside:
        names |= {"refill": _refill, f"set{k}": slot}
        return [f"refill(set{k}.read(), left[{k}])"]
    if not all([type(held) is dict or isinstance(held, ItemDict) for held in slot.holders]):
        names[f"set{k}"] = slot
        return [f"set{k}.write(left[{k}])"]
    lines = []
    names["put"] = dict.__setitem__  # what an ``ItemDict`` tells is not to be told
    for j, held in enumerate(slot.holders):
        names |= {f"into{k}_{j}": held, f"at{k}": slot.key}
        put = f"put(into{k}_{j}, at{k}, left[{k}])"
        if type(held) is Options:  # but to functions that keep the numbers of native code
            names["retold"] = machine.retold
            lines.append(f"if into{k}_{j}[at{k}] != left[{k}]:")
            lines += [f"    {put}", f"    if into{k}_{j}.recorded:", "        retold()"]
        else:
            lines.append(put)
    return lines


def _refill(held: Any, value: Any) -> None:
    if isinstance(held, list) and len(held) != len(value):
        held[:] = value
        return
    for key, new in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(new, (list, dict)):
            _refill(held[key], new)
        else:
            held[key] = new
