"""The table of operations: one frozen ``Case`` per op, read by every test of tests/test_ops.py.

The rows stand in tests/cases, by family. A row says how the op is called, on what it may be
tried, what NumPy or SciPy says the answer is, and which mistakes it must refuse. Start reading at
``Case``. With ``OP_TABLE_LIBRARY=torch`` the whole table runs on PyTorch: so the rows themselves
are tested.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

LIBRARY = importlib.import_module(os.environ.get("OP_TABLE_LIBRARY", "numbagrad"))

FLOATS = ("float64", "float32")
NUMBERS = (*FLOATS, "int64", "uint8")
ANY = (*NUMBERS, "bool")
INTS = ("int64", "uint8")
INTS_AND_BOOL = (*INTS, "bool")
EVERY = (*FLOATS, "int64", "int32", "int16", "int8", "uint8", "bool")

NO_METHOD = "-"

# ---------------------------------------------------------------- dtype of the result


def same(dtype: str) -> str:
    """The result has the dtype of the input."""
    return dtype


def floating(dtype: str) -> str:
    """Integers and bools become the default float."""
    return dtype if dtype in FLOATS else "float32"


def summed(dtype: str) -> str:
    """Integers and bools become int64, as in sums."""
    return dtype if dtype in FLOATS else "int64"


def number(dtype: str) -> str:
    """The dtype beside a Python int: bools become int64."""
    return "int64" if dtype == "bool" else dtype


def beside_float(dtype: str) -> str:
    """The dtype beside a Python float."""
    return floating(dtype)


def boolean(dtype: str) -> str:
    """A comparison."""
    return "bool"


def index(dtype: str) -> str:
    """A position."""
    return "int64"


def float32(dtype: str) -> str:
    """Always float32."""
    return "float32"


def float64(dtype: str) -> str:
    """Always float64."""
    return "float64"


# ---------------------------------------------------------------- inputs


@dataclass(frozen=True)
class Sample:
    """One call. Arrays in ``args`` become tensors, in lists and tuples too.

    kind: "plain", "broadcast", "scalar" (0-d), "empty" or "special" (NaN, infinities, zeros).
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    kind: str = "plain"


def sample(*args: Any, kind: str = "plain", **kwargs: Any) -> Sample:
    """A Sample written as the call it stands for."""
    return Sample(args, kwargs, kind)


class DTypeName(str):
    """Stands for the library's dtype of this name among the arguments."""


@dataclass(frozen=True)
class Fixed:
    """An array among the arguments that is never asked for a gradient."""

    array: np.ndarray


class Draw:
    """Random arrays of one dtype from a domain, the same for the same seed."""

    def __init__(
        self, dtype: str, domain: tuple[float, float] = (-3.0, 3.0), avoid: tuple[float, ...] = ()
    ):
        self.rng = np.random.default_rng(1234)
        self.dtype = dtype
        self.floating = dtype in FLOATS
        self.low, self.high = domain
        self.avoid = avoid

    def __call__(self, *shape: int) -> np.ndarray:
        """Numbers of the domain, away from the points where the op has a kink."""
        if self.dtype == "bool":
            return np.asarray(self.rng.random(shape) < 0.5)
        if not self.floating:
            low = max(self.low, 0) if self.dtype == "uint8" else self.low
            return np.asarray(
                self.rng.integers(int(np.ceil(low)), int(self.high), shape, endpoint=True)
            ).astype(self.dtype)
        values = np.asarray(self.rng.uniform(self.low, self.high, shape))
        for point in self.avoid:
            values = np.where(np.abs(values - point) < 0.05, point + 0.1, values)
        return values.astype(self.dtype)

    def distinct(self, *shape: int) -> np.ndarray:
        """Numbers at least 0.5 (floats) or 1 (ints) apart, in random order, none of them 0."""
        count = int(np.prod(shape))
        values = self.rng.permutation(count).reshape(shape)
        if self.dtype == "bool":
            return np.asarray(values % 2 == 0)
        if not self.floating:
            return np.asarray(values + 1).astype(self.dtype)
        return np.asarray(values * 0.5 - 0.25 * count + 0.1).astype(self.dtype)

    def index(self, bound: int, *shape: int) -> np.ndarray:
        """Positions below ``bound``, int64."""
        return np.asarray(self.rng.integers(0, bound, shape))

    def permutation(self, count: int) -> np.ndarray:
        """Each position below ``count`` once, int64."""
        return self.rng.permutation(count)

    def mask(self, *shape: int) -> np.ndarray:
        """Bools, at least one of each where there is room."""
        values = np.asarray(self.rng.random(shape) < 0.5)
        if values.size > 1:
            values.flat[0], values.flat[-1] = True, False
        return values

    def special(self) -> np.ndarray:
        """The values at which formulas break."""
        values = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5]
        return np.array(values).astype(self.dtype)


# ---------------------------------------------------------------- the row


@dataclass(frozen=True)
class Wrong:
    """A call that must be refused: with this exception (PyTorch's), saying these words."""

    args: tuple[Any, ...]
    exception: type[Exception]
    words: str
    kwargs: dict[str, Any] = field(default_factory=dict)


def wrong(*args: Any, raises: type[Exception], words: str, **kwargs: Any) -> Wrong:
    """A Wrong written as the call it stands for."""
    return Wrong(args, raises, words, kwargs)


@dataclass(frozen=True)
class Case:
    """One op.

    name: the row's id; ``sum-dim`` is a second row of ``sum``.
    samples: from a Draw, the calls to try. oracle: the same call on NumPy arrays.
    function: its name in the library, dotted; by default ``name`` up to the first dash. ``call``
    instead, where there is no such function (operators, indexing): takes tensors.
    method: name of the Tensor method; by default the function's; ``NO_METHOD`` if there is none.
    inplace: name of the in-place method, if there is one.
    domain, avoid: where Draw samples, and the kinks it keeps away from.
    dtypes: what the first tensor may be. result: from that dtype to the expected one, or one such
    function for each output; None where the result is no tensor.
    orders: how many times it can be differentiated; checked up to 2.
    rtol32, rtol64: relative tolerances of value; gradients are allowed ten times that.
    errors: calls that must be refused.
    aliases: other names of the same function.
    repeats: whether the answer is still defined when rows of the input are equal.
    peer: whether PyTorch has the op.
    """

    name: str
    samples: Callable[[Draw], list[Sample]]
    oracle: Callable[..., Any]
    function: str = ""
    call: Callable[..., Any] | None = None
    method: str = ""
    inplace: str = ""
    domain: tuple[float, float] = (-3.0, 3.0)
    avoid: tuple[float, ...] = ()
    dtypes: tuple[str, ...] = FLOATS
    result: Any = same
    orders: int = 2
    rtol64: float = 1e-12
    rtol32: float = 1e-5
    errors: tuple[Wrong, ...] = ()
    aliases: tuple[str, ...] = ()
    repeats: bool = True
    peer: bool = True

    @property
    def function_name(self) -> str:
        """Dotted name of the function in the library; empty if the row has only a call."""
        return "" if self.call else self.function or self.name.split("-")[0]

    @property
    def method_name(self) -> str:
        """Name of the Tensor method; empty if there is none."""
        if self.method == NO_METHOD or (self.call and not self.method):
            return ""
        return self.method or self.function_name.rpartition(".")[2]

    def draw(self, dtype: str) -> Draw:
        """A fresh Draw over this row's domain."""
        return Draw(dtype, self.domain, self.avoid)

    def calls(self, dtype: str, *kinds: str) -> list[Sample]:
        """The samples in ``dtype`` of these kinds, or all of them."""
        return [s for s in self.samples(self.draw(dtype)) if not kinds or s.kind in kinds]

    def target(self, library: Any = LIBRARY) -> Callable[..., Any]:
        """The callable of this row in a library."""
        if self.call is not None:
            return self.call
        found = library
        for part in self.function_name.split("."):
            found = getattr(found, part)
        return found

    def result_dtypes(self, dtype: str) -> tuple[str, ...]:
        """Expected dtype of each output; a single one stands for all."""
        rules = self.result if isinstance(self.result, tuple) else (self.result,)
        return tuple(rule(dtype) for rule in rules)


RESHAPING = {f"{name}_" for name in "squeeze swapaxes swapdims t transpose unsqueeze".split()}
"""In-place methods that give their tensor another shape."""


# ---------------------------------------------------------------- builders of common rows


def unary(name: str, oracle: Callable[..., Any], *, special: bool = True, **options: Any) -> Case:
    """A row for a formula of one argument."""

    def samples(draw: Draw) -> list[Sample]:
        calls = [
            sample(draw(2, 3)),
            sample(draw(2, 1, 2, 2)),
            sample(draw(), kind="scalar"),
            sample(draw(0, 3), kind="empty"),
        ]
        if special and draw.floating:
            calls.append(sample(draw.special(), kind="special"))
        return calls

    options.setdefault("dtypes", NUMBERS)
    options.setdefault("result", floating)
    if options.get("inplace") is True:
        options["inplace"] = f"{name}_"
    return Case(name, samples, oracle, **options)


def binary(
    name: str,
    oracle: Callable[..., Any],
    *,
    special: bool = True,
    second: tuple[float, float] | None = None,
    numbers: bool = True,
    **options: Any,
) -> Case:
    """A row for a formula of two arguments. second: the domain of the second if it differs."""

    def samples(draw: Draw) -> list[Sample]:
        other = Draw(draw.dtype, second or (draw.low, draw.high), draw.avoid)
        other.rng = np.random.default_rng(99)
        calls = [
            sample(draw(2, 3), other(2, 3)),
            sample(draw(2, 3), other(3), kind="broadcast"),
            sample(draw(), other(), kind="scalar"),
            sample(draw(0, 3), other(3), kind="empty"),
            sample(draw(1, 3), other(0, 1), kind="empty"),
        ]
        if draw.dtype == "float64":  # each pattern of broadcasting is compiled for itself
            calls.append(sample(draw(2, 1), other(1, 3), kind="broadcast"))
            calls.append(sample(draw(), other(2, 3), kind="broadcast"))
        if numbers and draw.dtype != "bool":
            calls.append(sample(draw(2, 3), 2))
        if special and draw.floating:
            values = draw.special()
            calls.append(sample(values[:, None].copy(), values, kind="special"))
        return calls

    options.setdefault("dtypes", NUMBERS)
    kind = options["dtypes"][0]
    two, three = np.ones((2, 3), kind), np.ones((2, 4), kind)
    errors = options.pop("errors", ())
    mismatch = wrong(two, three, raises=RuntimeError, words="must match")
    return Case(name, samples, oracle, errors=(mismatch, *errors), **options)


# ---------------------------------------------------------------- from samples to tensors


def convert(value: Any, library: Any = LIBRARY, make: Callable[..., Any] | None = None) -> Any:
    """``value`` with its arrays made tensors (by ``make``) and its dtype names made dtypes."""
    if isinstance(value, np.ndarray):
        return make(value) if make else library.tensor(value)
    if isinstance(value, Fixed):
        return library.tensor(value.array)
    if isinstance(value, DTypeName):
        return getattr(library, value)
    if isinstance(value, (list, tuple)):
        return type(value)(convert(v, library, make) for v in value)
    if isinstance(value, dict):
        return {k: convert(v, library, make) for k, v in value.items()}
    return value


def widen(value: Any) -> Any:
    """``value`` with its arrays as the oracle wants them: float64, int64 or bool."""
    if isinstance(value, np.ndarray):
        wide = {"f": "float64", "i": "int64", "u": "int64", "b": "bool"}[value.dtype.kind]
        return value.astype(wide)
    if isinstance(value, Fixed):
        return widen(value.array)
    if isinstance(value, DTypeName):
        return np.dtype(str(value))
    if isinstance(value, (list, tuple)):
        return type(value)(widen(v) for v in value)
    if isinstance(value, dict):
        return {k: widen(v) for k, v in value.items()}
    return value


def leaves(value: Any) -> Iterator[Any]:
    """The members of nested tuples and lists, in order."""
    if isinstance(value, (list, tuple)):
        for member in value:
            yield from leaves(member)
    else:
        yield value


def is_tensor(value: Any, library: Any = LIBRARY) -> bool:
    """Whether ``value`` is a tensor of the library."""
    return isinstance(value, library.Tensor)


def dtype_name(tensor: Any) -> str:
    """``float32`` for a tensor of that dtype."""
    return str(tensor.dtype).rpartition(".")[2]


def to_numpy(value: Any) -> np.ndarray:
    """A tensor or number as an array."""
    return value.detach().numpy() if hasattr(value, "detach") else np.asarray(value)
