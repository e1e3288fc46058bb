"""The error of our mathematical functions: over all float32 numbers, and over many float64.

    python -m benchmarks.ulp [--share N] [--only NAME ...] [--dtypes DTYPE ...]

The reference for float32 is float64, whose own error is far below: PyTorch's, else NumPy's, which
takes five times as long. For float64 it is C's long double (x87: 64 bits), so that half needs a
processor that has it. Errors are counted in units of the last place of the exact result, those
below the least normal number in its units. NaN, infinite and zero results must be exactly that,
zeros with their sign. Those of two arguments, pow among them, are given many pairs.

``--share N``: every N-th float32, and fewer pairs. ``--only``, ``--dtypes``: these functions; other
rows stay. Writes benchmarks/results/ulp.md and ulp.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numba
import numpy as np
from scipy.special import erf, erfc

from numbagrad.kernels.intrinsics import bits_float64, float64_bits
from numbagrad.kernels.simd_math import FUNCTIONS, OF_TWO

from . import report

try:
    import torch
except ImportError:
    torch = None

CHUNK = 1 << 22
DENSE = 1 << 24
"""float64 numbers of each function: half of them of any bits, half where the function bends.
Also the pairs of pow and its like."""

DTYPES = ("float32", "float64")
NAMES = tuple(
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh "
    "atanh sigmoid erf erfc pow atan2 hypot mod floordiv".split()
)
SPECIAL = (
    *(0.0, np.inf, np.nan, 5e-324, 1e-310, 1e-45, 1e-40, 1e30, 1e300, 2.0**23, 2.0**24, 2.0**52),
    *(2.0**53, 2.0**23 + 1, 2.0**24 - 1, 2.0**52 + 1, 2.0**53 - 1, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0),
    *(126.0, 127.0, 128.0, 149.0, 150.0, 1022.0, 1023.0, 1024.0, 1074.0, 1075.0, 0.9999999),
    # The float64 closest to a multiple of pi / 2, and other large angles.
    *(6381956970095103.0 * 2.0**797, 1e22, np.pi, np.pi / 2, np.pi / 4),
)


class Worst(NamedTuple):
    """The largest error of a function, where it is, and how many inputs were looked at."""

    name: str
    dtype: str
    units: float
    at: tuple[float, ...]
    wrong: int
    inputs: int


def check(name: str, dtype: str, share: int = 1) -> Worst:
    """Look at ``name`` of ``dtype``: every ``share``-th float32, the float64 of ``dense``, or the
    pairs of a function of two."""
    apply = (_loop_of_two if name in OF_TWO else _loop)(FUNCTIONS[name, dtype])
    compare = _comparison(dtype)
    at: tuple[float, ...] = (0.0,)
    units, wrong, count = 0.0, 0, 0
    for x in inputs(name, dtype, share):
        got = np.empty_like(x[0])
        with np.errstate(all="ignore"):
            apply(got, *x)
            truth, tail = reference(name, x)
        here, place, bad = compare(got, truth, tail)
        count += got.size
        wrong += bad
        if here > units:
            units, at = here, tuple(float(a[place]) for a in x)
    return Worst(name, dtype, units, at, wrong, count)


def inputs(name: str, dtype: str, share: int) -> Iterator[tuple[np.ndarray, ...]]:
    """Arrays of arguments."""
    if name in OF_TWO:
        yield from pairs(dtype, share)
    elif dtype == "float32":
        yield from every_single(share)
    else:
        yield from dense()


def every_single(share: int) -> Iterator[tuple[np.ndarray]]:
    """All float32, in the order of their bits; of them every ``share``-th."""
    for start in range(0, 1 << 32, CHUNK * share):
        bits = np.arange(start, min(start + CHUNK * share, 1 << 32), share, dtype=np.uint64)
        yield (bits.astype(np.uint32).view(np.float32),)


def dense() -> Iterator[tuple[np.ndarray]]:
    """float64 of any bits, and evenly spread ones; zeros, infinities and NaN among them."""
    rng = np.random.default_rng(0)
    special = np.array([*SPECIAL, *(-x for x in SPECIAL)])
    for _ in range(0, DENSE, CHUNK):
        bits = rng.integers(0, 1 << 64, CHUNK // 2, dtype=np.uint64, endpoint=False)
        widths = np.repeat([0.1, 1.0, 10.0, 750.0], CHUNK // 8)
        yield (
            np.concatenate(
                [bits.view(np.float64), rng.uniform(-1, 1, CHUNK // 2) * widths, special]
            ),
        )


def pairs(dtype: str, share: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pairs of any bits; pairs whose power is evenly spread over what the type can hold, for bases
    of any size and for bases near 1; negative bases with whole exponents; special with special."""
    rng = np.random.default_rng(0)
    word, most = (np.uint32, 150.0) if dtype == "float32" else (np.uint64, 1080.0)
    special = np.array([*SPECIAL, *(-x for x in SPECIAL)])
    with np.errstate(all="ignore"):
        grid = np.meshgrid(special.astype(dtype), special.astype(dtype))
        yield grid[0].ravel(), grid[1].ravel()
        part = max(CHUNK // share, 4096) // 4
        for _ in range(0, DENSE if share == 1 else 1, CHUNK):
            bits = rng.integers(0, np.iinfo(word).max, (3, part), dtype=word, endpoint=True)
            any_x, any_y, base = bits.view(dtype)
            base = np.abs(base)
            near = (1 + rng.uniform(-1, 1, part) * 10.0 ** rng.uniform(-6, 0, part)).astype(dtype)
            exponent = rng.uniform(-most, most, part)
            whole = rng.integers(-40, 40, part).astype(dtype)
            yield (
                np.concatenate([any_x, base, near, -2 * near]),
                np.concatenate(
                    [any_y, *((exponent / np.log2(x)).astype(dtype) for x in (base, near)), whole]
                ),
            )


def _loop(function: Any) -> Any:
    @numba.njit(error_model="numpy")
    def apply(out: np.ndarray, x: np.ndarray) -> None:
        for i in range(x.size):
            out[i] = function(x[i])

    return apply


def _loop_of_two(function: Any) -> Any:
    @numba.njit(error_model="numpy")
    def apply(out: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
        for i in range(x.size):
            out[i] = function(x[i], y[i])

    return apply


def _comparison(dtype: str) -> Any:
    """A function of results and truth (its rounded part and the rest): the largest error, its
    place, and how many results that must be exact are not."""
    # The exponent of the least normal number, as the bits of a float64 hold it.
    least, bits = (1023 - 126, 23) if dtype == "float32" else (1, 52)
    most = float(np.finfo(dtype).max)

    @numba.njit(error_model="numpy")
    def compare(got: Any, truth: Any, tail: Any) -> Any:
        units, place, wrong = 0.0, 0, 0
        for i in range(got.size):
            value, true = np.float64(got[i]), truth[i]
            if true != true or value != value:
                wrong += (true == true) != (value == value)
                continue
            size = abs(true)
            if size > most or abs(value) > most or size == 0.0:
                # Beyond the largest number, or a zero: the same, or rounded across the edge.
                near = size > 0.9999999 * most and abs(value) >= most * 0.9999999
                same = float64_bits(value) == float64_bits(true) or (
                    near and (value > 0) == (true > 0)
                )
                wrong += not same
                continue
            exponent = max(float64_bits(size) >> 52, least) - bits
            unit = bits_float64(exponent << 52 if exponent > 0 else np.int64(1) << exponent + 51)
            error = abs((value - true) - tail[i]) / unit
            if error > units:
                units, place = error, i
        return units, place, wrong

    return compare


def reference(name: str, x: tuple[np.ndarray, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The exact results as float64 and what that leaves out."""
    single = x[0].dtype == np.float32
    wide = [a.astype(np.float64 if single else np.longdouble) for a in x]
    if single and torch is not None and name not in ("mod", "floordiv"):
        exact = getattr(torch, name)(*map(torch.from_numpy, wide)).numpy()
    else:
        exact = _REFERENCES[name](*wide)
    truth = exact.astype(np.float64)
    rest = np.where(np.isfinite(truth), exact - truth, 0)  # of float32, nothing
    return truth, rest.astype(np.float64)


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


def long_erfc(x: np.ndarray) -> np.ndarray:
    """erfc of long double: from 2 on by its continued fraction, Abramowitz and Stegun, 7.1.14, with
    the exponential of two exact squares."""
    far = x >= 2
    a = np.where(far, np.minimum(x, 40), 2)
    fraction = np.zeros_like(a)
    for n in range(150, 0, -1):
        fraction = np.longdouble(n) / 2 / (a + fraction)
    start = a.astype(np.float32).astype(a.dtype)
    power = np.exp(-start * start) * np.exp((start - a) * (start + a))
    root = np.sqrt(np.longdouble("3.14159265358979323846264338327950288"))
    return np.where(far, power / root / (a + fraction), 1 - _long_erf(x))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _erf(x: np.ndarray) -> np.ndarray:
    return erf(x) if x.dtype == np.float64 else _long_erf(x)


def _erfc(x: np.ndarray) -> np.ndarray:
    return erfc(x) if x.dtype == np.float64 else long_erfc(x)


_REFERENCES: dict[str, Callable[..., np.ndarray]] = {
    **{
        name: getattr(np, name)
        for name in "exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh hypot "
        "mod".split()
    },
    "sigmoid": _sigmoid,
    "erf": _erf,
    "erfc": _erfc,
    "pow": np.power,
    **{
        name: getattr(np, f"arc{name[1:]}")
        for name in ("asin", "acos", "atan", "atan2", "asinh", "acosh", "atanh")
    },
    "floordiv": np.floor_divide,
}


def kept_rows() -> dict[tuple[str, str], Worst]:
    """The rows of the last run, by name and dtype."""
    path = report.RESULTS / "ulp.json"
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    found = [Worst(**{**row, "at": tuple(np.atleast_1d(row["at"]).tolist())}) for row in rows]
    return {(w.name, w.dtype): w for w in found}


def main() -> None:
    """Check functions, print the table and keep it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=int, default=1, help="every N-th float32")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, metavar="NAME")
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=DTYPES, metavar="DTYPE")
    options = parser.parse_args()
    about = report.machine()
    found = []
    for dtype in options.dtypes:
        for name in options.only:
            found.append(check(name, dtype, options.share))
            print(found[-1], flush=True)
    rows = {**kept_rows(), **{(w.name, w.dtype): w for w in found}}
    order = [(name, dtype) for dtype in DTYPES for name in NAMES]
    found = [rows[key] for key in order if key in rows]
    heads = ["function", "dtype", "units", "at", "wrong", "inputs"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for w in found:
        at = ", ".join(map(repr, w.at))
        cells = w.name, w.dtype, f"{w.units:.2f}", at, str(w.wrong), str(w.inputs)
        lines.append(f"| {' | '.join(cells)} |")
    text = "\n".join(lines)
    facts = ", ".join(f"{key} {value}" for key, value in about.items())
    path = report.RESULTS / "ulp.md"
    path.write_text(
        f"# Errors of mathematical functions\n\n`python -m benchmarks.ulp`: {facts}.\n\n{text}\n"
    )
    content = {"machine": about, "rows": [w._asdict() for w in found]}
    path.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
