"""The figures kept in benchmarks/results as one picture: bars for each workload.

    python -m benchmarks.picture

Each bar is our time over a peer's, for one thread and for two; below 1 numbagrad is faster. On the
left stands what is compiled, beside the fastest peer, on the right what runs op by op, beside
torch's eager form. Writes ``benchmarks/results/ratios.png``; needs matplotlib (extra ``demo``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from .overview import Line, kept, lines, means, verdicts
from .report import RESULTS

KINDS = {"compiled": ("tab:blue", "the fastest peer"), "eager": ("tab:orange", "torch eager")}
SURVEYS = ("models", "networks", "functions")
"""Suites of too many workloads for a picture."""
SHADES = ((1, -0.2, 1.0), (2, 0.2, 0.55))
"""Number of threads, place of the bar in its line, opacity."""


class Bar(NamedTuple):
    """One workload: its name, and ratios by number of threads."""

    name: str
    ratios: dict[int, float]


def bars(found: list[Line], kind: str) -> list[Bar]:
    """The workloads that have a ratio of ``kind``, "compiled" or "eager"."""
    by_name: dict[str, Bar] = {}
    for line in found:
        side = getattr(line, kind)
        if side is not None:
            by_name.setdefault(line.name, Bar(line.name, {})).ratios[line.threads] = side.ratio
    return list(by_name.values())


def draw(found: list[Line], path: Path) -> None:
    """Draw ``found`` into the file ``path``, whose ending tells the format."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = {kind: bars(found, kind) for kind in KINDS}
    height = 1.2 + 0.2 * max(map(len, panels.values()))
    figure = Figure(figsize=(14, height), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (kind, its_bars) in zip(figure.subplots(1, 2), panels.items(), strict=True):
        _panel(axes, kind, its_bars, means(found).get(kind))
    figure.savefig(path, dpi=90)


def _panel(axes: Any, kind: str, its_bars: list[Bar], mean: float | None) -> None:
    colour, peer = KINDS[kind]
    for threads, shift, shade in SHADES:
        there = [(k, bar) for k, bar in enumerate(its_bars) if threads in bar.ratios]
        axes.barh(
            [k + shift for k, _ in there],
            [bar.ratios[threads] for _, bar in there],
            height=0.38,
            color=colour,
            alpha=shade,
        )
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_yticks(range(len(its_bars)), [bar.name for bar in its_bars], fontsize=7)
    axes.set_ylim(max(len(its_bars), 1) - 0.5, -0.5)
    axes.set_xscale("log")
    ticks = [0.0625, 0.125, 0.25, 0.5, 1.0, 2.0]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.grid(axis="x", linewidth=0.4)
    told = "" if mean is None else f"; geometric mean {mean:.2f}"
    axes.set_xlabel(f"{kind} / {peer} (dark: 1 thread, light: 2){told}", fontsize=8)


def main() -> None:
    """Draw the picture and print the means; without matplotlib only the latter."""
    found = lines({suite: rows for suite, rows in kept().items() if suite not in SURVEYS})
    try:
        draw(found, RESULTS / "ratios.png")
    except ImportError as error:
        print(f"no picture: {error}; pip install '.[demo]'")
    print(verdicts(found))


if __name__ == "__main__":
    main()
