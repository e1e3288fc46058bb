"""Tensors whose ``.data`` compiled functions set: the array is passed at each call.

A recording finds state where it was; this state is elsewhere after each call. Once a compiled
function has set the ``.data`` of a tensor, recordings that rely on where it was are never used
again (``guards.py``). Start reading at ``passed``.
"""

from __future__ import annotations

from ..tensor import Tensor
from . import outside
from .before import Before
from .trace import Recording, name_tensors
from .traced import Memory, Ref

__all__ = ["note", "passed"]


def note(recording: Recording) -> None:
    """Mark the tensors of which ``recording`` sets the ``.data``."""
    for t, _ in recording.effects.arrays:
        if not t._rebound:
            t._rebound = True
            t._moved()


def passed(recording: Recording) -> dict[Memory, Tensor]:
    """Memory that is to be passed at each call, with the tensor that has it.

    It is that of one tensor only, all of it, and nothing that outlives the call lies on it.
    """
    kept = _kept(recording)
    found: dict[Memory, Tensor] = {}
    shared: set[Memory] = set()
    for b in recording.looked_into:
        memory = recording.recorder.known_memory(b.array)
        if memory is None or memory.kind != "state":
            continue
        if memory in found or memory in kept or not _is_movable(b, memory):
            shared.add(memory)
        found[memory] = b.tensor
    for memory in shared:
        del found[memory]
    labels = name_tensors(list(found.values()))
    for memory, t in found.items():
        memory.kind, memory.name = "input", labels[id(t)] or "a tensor whose data is set"
    return found


def _is_movable(b: Before, memory: Memory) -> bool:
    """Whether the array of ``b`` is all of ``memory``, and another at each call."""
    return b.tensor._rebound and memory.array is b.array and bool(b.array.flags.c_contiguous)


def _kept(recording: Recording) -> set[Memory]:
    """Memory that is looked at after the call or has decided something, and that of gradients."""
    recorder = recording.recorder
    found = {r.ref.memory for r in recording.results if r.ref is not None}
    found |= {r.memory for r in recording.effect_refs.values() if isinstance(r, Ref)}
    found |= {r.memory for e in recording.events[recording.split :] for r in outside.refs(e)}
    others = [t for _, t in (*recording.effects.arrays, *recording.effects.grads) if t is not None]
    others += [grad for _, grad in recording.read_before]
    found |= {m for t in others if (m := recorder.known_memory(t._array)) is not None}
    return found | recorder.decided.keys()
