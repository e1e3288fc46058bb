"""Arguments that are one object: a call of ``(x, x)`` has another recording than one of ``(x, y)``.

The recording has one stand-in for them, so that ``a is b``, gradients and writes are as eagerly.
Start reading at ``first_places``.
"""

from __future__ import annotations

import dis
from collections.abc import Iterable
from functools import lru_cache
from itertools import combinations
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from ..tensor import Tensor

if TYPE_CHECKING:
    from .guards import Writer
    from .trace import Recording

__all__ = ["distinct_guards", "first_places"]

FEW = 4
"""Tensors of one kind that each call compares in pairs whatever the function does: a pair costs
5 ns, where a call costs 1300 with one argument and 2000 with eight."""


def first_places(leaves: list[Any]) -> dict[int, int]:
    """Of each tensor among ``leaves`` that stands before it too: where it stands first."""
    seen: dict[int, int] = {}
    found = {}
    for k, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor) and seen.setdefault(id(leaf), k) != k:
            found[k] = seen[id(leaf)]
    return found


def distinct_guards(
    w: Writer,
    recording: Recording,
    leaves: list[Any],
    bound: frozenset[int],
    functions: Iterable[FunctionType],
) -> None:
    """Guards that tensors which were different objects are so again.

    Only for those of one kind, for all else is compared. functions: that may run.
    """
    kinds: dict[Any, list[int]] = {}
    repeated = first_places(leaves)
    for k, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor) and k not in bound and k not in repeated:
            array = leaf._array
            layout = None if array.flags.c_contiguous else array.strides
            kind = type(leaf), leaf._dtype, array.shape, layout, leaf._edge is None
            kinds.setdefault(kind, []).append(k)
    many = max(map(len, kinds.values()), default=0) > FEW
    matters = many and (_changes_arguments(recording) or any(map(_compares, functions)))
    for kind, places in kinds.items():
        if len(places) <= FEW or matters or not kind[-1]:
            w.guards += [f"a{k} is a{j}" for k, j in combinations(places, 2)]


def _changes_arguments(recording: Recording) -> bool:
    """Whether arguments get something beside their memory, of which native code looks itself."""
    effects = recording.effects
    return bool(recording.input_grads or recording.input_clears or effects.argument_needs)


def _compares(function: FunctionType) -> bool:
    return _compares_objects(function.__code__)


@lru_cache(maxsize=4096)
def _compares_objects(code: CodeType) -> bool:
    """Whether ``code`` may ask if two objects are one: ``is`` of what is no constant, ``in``,
    ``id``, sets and dicts made of tensors."""
    before = ""
    for each in dis.get_instructions(code):
        if each.opname in _COMPARING or (each.opname == "IS_OP" and before != "LOAD_CONST"):
            return True
        before = each.opname
    inside = [c for c in code.co_consts if isinstance(c, CodeType)]
    return bool(_NAMED & set(code.co_names)) or any(map(_compares_objects, inside))


_COMPARING = frozenset(("CONTAINS_OP", "BUILD_SET", "SET_ADD", "BUILD_MAP", "MAP_ADD"))
_NAMED = frozenset("id is_ is_not index count remove set frozenset dict fromkeys hash".split())
