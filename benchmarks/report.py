"""Rows as a table for people (a terminal, Markdown) and as JSON for programs."""

from __future__ import annotations

import dataclasses
import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path

from .case import Row

RESULTS = Path(__file__).parent / "results"
HEADER = ("case", "threads", "ours", "peer", "ratio", "of best", "asked", "")
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table; the last column says where a figure asked for is missed."""
    return as_table(HEADER, [_cells(row) for row in rows])


def as_table(header: tuple[str, ...], cells: Sequence[tuple[str, ...]]) -> str:
    """Header and lines of text as a Markdown table with straight columns."""
    lines = [header, *cells]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    lines.insert(1, tuple("-" * width for width in widths))
    return "\n".join(f"| {' | '.join(map(str.ljust, line, widths))} |" for line in lines)


def with_notes(rows: Sequence[Row]) -> str:
    """The table, and under it what rows have to say."""
    notes = [f"- {row.name}: {row.note}" for row in rows if row.note]
    return "\n".join([table(rows), *([""] if notes else []), *notes])


def _cells(row: Row) -> tuple[str, ...]:
    bound = (
        "" if row.asked is None else f"{row.asked:.3g}" + ("" if row.asked_of_ratio else row.unit)
    )
    return (
        row.name,
        str(row.threads),
        _amount(row.ours, row.ours_spread, row.unit),
        "" if row.peer is None else _amount(row.peer, row.peer_spread, row.unit),
        _ratio(row.ratio),
        _ratio(row.best_ratio),
        bound,
        {None: "", True: "met", False: "MISSED"}[row.met],
    )


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _amount(value: float, spread: float, unit: str) -> str:
    if unit != "s":
        return f"{value:.3g} {unit}"
    unit = _unit(value)
    return f"{value / UNITS[unit]:.3g} ± {spread / UNITS[unit]:.2g} {unit}"


def seconds(value: float) -> str:
    """A time in the unit that suits it."""
    return f"{value / UNITS[_unit(value)]:.3g} {_unit(value)}"


def _unit(value: float) -> str:
    return next((unit for unit, size in UNITS.items() if value >= size), "us")


def machine() -> dict[str, str]:
    """What a figure depends on besides the code."""
    versions = {}
    for name in (
        *("numba", "llvmlite", "numpy", "scipy", "tbb"),
        *("torch", "jax", "autograd", "mygrad"),
    ):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "commit": _commit(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "python": platform.python_version(),
        **versions,
        "cpu": _cpu(),
        "cores": str(os.cpu_count()),
        "load before": f"{os.getloadavg()[0]:.2f}",
    }


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    try:
        return subprocess.run(
            command, cwd=RESULTS.parent, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _cpu() -> str:
    import llvmlite.binding

    return llvmlite.binding.get_host_cpu_name()


def write(suite: str, rows: Sequence[Row], about: dict[str, str]) -> Path:
    """Keep the rows of ``suite`` as JSON and Markdown in ``benchmarks/results``."""
    RESULTS.mkdir(exist_ok=True)
    command = f"python -m benchmarks {suite}"
    records = [{**dataclasses.asdict(row), "ratio": row.ratio, "met": row.met} for row in rows]
    content = json.dumps({"command": command, "machine": about, "rows": records}, indent=1)
    (RESULTS / f"{suite}.json").write_text(content + "\n")
    facts = ", ".join(f"{name} {value}" for name, value in about.items())
    path = RESULTS / f"{suite}.md"
    path.write_text(
        f"# {suite}\n\n`{command}`: {facts}.\n"
        "Median ± distance of the quartiles; `of best` is the ratio of the fastest rounds.\n\n"
        + with_notes(rows)
        + "\n"
    )
    return path
