"""The figures kept in benchmarks/results as one picture: a bar for each workload.

    python -m benchmarks.picture

Each bar is our time over that of the fastest peer, for one thread and for two; below 1 numbagrad is
faster. Rows against a step written by hand, a copy, or ourselves are no comparison of libraries
and are left out. Writes ``benchmarks/results/ratios.png``; needs matplotlib (extra ``demo``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from .report import RESULTS

SUITES = ("steps", "transformer", "layers", "training", "linear", "op_cost")
"""Suites whose peer is another library, in the order of the picture."""

OURS = ("by hand", "copy", "eager")
"""What stands behind the slash in the name of a row that compares with no other library."""


class Bar(NamedTuple):
    """One workload: name, whether it is a compiled step, and ratios by number of threads."""

    name: str
    compiled: bool
    ratios: dict[int, float]


def bars(folder: Path = RESULTS) -> list[Bar]:
    """Workloads in the order of the suites; of each the ratios that its rows hold."""
    found: dict[str, Bar] = {}
    for suite in SUITES:
        path = folder / f"{suite}.json"
        rows = json.loads(path.read_text())["rows"] if path.exists() else []
        for row in rows:
            name, _, peer = row["name"].partition(" / ")
            if row["ratio"] is None or peer in OURS:
                continue
            compiled = suite == "steps" or "compiled" in name or "transformer" in name
            bar = found.setdefault(name, Bar(name, compiled, {}))
            bar.ratios[row["threads"]] = row["ratio"]
    return list(found.values())


def geometric_mean(numbers: Iterable[float]) -> float:
    """The number whose logarithm is the mean of theirs."""
    logarithms = [math.log(number) for number in numbers]
    return math.exp(sum(logarithms) / len(logarithms))


def means(found: list[Bar]) -> dict[str, float]:
    """Geometric means over all threads: of compiled workloads and of eager ones."""
    kinds = {"compiled": True, "eager": False}
    ratios = {
        kind: [r for bar in found if bar.compiled is compiled for r in bar.ratios.values()]
        for kind, compiled in kinds.items()
    }
    return {kind: geometric_mean(values) for kind, values in ratios.items() if values}


def draw(found: list[Bar], path: Path) -> None:
    """Draw ``found`` into the file ``path``, whose ending tells the format."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 1.2 + 0.24 * len(found)), layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.subplots()
    places = range(len(found))
    for threads, shift, shade in ((1, -0.2, 1.0), (2, 0.2, 0.55)):
        there = [(k, bar) for k, bar in zip(places, found, strict=True) if threads in bar.ratios]
        axes.barh(
            [k + shift for k, _ in there],
            [bar.ratios[threads] for _, bar in there],
            height=0.38,
            color=["tab:blue" if bar.compiled else "tab:orange" for _, bar in there],
            alpha=shade,
        )
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_yticks(list(places), [bar.name for bar in found], fontsize=8)
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.set_xscale("log")
    ticks = [0.125, 0.25, 0.5, 1.0, 2.0]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.grid(axis="x", linewidth=0.4)
    mean = ", ".join(f"{kind} {value:.2f}" for kind, value in means(found).items())
    axes.set_xlabel(
        "time over that of the fastest peer (blue: compiled, orange: eager; "
        f"dark: 1 thread, light: 2)\ngeometric mean: {mean}",
        fontsize=8,
    )
    figure.savefig(path, dpi=90)


def main() -> None:
    """Draw the picture and print the means; without matplotlib only the latter."""
    found = bars()
    try:
        draw(found, RESULTS / "ratios.png")
    except ImportError as error:
        print(f"no picture: {error}; pip install '.[demo]'")
    for kind, value in means(found).items():
        print(f"{kind}: geometric mean {value:.2f} of the fastest peer's time")


if __name__ == "__main__":
    main()
