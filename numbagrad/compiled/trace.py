"""One recording of a user's function: its arguments, launches, results and effects.

``record`` runs the function with stand-ins for its arguments and puts every tensor back as it was.
"""

from __future__ import annotations

import operator
import threading
import traceback
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from types import CellType, FunctionType
from typing import Any

from ..errors import RecordingError, StateMadeError
from ..kernels import interrupts
from ..kernels.instances import prepare
from ..kernels.traced_float import Count, TracedFloat
from ..kernels.traced_math import tracing_math
from ..kernels.traced_types import tracing_types
from ..tape import (
    AccumulateGrad,
    Counter,
    next_sequence,
)
from ..tensor import Tensor
from ..tree import flatten, forget_cached, opened, rebuild
from .asked import Asked
from .before import (
    Before,
    Effects,
    bases_of_parts,
    effects_since,
    note_covering,
    put_in_order,
    renew_dicts,
    roots_of,
)
from .draws import DrawError, cause_of, check_undrawn, generators_of
from .graph import Graph
from .heap import Nursery, all_tensors, dicts_that_hold
from .iterators import Iterators
from .named import imported_by
from .phantoms import clear_caches, expel, forget_numbers, look_for_leaks, phantoms
from .places import Locations, Place, check_unchanged, put_back
from .record import Recorder, recording_alone, recording_with
from .repeated import first_places
from .settle import COPY, Settler, shared, stays
from .slots import Slot, known_slots, slot_of
from .traced import Memory, Ref, root_of, traced


@dataclass(frozen=True)
class Input:
    """A tensor argument: which leaf, its memory and layout, and the stand-in's tensor."""

    leaf: int
    ref: Ref
    given_contiguous: bool


@dataclass(frozen=True)
class Result:
    """A leaf of what the function returned.

    kind: "tensor" (fresh memory ``ref``), "leaf" (argument ``value`` itself), "grad" or "old grad"
    (the gradient, after or before the call, of ``value``: a tensor or the number of an argument),
    "view" (of argument or state memory ``ref``), "float" or "int" (the text of an expression),
    "same" (as result ``value``) or "value" (the same each time).
    edge: number of the differentiable output, "sealed" where its graph was freed inside, a
    Failure, or None.
    version: how often it was changed in place. root: which tensor it is a view of for the tape:
    that of state, True for an argument, None for neither; of fresh memory a number. counter: of a
    view of state, where it is one that a tensor from before has. apart: whether a view has a
    version of its own, as ``.data`` has. hooked: whether the gradient of a view is not just a part
    of that of its base, for a hook is called on the way.
    """

    kind: str
    value: Any = None
    ref: Ref | None = None
    dtype: Any = None
    edge: Any = None
    version: int = 0
    root: Any = None
    counter: Counter | None = None
    apart: bool = False
    hooked: bool = False


@dataclass
class Recording:
    """What ``record`` found."""

    events: list[Any]
    inputs: list[Input]
    results: list[Result]
    result_spec: Any
    effects: Effects
    effect_refs: dict[int, Ref | int | None]  # by id of a tensor in effects.grads or .arrays: its
    # fresh memory, the leaf that it is, or None for one that was there before
    recorder: Recorder
    owners: dict[Memory, list[Before]]
    looked_into: list[Before]  # tensors that were there before and whose array was looked at,
    asked: list[Before]  # and whose history
    input_bumps: dict[int, int]  # by leaf: how often an argument was changed in place
    input_grads: dict[int, Ref]  # by leaf: a gradient that backward inside gave to an argument
    input_clears: list[int]  # leaves whose gradient was dropped
    looked_at: list[int]  # leaves whose gradient was looked at
    closed_over: frozenset[int]  # ids of tensors whose gradient was looked at or set
    none_before: list[Tensor]  # tensors that were seen to have no gradient
    some_before: list[Tensor]  # tensors that were seen to have one, whose values are not needed
    read_before: list[tuple[Tensor, Tensor]]  # tensors with a gradient that is read or written
    split: int  # events from here on are the backward pass
    incoming: list[Ref] = field(default_factory=list)  # gradients of differentiable results
    edges: list[Any] = field(default_factory=list)  # where their graph leaves the function
    outgoing: list[Ref | None] = field(default_factory=list)  # the gradients that go there
    sources: list[frozenset[int]] = field(default_factory=list)  # the results they come from


class Found(Exception):
    """A recording has met slots that it must take for arguments; nothing has changed."""

    def __init__(self, slots: list[Slot]):
        self.slots = slots


def record(
    function: Callable[..., Any],
    leaves: list[Any],
    spec: Any,
    bound: frozenset[int],
    places: list[Place],
    objects: Sequence[Any] = (),
    carried: Locations = frozenset(),
    namespaces: Sequence[dict[str, Any]] = (),
) -> Recording:
    """Run ``function`` on stand-ins for ``leaves`` (those numbered in ``bound`` as they are).

    places: Python values that must stay what they are. objects: what it may reach. carried: slots
    that it puts back itself. namespaces: of the modules in which it is written. Raises
    RecordingError if something that the function does cannot be repeated by a compiled call, and
    Found if it sets others; then nothing has changed.
    """
    given = function, leaves, spec, bound, places, objects, carried, namespaces
    with interrupts.held():
        try:
            return copy_context().run(_record, *given)  # what it sets there is gone afterwards
        except DrawError:
            if threading.active_count() == 1:
                raise
        # Another thread may have drawn meanwhile: it would hardly do so in both recordings.
        return copy_context().run(_record, *given)


def _record(
    function: Callable[..., Any],
    leaves: list[Any],
    spec: Any,
    bound: frozenset[int],
    places: list[Place],
    objects: Sequence[Any],
    carried: Locations,
    namespaces: Sequence[dict[str, Any]],
) -> Recording:
    recorder = Recorder()
    prepare()
    with recording_alone:
        before = [Before.of(t, t._grad) for t in all_tensors()]
        recorder.before = frozenset(roots_of(before))
        recorder.others = frozenset([id(b.tensor) for b in before])
        for b in before:
            note_covering(recorder.covering, b.array)
        generators = generators_of((*leaves, *[place.value for place in places]))
        held = recorder.held
        held.carried = carried
        held.note_all(places, objects)
        iterators = Iterators(places, leaves)
        recorder.asked = Asked(objects)
        start = recorder.start = next_sequence()
        try:
            with Nursery() as made:
                cells = [p.holder for p in places if type(p.holder) is CellType]
                functions = [p.holder for p in places if type(p.holder) is FunctionType]
                imported = any(["math" in imported_by(f.__code__, "") for f in functions])
                numbers = tracing_math(namespaces, cells, imported)
                with recording_with(recorder), numbers, tracing_types(functions):
                    try:
                        there = tuple([id(place.value) for place in places])
                        found = _run(function, leaves, spec, bound, recorder, before, start, there)
                    finally:
                        for b in before:
                            b.restore(recorder)
                        renew_dicts(before, recorder)
                iterators.check()
                slots = known_slots(places, held.modules)
                for change in held.changes(places, objects):
                    if change.is_mode:
                        found.effects.modes.append((change.module, change.key, change.new))
                        setattr(change.module, change.key, change.old)
                        continue
                    slot = slot_of(change)
                    if slot is not None:
                        slots.append(slot)
                    elif change.makes_state:
                        raise StateMadeError(
                            f"compile: the compiled function makes {change.name!r}, which was not "
                            f"there before, in each call: a compiled call would not. Make it "
                            f"outside."
                        )
                    elif change.alone:
                        raise RecordingError(
                            f"compile: the compiled function sets {change.name!r} of an optimiser "
                            f"to {type(change.new).__name__} in the place of "
                            f"{type(change.old).__name__}, which a compiled call would not do. Let "
                            f"it be of one kind in each call."
                        )
                slots += [Slot((o,), name, name, number=float) for o, name in held.options.values()]
                if any([slot.location not in carried for slot in slots]):
                    raise Found(slots)
                known = {id(b.tensor) for b in before}
                effects = (*found.effects.grads, *found.effects.arrays)
                known |= {id(t) for _, t in effects} | recorder.parted
                held.let_go()
                look_for_leaks(made, known, places)
                check_unchanged(places)
                check_undrawn(generators)
        except BaseException as error:
            for undo in reversed(recorder.adopted):
                undo()
            held.put_back()
            put_back(places)
            drawn = cause_of(error, generators)
            for each in generators:
                each.put_back()
            for node, saved in recorder.freed:
                node._saved = saved
            if isinstance(error, Found):
                clear_caches(phantoms(made.tensors()))
            else:
                if isinstance(error, StateMadeError):  # which nobody sees
                    traceback.clear_frames(error.__traceback__)
                expel(phantoms(made.tensors()))
            if drawn is not None:
                raise drawn from error
            raise
        finally:
            forget_numbers()
        held.announce()
    return found


def _run(
    function: Callable[..., Any],
    leaves: list[Any],
    spec: Any,
    bound: frozenset[int],
    recorder: Recorder,
    before: list[Before],
    start: int,
    known_objects: tuple[int, ...],
) -> Recording:
    inputs: list[Input] = []
    given: list[Any] = []
    stand_in: dict[int, Tensor] = {}
    again = first_places(leaves)
    for k, leaf in enumerate(leaves):
        if k in again and k not in bound:
            given.append(given[again[k]])
        elif isinstance(leaf, Tensor) and k not in bound:
            tensor = _stand_in(leaf, k, recorder)
            inputs.append(Input(k, recorder.ref(tensor._array), leaf._array.flags.c_contiguous))
            stand_in[k] = tensor
            recorder.arguments[id(tensor)] = k, leaf
            given.append(tensor)
        else:
            numeric = type(leaf) in (float, Count)
            given.append(recorder.traced_float(k, leaf) if numeric else leaf)
    args, kwargs = rebuild(spec, list(given))
    recorder.arrays_read.clear()  # of what was looked at to make stand-ins
    recorder.edges_read.clear()
    returned = interrupts.interruptible(function, *args, **kwargs)
    values = recorder.settings.taken()
    if values:
        returned = returned, values
    del values
    arrays_read, edges_read = frozenset(recorder.arrays_read), frozenset(recorder.edges_read)
    recorder.check_decided()
    recorder.check_extents()
    _check_containers(spec, given, (args, kwargs))
    kept: list[Any] = []
    result_leaves: list[Any] = []
    result_spec = flatten(returned, kept, (*_whole(given), *known_objects))
    del returned
    # What a mask selects is returned as a call that takes it: ``ops/selected.py``.
    result_spec = opened(result_spec, iter(kept), result_leaves)
    kept.clear()
    recorder.own_constants(COPY, {id(t): t for t in result_leaves if isinstance(t, Tensor)})
    if any([t._edge is not None and not t.is_leaf for t in stand_in.values()]):
        raise RecordingError(
            "in-place: a compiled function changed the history of one of its arguments. Change a "
            "clone of it, or pass detach() of it."
        )
    seen = frozenset(recorder.grads_read)
    looked_at = [k for k, t in stand_in.items() if id(t) in seen]
    closed_over = (seen | recorder.grads_set) & {id(b.tensor) for b in before}
    effects = effects_since(before, recorder)
    effects.argument_needs += _turned(leaves, stand_in)
    put_in_order(before, effects, recorder)
    recorder.parted = bases_of_parts(effects, result_leaves, recorder)
    gradients = frozenset([id(b.grad) for b in before])
    looked_into = [b for b in before if id(b.tensor) in arrays_read - gradients]
    asked = [b for b in before if id(b.tensor) in edges_read - gradients]
    stand_ins = {id(tensor): k for k, tensor in stand_in.items()}
    known = {id(b.tensor) for b in before}
    settle = Settler(recorder)
    refs: dict[int, Ref | int | None] = {}
    moving = {id(root_of(b.grad._array)) for b in before if b.grad is not None}
    for _, t in effects.grads:
        if t is not None:
            same = id(t) in known and not traced(t._array)
            same |= t._edge is None and stays(t, recorder, moving)
            refs[id(t)] = None if same else stand_ins.get(id(t), settle(t))
    for _, t in effects.arrays:
        refs[id(t)] = shared(t, recorder, moving, settle)
    bumps = {
        k: t._counter.value
        for k, t in stand_in.items()
        if t._counter is not None and t._counter.value
    }
    grads = {k: settle(t._grad) for k, t in stand_in.items() if t._grad is not None}
    set_here = frozenset(recorder.grads_set)
    cleared = [k for k, t in stand_in.items() if id(t) in set_here and t._grad is None]
    grad_of = _grads_by_id(before, effects, stand_in)
    graph = Graph(recorder, start, stand_ins, settle)
    split = len(recorder.events)
    with recorder.as_left():  # what backward functions and hooks read is what the call has left
        graph.differentiate([t for t in result_leaves if _recorded(t, known, stand_ins)])
    recorder.as_left = nullcontext  # which holds no tensor
    counters = {id(b.tensor._counter): b.tensor._counter for b in before}
    counters |= {id(t._counter): None for t in stand_in.values()}
    counters.pop(id(None), None)
    results = [
        _result(t, recorder, stand_ins, known, grad_of, graph, counters) for t in result_leaves
    ]
    first: dict[int, int] = {}
    for k, t in enumerate(result_leaves):
        if isinstance(t, Tensor) and first.setdefault(id(t), k) != k:
            results[k] = Result("same", first[id(t)])
    roots = roots_of(before)
    owners: dict[Memory, list[Before]] = {}
    for root, memory in recorder._roots.values():
        if memory.kind == "state":
            born = [recorder.newborn[i] for i in (id(root),) if i in recorder.newborn]
            found = _owners(memory.array, roots.get(id(root), [])) or born
            owners.setdefault(memory, []).extend(found)
    used = {id(o.tensor) for found in owners.values() for o in found}
    none = [b.tensor for b in before if b.grad is None and id(b.tensor) in seen]
    held = [b for b in before if b.grad is not None]
    read = [(b.tensor, b.grad) for b in held if id(b.grad) in used]
    some = [b.tensor for b in held if id(b.grad) not in used and id(b.tensor) in seen]
    return Recording(
        recorder.events, inputs, results, result_spec, effects, refs, recorder, owners,
        looked_into, asked, bumps, grads, cleared, looked_at, closed_over, none, some,
        read, split, graph.incoming, graph.edges, graph.outgoing, graph.sources,
    )  # fmt: skip


def _check_containers(spec: Any, given: list[Any], arguments: tuple[Any, ...]) -> None:
    """Raise if a list, a dict or an object among the arguments was changed."""
    leaves: list[Any] = []
    forget_cached(arguments, spec)
    again = flatten(arguments, leaves, _whole(given))
    if again != spec or any(map(operator.is_not, leaves, given)):
        raise RecordingError(
            "compile: the compiled function changes a list or dict that it was given, or an "
            "attribute of an object, which a compiled call would not do. Return what is new, or "
            "change a copy, such as copy.copy(x)."
        )


def _whole(given: list[Any]) -> tuple[int, ...]:
    """The ids of the arguments that are not tensors, and were not taken apart."""
    return tuple([id(leaf) for leaf in given if not isinstance(leaf, Tensor)])


def _turned(leaves: list[Any], stand_in: dict[int, Tensor]) -> list[tuple[int, bool]]:
    """The arguments that were made to need a gradient, or not to."""
    return [
        (k, t._edge is not None)
        for k, t in stand_in.items()
        if t.is_leaf and (t._edge is None) != (leaves[k]._edge is None)
    ]


def _grads_by_id(
    before: list[Before], effects: Effects, stand_in: dict[int, Tensor]
) -> dict[int, tuple[str, Any]]:
    """Gradients that may be returned, by id: whose they are, before or after the call."""
    changed = {id(t) for t, _ in effects.grads}
    found: dict[int, tuple[str, Any]] = {
        id(b.grad): ("old grad" if id(b.tensor) in changed else "grad", b.tensor)
        for b in before
        if b.grad is not None
    }
    for t, g in effects.grads:
        if g is not None:
            found.setdefault(id(g), ("grad", t))
    return found | {id(t._grad): ("grad", k) for k, t in stand_in.items() if t._grad is not None}


def _owners(root: Any, found: list[Before]) -> list[Before]:
    """The tensors that ``root`` belongs to: those on all of it, and leaves; else any."""
    main = [b for b in found if b.array is root or type(b.edge) is AccumulateGrad]
    return main or found


def _stand_in(leaf: Tensor, position: int, recorder: Recorder) -> Tensor:
    tensor: Any = object.__new__(type(leaf))
    tensor._array = recorder.stand_in(leaf._array, position)
    tensor._dtype = leaf._dtype
    tensor._flat = bool(tensor._array.flags.c_contiguous)
    tensor._device = leaf._device
    tensor._edge = None
    tensor._counter = None
    if leaf._edge is not None:
        tensor._edge = AccumulateGrad(tensor)
    return tensor


def _recorded(value: Any, known: set[int], stand_ins: dict[int, int]) -> bool:
    """Whether a returned leaf has a history made inside."""
    inside = isinstance(value, Tensor) and id(value) not in known and id(value) not in stand_ins
    return inside and value._edge is not None and not value.is_leaf


def _result(
    value: Any,
    recorder: Recorder,
    stand_ins: dict[int, int],
    known: set[int],
    grad_of: dict[int, tuple[str, Any]],
    graph: Graph,
    counters: dict[int, Counter | None],
) -> Result:
    if type(value) is TracedFloat:
        return Result("float" if type(value.value) is float else "int", value.text)
    if not isinstance(value, Tensor):
        return Result("value", value)
    if id(value) in stand_ins:
        return Result("leaf", stand_ins[id(value)])
    if id(value) in grad_of:
        return Result(*grad_of[id(value)])
    if id(value) in known:
        return Result("value", value)
    ref = recorder.ref(value._array)
    kind = "tensor" if ref.memory.kind == "made" else "view"
    if ref.memory.kind == "constant":
        kind = "copy"
    edge = graph.numbers.get(id(value))
    if edge is None and value._edge is not None:
        edge = "leaf"
    base = value if value._base is None else value._base
    root: Any = id(base)
    if kind == "view":
        root = base if id(base) in known else True if id(base) in stand_ins else None
    hooked = graph.hooked(value, base)
    found = Result(kind, None, ref, value._dtype, edge, value._version, root, hooked=hooked)
    if kind != "view":
        return found
    mine = id(value._counter)
    return replace(found, counter=counters.get(mine), apart=mine not in counters)


_names: dict[int, tuple[weakref.ref, str]] = {}


def name_tensors(tensors: list[Tensor]) -> dict[int, str]:
    """Names of tensors, by id: the key under which a dict holds each, such as a module's own.

    Of several keys the longest, so that the name does not depend on the collector's order.
    """

    def known(t: Tensor) -> bool:
        return id(t) in _names and _names[id(t)][0]() is t

    unknown = {id(t): t for t in tensors if not known(t)}
    found: dict[int, str] = {}
    if unknown:
        for holder in dicts_that_hold(list(unknown.values())):
            for key, value in list(holder.items()):
                if id(value) in unknown and isinstance(key, str) and key.isidentifier():
                    if not key.startswith("_"):
                        other = found.get(id(value), "")
                        found[id(value)] = min(key, other, key=lambda k: (-len(k), k))
        for i, t in unknown.items():
            _names[i] = (weakref.ref(t), found.get(i, ""))
    return {id(t): _names[id(t)][1] for t in tensors}
