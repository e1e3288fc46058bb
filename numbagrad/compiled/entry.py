"""One recorded signature, ready to be called: guards, native code, effects.

``make_entry`` turns a recording into programs and writes the Python function that a call runs. That
function is text made for the recording, because a call of a small step must not cost more than the
step. Start reading at ``make_entry``.
"""

from __future__ import annotations

import functools
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from ..kernels import machine
from ..kernels.cuda.runtime.array import DeviceArray
from ..tape import AccumulateGrad, grad_mode, run_backward
from ..tensor import Tensor, wrap
from . import outside
from .bind import Bound, Code, Workspace
from .counts import Move, native_counts
from .emit_cpu import emit
from .explain import Unfused, unfused
from .finite import checked_passes
from .gradients import GRADIENTS, Gradients, Slot
from .guards import Writer, argument_guards, gradient_guards, state_guards, still_text
from .lower import gpu_of, lower
from .passes import GPU_PASSES, optimise
from .places import Place
from .program import Buffer, Program
from .record import Memory, Ref
from .template import HELD, OTHER_SHAPE, OVERLAP, Argument
from .trace import Recording, Result, name_tensors

MISS = object()
"""What a call returns when the entry is not for these arguments."""


@dataclass
class Entry:
    """A recording that can be called with its flat arguments."""

    call: Callable[[tuple], Any]
    program: Program
    bound: Bound
    unfused: Unfused
    backward: Any
    needing: set[int]  # arguments that need a gradient, not bound
    closed_over: frozenset[int]  # ids of tensors of which it uses the gradient

    @property
    def looks_closely(self) -> bool:
        """Whether an argument might be a tensor whose gradient the function knows by itself."""
        return bool(self.needing and self.closed_over)

    def is_told_apart(self, leaves: list[Any]) -> bool:
        """Whether one of these arguments is such a tensor: the recording took it for another."""
        return any([id(leaves[k]) in self.closed_over for k in self.needing])


@dataclass
class Shared:
    """What all entries of one compiled function share."""

    codes: dict[Any, Code] = field(default_factory=dict)
    workspace: Workspace = field(default_factory=Workspace)
    light: Workspace = field(default_factory=Workspace)  # of programs that hold Python's lock
    on_gpu: Any = None  # the work memory of programs on a GPU, made on first use
    gradients: Gradients = GRADIENTS
    lock: Any = field(default_factory=threading.RLock)


def make_entry(
    name: str,
    recording: Recording,
    leaves: list[Any],
    bound: frozenset[int],
    shared: Shared,
    places: list[Place],
    looked_for: str = "",
    tied: bool = False,
) -> Entry:
    """Compile ``recording``; ``leaves`` are the arguments it was made with.

    places: Python values that it may depend on. looked_for: "nan" or "inf" to stop at the first
    bad value, "time" to tell the profiler what took how long. tied: let gradients that are read be
    these tensors, not those there at a call.
    """
    gpu = gpu_of(recording)
    timed = looked_for == "time" and gpu is None
    passes = None if gpu is None else GPU_PASSES
    if looked_for in ("nan", "inf"):
        passes = checked_passes(looked_for)
    plan = outside.plan(name, recording, shared, passes, timed)
    fresh = _fresh(recording, plan)
    names = _names(recording, leaves)
    given: dict[Memory, tuple[Tensor, Tensor]] = {}
    if not tied:
        given = _given_grads(recording, shared.gradients)
    inputs = [i.ref.memory for i in recording.inputs]
    lowered = lower(name, recording.events[: recording.split], fresh, names, inputs)
    program = optimise(lowered, passes)
    buffers = {b.memory: b for b in program.buffers if b.memory is not None}
    w = Writer()
    arguments = argument_guards(w, recording, leaves, bound, buffers)
    for memory, (t, grad) in given.items():
        if memory in buffers:
            arguments.append(Argument(buffers[memory], grad._array.shape))
            w.passed.append(f"{w.name('t', t)}._grad._array")
    lasting = _lasting(recording, buffers, shared.gradients) if gpu is None else {}
    for memory in fresh:
        b = buffers[memory]
        if b not in lasting:
            arguments.append(Argument(b, None))
            shape = w.name("shape", _shape_of(recording, memory))
            get = "empty("
            if memory.device is not None:
                get = "on_gpu("
                w.names["on_gpu"] = functools.partial(empty_on, memory.device)
            elif b.nbytes >= LARGE:
                w.names["unheld"] = unheld
                get = f"unheld({w.name('room', [None, None])}, "
            w.before.append(f"o_{b.name} = {get}{shape}, {w.name('dtype', b.dtype)})")
            w.passed.append(f"o_{b.name}")
    moves = _moves(recording, given, lasting)
    made_here = [b for b, (_, again) in lasting.items() if again]
    if gpu is None:
        counts = len(moves) if native_counts() else 0
        template = emit(program, arguments, made_here, counts, timed)
        code = shared.codes.setdefault(template.shape, Code())
        workspace = shared.workspace if template.heavy else shared.light
        made = Bound(template, code, workspace, dict.fromkeys(lasting))
    else:
        template, made = outside.bound_on_gpu(program, arguments, gpu, shared)
        # Inside of another, recorded function; what looks for NaN only stands in the same place.
        w.guards.append("(recorder.current is not None and grad_mode.anomaly is None)")
        w.names["recorder"] = machine.recorder
    made.count(moves)
    number = 0
    for b, (slot, again) in lasting.items():
        slot.used_by(made, b, number if again else -1)
        number += again
    w.names["slots"] = [slot for slot, _ in lasting.values()]  # kept as long as this entry
    state_guards(w, recording, places, {id(g) for _, g in recording.read_before})
    gradient_guards(w, recording, given, shared.gradients)
    _enter(w, template)
    if timed:
        w.names["profiled"] = made
        w.after.append("grad_mode.anomaly.ran(profiled)")
    slots = [slot for slot, again in lasting.values() if again]
    if moves and (template.heavy or not native_counts()):
        w.names["moves"] = moves
        w.after += ["for c, by, where in moves:", "    c.value += by; c.where = where"]
    _effects(w, recording, leaves, buffers, lasting, given)
    _returned(w, recording, buffers, plan)
    remade = [] if gpu is None else [t for t, _ in recording.effects.grads]
    renewals = _renewals(w, leaves, slots, remade, made)
    w.names |= {
        "MISS": MISS, "Tensor": Tensor, "new": object.__new__, "empty": np.empty, "wrap": wrap,
        "machine": machine, "grad_mode": grad_mode, "native": made.run, "table": made.table,
        "lock": shared.lock, "ndarray": np.ndarray, "run_backward": run_backward,
        "DeviceArray": DeviceArray, **outside.NUMBERS,
    }  # fmt: skip
    before = unfused(recording.events[: recording.split], lowered)
    call = _compile_call(w, len(leaves), renewals)
    closed_over = recording.closed_over
    return Entry(call, program, made, before, plan, needing(leaves) - bound, closed_over)


def needing(leaves: list[Any]) -> set[int]:
    """The places of the tensors among these that need a gradient."""
    return {k for k, t in enumerate(leaves) if isinstance(t, Tensor) and t._edge is not None}


def empty_on(device: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """Memory for a result on ``device``."""
    return machine.empty(shape, dtype, device)


def _given_grads(recording: Recording, gradients: Gradients) -> dict[Memory, tuple[Tensor, Tensor]]:
    """Gradients that the recording reads and others may have made: passed as arguments are.

    By their memory: the tensors that they are the gradients of, and they.
    """
    made = {id(t) for t, g in recording.effects.grads if g is not None}
    kept = {r.ref.memory for r in recording.results if r.ref is not None}
    kept |= {r.memory for r in recording.effect_refs.values() if isinstance(r, Ref)}
    kept |= {r.memory for e in recording.events[recording.split :] for r in outside.refs(e)}
    found: dict[Memory, tuple[Tensor, Tensor]] = {}
    shared = set()
    for t, grad in recording.read_before:
        memory = recording.recorder.known_memory(grad._array)
        ours = gradients.holding(t, grad) is not None and id(t) not in made
        if memory is None or memory.array is not grad._array or memory.kind != "state":
            continue
        if ours or memory in kept or grad._edge is not None:
            continue
        if memory in found or not grad.is_contiguous():
            shared.add(memory)
        found[memory] = t, grad
    for memory in shared:
        del found[memory]
    for memory in found:
        memory.kind = "input"
    return found


LARGE = 1 << 18
"""Bytes from which the memory of a result that nobody holds any more is used again: to have the
system map 4 MB afresh costs 150 us, more than most of what is written into them."""


def unheld(room: list[Any], shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """One of two arrays in ``room`` to which nobody else refers, else a new one, kept there.

    Two, because ``.grad`` holds the one of the last call while this call makes the next.
    """
    array = room[0]
    if array is None or sys.getrefcount(array) != 3:  # room, this name, and the question itself
        room.reverse()
        array = room[0]
        if array is None or sys.getrefcount(array) != 3:
            array = room[0] = np.empty(shape, dtype)
    return array


def _lasting(
    recording: Recording,
    buffers: dict[Any, Buffer],
    gradients: Gradients,
) -> dict[Buffer, tuple[Slot, bool]]:
    """Buffers of gradients that stay in ``.grad`` from call to call, and whether this recording
    makes them (it may also add to them)."""
    results = {r.ref.memory for r in recording.results if r.ref is not None}
    read = {id(t) for t, _ in recording.read_before}  # what is read must not be written over
    found: dict[Buffer, tuple[Slot, bool]] = {}
    for t, g in recording.effects.grads:
        ref = recording.effect_refs.get(id(g))
        if not isinstance(ref, Ref) or g is None:
            continue
        two = buffers[ref.memory] in found  # tensors with one gradient
        if ref.memory not in results and id(t) not in read and not two:
            edge = None if g._edge is None else outside.sealed()
            shape = _shape_of(recording, ref.memory)
            found[buffers[ref.memory]] = (gradients.slot(t, shape, ref.memory.dtype, edge), True)
    memory_of = {id(o.tensor): m for m, owners in recording.owners.items() for o in owners}
    for t, grad in recording.read_before:
        slot = gradients.holding(t, grad)
        memory = memory_of.get(id(grad))
        if slot is not None and memory in buffers and buffers[memory].kind != "input":
            assert memory is not None
            memory.array = None  # the slot decides where it is
            found[buffers[memory]] = (slot, False)
    return found


def _renewals(
    w: Writer, leaves: list[Any], slots: list[Slot], remade: list[Tensor], bound: Bound
) -> list[str]:
    """Text that makes sure that every ``.grad`` is ours to write; sets ``renewed``, ``failed``.

    remade: tensors that get a new ``.grad`` in each call.
    """

    def renewed() -> list[tuple[Tensor, Any]]:
        others = [(s.tensor, s.tensor._grad) for s in slots if s.tensor._grad is not s.grad[0]]
        for slot in slots:
            slot.renew()
        return others

    def put_back(others: list[tuple[Tensor, Any]]) -> None:
        for tensor, grad in others:
            tensor._grad = grad

    def failed(status: int) -> None:
        for tensor in (*[slot.tensor for slot in slots], *remade):
            tensor._grad = None
        bound.fail(status)

    w.names |= {"renewed": renewed, "failed": failed, "put_back": put_back}
    if not slots:
        return ["others = ()"]
    tests = [f"{w.name('t', s.tensor)}._grad is not {w.name('holder', s.grad)}[0]" for s in slots]
    shapes = [
        f"a{k}._array.shape != {leaf._array.shape}"
        for k, leaf in enumerate(leaves)
        if isinstance(leaf, Tensor)
    ]
    lines = ["others = ()", f"if {' or '.join(tests)}:"]
    if shapes:
        lines += [f"    if {' or '.join(shapes)}:", "        return MISS"]
    return [*lines, "    others = renewed()"]


def _fresh(recording: Recording, plan: Any) -> dict[Memory, str]:
    """Memory that outlives the call, with its name."""
    found: dict[Memory, str] = {}
    for k, r in enumerate(recording.results):
        if r.kind == "tensor" and r.ref is not None:
            found.setdefault(
                r.ref.memory, "result" if len(recording.results) == 1 else f"result{k}"
            )
    labels = name_tensors([t for t, _ in recording.effects.grads])
    for k, (t, g) in enumerate(recording.effects.grads):
        ref = recording.effect_refs.get(id(g))
        if isinstance(ref, Ref):
            found.setdefault(ref.memory, f"grad_{labels[id(t)] or 'p'}_{k}")
    for k, (_, t) in enumerate(recording.effects.arrays):
        ref = recording.effect_refs.get(id(t))
        if isinstance(ref, Ref):
            found.setdefault(ref.memory, f"data{k}")
    for k, ref in recording.input_grads.items():
        found.setdefault(ref.memory, f"grad_of_argument{k}")
    if plan is not None:
        for k, memory in enumerate(plan.saved):
            found.setdefault(memory, f"saved{k}")
    return found


def _names(recording: Recording, leaves: list[Any]) -> dict[Memory, str]:
    """Names of inputs and state for people."""
    found = {i.ref.memory: f"a{i.leaf}" for i in recording.inputs}
    owners = {m: o[0].tensor for m, o in recording.owners.items() if o}
    labels = name_tensors(list(owners.values()))
    taken: set[str] = set()
    for k, (memory, owner) in enumerate(owners.items()):
        name = labels[id(owner)]
        if name:
            found[memory] = name if name not in taken else f"{name}_{k}"
            taken.add(name)
    return found


def _shape_of(recording: Recording, memory: Memory) -> tuple[int, ...]:
    """The shape that fresh memory is allocated with."""
    refs = [r for r in recording.effect_refs.values() if isinstance(r, Ref)]
    refs += list(recording.input_grads.values())
    refs += [r.ref for r in recording.results if r.ref is not None]
    for ref in refs:
        whole = ref.memory is memory and ref.offset == 0
        if whole and int(np.prod(ref.shape, dtype=np.int64)) == memory.size and _dense(ref):
            return ref.shape
    return (memory.size,)


def _dense(ref: Ref) -> bool:
    step = 1
    for n, s in zip(reversed(ref.shape), reversed(ref.strides), strict=True):
        if n != 1 and s != step:
            return False
        step *= n
    return True


# -- what a call does ------------------------------------------------------------------------------


def _enter(w: Writer, template: Any) -> None:
    for k, (read, kinds) in enumerate(template.hyper):
        targets = ", ".join(f"h{k}_{j}" for j in range(len(kinds)))
        if kinds:
            lines = w.kept if w.told_of(read) else w.before
            lines.append(f"{targets}{',' if len(kinds) == 1 else ''} = {w.name('hyper', read)}()")
    passed = ["table", *w.passed]
    for text in template.floats:
        passed.append(_arguments_in(text))
    for k, (_, kinds) in enumerate(template.hyper):
        passed += [f"h{k}_{j}" for j in range(len(kinds))]
    if template.heavy:
        w.before.append("with lock:")
    indent = "    " if template.heavy else ""
    w.before.append(f"{indent}status = native({', '.join(passed)})")


def _arguments_in(text: str) -> str:
    """An expression of traced floats ``f0`` in terms of the arguments ``a0``."""
    inside = re.sub(r"\bf(\d+)\b", r"a\1", text)
    return f"float({inside})"


def _moves(
    recording: Recording,
    given: dict[Memory, tuple[Tensor, Tensor]],
    lasting: dict[Buffer, tuple[Slot, bool]],
) -> list[Move]:
    """The version counters that a call moves, but for those of gradients, which may be renewed."""
    skip = {id(grad) for _, grad in given.values()}
    skip |= {id(slot.grad[0]) for slot, _ in lasting.values()}
    moves: dict[int, Move] = {}
    for t, by, where in recording.effects.bumps:
        if id(t) not in skip:
            counter = t._version_counter()
            moves.setdefault(id(counter), (counter, by, where))
    return list(moves.values())


def _effects(
    w: Writer,
    recording: Recording,
    leaves: list[Any],
    buffers: dict[Any, Buffer],
    lasting: dict[Buffer, tuple[Slot, bool]],
    given: dict[Memory, tuple[Tensor, Tensor]],
) -> None:
    """Write what a call does to tensors after native code has run."""
    owner = {id(grad): t for t, grad in given.values()}
    for t, by, _ in recording.effects.bumps:
        if id(t) in owner:
            w.after.append(f"{w.name('t', owner[id(t)])}._grad._version_counter().value += {by}")
    first: dict[int, str] = {}
    for t, g in recording.effects.grads:
        name = w.name("t", t)
        if g is not None and first.setdefault(id(g), name) != name:
            w.after.append(f"{name}._grad = {first[id(g)]}._grad")
            continue
        ref = None if g is None else recording.effect_refs[id(g)]
        if g is None:
            w.after.append(f"{name}._grad = None")
        elif ref is None:
            w.after.append(f"{name}._grad = {w.name('tensor', g)}")
        elif isinstance(ref, int):
            w.after.append(f"{name}._grad = a{ref}")
        elif buffers[ref.memory] in lasting:
            if g._version:
                slot, _ = lasting[buffers[ref.memory]]
                holder = w.name("holder", slot.grad)
                w.after.append(f"{holder}[0]._version_counter().value = {g._version}")
        else:  # it is returned too, or on a GPU
            array = f"o_{buffers[ref.memory].name}"
            w.after.append(f"{name}._grad = wrap({array}, {w.name('dtype', t._dtype)})")
            if ref.memory.device is not None and g._edge is not None:
                w.after.append(f"{name}._grad._edge = {w.name('edge', outside.sealed())}")
            if ref.memory.device is not None and g._version:
                w.after.append(f"{name}._grad._version_counter().value = {g._version}")
    for t, alias in recording.effects.arrays:
        ref = recording.effect_refs[id(alias)]
        name = w.name("t", t)
        if isinstance(ref, Ref):
            w.after.append(f"{name}._array, {name}._flat = o_{buffers[ref.memory].name}, True")
            w.after.append(f"{name}._dtype = {w.name('dtype', alias._dtype)}")
        elif ref is None:
            w.after.append(f"{name}._share({w.name('tensor', alias)})")
        else:
            w.after.append(f"{name}._share(a{ref})")
        w.after.append(f"{name}._moved()")
    slots = {id(slot.grad[0]): slot for slot, made in lasting.values() if not made}
    for t, by, _ in recording.effects.bumps:
        if id(t) in slots and id(t) not in owner:
            holder = w.name("holder", slots[id(t)].grad)
            w.after.append(f"{holder}[0]._version_counter().value += {by}")
    for k, by in recording.input_bumps.items():
        w.after.append(f"a{k}._version_counter().value += {by}")
    w.after += [f"a{k}._grad = None" for k in recording.input_clears]
    for k, ref in recording.input_grads.items():
        dtype = w.name("dtype", leaves[k]._dtype)
        grad = f"wrap(o_{buffers[ref.memory].name}, {dtype})"
        w.names["receive"] = receive
        w.after.append(f"receive(a{k}, {grad})")


def receive(tensor: Tensor, grad: Tensor) -> None:
    """Let ``tensor`` have a gradient that backward inside computed for it, as a leaf or further.

    A leaf had none before, or the function has dropped it: a call guards that.
    """
    edge = tensor._edge
    if type(edge) is AccumulateGrad:
        tensor._grad = None
        if edge._hooks is None:
            tensor._grad = grad  # nobody else holds it: to take it over is what the tape would do
            return
    run_backward([(edge, grad)], retain_graph=False, create_graph=False)


def _returned(w: Writer, recording: Recording, buffers: dict[Any, Buffer], plan: Any) -> None:
    """Write the returned value."""
    if plan is not None:
        plan.write(w, buffers)
    results = recording.results
    bases = _bases(recording)
    named = {*bases.values(), *(r.value for r in results if r.kind == "same")}
    texts = [""] * len(results)
    for k in sorted(range(len(results)), key=lambda k: k not in named):
        texts[k] = _result_text(w, k, recording, buffers, bases)
        view = results[k].kind == "view" or texts[k].startswith("part")
        moved = 0 if view else results[k].version
        ref = results[k].ref
        kept = "" if view or ref is None else w.saved.get(ref.memory, "")
        if (k in named or moved or kept) and texts[k] != f"r{k}":
            w.after.append(f"r{k} = {texts[k]}")
            texts[k] = f"r{k}"
        if kept:  # a change of the result is a change of what backward needs
            w.after.append(f"r{k}._kept, r{k}._counter = {kept}, {kept}._counter")
        elif moved:
            w.after.append(f"r{k}._version_counter().value = {moved}")
    texts.reverse()
    w.after.append(f"return {_nested(w, recording.result_spec, texts)}")


def _bases(recording: Recording) -> dict[Memory, int]:
    """Of fresh memory that several results show, the result that the others are views of."""
    found: dict[Memory, list[int]] = {}
    for k, r in enumerate(recording.results):
        if r.kind == "tensor" and r.ref is not None:
            found.setdefault(r.ref.memory, []).append(k)
    bases = {}
    for memory, members in found.items():
        whole = [k for k in members if _is_whole(recording, recording.results[k].ref)]
        tracked = [k for k in whole if isinstance(recording.results[k].edge, int)]
        if len(members) > 1 and whole:
            bases[memory] = (tracked or whole)[0]
    return bases


def _is_whole(recording: Recording, ref: Any) -> bool:
    """Whether a result is just the array that is allocated for it."""
    return ref.offset == 0 and ref.shape == _shape_of(recording, ref.memory) and _dense(ref)


def _result_text(
    w: Writer, k: int, recording: Recording, buffers: dict[Any, Buffer], bases: dict[Memory, int]
) -> str:
    """One leaf of the result as an expression."""
    r: Result = recording.results[k]
    if r.kind == "same":
        return f"r{r.value}"
    if r.kind == "value":
        return w.name("value", r.value)
    if r.kind == "leaf":
        return f"a{r.value}"
    if r.kind == "old grad":
        w.before.append(f"old{k} = {w.name('t', r.value)}._grad")
        return f"old{k}"
    if r.kind == "grad":
        return f"{f'a{r.value}' if isinstance(r.value, int) else w.name('t', r.value)}._grad"
    if r.kind == "float":
        return _arguments_in(r.value)
    assert r.ref is not None
    if r.kind == "tensor":
        b = buffers[r.ref.memory]
        layout = f"{r.ref.shape}, {r.ref.strides}, {r.ref.offset}"
        base = bases.get(r.ref.memory, k)
        out, dtype = f"o_{b.name}", w.name("dtype", r.dtype)
        text = f"wrap({out}, {dtype})"
        if base != k:
            first = recording.results[base]
            on_tape = isinstance(first.edge, int) and first.root == r.root
            return _view_text(w, k, r, f"r{base}", layout, on_tape)
        elif not _is_whole(recording, r.ref):
            text = f"alone({text}, {layout})"
            w.names["alone"] = outside.alone
        elif r.ref.memory.device is None:  # as ``wrap``, whose call costs 50 ns
            w.after += [f"r{k} = new(Tensor)", f"r{k}._array, r{k}._dtype = {out}, {dtype}"]
            w.after.append(f"r{k}._edge = r{k}._counter = None")
            text = f"r{k}"
    elif r.kind == "copy":
        ref = r.ref
        array = ref.memory.array
        w.names["constant"] = outside.constant
        text = f"constant({w.name('array', array)}, {ref.shape}, {ref.strides}, {ref.offset})"
    else:
        leaf = r.ref.memory.position
        source = f"a{leaf}" if r.ref.memory.kind == "input" else None
        on_tape = r.root is not None
        if source is None:
            owner = r.root
            if owner is None or owner._array.size != r.ref.memory.size or not owner._flat:
                owner, on_tape = wrap(r.ref.memory.array, r.dtype), False
            source = w.name("t", owner)
        layout = f"{r.ref.shape}, {r.ref.strides}, {r.ref.offset}"
        return _view_text(w, k, r, source, layout, on_tape)
    return _with_edge(w, k, r, text)


def _view_text(w: Writer, k: int, r: Result, source: str, layout: str, on_tape: bool) -> str:
    """A result that shows part of another tensor; on_tape: as a view whose gradient goes there."""
    w.names |= {"part": outside.part, "beside": outside.beside}
    if not isinstance(r.edge, int):
        return _with_edge(w, k, r, f"part({source}, {layout}, False)")
    if not on_tape:
        return _with_edge(w, k, r, f"beside({source}, {layout})")
    w.after.append(f"r{k} = part({source}, {layout}, True)")
    w.after.append(f"if r{k}._edge is None:")
    w.after.append(f"    r{k}._edge = output_edge(node, {r.edge})")
    return f"r{k}"


def _with_edge(w: Writer, k: int, r: Result, text: str) -> str:
    """A result with its history."""
    if r.edge is None:
        return text
    if text != f"r{k}":
        w.after.append(f"r{k} = {text}")
    if r.edge == "sealed":
        w.after.append(f"r{k}._edge = {w.name('edge', outside.sealed())}")
    elif r.edge == "leaf":
        w.after.append(f"r{k}.requires_grad_()")
    else:
        w.after.append(f"r{k}._edge = output_edge(node, {r.edge})")
    return f"r{k}"


def _nested(w: Writer, spec: Any, texts: list[str]) -> str:
    if spec == "*":
        return texts.pop()
    kind, parts = spec
    if kind == "dict":
        inside = ", ".join(f"{k!r}: {_nested(w, p, texts)}" for k, p in parts)
        return f"{{{inside}}}"
    items = [_nested(w, p, texts) for p in parts]
    if kind == "list":
        return f"[{', '.join(items)}]"
    if kind == "tuple":
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    return f"{w.name('type', kind)}({', '.join(items)})"


def _compile_call(w: Writer, count: int, renewals: list[str]) -> Callable[[tuple], Any]:
    """The function that the text makes."""
    unpack = ", ".join(f"a{k}" for k in range(count))
    lines = [
        *still_text(w),
        "def call(leaves):",
        "    try:",
        f"        ({unpack}{',' if count == 1 else ''}) = leaves",
        "    except ValueError:",
        "        return MISS",
    ]
    lines += ["    if (", *[f"        {'or ' if k else ''}{g}" for k, g in enumerate(w.guards)]]
    lines += ["    ):", "        return MISS"]
    lines += [f"    {line}" for line in (*renewals, *w.before)]
    lines += [
        "    if status:",
        f"        if status == {HELD}:",
        "            renewed()",
        "            return call(leaves)",
        f"        if status == {OTHER_SHAPE} or status == {OVERLAP}:",
        "            put_back(others)",
        "            return MISS",
        "        failed(status)",
    ]
    lines += [f"    {line}" for line in w.after]
    # An outer function that is never run: it makes cells of the user's functions variables of ours,
    # which are read in 3 ns instead of 30.
    outer = [f"def cells({', '.join(w.cells)}):", "    global call, still"]
    text = "\n".join([*outer, *[f"    {line}" for line in lines]]) + "\n"
    exec(compile(text, "<call of a compiled function>", "exec"), w.names)
    for code in w.names["cells"].__code__.co_consts:
        if isinstance(code, CodeType):
            closure = tuple([w.cells[free] for free in code.co_freevars])
            w.names[code.co_name] = FunctionType(code, w.names, code.co_name, None, closure)
    return w.names["call"]
