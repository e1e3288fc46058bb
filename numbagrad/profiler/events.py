"""What a profile is made of: events, and the ``Timer`` that writes them down.

A ``Timer`` stands behind the verbs as a recorder does, so it sees each kernel that an op launches.
A compiled function is compiled once more, with a note of the time after each group of its
instructions; it tells ``Timer.ran``. Start reading at ``Timer.launch``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..autograd.anomaly import Watcher
from ..graph_walk import origin
from ..kernels import machine
from ..kernels.clock import Clock
from ..kernels.compilations import Compilations
from ..kernels.cuda.runtime.array import DeviceArray
from ..kernels.loops import ElementwiseKernel
from ..kernels.product import ProductKernel
from ..tape import Location

__all__ = ["Event", "Timer"]


@dataclass(frozen=True)
class Event:
    """Something that took time.

    kind: "kernel", "product" or "loop"; "call" of a compiled function, which holds its parts;
    "compile", or "load" of what an earlier process compiled. where: the user's line, of the forward
    op in a backward pass. start: as of ``time.perf_counter``. nbytes: of all arrays, each once;
    flops: None where nobody knows them. shapes: of the arrays as the kernel is given them, which
    may be flat, results first.
    """

    name: str
    kind: str
    where: Location | None
    start: float
    seconds: float
    nbytes: int = 0
    flops: int | None = None
    wide: bool = False
    """Whether the arithmetic is of float64."""
    shapes: tuple[tuple[int, ...], ...] = ()


class Timer(Watcher):
    """Runs what the verbs say and writes down how long it took."""

    def __init__(self) -> None:
        super().__init__(only_nan=False)
        self.looked_for = "time"
        self.events: list[Event] = []
        self.compilations = Compilations()
        self._clock = Clock()
        self._runs: list[tuple[Any, np.ndarray]] = []
        self._parts: dict[int, tuple[np.ndarray, list[Event]]] = {}

    def empty(self, shape: tuple[int, ...], dtype: np.dtype, device: Any) -> Any:
        """New memory."""
        if device is not None and device.type != "cpu":
            return machine.open_cuda().empty(shape, dtype, device)
        return np.empty(shape, dtype)

    def launch(self, kernel: Callable[..., None], args: tuple[Any, ...]) -> None:
        """Run ``kernel``, on a GPU until it has ended."""
        where, node = origin(2)
        compiled, start = self.compilations.seconds, time.perf_counter()
        if machine.away is None or not machine.away.run(kernel, args):
            kernel(*args)
        else:
            machine.away.synchronize()
        seconds = time.perf_counter() - start - (self.compilations.seconds - compiled)
        name = getattr(kernel, "__name__", type(kernel).__name__)
        kind, flops = _work(kernel, args)
        arrays = list(_arrays(args))
        nbytes = sum({id(a): _nbytes(a) for a in arrays}.values())
        wide = bool(arrays) and arrays[0].dtype.itemsize == 8
        name, shapes = f"{node}.{name}" if node else name, tuple([a.shape for a in arrays])
        self.events.append(Event(name, kind, where, start, seconds, nbytes, flops, wide, shapes))

    def gradients(self, node: Any, results: Sequence[Any]) -> None:
        """Nothing: it is the kernels that are looked at."""

    def ran(self, bound: Any) -> None:
        """A timed program has run: its table holds when each of its groups ended."""
        known = self._parts.get(id(bound))
        if known is None:
            places = np.array([at for at, _ in bound.template.stamps])
            groups = [group for _, group in bound.template.stamps[1:]]
            known = self._parts[id(bound)] = places, [_part(group) for group in groups]
        self._runs.append((bound, bound.table[known[0]]))

    def finish(self) -> list[Event]:
        """All events, in the order of their beginning."""
        rate, offset = self._clock.seconds()
        for bound, ticks in self._runs:
            times = (rate * ticks + offset).tolist()
            name = bound.template.name
            whole = Event(name, "call", None, times[0], times[-1] - times[0])
            self.events.append(whole)
            for part, begin, end in zip(self._parts[id(bound)][1], times, times[1:], strict=False):
                if part.kind:
                    self.events.append(replace(part, start=begin, seconds=max(end - begin, 0.0)))
        self._runs.clear()
        for kind, found in ("compile", self.compilations.found), ("load", self.compilations.loaded):
            for name, start, seconds in found:
                self.events.append(Event(f"{kind} {name}", kind, None, start, seconds))
        self.events.sort(key=lambda e: e.start)
        return self.events


def _part(group: Sequence[Any]) -> Event:
    """What a group of instructions does, without a time; the kind of a mere check is ""."""
    from ..compiled.explain import row_of
    from ..compiled.program import Call, Gemm, Loop

    rows = [row_of(i, None, False) for i in group if isinstance(i, (Call, Gemm, Loop))]
    sources = [s for i in group for s in i.sources]
    ops = dict.fromkeys(s.op for s in sources)
    kinds = {row.kind for row in rows}
    kind = next((k for k in ("product", "kernel", "loop") if k in kinds), "")
    flops = None if None in [r.flops for r in rows] else sum(r.flops or 0 for r in rows)
    nbytes = sum(row.nbytes for row in rows)
    where = sources[0].where if sources else None
    wide = any(o.dtype.itemsize == 8 for i in group for o in i.outs[:1])
    shapes = tuple([o.view.shape for i in group for o in (*i.outs, *i.ins)])
    return Event(", ".join(ops), kind, where, 0.0, 0.0, nbytes, flops, wide, shapes)


def _work(kernel: Any, args: tuple[Any, ...]) -> tuple[str, int | None]:
    """The kind of a kernel, and its arithmetic where that can be told."""
    if isinstance(kernel, ProductKernel):
        out, x, y = args[:3]  # n m, n k and k m elements
        return "product", 2 * math.isqrt(out.size * x.size * y.size)
    if isinstance(kernel, ElementwiseKernel):
        from ..compiled.explain import flops_of

        return "loop", args[0].size * sum(flops_of(f.body) for f in kernel.formulas)
    return "kernel", None


def _arrays(args: Sequence[Any]) -> Iterator[Any]:
    for arg in args:
        for a in arg if type(arg) is list else (arg,):
            if isinstance(a, (np.ndarray, DeviceArray)):
                yield a


def _nbytes(array: Any) -> int:
    """Bytes of the elements, each counted once."""
    sizes = zip(array.shape, array.strides, strict=True)
    return math.prod([n if s or not n else 1 for n, s in sizes]) * array.dtype.itemsize
