"""What a call does before and after native code, as the text of a Python function.

It is text made for the recording, because a call of a small step must not cost more than the step.
Start reading at ``compile_call``.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import numpy as np
from numba import types

from ..graph_walk import run_backward
from ..kernels import machine
from ..tape import AccumulateGrad
from ..tensor import Tensor, wrap
from ..tree import made_of
from . import outside
from .gradients import Slot
from .graph import Failure
from .guards import Writer, arguments_in, still_text
from .program import Buffer
from .template import HELD, OTHER_SHAPE, OVERLAP, type_of_argument
from .trace import Recording, Result
from .traced import Memory, Ref


def shape_of(recording: Recording, memory: Memory) -> tuple[int, ...]:
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
            return 0 in ref.shape  # which has strides of 0
        step *= n
    return True


def enter(w: Writer, template: Any) -> None:
    """Write the call of native code."""
    for k, (read, kinds) in enumerate(template.hyper):
        targets = ", ".join(f"h{k}_{j}" for j in range(len(kinds)))
        if kinds:
            lines = w.kept if w.told_of(read) else w.before
            lines.append(f"{targets}{',' if len(kinds) == 1 else ''} = {w.name('hyper', read)}()")
    passed = ["table", *w.passed]
    for text in template.floats:
        asked = arguments_in(text)
        whole = type_of_argument(text) == types.int64
        passed.append(w.number(asked if whole else f"float({asked})"))
    for k, (_, kinds) in enumerate(template.hyper):
        passed += [f"h{k}_{j}" for j in range(len(kinds))]
    if template.heavy:
        w.before.append("with lock:")
    indent = "    " if template.heavy else ""
    w.before.append(f"{indent}status = native({', '.join(passed)})")


def effects_text(
    w: Writer,
    recording: Recording,
    leaves: list[Any],
    buffers: dict[Any, Buffer],
    lasting: dict[Buffer, tuple[Slot, bool]],
    given: dict[Memory, tuple[Tensor, Tensor]],
) -> None:
    """Write what a call does to tensors after native code has run."""
    _turn(w, recording, True)
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
        ref, name = recording.effect_refs[id(alias)], w.name("t", t)
        source = w.name("tensor", alias) if ref is None else ""
        if isinstance(ref, Ref):
            layout = f"{ref.shape}, {ref.strides}, {ref.offset}"
            if ref.memory.kind == "input":
                w.names["part"] = outside.part
                source = f"part(a{ref.memory.position}, {layout}, False)"
            else:
                w.names["alone"] = outside.alone
                made = f"wrap(o_{buffers[ref.memory].name}, {w.name('dtype', alias._dtype)})"
                source = made if _is_whole(recording, ref) else f"alone({made}, {layout})"
        w.after.append(f"{name}._share({source})")
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


def _turn(w: Writer, recording: Recording, needed: bool) -> None:
    """Write which tensors are made to need a gradient, or not to."""
    names = [w.name("t", t) for t, needs in recording.effects.needs if needs is needed]
    names += [f"a{k}" for k, needs in recording.effects.argument_needs if needs is needed]
    w.after += [f"{name}.requires_grad_({needed})" for name in names]


def receive(tensor: Tensor, grad: Tensor) -> None:
    """Let ``tensor`` have a gradient that backward inside computed for it, as a leaf or further.

    A leaf had none before, or the function has dropped it: a call guards that.
    """
    edge = tensor._edge
    if edge is None or type(edge) is AccumulateGrad:  # None: it needed one only inside
        tensor._grad = None
        if edge is None or edge._hooks is None:
            tensor._grad = grad  # nobody else holds it: to take it over is what the tape would do
            return
    run_backward([(edge, grad)], retain_graph=False, create_graph=False)


def result_text(w: Writer, recording: Recording, buffers: dict[Any, Buffer], plan: Any) -> None:
    """Write the returned value."""
    if plan is not None:
        plan.write(w, buffers)
    results = recording.results
    bases = _bases(recording)
    named = {*bases.values(), *(r.value for r in results if r.kind == "same")}
    texts = [""] * len(results)
    for k in sorted(range(len(results)), key=lambda k: k not in named):
        texts[k] = _leaf_text(w, k, recording, buffers, bases)
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
    _turn(w, recording, False)  # now that results lead to them
    for module, name, mode in recording.effects.modes:
        w.after.append(f"setattr({w.name('module', module)}, {name!r}, {mode})")
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
    return ref.offset == 0 and ref.shape == shape_of(recording, ref.memory) and _dense(ref)


def _leaf_text(
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
    if r.kind == "int":
        return w.number(f"({arguments_in(r.value)})")
    if r.kind == "float":
        return w.number(f"float({arguments_in(r.value)})")
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
            moved = any([t is owner for t, _ in recording.effects.arrays])
            if owner is None or moved or not _is_all_of(owner, r.ref.memory):
                owner, on_tape = wrap(r.ref.memory.array, r.dtype), False
                owner._counter = r.counter
            source = w.name("t", owner)
        layout = f"{r.ref.shape}, {r.ref.strides}, {r.ref.offset}"
        return _view_text(w, k, r, source, layout, on_tape)
    return _with_edge(w, k, r, text)


def _is_all_of(tensor: Tensor, memory: Memory) -> bool:
    """Whether ``tensor`` is just what ``memory`` holds; another may have been its base before."""
    start = machine.address_of(tensor._array)
    return tensor._flat and (start, tensor._array.size) == (memory.start, memory.size)


def _view_text(w: Writer, k: int, r: Result, source: str, layout: str, on_tape: bool) -> str:
    """A result that shows part of another tensor; on_tape: as a view whose gradient goes there."""
    w.names |= {"part": outside.part, "beside": outside.beside}
    if not isinstance(r.edge, int):
        text = f"part({source}, {layout}, False)"
        if r.apart:
            w.after += [f"r{k} = {text}", f"r{k}._counter = None"]
            text = f"r{k}"
        return _with_edge(w, k, r, text)
    if not on_tape:
        return _with_edge(w, k, r, f"beside({source}, {layout})")
    w.after.append(f"r{k} = part({source}, {layout}, True)")
    edge = f"r{k}._edge = output_edge(node, {r.edge})"
    w.after += [edge] if r.hooked else [f"if r{k}._edge is None:", f"    {edge}"]
    return f"r{k}"


def _with_edge(w: Writer, k: int, r: Result, text: str) -> str:
    """A result with its history."""
    if r.edge is None:
        return text
    if text != f"r{k}":
        w.after.append(f"r{k} = {text}")
    if r.edge == "sealed":
        w.after.append(f"r{k}._edge = {w.name('edge', outside.sealed())}")
    elif isinstance(r.edge, Failure):
        w.names["Failing"] = outside.Failing
        edges = outside.edges_text(w, r.edge.edges)
        w.after.append(f"r{k}._edge = Failing({w.name('error', r.edge.error)}, {edges})")
    elif r.edge == "leaf":
        w.after.append(f"r{k}.requires_grad_()")
    else:
        w.after.append(f"r{k}._edge = output_edge(node, {r.edge})")
    return f"r{k}"


def _key(w: Writer, key: Any) -> str:
    """A key of a dict as an expression."""
    return repr(key) if type(key) in (str, int, bool) else w.name("key", key)


def _nested(w: Writer, spec: Any, texts: list[str]) -> str:
    if spec == "*":
        return texts.pop()
    kind, parts = spec
    if kind == "dict" or type(kind) is tuple:
        inside = ", ".join(f"{_key(w, k)}: {_nested(w, p, texts)}" for k, p in parts)
        if kind == "dict":
            return f"{{{inside}}}"
        w.names["made_of"] = made_of
        return f"made_of({w.name('type', kind[0])}, {w.name('factory', kind[1])}, {{{inside}}})"
    items = [_nested(w, p, texts) for p in parts]
    if kind == "list":
        return f"[{', '.join(items)}]"
    if kind == "tuple":
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    return f"{w.name('type', kind)}({', '.join(items)})"


_MISSES = "ArithmeticError, AttributeError, LookupError, NameError, TypeError, ValueError"
"""What guards and numbers raise that do not fit a call: a division by 0, a root that is complex, a
name that has gone."""


def compile_call(w: Writer, count: int, renewals: list[str]) -> Callable[[tuple], Any]:
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
    # What a guard looks at may be there no longer: to try costs nothing where it is.
    lines += ["    try:", "        if ("]
    lines += [f"            {'or ' if k else ''}{g}" for k, g in enumerate(w.guards)]
    lines += ["        ):", "            return MISS"]
    lines += [f"        n{k} = {text}" for k, text in enumerate(w.numbers)]
    lines += [f"    except ({_MISSES}):", "        return MISS"]
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
