"""One recorded signature, ready to be called: guards, native code, effects.

``make_entry`` turns a recording into programs, binds them to memory, and has ``call_text`` write
the Python function that a call runs. Start reading at ``make_entry``.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import numpy as np

from ..graph_walk import run_backward
from ..kernels import blocks, machine
from ..kernels.cuda.runtime.array import DeviceArray
from ..tape import grad_mode
from ..tensor import Tensor, wrap
from . import outside, rebound
from .bind import Bound, Code, Workspace
from .call_text import compile_call, effects_text, enter, result_text, shape_of
from .carried import MISS, Carried, Recorded, needing
from .counts import Move, native_counts
from .emit_cpu import emit
from .explain import Unfused, unfused
from .factor import factored, gradients_factored
from .finite import checked_passes
from .gradients import GRADIENTS, Gradients, Slot
from .guards import Writer, argument_guards, gradient_guards, state_guards
from .lower import gpu_of, lower
from .passes import GPU_PASSES, PASSES, optimise
from .program import Buffer, Program
from .reasons import changed_guard
from .relied import Gathered
from .template import Argument, Template
from .trace import Recording, name_tensors
from .traced import Memory, Ref


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
    guarded: Writer  # what its call compares
    carried: Carried | None  # what it reads and sets in each call beside its arguments
    gathered: Gathered | None = None  # what it relies on, for people

    @property
    def looks_closely(self) -> bool:
        """Whether an argument might be a tensor whose gradient the function knows by itself."""
        return bool(self.needing and self.closed_over)

    def reason(self, leaves: list[Any]) -> str:
        """Why the recording is not for these arguments, in words."""
        if self.carried is not None:
            return self.carried.reason(self.guarded, leaves)
        return changed_guard(self.guarded, leaves)

    def is_told_apart(self, leaves: list[Any]) -> bool:
        """Whether one of these arguments is such a tensor: the recording took it for another."""
        return any([id(leaves[k]) in self.closed_over for k in self.needing])


@dataclass
class Shared:
    """What all entries of one compiled function share.

    fastmath: whether their sums and products may be reordered.
    """

    fastmath: bool = False
    codes: dict[Any, Code] = field(default_factory=dict)
    workspace: Workspace = field(default_factory=Workspace)
    light: Workspace = field(default_factory=Workspace)  # of programs that hold Python's lock
    on_gpu: Any = None  # the work memory of programs on a GPU, made on first use
    gradients: Gradients = GRADIENTS
    lock: Any = field(default_factory=threading.RLock)

    def code_of(self, template: Template) -> Code:
        """The code of templates of this shape."""
        return self.codes.setdefault(template.shape, Code(self.fastmath))


def make_entry(
    name: str,
    found: Recorded,
    shared: Shared,
    looked_for: str = "",
    functions: Iterable[FunctionType] = (),
) -> Entry:
    """Compile a recording.

    looked_for: "nan" or "inf" to stop at the first bad value, "time" to tell the profiler what took
    how long. functions: of the user, that may run.
    """
    recording, leaves, bound = found.recording, found.leaves, found.bound
    gpu = gpu_of(recording)
    timed = looked_for == "time" and gpu is None
    passes = None if gpu is None else GPU_PASSES
    passes = (*(passes or PASSES), factored if shared.fastmath else gradients_factored)
    if looked_for in ("nan", "inf"):
        passes = checked_passes(looked_for)
    plan = outside.plan(name, recording, shared, passes, timed)
    fresh = _fresh(recording, plan)
    names = _names(recording, leaves)
    given: dict[Memory, tuple[Tensor, Tensor]] = {}
    passed: dict[Memory, Tensor] = {}
    rebound.note(recording)
    if not found.tied:
        given = _given_grads(recording, shared.gradients)
        passed = rebound.passed(recording)
    if found.carried is not None:
        found.carried.name_inputs(recording)
    inputs = [i.ref.memory for i in recording.inputs]
    lowered = lower(name, recording.events[: recording.split], fresh, names, inputs)
    program = optimise(lowered, passes)
    buffers = {b.memory: b for b in program.buffers if b.memory is not None}
    w = Writer()
    arguments = argument_guards(w, recording, leaves, bound, buffers, functions)
    for memory, (t, grad) in given.items():
        if memory in buffers:
            arguments.append(Argument(buffers[memory], grad._array.shape))
            w.passed.append(f"{w.name('t', t)}._grad._array")
    for memory, t in passed.items():
        if memory in buffers:
            arguments.append(Argument(buffers[memory], t._array.shape))
            w.passed.append(f"{w.name('t', t)}._array")
    lasting = _lasting(recording, buffers, shared.gradients) if gpu is None else {}
    for memory in fresh:
        b = buffers[memory]
        if b not in lasting:
            arguments.append(Argument(b, None))
            shape = w.name("shape", shape_of(recording, memory))
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
        code = shared.code_of(template)
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
    state_guards(w, recording, found.places, {id(g) for _, g in recording.read_before}, passed)
    gradient_guards(w, recording, given, shared.gradients)
    enter(w, template)
    if timed:
        w.names["profiled"] = made
        w.after.append("grad_mode.anomaly.ran(profiled)")
    slots = [slot for slot, again in lasting.values() if again]
    if moves and (template.heavy or not native_counts()):
        w.names["moves"] = moves
        w.after += ["for c, by, where in moves:", "    c.value += by; c.where = where"]
    effects_text(w, recording, leaves, buffers, lasting, given)
    result_text(w, recording, buffers, plan)
    remade = [] if gpu is None else [t for t, _ in recording.effects.grads]
    renewals = _renewals(w, leaves, slots, remade, made)
    w.names |= {
        "MISS": MISS, "Tensor": Tensor, "new": object.__new__, "empty": np.empty, "wrap": wrap,
        "machine": machine, "grad_mode": grad_mode, "native": made.run, "table": made.table,
        "lock": shared.lock, "ndarray": np.ndarray, "run_backward": run_backward,
        "DeviceArray": DeviceArray, **outside.NUMBERS,
    }  # fmt: skip
    before = unfused(recording.events[: recording.split], lowered)
    call = compile_call(w, len(leaves), renewals)
    call = recording.recorder.settings.call(call, MISS, outside.NUMBERS)
    closed_over = recording.closed_over
    needed, carried = needing(leaves) - bound, found.carried
    if carried is not None:
        call = carried.call(call, needed, closed_over, recording.recorder.settings.passing)
        needed = {k for k in needed if k < carried.first}
    call = recording.recorder.settings.finished(call, MISS)
    return Entry(call, program, made, before, plan, needed, closed_over, w, carried)


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
            array = room[0] = blocks.lasting(shape, dtype)
    return array


def _lasting(
    recording: Recording,
    buffers: dict[Any, Buffer],
    gradients: Gradients,
) -> dict[Buffer, tuple[Slot, bool]]:
    """Buffers of gradients that stay in ``.grad`` from call to call, and whether this recording
    makes them (it may also add to them)."""
    results = {r.ref.memory for r in recording.results if r.ref is not None}
    shared = [recording.effect_refs[id(t)] for _, t in recording.effects.arrays]
    results |= {ref.memory for ref in shared if isinstance(ref, Ref)}
    read = {id(t) for t, _ in recording.read_before}  # what is read must not be written over
    found: dict[Buffer, tuple[Slot, bool]] = {}
    for t, g in recording.effects.grads:
        ref = recording.effect_refs.get(id(g))
        if not isinstance(ref, Ref) or g is None:
            continue
        two = buffers[ref.memory] in found  # tensors with one gradient
        if ref.memory not in results and id(t) not in read and not two:
            edge = None if g._edge is None else outside.sealed()
            shape = shape_of(recording, ref.memory)
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
        if isinstance(ref, Ref) and ref.memory.kind == "made":
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
