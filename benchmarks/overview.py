"""One table over all workloads: ours eager and compiled, the best peer, the ratios, what is asked.

    python -m benchmarks.overview

prints it for what is kept in ``benchmarks/results``; ``python -m benchmarks`` ends with it for what
it has measured. A line is a workload on a number of threads. Compiled is compared with the fastest
of all peers, eager with the best of torch's eager forms. Rows against a limit (a copy, a step by
hand, NumPy's products) or against ourselves are no comparison of libraries and are left out; what
the machine reached stands under the table.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .case import COMPILED_AT_MOST, EAGER_AT_MOST, Row
from .race import base
from .report import RESULTS, as_table, seconds

SUITES = (
    *(
        "steps",
        "transformer",
        "transformer_step",
        "elementwise",
        "formula",
        "losses",
        "reductions",
        "indexing",
    ),
    *("products", "optimisers", "layers", "training", "linear", "op_cost", "mapped", "mixed"),
    *("models", "networks", "functions"),
)
"""Suites whose peer is another library, in the order of table and picture."""

NO_PEERS = ("by hand", "copy", "eager", "numpy", "no peer")
"""What stands behind the slash in the name of a row that compares with no other library."""

COMPILED_MEAN, EAGER_MEAN = 0.6, 0.9
"""Geometric means of all ratios that are asked for."""

HEADER = (
    *("workload", "threads", "eager", "compiled", "best peer", "its time"),
    *("ratio", "asked", "", "eager / torch", "asked", ""),
)


@dataclasses.dataclass(frozen=True)
class Side:
    """Our time in one mode, and beside it the peer that it is measured by."""

    ours: float
    peer: str
    theirs: float
    asked: float | None

    @property
    def ratio(self) -> float:
        """Ours over the peer's; below 1 we are faster."""
        return self.ours / self.theirs

    @property
    def verdict(self) -> str:
        """``met`` or ``MISSED``, or nothing where no figure is asked."""
        return "" if self.asked is None else "met" if self.ratio <= self.asked else "MISSED"


@dataclasses.dataclass
class Line:
    """A workload on so many threads, compiled and eager, as far as there is either."""

    name: str
    threads: int
    compiled: Side | None = None
    eager: Side | None = None


Records = Mapping[str, Sequence[Mapping[str, Any]]]
"""Rows as dicts, by suite."""


def kept(folder: Path = RESULTS) -> dict[str, list[dict[str, Any]]]:
    """The records that lie in ``folder``."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        found[path.stem] = json.loads(path.read_text())["rows"]
    return found


def records(rows: Iterable[Row]) -> dict[str, list[dict[str, Any]]]:
    """Rows as they would be kept."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row.suite, []).append({**dataclasses.asdict(row), "ratio": row.ratio})
    return found


def lines(found: Records) -> list[Line]:
    """The workloads of ``SUITES``, in order. Of suites that share a name the later says which."""
    by_key: dict[tuple[str, str, int], Line] = {}
    first: dict[str, str] = {}  # the suite of each name
    for suite in SUITES:
        for row in found.get(suite, []):
            name, _, peer = row["name"].partition(" / ")
            if row["ratio"] is None or peer in NO_PEERS or row["unit"] != "s":
                continue
            workload = base(row["name"])
            shared = first.setdefault(workload, suite) != suite
            shown = f"{workload} ({suite})" if shared else workload
            key = suite, workload, row["threads"]
            line = by_key.setdefault(key, Line(shown, row["threads"]))
            asked = row["asked"] if row["asked_of_ratio"] else None
            side = Side(row["ours"], peer or "torch", row["peer"], asked)
            if is_compiled(suite, name):
                line.compiled = side
            else:
                line.eager = side
    return list(by_key.values())


def is_compiled(suite: str, name: str) -> bool:
    """Whether a row's name says that ours was a compiled function."""
    if name.endswith(", eager"):
        return False
    return suite == "steps" or "compiled" in name or "step of a character transformer" in name


def table(found: Sequence[Line]) -> str:
    """The lines as a Markdown table."""
    return as_table(HEADER, [_cells(line) for line in found])


def _cells(line: Line) -> tuple[str, ...]:
    eager, compiled = line.eager, line.compiled
    first = compiled or eager
    assert first is not None
    return (
        line.name,
        str(line.threads),
        seconds(eager.ours) if eager else "",
        seconds(compiled.ours) if compiled else "",
        first.peer,
        seconds(first.theirs),
        *_verdict(compiled),
        *_verdict(eager),
    )


def _verdict(side: Side | None) -> tuple[str, str, str]:
    if side is None:
        return "", "", ""
    asked = "" if side.asked is None else f"{side.asked:.3g}"
    return f"{side.ratio:.2f}", asked, side.verdict


def geometric_mean(numbers: Iterable[float]) -> float:
    """The number whose logarithm is the mean of theirs."""
    logarithms = [math.log(number) for number in numbers]
    return math.exp(sum(logarithms) / len(logarithms))


def means(found: Sequence[Line]) -> dict[str, float]:
    """Geometric means over all threads: of compiled workloads and of eager ones."""
    ratios = {
        "compiled": [line.compiled.ratio for line in found if line.compiled],
        "eager": [line.eager.ratio for line in found if line.eager],
    }
    return {kind: geometric_mean(values) for kind, values in ratios.items() if values}


def verdicts(found: Sequence[Line]) -> str:
    """The two means, the worst of each kind, and whether they are what is asked."""
    asked = {"compiled": (COMPILED_MEAN, COMPILED_AT_MOST), "eager": (EAGER_MEAN, EAGER_AT_MOST)}
    told = []
    for kind, mean in means(found).items():
        most_mean, most = asked[kind]
        sides = [(line, getattr(line, kind)) for line in found if getattr(line, kind)]
        over = [line for line, side in sides if side.ratio > most]
        worst, side = max(sides, key=lambda pair: pair[1].ratio)
        told.append(
            f"{kind}: geometric mean {mean:.2f}, asked {most_mean:g}, "
            f"{'met' if mean <= most_mean else 'MISSED'}; "
            f"{len(over)} of {len(sides)} over {most:g}, "
            f"the most {side.ratio:.2f}: {worst.name}, {worst.threads} thread(s)"
        )
    return "\n".join(told)


def limits(found: Records) -> str:
    """What the machine reached in the suite ``limits``, a line for each number of threads."""
    told: dict[int, list[str]] = {}
    for row in found.get("limits", []):
        if row["unit"] != "s":
            figure = f"{row['name']} {row['ours']:.3g} {row['unit']}"
            told.setdefault(row["threads"], []).append(figure)
    return "\n".join(f"{n} thread(s): {', '.join(figures)}" for n, figures in told.items())


def text(found: Records) -> str:
    """Table, means and limits; nothing where no row compares with another library."""
    compared = lines(found)
    parts = [table(compared), verdicts(compared)] if compared else []
    return "\n\n".join(part for part in [*parts, limits(found)] if part)


if __name__ == "__main__":
    print(text(kept()))
