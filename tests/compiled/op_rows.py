"""Rows of the op table as functions to be compiled: what ``test_compiled_ops`` runs.

An ``Item`` is one call of one row, on tensors that are passed in; ``function_of`` makes one
function of many items, so that one compilation serves a family. Start reading at ``agree``.

Run as a program under NUMBA_DISABLE_JIT, with names of families, it tries every call in every form
on the generated Python itself, and prints what differs: that compiles nothing.
"""

from __future__ import annotations

import gc
import itertools
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from op_table import FLOATS, RESHAPING, Case, Sample, convert, dtype_name, is_tensor, leaves

import numbagrad as ng
from numbagrad.compiled import heap, trace

TOLERANCE = {"float64": 1e-12, "float32": 1e-6, "float16": 2.0**-9, "bfloat16": 2.0**-6}
HALVES = ("float16", "bfloat16")
"""Of these the calls are those of float32, their floats rounded."""


@dataclass(frozen=True)
class Item:
    """A call of a row.

    form: "forward"; "in place" (of a clone), "argument" (in place of the argument itself);
    "gradient" (computed inside), "outside" (of a compiled forward).
    layout: how the tensors lie in memory; None for contiguous. number: of the call.
    """

    case: Case
    dtype: str
    call: Sample
    number: int
    form: str = "forward"
    layout: Callable[[np.ndarray], Any] | None = None

    def __repr__(self) -> str:
        layout = f" {self.layout.__name__}" if self.layout else ""
        return f"{self.case.name} {self.dtype} {self.form}{layout} {self.number} {self.call}"

    @property
    def differentiated(self) -> bool:
        """Whether its inputs ask for gradients."""
        return self.form in ("gradient", "outside")

    def given(self) -> list[Any]:
        """Fresh tensors for the arrays of the call, in order; float32 calls add their floats."""
        found: list[Any] = []

        def make(array: np.ndarray) -> Any:
            tensor = self.layout(array) if self.layout else ng.tensor(array)
            if self.dtype in HALVES and array.dtype.kind == "f":
                tensor = tensor.to(getattr(ng, self.dtype))
            if self.differentiated and array.dtype.kind == "f":
                tensor = tensor.detach().requires_grad_()
            found.append(tensor)
            return tensor

        convert(self.call.args, make=make)
        convert(self.call.kwargs, make=make)
        if self.dtype == "float32":
            found += [a for a in self.call.args if type(a) is float]
        return found

    def run(self, given: Sequence[Any]) -> list[Any]:
        """Results of the call on ``given``, flat."""
        rest = iter([t for t in given if is_tensor(t)])
        numbers = iter([a for a in given if not is_tensor(a)])
        args = convert(self.call.args, make=lambda array: next(rest))
        kwargs = convert(self.call.kwargs, make=lambda array: next(rest))
        if self.dtype == "float32":
            args = tuple(next(numbers) if type(a) is float else a for a in args)
        if self.form in ("in place", "argument"):
            target = args[0] if self.form == "argument" else args[0].clone()
            got = getattr(target, self.case.inplace)(*args[1:], **kwargs)
            return [got, target]
        got = list(leaves(self.case.target()(*args, **kwargs)))
        if self.form != "gradient":
            return got
        inputs = [t for t in given if is_tensor(t) and t.requires_grad]
        return [*got, *gradients(got, inputs)]

    def asked(self, given: Sequence[Any], got: list[Any]) -> tuple[list[Any], list[Any]]:
        """Results and inputs of which gradients are computed outside."""
        if self.form != "outside":
            return [], []
        return got, [t for t in given if is_tensor(t) and t.requires_grad]


def gradients(outs: list[Any], inputs: list[Any]) -> list[Any]:
    """Gradients of a fixed weighting of the differentiable results."""
    outs = [t for t in outs if is_tensor(t) and t.requires_grad]
    outs = list({id(t): t for t in outs}.values())
    if not outs or not inputs:
        return []
    weights = [ng.linspace(0.5, 1.5, o.numel(), dtype=o.dtype).reshape(o.shape) for o in outs]
    return list(ng.autograd.grad(outs, inputs, weights, allow_unused=True))


def function_of(items: Sequence[Item]) -> Callable[[list[list[Any]]], list[list[Any]]]:
    """One function of all tensors of ``items``, that returns all their results."""

    def rows(given: list[list[Any]]) -> list[list[Any]]:
        return [item.run(mine) for item, mine in zip(items, given, strict=True)]

    return rows


def outcome(items: Sequence[Item], function: Callable[..., Any]) -> list[list[Any]]:
    """All results of ``items`` on fresh tensors by ``function``, and the tensors afterwards."""
    given = [item.given() for item in items]
    ng.manual_seed(3)
    found = function(given)
    pairs = [item.asked(g, got) for item, g, got in zip(items, given, found, strict=True)]
    # At once: what a compiled function gives is one graph, freed with the first gradient.
    grads = iter(
        gradients([t for outs, _ in pairs for t in outs], [t for _, i in pairs for t in i])
    )
    found = [
        [*got, *itertools.islice(grads, len(mine))]
        for got, (_, mine) in zip(found, pairs, strict=True)
    ]
    state = ng.get_rng_state()
    return [
        [*map(seen, got), *map(seen, g), sharing(item, got, g), *versions(g)]
        for item, g, got in zip(items, given, found, strict=True)
    ] + [[seen(state)]]


@dataclass(frozen=True)
class Seen:
    """All that one can see of a tensor."""

    array: np.ndarray
    dtype: str
    flags: tuple[Any, ...]


def seen(value: Any) -> Any:
    """A tensor as a Seen, anything else as it is."""
    if not is_tensor(value):
        return value
    flags = (value.requires_grad, value.is_leaf)
    return Seen(elements(value).copy(), dtype_name(value), flags)


def elements(value: Any) -> np.ndarray:
    """What NumPy sees of a tensor, of bfloat16 the numbers."""
    value = value.detach()
    return (value.float() if value.dtype is ng.bfloat16 else value).numpy()


def sharing(item: Item, got: list[Any], given: list[Any]) -> list[tuple[int, int]]:
    """Which results share memory with which arguments, or other results that are no gradients."""
    both = [t for t in (*got, *given) if is_tensor(t)]
    arrays = [t._array for t in both]
    pairs = itertools.combinations(range(len(arrays)), 2)
    apart = sum(map(is_tensor, got)) if item.differentiated else 0
    return [(i, j) for i, j in pairs if j >= apart and np.may_share_memory(arrays[i], arrays[j])]


def versions(given: list[Any]) -> list[int]:
    """How often each argument was changed in place."""
    return [t._version for t in given if is_tensor(t)]


def differences(item: Any, wanted: list[Any], got: list[Any]) -> Iterator[str]:
    """What differs between the outcomes of one item."""
    if len(wanted) != len(got):
        yield f"{len(got)} results, expected {len(wanted)}"
        return
    for k, (x, y) in enumerate(zip(wanted, got, strict=True)):
        if not isinstance(x, Seen) or not isinstance(y, Seen):
            same = type(x) is type(y) and (x == y or (x != x and y != y))
            if not same:
                yield f"result {k} is {y!r}, expected {x!r}"
            continue
        if (x.dtype, x.array.shape, x.flags) != (y.dtype, y.array.shape, y.flags):
            yield (
                f"result {k} is {y.dtype} {y.array.shape} {y.flags}, "
                f"expected {x.dtype} {x.array.shape} {x.flags}"
            )
            continue
        if not close(x.array, y.array, x.dtype, 10 if item.differentiated else 1):
            yield f"result {k} is\n{y.array!r}, expected\n{x.array!r}"


def close(wanted: np.ndarray, got: np.ndarray, dtype: str, factor: float = 1) -> bool:
    """Whether two arrays are equal to a few roundings.

    Fused code contracts ``x * y + z`` into one rounding, and adds in another order. That moves a
    result by some roundings of the largest numbers added up, so the tolerance is relative to the
    largest element, not to each: an element that cancels to nearly nothing has no correct digits.
    """
    if wanted.dtype.kind != "f":
        return np.array_equal(wanted, got)
    finite = np.isfinite(wanted)
    if not np.array_equal(finite, np.isfinite(got)):
        return False
    if not np.array_equal(wanted[~finite], got[~finite], equal_nan=True):
        return False
    scale = np.abs(wanted[finite]).max(initial=0.0)
    error = np.abs(wanted[finite] - got[finite]).max(initial=0.0)
    return bool(error <= factor * TOLERANCE[dtype] * scale)


def agree(items: Sequence[Item]) -> list[str]:
    """Run ``items`` as one compiled function and eagerly; what differs, by item.

    Where the whole cannot be compiled or differs, each item is compiled alone.
    """
    with np.errstate(all="ignore"):
        wanted = outcome(items, function_of(items))
        try:
            got = outcome(items, ng.compile(function_of(items)))
        except Exception as error:
            text = f"{items[0]!r}..: " + "".join(traceback.format_exception(error)[-8:])
            return (one_by_one(items) if len(items) > 1 else []) or [text]
    wrong = []
    for item, x, y in zip([*items, items[-1]], wanted, got, strict=True):
        wrong += [f"{item!r}: {text}" for text in differences(item, x, y)]
    return one_by_one(items) or wrong if wrong and len(items) > 1 else wrong


def one_by_one(items: Sequence[Item]) -> list[str]:
    """``agree`` of each item alone."""
    return [text for item in items for text in agree([item])]


def items_of(case: Case, dtype: str, form: str = "forward") -> list[Item]:
    """The calls of a row that can be made in ``form``."""
    kinds = ("plain", "broadcast", "scalar", "empty") if form in ("gradient", "outside") else ()
    like = "float32" if dtype in HALVES else dtype
    found = [Item(case, dtype, c, k, form) for k, c in enumerate(case.calls(like, *kinds))]
    if form in ("gradient", "outside"):
        return found if case.orders and like in FLOATS else []
    if form == "argument" and case.inplace in RESHAPING:  # refused: see test_tape.py
        return []
    if form in ("in place", "argument"):
        return [i for i in found if case.inplace and _fits(i)]
    return found


def _fits(item: Item) -> bool:
    """Whether the in-place method takes this call."""
    try:
        Item(item.case, item.dtype, item.call, item.number, "in place").run(item.given())
    except (RuntimeError, TypeError, ValueError, IndexError):
        return False
    return True


FORMS = ("forward", "in place", "argument", "gradient", "outside")

VALUE_DEPENDENT = "a shape or Python value depends on elements"
REFUSED: dict[str, str] = dict.fromkeys(
    """
    allclose equal item tolist numpy
    getitem-mask-mixed unique unique-all unique_consecutive unique_consecutive-more bincount one_hot
    repeat_interleave-counts histogram histogramdd
    """.split(),
    VALUE_DEPENDENT,
) | dict.fromkeys(
    """
    as_tensor-array from_dlpack from_numpy to_dlpack
    rand randn normal rand_like randint randint_like
    bernoulli_ exponential_ random_ uniform_ normal_ cauchy_ log_normal_ geometric_ frombuffer
    """.split(),
    "the row itself looks at values; the random ones have a test of their own",
)
"""Rows that must raise RecordingError, at least in one of their calls."""

SELECTED = "may be returned, and used where the number of rows does not matter"
PARTLY = {
    **dict.fromkeys("getitem-mask masked_select argwhere where-one".split(), SELECTED),
    **dict.fromkeys(["nonzero", "nonzero-tuple"], SELECTED),
    "setitem-mask": "a value for each True would have to be counted; numbers are recorded",
    "setitem-number": "the same, in bools",
    "bincount": "with minlength only",
}
"""Rows of which some calls or forms raise RecordingError."""

DIFFERS = {
    "getitem-tensor": "x[0-d tensor] is a view eagerly and a copy compiled, as its offset is data",
}
"""Rows that are not compared."""


def recordable(case: Case) -> bool:
    """Whether every call of the row can be recorded, and gives what it gives eagerly."""
    return case.name not in REFUSED | PARTLY | DIFFERS


TOGETHER = 12
"""Calls of a row that Python runs as one function: most of the time goes into recording it."""


def in_python(families: Sequence[str]) -> Iterator[str]:
    """What differs in any call of ``families``, run as generated Python."""
    from cases import FAMILIES

    # A recording looks at all objects there are: that took two thirds of the time. What was there
    # before a row has no tensors of it.
    trace.all_tensors = heap.tracked_tensors
    count = 0
    for case in [c for f in families for c in FAMILIES[f] if recordable(c)]:
        gc.freeze()
        for dtype, form in itertools.product(case.dtypes, FORMS):
            if form != "forward" and dtype not in ("float64", "int64"):
                continue  # the text is that of forward, with other dtypes
            if form in ("argument", "outside") and dtype != "float64":
                continue  # they differ from the others in no dtype
            items = [i for i in items_of(case, dtype, form) if _runs_in_python(i)]
            count += len(items)
            for k in range(0, len(items), TOGETHER):
                yield from agree(items[k : k + TOGETHER])
    yield f"{count} calls"


def _runs_in_python(item: Item) -> bool:
    if item.call.kind == "special":
        return False  # Python raises where arithmetic gives NaN
    try:
        outcome([item], function_of([item]))
    except (NotImplementedError, ValueError, ZeroDivisionError):
        return False  # an eager kernel that Python cannot run
    return True


if __name__ == "__main__":
    for text in in_python(sys.argv[1:]):
        print(text)
