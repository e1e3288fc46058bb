"""Formulas to GPU kernels: the device's form of ``loops.ElementwiseKernel``.

Two forms. *flat*: every array is contiguous and of one shape; a walk over the elements in strides
of the grid, by 128 bits where the addresses allow it. *strided*: the position in each array that
is not contiguous is computed from the number of the element. Start reading at ``run``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import store
from ...expr import Expr, substitute, symbol
from ...formula import Formula
from ...loops import ElementwiseKernel, Writer, compute_type
from .array import DeviceArray
from .launch import start, strided_grid
from .shape import BLOCK

__all__ = ["copy", "emit", "fill", "run"]

_BOOL = np.dtype(np.bool_)
_LIBRARY = frozenset("floor ceil trunc rint exp2 log2".split())


class DeviceWriter(Writer):
    """Writes expressions with the functions of the GPU's mathematical library."""

    def _text(self, node: Expr) -> str:
        op = node.op
        if op == "sigmoid":
            (x,) = [self.number(a) for a in node.args]
            return f"{self.t}(1) / ({self.t}(1) + math.exp(-{x}))"
        if op in ("exp", "log", "tanh", "erf", "sin", "cos"):
            return f"math.{op}({self.number(node.args[0])})"
        if op in _LIBRARY and not self.integer:
            return f"{op}_{self.t}({self.number(node.args[0])})"
        text = super()._text(node)
        assert not self.simd, f"{op} has no form on a GPU"
        return text


def _imports(text: str, names: Sequence[str]) -> list[str]:
    return sorted([name for name in names if f"{name}(" in text])


_HELPERS = {
    "sign": "T(1) if x > T(0) else (T(-1) if x < T(0) else x)",
    "max": "x if x > y or x != x else y",
    "min": "x if x < y or x != x else y",
    "floordiv": "T(x // y)",
}


def emit(
    formulas: Sequence[Formula],
    form: str,
    rank: int,
    wide: bool,
    scalars: Sequence[bool],
    compute: str,
    outs: Sequence[np.dtype],
) -> tuple[str, str]:
    """Source text and function name of a kernel.

    form: "1", "2" or "4" elements at a time for the flat form; for the strided one a letter for
    each array, outputs first: "c" contiguous, "s" strided. rank: its number of dimensions; wide:
    whether elements are counted by 64 bits. scalars: which inputs are passed by value. compute:
    the type of the arithmetic; outs: dtypes of the outputs.
    """
    names = formulas[0].inputs
    inputs = [f"in_{k}" for k in range(len(names))]
    symbols = {n: symbol(i) for n, i in zip(names, inputs, strict=True)}
    bodies = [substitute(f.body, symbols) for f in formulas]
    out_names = [f"out_{k}" for k in range(len(formulas))]
    arrays = [i for i, s in zip(inputs, scalars, strict=True) if not s]
    numbers = [i for i, s in zip(inputs, scalars, strict=True) if s]
    flat = form in ("1", "2", "4")
    lines: list[str] = [f"    {i}_v = T({i})" for i in numbers]
    helpers: dict[str, None] = {}

    def element(indent: str, loaded: dict[str, str], lane: int = 0) -> list[str]:
        """Append the computation of one element; the texts of its results."""
        given = {i: f"{i}_v" for i in numbers} | loaded
        writer = DeviceWriter(bodies, compute == "int64", "T", given, first=1000 * lane)
        lines.extend([indent + line for line in writer.lines])
        helpers.update(writer.helpers)
        return [
            _converted(writer.names[body], body.is_bool, out, compute)
            for body, out in zip(bodies, outs, strict=True)
        ]

    lines += ["    i = cuda.grid(1)", "    step = cuda.gridsize(1)"]
    if flat and form != "1":
        lanes = int(form)
        lines += [f"    groups = n // {lanes}", "    while i < groups:"]
        indent = " " * 8
        for a in arrays:
            targets = ", ".join([f"{a}_{k}" for k in range(lanes)])
            lines += [f"{indent}{targets} = load{lanes}({a}, i * {lanes})"]
        results = []
        for k in range(lanes):
            texts = element(indent, {a: f"T({a}_{k})" for a in arrays}, k)
            for o, text in zip(out_names, texts, strict=True):
                lines += [f"{indent}{o}_{k} = {text}"]
            results.append([f"{o}_{k}" for o in out_names])
        for at, o in enumerate(out_names):
            values = ", ".join([lane[at] for lane in results])
            lines += [f"{indent}store{lanes}({o}, i * {lanes}, {values})"]
        lines += [f"{indent}i += step", f"    i = groups * {lanes} + cuda.grid(1)"]
    indent = " " * 8
    lines += ["    while i < n:"]
    index = dict.fromkeys([*out_names, *arrays], "i")
    parameters = []
    if not flat:
        strided = [a for a, f in zip([*out_names, *arrays], form, strict=True) if f == "s"]
        index.update({a: f"{a}_at" for a in strided})
        parameters = [f"size_{d}" for d in range(1, rank)]
        parameters += [f"{a}_s{d}" for a in strided for d in range(rank)]
        count = "int64" if wide else "uint32"
        lines += [f"{indent}rest = {count}(i)"]
        for d in range(rank - 1, -1, -1):
            if d:
                lines += [f"{indent}j_{d} = {count}(rest % {count}(size_{d}))"]
                lines += [f"{indent}rest = {count}(rest // {count}(size_{d}))"]
            else:
                lines += [f"{indent}j_{d} = rest"]
        for a in strided:
            terms = " + ".join([f"int64(j_{d}) * {a}_s{d}" for d in range(rank)])
            lines += [f"{indent}{a}_at = {terms}"]
    lines += [f"{indent}{a}_x = T({a}[{index[a]}])" for a in arrays]
    texts = element(indent, {a: f"{a}_x" for a in arrays}, 5)
    lines += [f"{indent}{o}[{index[o]}] = {t}" for o, t in zip(out_names, texts, strict=True)]
    lines += [f"{indent}i += step"]

    body = "\n".join(lines)
    library = [f"{f}_{t}" for f in sorted(_LIBRARY) for t in ("float32", "float64")]
    body = body.replace("_T(", f"_{compute}(")  # floor_T and its like
    kinds = sorted({compute, "int64", "uint32", *[str(o) for o in outs if o != _BOOL], "uint8"})
    head = ["import numpy as np", f"from numba import cuda, {', '.join(kinds)}", ""]
    vectors = _imports(body, ["load2", "load4", "store2", "store4"])
    if vectors:
        head += [f"from numbagrad.kernels.cuda.runtime.intrinsics import {', '.join(vectors)}"]
    used = ", ".join(["math", *_imports(body, library)])
    head += [f"from numbagrad.kernels.cuda.runtime.maths import {used}"]
    head += ["", f"T = {compute}", ""]
    for op in helpers:
        name = {"max": "maximum", "min": "minimum"}.get(op, op)
        operands = "x" if op == "sign" else "x, y"
        head += ["", "@cuda.jit(device=True)", f"def {name}({operands}):"]
        head += [f"    return {_HELPERS[op]}", ""]
    names_of_all = ", ".join(["n", *out_names, *inputs, *parameters])
    head += ["", f"def NAME({names_of_all}):"]
    head += [f'    """{form}: {"; ".join(map(str, formulas))}"""', body]
    source = "\n".join(head) + "\n"
    name = store.content_name(f"{formulas[0].name}_cuda", source)
    return source.replace("NAME", name, 1), name


def _converted(text: str, is_bool: bool, out: np.dtype, compute: str) -> str:
    """The text of a result as a value of the output's dtype; bools are bytes."""
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


class DeviceElementwise:
    """The compiled forms of one ElementwiseKernel, and the loop nests it has met."""

    def __init__(self, kernel: ElementwiseKernel):
        self.formulas = kernel.formulas
        self.outputs = kernel.outputs
        self._functions: dict[Any, Any] = {}
        self._met: dict[Any, tuple[Any, ...]] = {}

    def function(
        self, dtypes: tuple[Any, ...], form: str, rank: int = 1, wide: bool = False
    ) -> Any:
        """The kernel for dtypes of outputs, then operands (``float``, ``int`` for numbers)."""
        key = dtypes, form, rank, wide
        found = self._functions.get(key)
        if found is None:
            outs, operands = dtypes[: self.outputs], dtypes[self.outputs :]
            compute = compute_type(outs, operands)
            scalars = [isinstance(d, type) for d in operands]
            text, name = emit(self.formulas, form, rank, wide, scalars, compute, outs)
            found = self._functions[key] = getattr(store.load_source(text, name), name)
        return found

    def _plan(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """What a call with such arguments launches: (vector form and lanes, form, numbers)."""
        out = args[0]
        shape = out.shape
        dtypes = tuple([a.dtype if type(a) is DeviceArray else type(a) for a in args])
        arrays = [a for a in args if type(a) is DeviceArray]
        if all([a.shape == shape and a.c_contiguous for a in arrays]):
            widest = max([a.dtype.itemsize for a in arrays])
            lanes = 4 if widest <= 4 else 2
            return self.function(dtypes, str(lanes)), lanes, self.function(dtypes, "1"), ()
        sizes, steps = merged(shape, [_element_strides(a, shape) for a in arrays])
        dense = [a.shape == shape and a.c_contiguous for a in arrays]
        form = "".join(["c" if d else "s" for d in dense])
        reach = [sum([abs(s) * (n - 1) for s, n in zip(st, sizes, strict=True)]) for st in steps]
        wide = max(out.size, *reach) >= 1 << 31
        numbers = [
            *sizes[1:],
            *[s for st, d in zip(steps, dense, strict=True) if not d for s in st],
        ]
        return None, 1, self.function(dtypes, form, len(sizes), wide), tuple(numbers)

    def __call__(self, args: tuple[Any, ...]) -> None:
        """Run on arrays and numbers: outputs, then operands."""
        key = tuple(
            [(a.shape, a.strides, a.dtype) if type(a) is DeviceArray else type(a) for a in args]
        )
        plan = self._met.get(key)
        if plan is None:
            if len(self._met) >= 1024:
                self._met.clear()
            plan = self._met[key] = self._plan(args)
        vector, lanes, function, numbers = plan
        n = args[0].size
        if n == 0:
            return
        if vector is not None:
            together = 0
            for a in args:
                if type(a) is DeviceArray:
                    together |= a.pointer
            if together % 16 == 0 and n >= lanes:
                start(vector, strided_grid(-(-n // lanes)), BLOCK, n, *args)
                return
        start(function, strided_grid(n), BLOCK, n, *args, *numbers)


def run(kernel: ElementwiseKernel, args: tuple[Any, ...]) -> None:
    """Run ``kernel`` on the device: outputs, then arrays there and numbers."""
    found = kernel.on_device
    if found is None:
        found = kernel.on_device = DeviceElementwise(kernel)
    found(args)


_copy = DeviceElementwise(ElementwiseKernel(Formula("copy", ("x",), symbol("x"))))


def copy(out: DeviceArray, x: DeviceArray) -> None:
    """out = x, which broadcasts to it."""
    _copy((out, x))


_fill = DeviceElementwise(ElementwiseKernel(Formula("fill", ("value",), symbol("value"))))


def fill(out: DeviceArray, value: Any) -> None:
    """out = a number."""
    _fill((out, value))
