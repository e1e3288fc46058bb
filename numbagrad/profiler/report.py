"""A profile as a table, in Jupyter, and as a file for a trace viewer."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..tables import aligned, count_text, html_table, plural, shortened, size_text, time_text
from ..tape import show_location
from .events import Event

if TYPE_CHECKING:
    from ..compiled.rates import Rates

__all__ = ["Average", "Averages", "Report"]

LONGEST = 48
"""Columns of a name."""

INSIDE = ("kernel", "product", "loop")
"""Kinds of events that hold no others."""

REGION = "region"
"""Kind of an event that the program itself has named, around others."""

ONCE = {"compile": "compilation", "load": "cache load"}
"""Kinds of events that a second run has no more, and what they are called."""


@dataclass
class Average:
    """Events of one name together. flops: None where one of them does not know."""

    name: str
    kind: str
    calls: int = 0
    seconds: float = 0.0
    nbytes: int = 0
    flops: int | None = 0
    least: float = 0.0
    """Seconds that the bytes and flops need at this machine's rates, where these are given."""

    def add(self, event: Event, rates: Rates | None) -> None:
        """Count an event."""
        self.calls += 1
        self.seconds += event.seconds
        self.nbytes += event.nbytes
        unknown = self.flops is None or event.flops is None
        self.flops = None if unknown else (self.flops or 0) + (event.flops or 0)
        self.least += 0.0 if rates is None else least_seconds(event, rates)

    @property
    def bandwidth(self) -> float:
        """Bytes a second."""
        return self.nbytes / self.seconds if self.seconds else 0.0

    @property
    def flop_rate(self) -> float:
        """Flops a second; 0 where the flops are not known."""
        return (self.flops or 0) / self.seconds if self.seconds else 0.0


class Averages(list[Average]):
    """What ``key_averages()`` gives: rows that ``table()`` prints, as PyTorch's programs do."""

    def __init__(self, report: Report, group_by: str):
        super().__init__(report.averages(group_by, limits=False))
        self._report, self._group_by = report, group_by

    def table(self, sort_by: str | None = None, row_limit: int = 100, **options: Any) -> str:
        """``Report.table`` of the first rows. They are sorted by time, whatever PyTorch's word for
        a column, ``sort_by``, says; further options of PyTorch's change nothing."""
        return self._report.table(self._group_by, None if row_limit < 0 else row_limit)


def _shape_text(shape: tuple[int, ...]) -> str:
    """As ``(128, 10)``."""
    return f"({', '.join(map(str, shape))})"


def least_seconds(event: Event, rates: Rates) -> float:
    """What an event needs at the rates of this machine: of memory, of cache where it fits there."""
    from ..compiled.rates import cache_bytes

    moving = event.nbytes / (rates.cache if event.nbytes <= cache_bytes() else rates.memory)
    speed = rates.products if event.kind == "product" else rates.loops
    return max(moving, (event.flops or 0) / speed * (2 if event.wide else 1))


class Report:
    """The events of a profile. seconds: of the whole block."""

    def __init__(self, events: Sequence[Event], seconds: float):
        self.events = list(events)
        self.seconds = seconds

    def averages(self, group_by: str = "op", limits: bool = True) -> list[Average]:
        """Kernels, products and loops together by name, the slowest first.

        group_by: "op" (``LinearBackward.mm``), "kernel" (``mm``), "line" (op and user's line) or
        "shape" (op and the shapes of its arrays, results first).
        limits: compare with this machine's rates, which are measured on first use (0.1 s).
        Raises ValueError for another ``group_by``.
        """
        if group_by not in ("op", "kernel", "line", "shape"):
            raise ValueError(
                f"averages: group_by is 'op', 'kernel', 'line' or 'shape', not {group_by!r}."
            )
        rates = None
        if limits and any(e.kind in INSIDE for e in self.events):
            from ..compiled.rates import rates as measured

            rates = measured()
        found: dict[tuple[str, str], Average] = {}
        for e in self.events:
            if e.kind not in (*INSIDE, *ONCE, REGION):
                continue
            name = e.name.rpartition(".")[2] if group_by == "kernel" else e.name
            if group_by == "line" and e.where is not None:
                name = f"{name} at {os.path.basename(show_location(e.where))}"
            if group_by == "shape":
                name = " ".join([name, *map(_shape_text, dict.fromkeys(e.shapes))])
            average = found.setdefault((name, e.kind), Average(name, e.kind))
            average.add(e, rates if e.kind in INSIDE else None)
        return sorted(found.values(), key=lambda a: -a.seconds)

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0
    ) -> Averages:
        """``averages`` by its name in PyTorch.

        group_by_input_shape: tells calls with other shapes apart; group_by_stack_n: lines of the
        program, unless it is 0.
        """
        if group_by_input_shape:
            return Averages(self, "shape")
        return Averages(self, "line" if group_by_stack_n else "op")

    def summary(self) -> list[str]:
        """Sentences before the table."""
        inside = [e for e in self.events if e.kind in INSIDE]
        working = sum(e.seconds for e in inside)
        share = working / self.seconds if self.seconds else 0.0
        lines = [
            f"{time_text(self.seconds)}: {plural(len(inside), 'kernel')} took {time_text(working)} "
            f"({share:.0%}), the rest is Python and the profiler"
        ]
        for kind, word in ONCE.items():
            times = [e.seconds for e in self.events if e.kind == kind]
            if times:
                lines.append(
                    f"{plural(len(times), word)} took {time_text(sum(times))}: a second run has "
                    f"{'it' if len(times) == 1 else 'them'} no more"
                )
        return lines

    def rows(self, group_by: str = "op", limit: int | None = None) -> list[tuple[str, ...]]:
        """The cells of the table, a head first."""
        averages = self.averages(group_by)
        total = sum(a.seconds for a in averages if a.kind in INSIDE) or 1.0
        head = ("", "name", "calls", "time", "share", "mean", "bytes", "GB/s", "GFLOP/s", "limit")
        rows: list[tuple[str, ...]] = [head]
        for a in averages[:limit]:
            inside = a.kind in INSIDE
            rows.append((
                a.kind, a.name, count_text(a.calls), time_text(a.seconds),
                f"{a.seconds / total:.0%}" if inside else "", time_text(a.seconds / a.calls),
                size_text(a.nbytes) if inside else "",
                f"{a.bandwidth / 1e9:.3g}" if inside else "",
                f"{a.flop_rate / 1e9:.3g}" if inside and a.flops else "",
                f"{a.least / a.seconds:.0%}" if inside and a.seconds else "",
            ))  # fmt: skip
        return rows

    def table(self, group_by: str = "op", limit: int | None = 30) -> str:
        """Text: each name's calls, time, bytes, rates, and share of this machine's limit.

        The last column is the least time that the bytes and flops need over the time taken.
        """
        rows = self.rows(group_by, limit)
        cells = [(kind, shortened(name, LONGEST), *rest) for kind, name, *rest in rows]
        return "\n".join([*self.summary(), "", *aligned(cells, range(2, 10))])

    def __repr__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        """What Jupyter shows."""
        return html_table(self.summary(), self.rows(limit=30))

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the events to a JSON file for chrome://tracing or ui.perfetto.dev."""
        first = min((e.start for e in self.events), default=0.0)
        process = os.getpid()
        found = []
        for e in self.events:
            told = {"bytes": e.nbytes}
            if e.flops is not None:
                told["flops"] = e.flops
            if e.where is not None:
                told["line"] = show_location(e.where)  # type: ignore[assignment]
            found.append({
                "name": e.name, "cat": e.kind, "ph": "X", "pid": process, "tid": 1,
                "ts": (e.start - first) * 1e6, "dur": e.seconds * 1e6, "args": told,
            })  # fmt: skip
        text = json.dumps({"traceEvents": found, "displayTimeUnit": "ms"})
        Path(path).write_text(text, encoding="utf-8")
