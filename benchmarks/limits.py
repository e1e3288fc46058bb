"""What this machine can do, and how near numbagrad comes: moving memory, multiplying matrices.

Copies are timed from cache to memory, by a compiled loop and by memcpy. Then eager operations on
large arrays are timed beside the faster copy of as many bytes, those that they must read and write
once; then products beside NumPy's. All that is compared is timed in the same rounds. Run as a
script it is the process that measures.
"""

from __future__ import annotations

import dataclasses
import json
import operator
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from . import copying
from .case import Row, load_peer, timed_row, uniform
from .measure import Timing, interleave
from .processes import python

SUITE = "limits"
THREADS = (1, 2)
AT_MOST_COPY = 1 / 0.8
"""Times of a copy's time: operations must move memory at 80 % of its rate."""
AT_MOST_NUMPY = 1 / 0.95
COPIED = {"16 KB": 4_096, "256 KB": 65_536, "4 MB": 1_000_000, "40 MB": 10_000_000}
"""Float32 numbers by the size that they have."""
ELEMENTS = {"10^6": (1000, 1000), "10^7": (2500, 4000)}
SHAPES = [(256, 256, 256), (128, 512, 784), (512, 512, 512), (1024, 1024, 1024)]
"""Rows, columns and length of the sums of products."""
WIDE_SHAPES = [(256, 256, 256), (512, 512, 512), (1024, 1024, 1024)]
"""Those of float64."""
REST = 0.15
"""Seconds between libraries that have threads, see ``interleave``: NumPy's BLAS lets its threads
turn for 100 ms after a product."""

Call = Callable[[], Any]


@dataclasses.dataclass(frozen=True)
class Operation:
    """An eager operation on x and y of one shape; how many numbers it moves for each of x."""

    name: str
    call: Callable[[Any, Any, Any], Any]
    moved: int


def _reduce(name: str, dim: Any, _: Any, x: Any, y: Any) -> Any:
    return getattr(x, name)(dim)


OPERATIONS = [
    Operation("add", lambda lib, x, y: x + y, 3),
    Operation("mul", lambda lib, x, y: x * y, 3),
    Operation("relu", lambda lib, x, y: x.relu(), 2),
    Operation("exp", lambda lib, x, y: x.exp(), 2),
    Operation("gelu", lambda lib, x, y: lib.nn.functional.gelu(x), 2),
    *[
        Operation(f"{name} over {dim}", partial(_reduce, name, dim), 1)
        for name in ("sum", "amax", "mean")
        for dim in (0, 1, (0, 1))
    ],
]


def measure(rounds: int = 31) -> list[Row]:
    """Rows for copies, for operations beside copies, and for products beside NumPy's."""
    found = []
    for threads in THREADS:
        worker = ("-m", "benchmarks.limits", str(threads), str(rounds))
        found += [Row(**record) for record in python(*worker, threads=threads)]
    return sorted(found, key=lambda row: (row.unit != "GB/s", row.unit != "s"))


def copies(threads: int, size: int) -> list[Call]:
    """The ways to copy ``size`` float32 numbers, each with memory of its own: what one of them has
    read and written would be in a large cache for the other."""
    found: list[Call] = []
    for way in (copying.by_loop(threads), copying.by_memcpy(threads)):
        x, y = uniform(size), np.zeros(size, np.float32)
        way(y, x)
        np.testing.assert_array_equal(y, x)
        found.append(partial(way, y, x))
    return found


def fastest(timings: list[Timing]) -> Timing:
    """The one of the least median."""
    return min(timings, key=lambda timing: timing.median)


def rate(size: float, timing: Timing) -> float:
    """GB/s of reading and writing ``size`` float32 numbers altogether."""
    return 4 * size / timing.median / 1e9


def copy_rows(threads: int, rounds: int) -> list[Row]:
    """The best rate of copying at each size."""
    found = []
    for what, size in COPIED.items():
        loop, memcpy = interleave(copies(threads, size), rounds)
        rates = [rate(2 * size, timing) for timing in (loop, memcpy)]
        note = f"{threads} thread(s): loop {rates[0]:.3g} GB/s, memcpy {rates[1]:.3g} GB/s"
        found.append(Row(SUITE, f"copy of {what}", "GB/s", max(rates), threads=threads, note=note))
    return found


def operation_rows(threads: int, rounds: int) -> list[Row]:
    """Each of ``OPERATIONS`` by a copy of as many bytes."""
    import numbagrad as ng

    found = []
    for what, shape in ELEMENTS.items():
        x, y = ng.tensor(uniform(*shape)), ng.tensor(uniform(*shape))
        size = x.numel()
        copied = {n: copies(threads, n * size // 2) for n in {op.moved for op in OPERATIONS}}
        for op in OPERATIONS:
            calls: list[Call] = [partial(op.call, ng, x, y), *copied[op.moved]]
            ours, *theirs = interleave(calls, rounds)
            copy = fastest(theirs)
            mine, limit = (rate(op.moved * size, timing) for timing in (ours, copy))
            note = f"{threads} thread(s): {mine:.3g} GB/s, {mine / limit:.0%} of {limit:.3g}"
            found.append(
                timed_row(
                    *(SUITE, f"{op.name} of {what} / copy", ours, copy),
                    threads=threads,
                    asked=AT_MOST_COPY,
                    note=note,
                )
            )
    return found


def product_rows(threads: int, rounds: int) -> list[Row]:
    """``x @ y`` beside NumPy's, and the best rate of all who multiply."""
    import numbagrad as ng

    torch, found, best = load_peer(), [], 0.0
    if torch is not None:
        torch.set_num_threads(threads)
    kinds: list[Any] = [(shape, np.float32) for shape in SHAPES]
    kinds += [(shape, np.float64) for shape in WIDE_SHAPES]
    for (n, m, k), kind in kinds:
        x, y = uniform(n, k).astype(kind), uniform(k, m).astype(kind)
        single = kind is np.float32
        pairs: dict[str, Call] = {}
        for name, lib in (("numbagrad", ng), ("torch", torch)):
            if lib is not None:
                pairs[name] = partial(operator.matmul, lib.tensor(x), lib.tensor(y))
        pairs["numpy"] = partial(operator.matmul, x, y)
        for name, call in pairs.items():
            np.testing.assert_allclose(
                np.asarray(call()), x @ y, rtol=0, atol=1e-4 * k, err_msg=name
            )
        if threads == 1 and single:
            pairs |= _parts_of(x, y)
        timings = interleave(list(pairs.values()), rounds, rest=REST if threads > 1 else 0.0)
        times = dict(zip(pairs, timings, strict=True))
        rates = {name: 2e-9 * n * m * k / timing.median for name, timing in times.items()}
        best = max(best, *rates.values()) if single else best
        figures = ", ".join(f"{name} {value:.3g}" for name, value in rates.items())
        found.append(
            timed_row(
                *(SUITE, f"product {n} x {m} x {k}{'' if single else ' of float64'} / numpy"),
                *(times["numbagrad"], times["numpy"]),
                threads=threads,
                asked=AT_MOST_NUMPY,
                note=f"{threads} thread(s), GFLOP/s: {figures}",
            )
        )
    return [*found, Row(SUITE, "best product", "GFLOP/s", best, threads=threads)]


def _parts_of(x: np.ndarray, y: np.ndarray) -> dict[str, Call]:
    """What ``x @ y`` chooses between, on one thread: our tiles, the matrix unit where there is one,
    and the BLAS that is called."""
    from numbagrad.kernels.amx import load_amx

    from . import gemm

    (n, k), m = x.shape, y.shape[1]
    found: dict[str, Call] = {}
    names = "our tiles", "the matrix unit", "our BLAS"
    for name, loop in zip(names, gemm.products(np.float32), strict=True):
        if name == names[1] and not load_amx():
            continue
        out = np.empty((n, m), np.float32)
        found[name] = partial(loop, 1, out, x, y, 0, 0, n, m, k)
    return found


def main(threads: int, rounds: int) -> None:
    """Print the rows for ``threads`` as JSON."""
    import numbagrad as ng

    ng.get_num_threads()  # chooses the threading layer, for the copies too
    found = [
        *copy_rows(threads, rounds),
        *operation_rows(threads, rounds),
        *product_rows(threads, rounds),
    ]
    print(json.dumps([dataclasses.asdict(row) for row in found]))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
