"""What the tests take, and how much of it is compiling: by file, and by kernel.

``python -m pytest -n 2 -p benchmarks.suite_cost`` notes it in a folder, which
``python -m benchmarks.suite_cost`` adds up and empties. An empty ``NUMBA_CACHE_DIR`` makes each
kernel compile once. Seconds are those of a worker's processor; what tests leave to processes of
their own is in none of them, but in the time on the clock.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(tempfile.gettempdir()) / "numbagrad-suite-cost"
MOST = 40
"""Lines of each table."""

_HASH = re.compile(r"_[0-9a-f]{16}$")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: Any) -> Iterator[None]:
    """Note a test's seconds, and what it compiled."""
    from numbagrad.kernels.compilations import Compilations  # after conftest.py has set it up

    seen = Compilations()
    clock, processor = time.perf_counter(), time.process_time()
    with seen.watch():
        yield
    taken = time.perf_counter() - clock, time.process_time() - processor
    kernels = [(_HASH.sub("", each.name), each.seconds) for each in seen.found]
    line = json.dumps([item.nodeid.partition("::")[0], *taken, kernels])
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / f"{os.getpid()}.jsonl").open("a") as file:
        file.write(line + "\n")


def main() -> None:
    """Print both tables."""
    files: dict[str, list[float]] = {}
    kernels: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for file in sorted(FOLDER.glob("*.jsonl")):
        for line in file.read_text().splitlines():
            name, clock, processor, found = json.loads(line)
            spent = clock, processor, sum([seconds for _, seconds in found])
            for whose in ("all of them", name):
                old = files.setdefault(whose, [0.0, 0.0, 0.0])
                files[whose] = [x + y for x, y in zip(old, spent, strict=True)]
            for kernel, seconds in found:
                kernels[kernel] += seconds
                times[kernel] += 1
        file.unlink()
    print("  clock  processor  compiling")
    for name, row in sorted(files.items(), key=lambda each: -each[1][0])[:MOST]:
        print("{:7.1f}  {:9.1f}  {:9.1f}".format(*row), name)
    print("\ncompiling  times")
    for name, seconds in kernels.most_common(MOST):
        print(f"{seconds:9.1f}  {times[name]:5}  {name}")


if __name__ == "__main__":
    main()
