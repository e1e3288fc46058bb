"""Compiled functions on the tape: one node, whose backward is the recorded gradient program.

``plan`` decides what the forward program saves; ``Plan.write`` adds the node to the text of a call.
Start reading at ``plan``.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import types

from ..errors import GradError, GraphFreedError
from ..kernels import machine
from ..kernels.traced_array import TracedArray
from ..tape import Edge, Node, grad_mode, next_sequence
from ..tensor import Tensor, wrap
from .bind import Bound
from .emit_cpu import emit
from .explain import Unfused, unfused
from .lower import gpu_of, lower
from .passes import Pass, optimise
from .program import Program
from .template import Argument, type_of_argument
from .trace import Recording
from .traced import Memory, Ref, refs_of


class Sealed(Node):
    """Stands for a graph that was used up inside a compiled function."""

    def name(self) -> str:
        return "CompiledBackward"

    def _run(self, grads: list[Any]) -> Sequence[Any]:
        raise GraphFreedError(
            "CompiledBackward: Trying to backward through the graph a second time: this tensor's "
            "graph was differentiated and freed inside a compiled function. Return what you need, "
            "or leave backward out of the compiled function."
        )


@functools.cache
def sealed() -> Sealed:
    """The one node of its kind."""
    return Sealed()


class Failing(Node):
    """Stands for a graph that cannot be differentiated, and says why."""

    def __init__(self, error: Exception, edges: tuple[Any, ...]):
        self.error = error
        self._edges, self._sequence = edges, next_sequence()

    def name(self) -> str:
        return "CompiledBackward"

    def _run(self, grads: list[Any]) -> Sequence[Any]:
        raise self.error.with_traceback(None)


class CompiledBackward(Node):
    """The node of one call: saved tensors, and the plan that knows the gradient program."""

    plan: Plan
    leaves: tuple[Any, ...] = ()

    def name(self) -> str:
        return "CompiledBackward"

    def _run(self, grads: list[Any]) -> Sequence[Any]:
        found = self.plan.run(grads, self._unpack(), self.leaves)
        if grad_mode.enabled:
            edges = [*self._edges, *[None if g is None else g._edge for g in grads]]
            if edges.count(None) < len(edges):
                for gradient in found:
                    if gradient is not None:
                        gradient._edge = Failing(GradError(ONCE), tuple(edges))
        return found


ONCE = (
    "CompiledBackward: a compiled function is differentiable once. For a gradient of a gradient, "
    "compute the first one inside the compiled function, with "
    "ng.autograd.grad(..., create_graph=True), or call the function uncompiled."
)


class Plan:
    """The gradient program of a recording, and what it needs from the forward pass."""

    def __init__(
        self,
        program: Program,
        recording: Recording,
        saved: list[Memory],
        shared: Any,
        before: Unfused,
        timed: bool,
    ):
        self.program = program
        self.timed = timed
        self.unfused = before
        self.saved = saved
        self.edges = recording.edges
        self.results = recording.results
        used = {b.memory for b in program.buffers if _is_used(program, b)}
        self.inputs = [i for i in recording.inputs if i.ref.memory in used]
        self.tensors = [
            owners[0].tensor
            for memory, owners in recording.owners.items()
            if memory in used and owners
        ]
        self.incoming = recording.incoming
        self.outgoing: list[Ref | None] = recording.outgoing
        self.sources = recording.sources
        self.bound: Any = None
        self.gpu = gpu_of(recording)
        self.shared = shared

    def write(self, w: Any, buffers: dict[Any, Any]) -> None:
        """Make the node of a call."""
        saved = [f"a{i.leaf}" for i in self.inputs]
        saved += [w.name("t", t) for t in self.tensors]
        returned = {r.ref.memory: r.version for r in self.results if r.kind == "tensor" and r.ref}
        for j, memory in enumerate(self.saved):
            b = buffers[memory]
            text = f"wrap(o_{b.name}, {w.name('dtype', _dtype(b.dtype))})"
            if memory in returned:
                w.after.append(f"s{j} = {text}")
                if returned[memory]:
                    w.after.append(f"s{j}._version_counter().value = {returned[memory]}")
                text = w.saved[memory] = f"s{j}"
            saved.append(text)
        w.names |= {"new_node": new_node, "plan": self, "output_edge": output_edge}
        kept = f"({', '.join([*saved, '0'])},)"
        w.after.append(f"node = new_node(plan, {edges_text(w, self.edges)}, {kept}, leaves)")

    def run(self, grads: list[Any], values: list[Any], leaves: tuple[Any, ...]) -> list[Any]:
        """Gradients for the edges of the node."""
        with self.shared.lock:
            bound = self.bound or self._compile()
            arrays = []
            for grad, ref in zip(grads, self.incoming, strict=True):
                if grad is None:
                    arrays.append(_zeros(ref))
                else:
                    array = grad._array  # ascontiguousarray would make one dim of none
                    arrays.append(array if array.flags.c_contiguous else array.copy())
            inputs = values[: len(self.inputs)]
            saved = values[len(self.inputs) + len(self.tensors) : -1]
            arrays += [t._array for t in (*inputs, *saved)]
            for array in arrays:
                if isinstance(array, TracedArray):  # its numbers are not there
                    array.refuse("the backward pass of a compiled function")
            fresh = [
                None if r is None else machine.empty(r.shape, r.memory.dtype, r.memory.device)
                for r in self.outgoing
            ]
            floats = [_evaluate(text, leaves) for text in bound.template.floats]
            status = bound.run(bound.table, *arrays, *[a for a in fresh if a is not None], *floats)
            if status:
                bound.fail(status)
            watcher = grad_mode.anomaly if self.timed else None
            if watcher is not None and watcher.looked_for == "time":
                watcher.ran(bound)
        unused = {k for k, grad in enumerate(grads) if grad is None}
        return [
            None if a is None or sources <= unused else wrap(a, _dtype(a.dtype))
            for a, sources in zip(fresh, self.sources, strict=True)
        ]

    def _compile(self) -> Any:
        buffers = {b.memory: b for b in self.program.buffers if b.memory is not None}
        arguments = [Argument(buffers[r.memory], r.shape) for r in self.incoming]
        for i in self.inputs:
            dense = i.given_contiguous
            offset = 0 if dense else i.ref.offset
            arguments.append(Argument(buffers[i.ref.memory], None, offset))
        arguments += [Argument(buffers[m], None) for m in self.saved]
        arguments += [Argument(buffers[r.memory], None) for r in self.outgoing if r is not None]
        if self.gpu is not None:
            _, self.bound = bound_on_gpu(self.program, arguments, self.gpu, self.shared)
            return self.bound
        template = emit(self.program, arguments, timed=self.timed)
        code = self.shared.code_of(template)
        workspace = self.shared.workspace if template.heavy else self.shared.light
        self.bound = Bound(template, code, workspace, {})
        return self.bound


def edges_text(w: Any, edges: list[Any]) -> str:
    """Edges, or those of arguments, as a tuple."""
    texts = [f"a{e}._edge" if isinstance(e, int) else w.name("edge", e) for e in edges]
    return f"({', '.join([*texts, ''])})"


def _zeros(ref: Ref) -> Any:
    """The gradient of a result that nobody used."""
    if ref.memory.device is None:
        return np.zeros(ref.shape, ref.memory.dtype)
    zeros = np.zeros(ref.shape, ref.memory.dtype)
    return machine.open_cuda().to_device(zeros, ref.memory.device)


def bound_on_gpu(program: Program, arguments: list[Argument], gpu: Any, shared: Any) -> Any:
    """The launches of a program for a GPU, and what runs them."""
    from .bind_cuda import CudaBound, CudaCode, WorkMemory  # numba.cuda is loaded where it is used
    from .emit_cuda import emit as emit_launches

    template = emit_launches(program, arguments, gpu)
    shared.codes.setdefault(template.shape, CudaCode())
    shared.on_gpu = shared.on_gpu or WorkMemory()
    return template, CudaBound(template, shared.on_gpu)


def _is_used(program: Program, buffer: Any) -> bool:
    return any(buffer is v.buffer for i in program.instructions for v in i.used) or any(
        buffer is o.buffer for i in program.instructions for o in i.outs
    )


def _evaluate(text: str, leaves: tuple[Any, ...]) -> float | int:
    values = {f"f{k}": leaf for k, leaf in enumerate(leaves) if type(leaf) in (float, int)}
    names = set(re.findall(r"\bf\d+\b", text))
    found = eval(text, NUMBERS | {n: values[n] for n in names})
    return found if type_of_argument(text) == types.int64 else float(found)


NUMBERS = {"inf": math.inf, "nan": math.nan, "math": math, "index": operator.index}
"""What expressions of numbers among the arguments name, the first two as ``repr`` writes them."""


def _dtype(dtype: np.dtype) -> Any:
    from ..dtypes import from_numpy

    return from_numpy(dtype)


def new_node(plan: Plan, edges: tuple, saved: tuple, leaves: tuple) -> CompiledBackward:
    """The node of one call."""
    node = CompiledBackward()
    node._edges, node._sequence = edges, next_sequence()
    node._outputs = len(plan.incoming)
    node.plan = plan
    if any(type(leaf) in (float, int) for leaf in leaves):
        node.leaves = leaves
    node._save(saved)
    return node


def output_edge(node: CompiledBackward, index: int) -> Any:
    """The edge of output ``index``."""
    return node if node._outputs == 1 else Edge(node, index)


def plan(
    name: str,
    recording: Recording,
    shared: Any,
    passes: tuple[Pass, ...] | None = None,
    timed: bool = False,
) -> Plan | None:
    """The gradient program of ``recording``, if something it returns can be differentiated."""
    if not recording.incoming:
        return None
    events = recording.events
    forward = [r.memory for e in events[: recording.split] for r in refs(e)]
    backward = {r.memory for e in events[recording.split :] for r in refs(e)}
    # In the order of the program, which is part of its text, by which it is found on disk.
    between = [m for m in dict.fromkeys(forward) if m.kind == "made" and m in backward]
    fresh = {r.memory: f"gradient{k}" for k, r in enumerate(recording.outgoing) if r is not None}
    names = {r.memory: f"g{k}" for k, r in enumerate(recording.incoming)}
    names |= {m: f"saved{k}" for k, m in enumerate(between)}
    names |= {i.ref.memory: f"a{i.leaf}" for i in recording.inputs}
    inputs = [r.memory for r in recording.incoming]
    lowered = lower(
        f"{name}_backward", events[recording.split :], fresh, names, inputs, set(between)
    )
    program = optimise(lowered, passes)
    used = {b.memory for b in program.buffers if _is_used(program, b)}
    saved = [m for m in between if m in used]
    before = unfused(events[recording.split :], lowered)
    return Plan(program, recording, saved, shared, before, timed)


def refs(event: Any) -> list[Ref]:
    """Every array argument of an event."""
    return list(refs_of(event)) if hasattr(event, "args") else [event.flag]


def part(tensor: Any, shape: tuple, strides: tuple, offset: int, tracked: bool) -> Tensor:
    """A view of ``tensor``, on the tape if ``tracked``; where the tape cannot follow it, alone."""
    if tracked and (not tensor._flat or 0 in shape):
        return beside(tensor, shape, strides, offset)
    source = tensor if tracked or tensor._edge is None else tensor.detach()
    found: Tensor = source.as_strided(shape, strides, source.storage_offset() + offset)
    return found


def beside(tensor: Tensor, shape: tuple, strides: tuple, offset: int) -> Tensor:
    """A tensor on part of the memory of ``tensor``, with its version and a history of its own."""
    out = alone(tensor, shape, strides, offset)
    out._counter = tensor._version_counter()
    return out


def alone(tensor: Tensor, shape: tuple, strides: tuple, offset: int) -> Tensor:
    """A tensor on part of the memory of ``tensor``, which nobody else has."""
    out = wrap(machine.view(tensor._array, shape, strides, offset), tensor._dtype)
    out._flat = bool(out._array.flags.c_contiguous)
    return out


def constant(array: np.ndarray, shape: tuple, strides: tuple, offset: int) -> Tensor:
    """A fresh tensor of values known since the recording."""
    found = machine.view(array.reshape(-1), shape, strides, offset).copy()
    return wrap(found, _dtype(found.dtype))
