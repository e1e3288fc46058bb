"""What a call looks at before it runs: the text of its guards.

Arguments, the grad mode and Python values that nobody announces are compared in every call. What
announces its changes (``machine.moved``, ``machine.retold``) is compared by a function ``still``,
only when something has been told since it last looked: the arrays and edges of state, and options
of optimisers, of which it keeps the numbers for the call. Start reading at ``state_guards``.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import CellType, CodeType, FunctionType
from typing import Any

import numpy as np

from .. import devices, dtypes
from ..kernels import machine
from ..kernels.cuda.runtime.array import DeviceArray
from ..kernels.options import Options
from ..kernels.traced_float import Count
from ..tape import grad_mode
from ..tensor import Tensor
from .before import Before
from .gradients import Gradients
from .places import ABSENT, Content, Place, alike, content_of, same, same_elements
from .repeated import distinct_guards, first_places
from .template import Argument
from .trace import Recording
from .traced import Memory

_PLAIN = frozenset((bool, int, float, str, tuple, type(None)))


@dataclass
class Writer:
    """The text of a call, and the objects that it names."""

    names: dict[str, Any] = field(default_factory=dict)
    guards: list[str] = field(default_factory=list)
    numbers: list[str] = field(default_factory=list)  # expressions that may raise
    told: list[str] = field(default_factory=list)  # guards of what ``machine.moved`` announces
    options: list[str] = field(default_factory=list)  # guards of what ``machine.retold`` announces
    kept: list[str] = field(default_factory=list)  # what ``still`` keeps for calls: "names = text"
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    cells: dict[str, Any] = field(default_factory=dict)  # names that are read from a cell
    known: dict[int, str] = field(default_factory=dict)
    saved: dict[Memory, str] = field(default_factory=dict)  # saved tensors on returned memory
    read: dict[int, Options] = field(default_factory=dict)  # what ``still`` reads
    # Of some guards what they look at, an expression for it, and what it was.
    why: dict[str, tuple[str, str, Any]] = field(default_factory=dict)

    def name(self, prefix: str, value: Any) -> str:
        """A global name for ``value`` in the text."""
        found = self.known.get(id(value))
        if found is None:
            found = f"{prefix}{len(self.names)}"
            self.names[found] = value
            self.known[id(value)] = found
        return found

    def compare(self, now: str, why: tuple[str, str, Any], value: Any, content: Content) -> None:
        """Guard that ``now`` gives ``value``, and ``content`` holds what it held. why: what people
        call it, an expression for what they know of it, and what that was."""
        then = self.name("v", value)
        guard = f"{now} is not {then} and not same({now}, {then})"
        if content:
            guard = f"{now} is not {then} or not alike({self.name('c', content)})"
        self.guards.append(guard)
        self.why[guard] = why
        self.names.update(same=same, alike=alike, ABSENT=ABSENT)

    def number(self, text: str) -> str:
        """An expression of numbers among the arguments. One that may raise is computed before
        anything is done: a call whose numbers do is recorded, for the user may catch it."""
        if not _RAISING.search(text):
            return text
        if text not in self.numbers:
            self.numbers.append(text)
        return f"n{self.numbers.index(text)}"

    def told_of(self, read: Callable[[], Any]) -> bool:
        """Whether every change of what ``read`` returns is announced: it reads ``Options``, and
        nothing else."""
        found: list[Options] = []
        if not _reads_options(read, found):
            return False
        for options in found:
            options.recorded = True
            self.read[id(options)] = options
        return True

    def settled(self) -> bool:
        """Whether ``still`` need not look again before something is told.

        An option that is a tensor or a list may change without a word.
        """
        values = [v for read in self.read.values() for k, v in read.items() if k != "params"]
        return not machine.watchers and all(type(v) in _PLAIN for v in values)


_RAISING = re.compile(r"[/%]|\*\*|math\.")
"""What stands in expressions that may raise: a float times another does not, nor do whole numbers
of a size that anybody counts to."""


def _reads_options(function: Any, found: list[Options]) -> bool:
    """Whether the code of ``function`` can reach nothing but options, numbers and conversions."""
    if type(function) is not FunctionType or not _plain_code(function.__code__):
        return False
    if function.__defaults__ or function.__kwdefaults__ or _CALLED & function.__globals__.keys():
        return False
    for cell in function.__closure__ or ():
        held = cell.cell_contents
        if type(held) is Options:
            found.append(held)
        elif type(held) not in _PLAIN and not _reads_options(held, found):
            return False
    return True


_CALLED = frozenset(("bool", "float", "int"))


def _plain_code(code: CodeType) -> bool:
    """Whether code names no global, attribute or list, but Python's own number types."""
    inside = [c for c in code.co_consts if isinstance(c, CodeType)]
    named = set(code.co_names) <= _CALLED and "params" not in code.co_consts
    return named and all(map(_plain_code, inside))


def _class_of(array: Any) -> str:
    """What the text calls the class of an array."""
    return "DeviceArray" if type(array) is DeviceArray else "ndarray"


def argument_guards(
    w: Writer,
    recording: Recording,
    leaves: list[Any],
    bound: frozenset[int],
    buffers: dict[Any, Any],
    functions: Iterable[FunctionType] = (),
) -> list[Argument]:
    """Guards for each argument, and the arrays to pass. functions: that may run."""
    arguments = []
    refs = {i.leaf: i.ref for i in recording.inputs}
    again = first_places(leaves)
    for k, leaf in enumerate(leaves):
        if k in bound:
            w.guards.append(f"a{k} is not {w.name('tensor', leaf)}")
        elif k in again:
            w.guards.append(f"a{k} is not a{again[k]}")
        elif isinstance(leaf, Tensor):
            kind = "Tensor" if type(leaf) is Tensor else w.name("type", type(leaf))
            edge = "is not" if leaf._edge is None else "is"
            w.guards.append(f"a{k}.__class__ is not {kind}")
            w.guards.append(f"a{k}._dtype is not {w.name('dtype', leaf._dtype)}")
            w.guards.append(f"a{k}._edge {edge} None")
            w.guards.append(f"a{k}._array.__class__ is not {_class_of(leaf._array)}")
            ref = refs[k]
            b = buffers[ref.memory]
            if leaf._array.flags.c_contiguous:
                arguments.append(Argument(b, ref.shape))
            else:
                shape, strides = leaf._array.shape, leaf._array.strides
                w.guards.append(f"a{k}._array.shape != {shape}")
                w.guards.append(f"a{k}._array.strides != {strides}")
                arguments.append(Argument(b, None, ref.offset))
            w.passed.append(f"a{k}._array")
        elif type(leaf) in (float, Count):
            w.guards.append(f"a{k}.__class__ is not {'float' if type(leaf) is float else 'int'}")
            if k in recording.recorder.pinned:
                w.guards.append(f"a{k} != {leaf!r}" if leaf == leaf else f"a{k} == a{k}")
                if leaf == 0 and type(leaf) is float:
                    w.guards.append(f"math.copysign(1.0, a{k}) != {math.copysign(1.0, leaf)}")
        else:
            name, content = w.name("value", leaf), content_of(leaf)
            w.guards.append(f"a{k} is not {name} and not same(a{k}, {name})")
            w.names["same"] = same
            is_array = type(leaf) is np.ndarray
            if is_array and recording.recorder.known_memory(leaf) is not None:
                w.guards[-1] = f"a{k} is not {name}"  # a tensor lies in its memory
            elif content is not leaf:
                w.names["content_of"] = content_of
                w.guards[-1] = f"content_of(a{k}) != {w.name('content', content)}"
    distinct_guards(w, recording, leaves, bound, functions)
    for (k, name), (value, content) in recording.recorder.asked.of_arguments.items():
        now, called = f"getattr(a{k}, {name!r}, ABSENT)", f"{name!r} of argument {k}"
        shown = content[0][1] if content else value
        w.compare(now, (called, now, shown), value, content)
    for text, found in recording.recorder.conditions.items():
        asked = arguments_in(text)
        w.guards.append(f"{asked} != {found!r}")
        w.why[w.guards[-1]] = f"a condition, {asked},", asked, found
    return arguments


def arguments_in(text: str) -> str:
    """An expression of traced floats ``f0`` in terms of the arguments ``a0``."""
    return re.sub(r"\bf(\d+)\b", r"a\1", text)


def state_guards(
    w: Writer,
    recording: Recording,
    places: list[Place],
    skip: set[int],
    passed: dict[Memory, Tensor],
) -> None:
    """Guards for what the recording has found in tensors and Python.

    skip: ids of tensors that others look after. passed: tensors whose array is passed.
    """
    w.guards.append(f"grad_mode.enabled is not {grad_mode.enabled}")
    cast = grad_mode.autocast
    if cast is None:
        w.guards.append("grad_mode.autocast is not None")
    else:
        key = w.name("kinds", cast.key)
        w.guards.append(f"grad_mode.autocast is None or grad_mode.autocast.key != {key}")
    w.guards.append("machine.told != seen and not still()")
    if grad_mode.anomaly is None:
        w.told.append("grad_mode.anomaly is not None")
    else:
        w.told.append("grad_mode.anomaly is None")
        w.told.append(f"grad_mode.anomaly.looked_for != {grad_mode.anomaly.looked_for!r}")
    w.told.append(f"machine.epoch != {machine.epoch}")
    w.guards.append(f"dtypes._default is not {w.name('dtype', dtypes.get_default_dtype())}")
    w.guards.append(f"default.device is not {w.name('device', devices.get_default_device())}")
    w.names.update(dtypes=dtypes, default=devices.default)
    met = [b for owners in recording.owners.values() for b in owners] + recording.looked_into
    arrays, edges = ({id(b.tensor) for b in each} for each in (met, recording.asked))
    for b in {id(b.tensor): b for b in (*met, *recording.asked)}.values():
        if id(b.tensor) in skip:
            continue
        memory = recording.recorder.known_memory(b.array)
        if memory in passed and passed[memory] is not b.tensor:
            continue  # it was not looked at
        b.tensor._watched = True
        t = w.name("t", b.tensor)
        if id(b.tensor) in arrays:
            _array_guards(w, t, b, memory, memory in passed)
        if b.edge is None:
            w.told.append(f"{t}._edge is not None")
        elif b.tensor.is_leaf or id(b.tensor) in edges:
            w.told.append(f"{t}._edge is not {w.name('edge', b.edge)}")
    for held, test in ((recording.none_before, "is not None"), (recording.some_before, "is None")):
        w.guards += [f"{w.name('t', each)}._grad {test}" for each in held]
    w.guards += [f"a{k}._grad is not None" for k in recording.looked_at]
    w.guards += [f"a{k}.storage_offset() != 0" for k in recording.recorder.from_start]
    for read, value in recording.recorder.reads:
        guards = w.options if w.told_of(read) else w.guards
        name = w.name("read", read)
        guard = f"{name}() != {w.name('value', value)}"
        guards.append(guard)
        decided = isinstance(value, bytes)
        what = "a captured tensor or array that decides" if decided else "an optimiser's option"
        w.why[guard] = (what, f"{name}()", value)
    _decided_guards(w, recording)
    for p in places:
        if not p.told:
            name = w.name("place", p.holder)
            now = name if type(p.holder) is CellType else p.text.format(name)
            if type(p.holder) is CellType:
                w.cells[name] = w.names[name]
            told = now if p.decode is None else f"{w.name('decode', p.decode)}({now})"
            w.compare(now, (p.called, told, p.shown), p.value, _compared(p.content, recording))


def _compared(content: Content, recording: Recording) -> Content:
    """``content`` without the arrays that are the memory of tensors, which calls read there, and
    those that another thread has written meanwhile."""
    known = recording.recorder.known_memory
    arrays = [c for c in content if type(c[0]) is np.ndarray]
    left_out = {id(a) for a, copy in arrays if known(a) is not None or not same_elements(a, copy)}
    return tuple([c for c in content if id(c[0]) not in left_out])


def _array_guards(w: Writer, t: str, b: Before, memory: Memory | None, passed: bool) -> None:
    """Guards for the array of tensor ``t``, on ``memory`` if its elements are used.

    Calls are not told where a compiled function sets its ``.data``. passed: native code looks at
    its layout.
    """
    if not b.tensor._rebound:
        w.told.append(f"({t}._rebound or {t}._array is not {w.name('array', b.array)})")
        return
    if memory is not None and not passed:
        w.guards.append(f"{t}._array is not {w.name('array', b.array)}")
        return
    w.guards.append(f"{t}._dtype is not {w.name('dtype', b.dtype)}")
    w.guards.append(f"{t}._array.__class__ is not {_class_of(b.array)}")
    if memory is None:
        w.guards.append(f"{t}._array.shape != {b.array.shape}")
        w.guards.append(f"{t}._array.strides != {b.array.strides}")


def _decided_guards(w: Writer, recording: Recording) -> None:
    """Guards against an argument that is written and shares memory with what decided something."""
    written = recording.recorder.written_arguments() if recording.recorder.decided else []
    for memory in recording.recorder.decided:
        whole = w.name("array", memory.array)
        w.guards += [f"may_share_memory(a{k}._array, {whole})" for k in written]
        w.names["may_share_memory"] = np.may_share_memory


def gradient_guards(
    w: Writer,
    recording: Recording,
    given: dict[Memory, tuple[Tensor, Tensor]],
    gradients: Gradients,
) -> None:
    """Guards for gradients that the recording reads."""
    for t, grad in given.values():
        g = f"{w.name('t', t)}._grad"
        w.guards.append(f"{g} is None")
        w.guards.append(f"{g}._dtype is not {w.name('dtype', grad._dtype)}")
        w.guards.append(f"{g}._edge is not None")
        w.guards.append(f"{g}._array.__class__ is not {_class_of(grad._array)}")
    free = {id(t) for t, _ in given.values()}
    for t, grad in recording.read_before:
        if id(t) in free:
            continue
        slot = gradients.holding(t, grad)
        held = w.name("tensor", grad) if slot is None else f"{w.name('holder', slot.grad)}[0]"
        w.guards.append(f"{w.name('t', t)}._grad is not {held}")


def still_text(w: Writer) -> list[str]:
    """The lines of ``still``: look at what announces its changes, and say whether it is as it was.

    What was told is read before anything is looked at: a change meanwhile is told again.
    """
    w.names |= {"seen": None, "looked": None, "settled": w.settled, "looking": threading.RLock()}
    kept = [name for each in w.kept for name in each.partition(" = ")[0].rstrip(",").split(", ")]
    lines = [
        "def still():",
        f"    global {', '.join(['seen', 'looked', *kept])}",
        "    with looking:",
        "        told, moves = machine.told, machine.moves",
        "        if moves != looked and (",
        *[f"            {'or ' if k else ''}{guard}" for k, guard in enumerate(w.told)],
        "        ):",
        "            return False",
    ]
    if w.options:
        lines += [f"        if {' or '.join(w.options)}:", "            return False"]
    lines += [f"        {each}" for each in w.kept]
    lines += ["        if settled():", "            seen, looked = told, moves"]
    return [*lines, "    return True", ""]
