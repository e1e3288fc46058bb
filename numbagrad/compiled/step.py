"""``ng.compile``: a Python function on tensors as one native function.

The first call for a signature records the function (``trace``), makes a program of the recording
(``lower``, ``passes``), writes it as source text (``emit_cpu``), compiles that and runs it. A call
after that is one Python function made for the signature, which checks what the recording relied on,
enters native code, and passes on its effects. Start reading at ``CompiledFunction.__call__``.
"""

from __future__ import annotations

import functools
import html
import inspect
import re
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..errors import CacheFilledError, RecordingError, StateMadeError
from ..kernels import machine
from ..kernels.traced_float import Count
from ..tape import grad_mode
from ..tensor import Tensor
from ..tree import LEAF, blanks, flatten
from .carried import MISS
from .counting import Counting, Decided, counts
from .entry import Entry, Shared, make_entry
from .explain import Explanation, explanation
from .gathering import gathered
from .program import Program
from .reasons import FIRST, OTHER_VALUE, changed_key
from .relied import Reliance
from .searched import Search
from .signature import signature
from .slots import Exchanged

__all__ = ["CacheInfo", "CompiledFunction", "compile"]

ENTRIES = 16
"""Most recordings kept for one signature."""

SIGNATURES = 512
"""Most signatures whose recordings are kept."""

REASONS = 64
"""Most reasons for recordings that are kept."""


class CacheInfo(NamedTuple):
    """What a compiled function had to do: calls for which it looked for a recording (those like
    the last one need not), recordings, native functions compiled, CUDA graphs captured."""

    calls: int
    recordings: int
    compilations: int
    graphs: int = 0


@dataclass(frozen=True)
class Options:
    """What ``compile`` was asked for."""

    check_finite: bool | str = False
    fastmath: bool = False

    @property
    def looked_for(self) -> str:
        """What stops a call: "" (nothing), "nan", or "inf" (NaN and infinities); or "time" where
        nothing does, but each part of it is timed."""
        if self.check_finite:
            return "nan" if self.check_finite == "nan" else "inf"
        watcher = grad_mode.anomaly
        return "" if watcher is None else watcher.looked_for


FUNCTIONS: weakref.WeakSet[CompiledFunction] = weakref.WeakSet()
"""All that there are, for ``compiler.reset``."""


class CompiledFunction:
    """What ``ng.compile`` returns: call it as the function it was made from."""

    def __init__(self, function: Callable[..., Any], options: Options):
        self._function = function
        self._options = options
        self._entries: dict[Any, list[Entry]] = {}
        self._shared = Shared(options.fastmath)
        self._fast: Callable[[tuple], Any] = _nothing
        self._last: Entry | None = None
        self._recordings = 0
        self._reasons: deque[str] = deque(maxlen=REASONS)
        self._key_before: tuple | None = None
        self._warned = False
        # The signature for which a call ran as it is, and the thread of that call.
        self._made_state: tuple | None = None
        self._other_values = 0  # how often a recording was made for another Python value
        self._slow_calls = 0
        self._exchanged = Exchanged()
        self._counting = Counting()
        self._classes: set[type] = set()  # of which it has been a method
        self._learned: set[str] = set()  # names that are in no code
        functools.update_wrapper(self, function, updated=())
        FUNCTIONS.add(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the compiled function; record and compile it where this call needs that."""
        if not kwargs:
            found = self._fast(args)
            if found is not MISS:
                return found
        if machine.is_recording() and grad_mode.anomaly is None:
            return self._function(*args, **kwargs)
        return self._general(args, kwargs)

    def _general(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Find the entry for these arguments, or make it, and run it."""
        leaves: list[Any] = []
        spec = flatten((args, kwargs), leaves, self._kept(args))
        with self._shared.lock:
            self._slow_calls += 1
            given = tuple(leaves)
            leaves = self._counting.marked(spec, given)
            key = signature(spec, leaves, self._options.looked_for)
            entries = self._entries.setdefault(key, [])
            for entry in list(entries):
                if entry.is_told_apart(leaves):
                    continue
                found = entry.call(given)
                if found is not MISS:
                    self._promote(entries, entry, spec)
                    return found
            if self._counting.note(spec, leaves):
                return self._general(args, kwargs)
            made: Entry | None = None
            filled = False
            try:
                made = self._new_entry(key, entries, leaves, spec)
            except Decided:
                return self._general(args, kwargs)
            except StateMadeError as error:
                if self._made_state == (key, threading.current_thread()):
                    raise
                filled = isinstance(error, CacheFilledError)
            if made is None:  # not in ``except``, where an error that a library keeps would keep it
                self._made_state = key, threading.current_thread()
                self._forget_reason()
                result = self._function(*args, **kwargs)  # and the next call is recorded
                if filled:  # at once: others may clear the cache again
                    with suppress(CacheFilledError):
                        self._new_entry(key, entries, leaves, spec)
                        self._made_state = None
                return result
            self._made_state, entry = None, made
            found = entry.call(given)
            if found is MISS:  # the arguments overlap memory that is written
                entries.remove(entry)
                entry = self._new_entry(key, entries, leaves, spec, tied=True)
                found = entry.call(given)
            if found is MISS and threading.active_count() > 1:
                entries.remove(entry)  # somebody has changed meanwhile what calls look at
                return self._function(*args, **kwargs)
            assert found is not MISS, "a fresh entry refuses its own arguments"
            self._promote(entries, entry, spec)
            return found

    def _forget_reason(self) -> None:
        """Take back that a recording was begun."""
        self._recordings -= 1
        self._reasons.pop()
        self._key_before = None

    def _kept(self, args: tuple) -> tuple[int, ...]:
        """The id of the object that this is a method of: it is no data, whatever is in it."""
        return (id(args[0]),) if args and type(args[0]) in self._classes else ()

    def _promote(self, entries: list[Entry], entry: Entry, spec: Any) -> None:
        entries.remove(entry)
        entries.insert(0, entry)
        self._last = entry
        plain = spec[1][1][1] == () and all(part == LEAF for part in spec[1][0][1])
        self._fast = entry.call if plain and not entry.looks_closely else _nothing

    def _new_entry(
        self,
        key: tuple,
        entries: list[Entry],
        leaves: list[Any],
        spec: Any,
        tied: bool = False,
    ) -> Entry:
        self._recordings += 1
        self._reasons.append(self._reason(key, entries, leaves))
        # Objects that are made anew for each call, for what their classes and methods name.
        looked_into = [*leaves, *{type(each): each for each in blanks(spec)}.values()]
        search = Search(self._function, looked_into, self._learned)
        slots = [slot for e in entries if e.carried is not None for slot in e.carried.slots]
        passed = counts(leaves)
        exchanged, found = self._exchanged.slots(), None
        try:
            if len(entries) >= ENTRIES:
                self._counting.decide(spec, passed)
            if exchanged or passed:
                given = [*slots, *exchanged]
                try:
                    found = search.recorded(leaves, spec, given, tied)
                except StateMadeError:
                    raise
                except Exception:  # whatever Python code does not take of a number to come
                    exchanged = []
                    self._counting.decide(spec, passed)
                else:
                    self._counting.decide(spec, passed & found.recording.recorder.pinned)
        except Decided:
            self._forget_reason()
            raise
        if found is None:  # here, where an error is the only one that users see
            found = search.recorded(leaves, spec, slots, tied)
        modules = found.recording.recorder.held.modules
        self._exchanged = Exchanged(search.places, modules, exchanged)
        name = getattr(self._function, "__name__", type(self._function).__name__)
        name = re.sub(r"\W", "_", name.replace("<lambda>", "function"))
        looked_for = self._options.looked_for
        entry = make_entry(name, found, self._shared, looked_for, search.reach.functions)
        entry.gathered = gathered(found, search.reach, key, leaves)
        if len(entries) >= ENTRIES:
            entries.pop()
        entries.insert(0, entry)
        if len(self._entries) > SIGNATURES:
            del self._entries[next(iter(self._entries))]
        return entry

    def _reason(self, key: tuple, entries: list[Entry], leaves: list[Any]) -> str:
        """Why a recording is made; warns where recordings are made and forgotten in turn."""
        before, self._key_before = self._key_before, key
        if entries:
            found = entries[0].reason([int(a) if type(a) is Count else a for a in leaves])
        else:
            found = FIRST if before is None else changed_key(key, before)
        self._other_values += OTHER_VALUE in found
        said = ""
        if len(entries) >= ENTRIES:
            said = "for arguments of one kind, and forgets the oldest recordings from now on"
        elif self._other_values >= ENTRIES:
            said = "for other Python values among its arguments, which belong to the signature"
        if said and not self._warned:
            self._warned = True
            warnings.warn(
                f"compile: {self!r} has been recorded {ENTRIES} times {said}. The last reason: "
                f"{found}. Make it an argument that is a float or a tensor, or keep it as it is.",
                stacklevel=5,
            )
        return found

    # -- to be looked at -------------------------------------------------------------------------

    def warmup(self, *args: Any, **kwargs: Any) -> None:
        """Record and compile for arguments like these, without running anything."""
        leaves: list[Any] = []
        spec = flatten((args, kwargs), leaves, self._kept(args))
        with self._shared.lock:
            leaves = self._counting.marked(spec, leaves)
            key = signature(spec, leaves, self._options.looked_for)
            entries = self._entries.setdefault(key, [])
            if entries:
                return
            with suppress(Decided):
                self._last = self._new_entry(key, entries, leaves, spec)
                return
        self.warmup(*args, **kwargs)

    def cache_info(self) -> CacheInfo:
        """How often the function was recorded, compiled, and captured into graphs on a GPU."""
        compiled = sum(len(code.variants) for code in self._shared.codes.values())
        graphs = getattr(self._shared.on_gpu, "graphs", 0)
        return CacheInfo(self._slow_calls, self._recordings, compiled, graphs)

    @property
    def recordings(self) -> tuple[str, ...]:
        """Why each recording was made, in words, the last one last; at most 64 of them."""
        return tuple(self._reasons)

    def cache_clear(self) -> None:
        """Forget all recordings; the next call records anew. Compiled code stays on disk."""
        with self._shared.lock:
            self._entries.clear()
            self._shared.codes.clear()
            self._exchanged, self._counting = Exchanged(), Counting()
            self._fast, self._last = _nothing, None

    def _seen(self) -> Entry:
        if self._last is None:
            raise RecordingError(
                "compile: nothing has been recorded yet; call the function once, or warmup(...)."
            )
        return self._last

    @property
    def program(self) -> Program:
        """The program of the last call's signature; ``print`` it."""
        return self._seen().program

    @property
    def source(self) -> str:
        """The generated Python of the last call's signature."""
        return self._seen().bound.source

    def explain(self) -> Explanation:
        """What the last call's signature runs: a table of loops, products and kernels with the
        bytes and flops that they need, and the time that these take at this machine's rates.

        Measures the machine on first use, which takes a moment. On a GPU, whose rates nobody has
        measured, no times are given.
        """
        entry = self._seen()
        plan, how = entry.backward, entry.bound.how
        backward = None if plan is None else explanation(plan.program, plan.unfused, None, how)
        return explanation(entry.program, entry.unfused, backward, how)

    @property
    def relies_on(self) -> Reliance:
        """For which Python values the last call's signature was recorded: a table of arguments,
        variables, attributes, modes and code, with the lines that read them. A call that finds
        another is recorded anew, or has its own recording; ``recordings`` says which.

        >>> factors = [1.0, 2.0]
        >>> twice = compile(lambda x: x * factors[1])
        >>> _ = twice(Tensor([1.0]))
        >>> row, = twice.relies_on.of("global")
        >>> row.name, row.shown, row.value
        ('factors', 'list of 2: 1.0, 2.0', [1.0, 2.0])
        """
        gathered = self._seen().gathered
        assert gathered is not None
        return gathered.explained(getattr(self._function, "__name__", "the function"))

    def _repr_html_(self) -> str:
        """What Jupyter shows: the name, what was compiled, and a summary of the program."""
        title = html.escape(repr(self))
        if self._last is None:
            return f"<p>{title}</p>"
        told = "<br>".join(map(html.escape, self.explain().summary()))
        return f"<p>{title}</p><p>{told}</p>"

    def __reduce__(self) -> Any:
        return CompiledFunction, (self._function, self._options)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        self._classes.add(type(instance))
        return functools.partial(self, instance)

    def __repr__(self) -> str:
        name = getattr(self._function, "__qualname__", repr(self._function))
        return f"<compiled {name}: {self.cache_info()}>"


def _nothing(args: tuple) -> Any:
    return MISS


def _tensors(leaves: list[Any]) -> list[int]:
    return [k for k, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]


_TORCHS = frozenset(("backend", "dynamic", "fullgraph", "mode", "options"))


_RETURN_EARLY = (
    inspect.isgeneratorfunction,
    inspect.iscoroutinefunction,
    inspect.isasyncgenfunction,
)


def compile(
    function: Callable[..., Any] | None = None,
    *,
    check_finite: bool | str = False,
    fastmath: bool = False,
    disable: bool = False,
    **torchs: Any,
) -> Any:
    """Make ``function`` one native function, recorded from a run of its Python.

    function: any callable on tensors: a formula, a Module, or a whole training step with
    ``zero_grad``, ``backward`` and ``optimizer.step``. Tensors that it closes over (parameters,
    buffers, optimiser state, gradients) are state, updated in place as without ``compile``. Python
    floats among the arguments are inputs, and so are whole numbers from their third value on where
    none decides anything; other Python values belong to the signature. A second batch size compiles
    once more, for every size. Of a Module comes a Module, with the parameters
    and options of the given one.

    check_finite: stop at the first value that is NaN or inf, or with "nan" at the first NaN:
    NonFiniteError names the operation, the line and the index, and nothing after it is run. For
    debugging: nothing is fused then. ``ng.autograd.detect_anomaly`` around a call does the same.

    fastmath: let LLVM reorder sums and factor out products in elementwise loops, which are taken as
    written otherwise, but for the sums of a gradient's parts, whose order nobody wrote. NaN and
    infinities stay what they are (Numba's flags reassoc, nsz and contract), but an intermediate
    product may overflow where the written one does not, and results may depend on the number of
    threads in their last bits. On a GPU factors are taken out, but sums stay in their order.

    disable: give ``function`` back as it is. ``fullgraph``, ``dynamic``, ``backend``, ``mode`` and
    ``options`` of PyTorch's are taken and change nothing: all is one graph, for every batch size.

    Raises RecordingError, naming the line, where a value is looked at inside.

    >>> @compile
    ... def area(x, y):
    ...     return (x * y).sum()
    """
    if check_finite not in (False, True, "nan"):
        raise ValueError(f'compile: check_finite is True, False or "nan", got {check_finite!r}.')
    if not isinstance(fastmath, bool):
        raise TypeError(f"compile: fastmath is True or False, got {fastmath!r}.")
    unknown = torchs.keys() - _TORCHS
    if unknown:
        raise TypeError(f"compile() got an unexpected keyword argument {min(unknown)!r}")
    options = Options(check_finite, fastmath)
    if function is None:
        return functools.partial(
            compile, check_finite=check_finite, fastmath=fastmath, disable=disable
        )
    if not callable(function):
        raise TypeError(f"compile: expected a callable, got {type(function).__name__}.")
    if disable or getattr(function, "_never_compiled", False):
        return function
    for called in (function, getattr(type(function), "forward", None)):
        if any([returns_early(called) for returns_early in _RETURN_EARLY]):
            name = getattr(called, "__name__", "the function of a partial")
            raise TypeError(
                f"compile: {name} returns before it has run: it is a generator or async. Compile a "
                f"function that it calls."
            )
    made = CompiledFunction(function, options)
    as_module = getattr(type(function), "_as_compiled", None)
    return made if as_module is None else as_module(function, made)
