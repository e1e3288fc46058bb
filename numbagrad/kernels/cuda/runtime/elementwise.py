"""Formulas to GPU kernels: the device's form of ``loops.ElementwiseKernel``.

Two forms. *flat*: every array is contiguous and of one shape. *strided*: the position in each array
that is not contiguous is computed from the number of the element. Both go by 128 bits where the
layout and the addresses allow it. Start reading at ``run``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import store
from ...expr import Expr, substitute, symbol
from ...formula import Formula
from ...halves import HALVES, arithmetic
from ...loops import ElementwiseKernel, compute_type
from ...strides import common_order
from ...writer import Writer
from . import grids
from .array import DeviceArray
from .grids import tile_grid
from .launch import prepared, strided_grid
from .shape import BLOCK
from .turned import turn, turned

__all__ = ["HELPERS", "LIBRARY", "DeviceWriter", "copy", "emit", "fill", "run"]

_BOOL = np.dtype(np.bool_)
LIBRARY = frozenset("floor ceil trunc rint exp2 log2".split())
_OF_MATH = frozenset(
    "exp expm1 log log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh "
    "erf erfc hypot lgamma sqrt".split()
)


class DeviceWriter(Writer):
    """Writes expressions with the functions of the GPU's mathematical library."""

    def _text(self, node: Expr) -> str:
        op = node.op
        if op == "sigmoid":
            (x,) = [self.number(a) for a in node.args]
            return f"{self.t}(1) / ({self.t}(1) + math.exp(-{x}))"
        if op in LIBRARY and not self.integer:
            return f"{op}_{self.t}({self.number(node.args[0])})"
        if op in _OF_MATH:
            return f"math.{op}({', '.join(map(self.number, node.args))})"
        if op == "mod":
            return f"{self.number(node.args[0])} % {self.number(node.args[1])}"
        if op == "floordiv":
            return f"{self._helper(op)}({', '.join(map(self.number, node.args))})"
        text = super()._text(node)
        assert not self.simd, f"{op} has no form on a GPU"
        return text

    def root(self, x: str) -> str:
        """The text of a square root."""
        return f"math.sqrt({x})"

    def raised(self, base: str, exponent: str) -> str:
        """The text of a power."""
        return f"{base} ** {exponent}"


HELPERS = {
    "sign": "T(1) if x > T(0) else (T(-1) if x < T(0) else x)",
    "max": "x if x > y or x != x else y",
    "min": "x if x < y or x != x else y",
    "floordiv": "T(x // y)",
}


class KernelText:
    """Writes the source of one kernel; see ``emit``. Inputs are named in_0, in_1, ..."""

    def __init__(
        self, formulas: Sequence[Formula], scalars: Sequence[bool], compute: str, outs: Sequence
    ):
        names = formulas[0].inputs
        self.inputs = [f"in_{k}" for k in range(len(names))]
        symbols = {n: symbol(i) for n, i in zip(names, self.inputs, strict=True)}
        self.bodies = [substitute(f.body, symbols) for f in formulas]
        self.outputs = [f"out_{k}" for k in range(len(formulas))]
        self.arrays = [i for i, s in zip(self.inputs, scalars, strict=True) if not s]
        self.numbers = [i for i, s in zip(self.inputs, scalars, strict=True) if s]
        self.compute, self.outs = compute, outs
        self.lines = [f"    {i}_v = T({i})" for i in self.numbers]
        self.lines += ["    i = cuda.grid(1)", "    step = cuda.gridsize(1)"]
        self.helpers: dict[str, None] = {}

    def element(self, loaded: dict[str, str], lane: int) -> list[str]:
        """Append the computation of one element; the texts of its results.

        loaded: by array, the text of its element. lane: keeps local names apart.
        """
        given = {i: f"{i}_v" for i in self.numbers} | loaded
        integer = self.compute == "int64"
        writer = DeviceWriter(self.bodies, integer, "T", given, first=1000 * lane)
        self.lines += [" " * 8 + line for line in writer.lines]
        self.helpers.update(writer.helpers)
        return [
            _converted(writer.names[body], body.is_bool, out, self.compute)
            for body, out in zip(self.bodies, self.outs, strict=True)
        ]

    def by_vectors(self, form: str, lanes: int, rank: int, count: str, depth: int) -> None:
        """Append the walk of blocks over tiles; what is left over comes after.

        A thread takes ``depth`` groups of ``lanes`` neighbours of a tile, and has them all under
        way before it needs the first.
        """
        size = f"{depth * lanes} * BLOCK"
        self.lines[-2:] = [f"    tiles = n // ({size})", "    tile = int64(cuda.blockIdx.x)"]
        self.lines += ["    while tile < tiles:"]
        self.lines += [f"        i = tile * ({size}) + cuda.threadIdx.x * {lanes}"]
        letters = dict(zip([*self.outputs, *self.arrays], form, strict=True))
        for g in range(depth):
            self.lines += [f"        i_{g} = i + {g * lanes} * BLOCK"]
            places = self.positions(form, rank, count, g)[0] if set(form) != {"c"} else {}
            at = {a: places.get(a, f"i_{g}") for a in letters}
            for a in self.arrays:
                names = [f"{a}_{g}_{k}" for k in range(lanes)]
                if letters[a] == "b":
                    self.lines += [f"        {' = '.join(names)} = {a}[{at[a]}]"]
                else:
                    self.lines += [f"        {', '.join(names)} = load{lanes}({a}, {at[a]})"]
            if places:
                self.lines += [f"        {o}_to_{g} = {at[o]}" for o in self.outputs]
        for g in range(depth):
            for k in range(lanes):
                loaded = {a: f"T({a}_{g}_{k})" for a in self.arrays}
                results = self.element(loaded, g * lanes + k)
                for o, text in zip(self.outputs, results, strict=True):
                    self.lines += [f"        {o}_{k} = {text}"]
            for o in self.outputs:
                values = ", ".join([f"{o}_{k}" for k in range(lanes)])
                to = f"i_{g}" if set(form) == {"c"} else f"{o}_to_{g}"
                self.lines += [f"        store{lanes}({o}, {to}, {values})"]
        self.lines += ["        tile += cuda.gridDim.x"]
        self.lines += [f"    i = tiles * ({size}) + cuda.grid(1)", "    step = cuda.gridsize(1)"]

    def positions(
        self, form: str, rank: int, count: str, group: int | None = None
    ) -> tuple[dict[str, str], list[str]]:
        """Append the computation of places; each array's place, and the parameters it takes."""
        i = "i" if group is None else f"i_{group}"
        named = zip([*self.outputs, *self.arrays], form, strict=True)
        strided = [a for a, letter in named if letter != "c"]
        self.lines += [f"        rest = {count}({i})"]
        for d in range(rank - 1, 0, -1):
            self.lines += [f"        j_{d} = {count}(rest % {count}(size_{d}))"]
            self.lines += [f"        rest = {count}(rest // {count}(size_{d}))"]
        self.lines += ["        j_0 = rest"]
        for a in strided:
            terms = " + ".join([f"int64(j_{d}) * {a}_s{d}" for d in range(rank)])
            self.lines += [f"        {a}_at = {terms}"]
        parameters = [f"size_{d}" for d in range(1, rank)]
        parameters += [f"{a}_s{d}" for a in strided for d in range(rank)]
        return {a: f"{a}_at" for a in strided}, parameters

    def one_by_one(self, form: str, rank: int, count: str) -> list[str]:
        """Append the walk over single elements; the parameters it takes."""
        self.lines += ["    while i < n:"]
        index = dict.fromkeys([*self.outputs, *self.arrays], "i")
        parameters: list[str] = []
        if set(form) != {"c"}:
            places, parameters = self.positions(form, rank, count)
            index |= places
        self.lines += [f"        {a}_x = T({a}[{index[a]}])" for a in self.arrays]
        results = self.element({a: f"{a}_x" for a in self.arrays}, 5)
        for o, text in zip(self.outputs, results, strict=True):
            self.lines += [f"        {o}[{index[o]}] = {text}"]
        self.lines += ["        i += step"]
        return parameters

    def head(self, body: str) -> list[str]:
        """Imports and helper functions."""
        named = {str(arithmetic(o)) for o in self.outs if o != _BOOL}
        kinds = sorted({self.compute, "int64", "uint32", "uint8", *named})
        lines = ["import numpy as np", f"from numba import cuda, {', '.join(kinds)}", ""]
        vectors = [f"{verb}{n}" for verb in ("load", "store") for n in (2, 4, 8)]
        vectors = [name for name in vectors if f"{name}(" in body]
        if vectors:
            lines += [f"from numbagrad.kernels.cuda.runtime.intrinsics import {', '.join(vectors)}"]
            lines += ["from numbagrad.kernels.cuda.runtime.shape import BLOCK"]
        library = [f"{f}_{t}" for f in sorted(LIBRARY) for t in ("float32", "float64")]
        used = ", ".join(["math", *[name for name in library if f"{name}(" in body]])
        lines += [f"from numbagrad.kernels.cuda.runtime.maths import {used}"]
        lines += ["", f"T = {self.compute}", ""]
        for op in self.helpers:
            name = {"max": "maximum", "min": "minimum"}.get(op, op)
            operands = "x" if op == "sign" else "x, y"
            lines += ["", "@cuda.jit(device=True)", f"def {name}({operands}):"]
            lines += [f"    return {HELPERS[op]}", ""]
        return lines


def emit(
    formulas: Sequence[Formula],
    form: str,
    lanes: int,
    rank: int,
    wide: bool,
    scalars: Sequence[bool],
    compute: str,
    outs: Sequence[np.dtype],
) -> tuple[str, str]:
    """Source text and function name of a kernel.

    form: a letter for each array, outputs first: "c" contiguous, "s" strided, "v" strided with
    neighbours in the last dimension, "b" the same element all along it. lanes: elements at a time,
    1, 2, 4 or 8; 1 where there is an "s". rank: the number of dimensions of a strided form; wide:
    whether elements are counted by 64 bits. scalars: which inputs are passed by value. compute:
    the type of the arithmetic; outs: dtypes of the outputs.
    """
    kernel = KernelText(formulas, scalars, compute, outs)
    count = "int64" if wide else "uint32"
    if lanes > 1:
        kernel.by_vectors(form, lanes, rank, count, depth_of(form))
    parameters = kernel.one_by_one(form, rank, count)
    body = "\n".join(kernel.lines).replace("_T(", f"_{compute}(")  # floor_T and its like
    names = ", ".join(["n", *kernel.outputs, *kernel.inputs, *parameters])
    text = [*kernel.head(body), "", f"def NAME({names}):"]
    text += [f'    """{form}{lanes}: {"; ".join(map(str, formulas))}"""', body]
    source = "\n".join(text) + "\n"
    name = store.content_name(f"{formulas[0].name}_cuda", source)
    return source.replace("NAME", name, 1), name


def depth_of(form: str) -> int:
    """Groups of neighbours that a thread takes at a time."""
    return grids.DEPTH if len(form) <= 3 else 1


def _converted(text: str, is_bool: bool, out: np.dtype, compute: str) -> str:
    """The text of a result as a value of the output's dtype; bools are bytes."""
    out = arithmetic(out)  # a pointer to halves rounds what is written through it
    if out == _BOOL:
        return f"uint8(1) if {text if is_bool else f'({text} != T(0))'} else uint8(0)"
    if is_bool:
        return f"{out}(1) if {text} else {out}(0)"
    if str(out) == compute:
        return text
    if out.kind in "iu" and compute.startswith("float") and out.itemsize < 8:
        return f"{out}(int64({text}))"  # from a float to few bits directly is not defined
    return f"{out}({text})"


def merged(
    shape: tuple[int, ...], strides: Sequence[tuple[int, ...]]
) -> tuple[list[int], list[list[int]]]:
    """The dims of a loop nest, neighbours joined that every array walks as one.

    strides: per array, in elements, 0 where it is broadcast. Sizes, and steps of each array.
    """
    sizes: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for d, size in enumerate(shape):
        if size == 1:
            continue
        here = [s[d] for s in strides]
        if sizes and all([each[-1] == s * size for each, s in zip(steps, here, strict=True)]):
            sizes[-1] *= size
            for each, s in zip(steps, here, strict=True):
                each[-1] = s
        else:
            sizes.append(size)
            for each, s in zip(steps, here, strict=True):
                each.append(s)
    if not sizes:
        sizes = [1]
        for each in steps:
            each.append(0)
    return sizes, steps


def _element_strides(array: DeviceArray, shape: tuple[int, ...]) -> tuple[int, ...]:
    step = array.dtype.itemsize
    pairs = zip(array.shape, array.strides, strict=True)
    found = tuple([0 if n == 1 else s // step for n, s in pairs])
    return (0,) * (len(shape) - len(found)) + found


def _in_order(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """``args`` with dimensions so turned that the first output has its smallest steps last."""
    shape = args[0].shape
    if args[0].c_contiguous:
        return args
    steps = {k: _element_strides(a, shape) for k, a in enumerate(args) if type(a) is DeviceArray}
    order = common_order(shape, tuple(steps.values()))
    if order is None:
        return args
    sizes = tuple([shape[d] for d in order])
    return tuple(
        [
            a.element_view(sizes, tuple([steps[k][d] for d in order]), 0) if k in steps else a
            for k, a in enumerate(args)
        ]
    )


def _letters(
    sizes: list[int], steps: list[list[int]], dense: list[bool], lanes: int, outputs: int
) -> str | None:
    """The form by ``lanes`` neighbours at a time, see ``emit``; None where the layout forbids it.

    Addresses of groups are multiples of 16 bytes where those of the arrays are.
    """
    if sizes[-1] % lanes or any(st[-1] != 1 for st in steps[:outputs]):
        return None
    for *outer, inner in steps:
        if inner not in (0, 1) or (inner and any(s % lanes for s in outer)):
            return None
    named = zip(steps, dense, strict=True)
    return "".join(["c" if d else "v" if st[-1] else "b" for st, d in named])


class DeviceElementwise:
    """The compiled forms of one ElementwiseKernel, and the loop nests it has met."""

    def __init__(self, kernel: ElementwiseKernel):
        self.formulas = kernel.formulas
        self.outputs = kernel.outputs
        self.copies = [f.body.op for f in kernel.formulas] == ["input"]
        self._functions: dict[Any, Any] = {}
        self._met: dict[Any, Callable[..., None]] = {}

    def function(
        self, dtypes: tuple[Any, ...], form: str, lanes: int = 1, rank: int = 1, wide: bool = False
    ) -> Any:
        """The kernel for dtypes of outputs, then operands (``float``, ``int`` for numbers)."""
        key = dtypes, form, lanes, rank, wide
        found = self._functions.get(key)
        if found is None:
            outs, operands = dtypes[: self.outputs], dtypes[self.outputs :]
            compute = compute_type(outs, operands)
            scalars = [isinstance(d, type) for d in operands]
            text, name = emit(self.formulas, form, lanes, rank, wide, scalars, compute, outs)
            found = self._functions[key] = getattr(store.load_source(text, name), name)
        return found

    def _plan(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """What a call with such arguments launches: (vector form, elements of a tile, form,
        numbers).
        """
        args = _in_order(args)
        out = args[0]
        shape = out.shape
        if self.copies and out.c_contiguous and type(args[1]) is DeviceArray:
            x = args[1]
            alike = x.shape == shape and x.dtype == out.dtype
            squares = turned(shape, x.strides, x.itemsize) if alike else None
            if squares is not None:
                return turn, 0, None, squares
        dtypes = tuple([a.dtype if type(a) is DeviceArray else type(a) for a in args])
        arrays = [a for a in args if type(a) is DeviceArray]
        widest = max([a.dtype.itemsize for a in arrays])
        lanes = 8 if all([a.dtype in HALVES for a in arrays]) else 4 if widest <= 4 else 2
        dense = [a.shape == shape and a.c_contiguous for a in arrays]
        if all(dense):
            form = "c" * len(arrays)
            tile = depth_of(form) * lanes * BLOCK
            return self.function(dtypes, form, lanes), tile, self.function(dtypes, form), ()
        sizes, steps = merged(shape, [_element_strides(a, shape) for a in arrays])
        form = "".join(["c" if d else "s" for d in dense])
        reach = [sum([abs(s) * (n - 1) for s, n in zip(st, sizes, strict=True)]) for st in steps]
        wide = max(out.size, *reach) >= 1 << 31
        numbers = [
            *sizes[1:],
            *[s for st, d in zip(steps, dense, strict=True) if not d for s in st],
        ]
        plain = self.function(dtypes, form, 1, len(sizes), wide)
        letters = _letters(sizes, steps, dense, lanes, self.outputs)
        if letters is None:
            return None, 1, plain, tuple(numbers)
        vector = self.function(dtypes, letters, lanes, len(sizes), wide)
        return vector, depth_of(letters) * lanes * BLOCK, plain, tuple(numbers)

    def walk(self, args: tuple[Any, ...]) -> Callable[..., None]:
        """What runs on arguments of these shapes, strides and types: outputs, then operands."""
        key = tuple(
            [(a.shape, a.strides, a.dtype) if type(a) is DeviceArray else type(a) for a in args]
        )
        walk = self._met.get(key)
        if walk is None:
            if len(self._met) >= 1024:
                self._met.clear()
            walk = self._met[key] = self._new_walk(args)
        return walk

    def _new_walk(self, args: tuple[Any, ...]) -> Callable[..., None]:
        vector, tile, function, numbers = self._plan(args)
        n = args[0].size
        if n == 0:
            return _nothing
        if vector is turn:
            return lambda out, x: turn(out, x, numbers)
        one_by_one = prepared(function, strided_grid(n), BLOCK)
        if vector is None or n < tile:
            return lambda *args: one_by_one(n, *args, *numbers)
        by_vectors = prepared(vector, tile_grid(n // tile, n % tile), BLOCK)

        def walk(*args: Any) -> None:
            together = 0
            for a in args:
                if a.__class__ is DeviceArray:
                    together |= a.pointer
            chosen = one_by_one if together % 16 else by_vectors
            chosen(n, *args, *numbers)

        return walk

    def __call__(self, args: tuple[Any, ...]) -> None:
        """Run on arrays and numbers: outputs, then operands."""
        self.walk(args)(*args)


def _nothing(*args: Any) -> None:
    """The walk over no elements."""


def on_device(kernel: ElementwiseKernel) -> DeviceElementwise:
    """The GPU's form of ``kernel``."""
    found = kernel.on_device
    if found is None:
        found = kernel.on_device = DeviceElementwise(kernel)
    return found


def run(kernel: ElementwiseKernel, args: tuple[Any, ...]) -> None:
    """Run ``kernel`` on the device: outputs, then arrays there and numbers."""
    on_device(kernel)(args)


_copy = DeviceElementwise(ElementwiseKernel(Formula("copy", ("x",), symbol("x"))))


def copy(out: DeviceArray, x: DeviceArray) -> None:
    """out = x, which broadcasts to it."""
    _copy((out, x))


_fill = DeviceElementwise(ElementwiseKernel(Formula("fill", ("value",), symbol("value"))))


def fill(out: DeviceArray, value: Any) -> None:
    """out = a number."""
    _fill((out, value))
