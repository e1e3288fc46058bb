"""The error of our mathematical functions: over all float32 numbers, and over many float64.

    python -m benchmarks.ulp [--share N]

The reference for float32 is float64, whose own error is far below; for float64 it is C's long
double (x87: 64 bits), so that half needs a processor that has it. Errors are counted in units of
the last place of the exact result, those below the least normal number in its units. NaN, infinite
and zero results must be exactly that. ``--share N``: every N-th float32 only.
Writes benchmarks/results/ulp.md and ulp.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numba
import numpy as np
from scipy.special import erf

from numbagrad.kernels.intrinsics import bits_float64, float64_bits
from numbagrad.kernels.simd_math import FUNCTIONS

from . import report

CHUNK = 1 << 22
DENSE = 1 << 22
"""float64 numbers of each function: half of them of any bits, half where the function bends."""

NAMES = ("exp", "log", "tanh", "sigmoid", "erf")


class Worst(NamedTuple):
    """The largest error of a function, where it is, and how many inputs were looked at."""

    name: str
    dtype: str
    units: float
    at: float
    wrong: int
    inputs: int


def check(name: str, dtype: str, share: int = 1) -> Worst:
    """Look at ``name`` of ``dtype``: every ``share``-th float32, or the float64 of ``dense``."""
    apply, compare = _loop(FUNCTIONS[name, dtype]), _comparison(dtype)
    reference = _single_reference(name) if dtype == "float32" else _double_reference(name)
    units, at, wrong, inputs = 0.0, 0.0, 0, 0
    for x in every_single(share) if dtype == "float32" else dense():
        got = np.empty_like(x)
        apply(got, x)
        with np.errstate(all="ignore"):
            truth, tail = reference(x)
        here, place, bad = compare(got, truth, tail, x)
        inputs += x.size
        wrong += bad
        if here > units:
            units, at = here, float(x[place])
    return Worst(name, dtype, units, at, wrong, inputs)


def every_single(share: int) -> Iterator[np.ndarray]:
    """All float32, in the order of their bits; of them every ``share``-th."""
    for start in range(0, 1 << 32, CHUNK * share):
        bits = np.arange(start, min(start + CHUNK * share, 1 << 32), share, dtype=np.uint64)
        yield bits.astype(np.uint32).view(np.float32)


def dense() -> Iterator[np.ndarray]:
    """float64 of any bits, and evenly spread ones; zeros, infinities and NaN among them."""
    rng = np.random.default_rng(0)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, -5e-324, 2.2250738585072014e-308, 1.0]
    for _ in range(0, DENSE, CHUNK):
        bits = rng.integers(0, 1 << 64, CHUNK // 2, dtype=np.uint64, endpoint=False)
        widths = np.repeat([0.1, 1.0, 10.0, 750.0], CHUNK // 8)
        yield np.concatenate(
            [bits.view(np.float64), rng.uniform(-1, 1, CHUNK // 2) * widths, special]
        )


def _loop(function: Any) -> Any:
    @numba.njit(error_model="numpy")
    def apply(out: np.ndarray, x: np.ndarray) -> None:
        for i in range(x.size):
            out[i] = function(x[i])

    return apply


def _comparison(dtype: str) -> Any:
    """A function of results, truth (its rounded part and the rest) and inputs: the largest error,
    its place, and how many results that must be exact are not."""
    # The exponent of the least normal number, as the bits of a float64 hold it.
    least, bits = (1023 - 126, 23) if dtype == "float32" else (1, 52)
    most = float(np.finfo(dtype).max)

    @numba.njit(error_model="numpy")
    def compare(got: Any, truth: Any, tail: Any, x: Any) -> Any:
        units, place, wrong = 0.0, 0, 0
        for i in range(x.size):
            value, true = np.float64(got[i]), truth[i]
            if true != true or value != value:
                wrong += (true == true) != (value == value)
                continue
            size = abs(true)
            if size > most or abs(value) > most or size == 0.0:
                # Beyond the largest number, or a zero: the same, or rounded across the edge.
                near = size > 0.9999999 * most and abs(value) >= most * 0.9999999
                same = value == true or (near and (value > 0) == (true > 0))
                wrong += not same
                continue
            exponent = max(float64_bits(size) >> 52, least) - bits
            unit = bits_float64(exponent << 52 if exponent > 0 else np.int64(1) << exponent + 51)
            error = abs((value - true) - tail[i]) / unit
            if error > units:
                units, place = error, i
        return units, place, wrong

    return compare


Reference = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def _single_reference(name: str) -> Reference:
    functions: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "exp": np.exp,
        "log": np.log,
        "tanh": np.tanh,
        "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "erf": erf,
    }

    def reference(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        truth = functions[name](x.astype(np.float64))
        return truth, np.zeros_like(truth)

    return reference


def _double_reference(name: str) -> Reference:
    one = np.longdouble(1)
    functions: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "exp": np.exp,
        "log": np.log,
        "tanh": np.tanh,
        "sigmoid": lambda x: one / (one + np.exp(-x)),
        "erf": _long_erf,
    }

    def reference(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        exact = functions[name](x.astype(np.longdouble))
        truth = exact.astype(np.float64)
        rest = np.where(np.isfinite(truth), exact - truth, 0)
        return truth, rest.astype(np.float64)

    return reference


def _long_erf(x: np.ndarray) -> np.ndarray:
    """erf of long double by a series of positive terms, which loses nothing to cancellation:
    Abramowitz and Stegun, 7.1.6. (SciPy's erf of float64 is 2.7 units off near zero.)"""
    near = np.where(np.abs(x) < 7, x, 0)  # beyond, it is 1
    square = near * near
    term, total = near.copy(), near.copy()
    for n in range(1, 220):
        term *= 2 * square / (2 * n + 1)
        total += term
    root = np.sqrt(np.longdouble("3.14159265358979323846264338327950288"))
    return np.where(np.abs(x) < 7, 2 / root * np.exp(-square) * total, np.sign(x))


def main() -> None:
    """Check all functions, print the table and keep it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=int, default=1, help="every N-th float32")
    share = parser.parse_args().share
    about = report.machine()
    found = [check(name, dtype, share) for dtype in ("float32", "float64") for name in NAMES]
    heads = ["function", "dtype", "units", "at", "wrong", "inputs"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for w in found:
        cells = w.name, w.dtype, f"{w.units:.2f}", f"{w.at!r}", str(w.wrong), str(w.inputs)
        lines.append(f"| {' | '.join(cells)} |")
    text = "\n".join(lines)
    print(text)
    facts = ", ".join(f"{key} {value}" for key, value in about.items())
    path = report.RESULTS / "ulp.md"
    path.write_text(
        f"# Errors of mathematical functions\n\n`python -m benchmarks.ulp`: {facts}.\n\n{text}\n"
    )
    content = {"machine": about, "rows": [w._asdict() for w in found]}
    path.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
