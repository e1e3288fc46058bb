"""From a scalar formula to a differentiable op: dispatch, recording, gradients.

``class Tanh(Elementwise)`` with a ``formula`` is all an op needs; ``@ng.elementwise`` does the
same for a user's function. The gradient with respect to input ``x`` is ``grad_x(g, ...)`` beside
the formula, or derived; the parameter names it uses decide what is saved. A gradient formula is an
elementwise op itself, so every order exists. Start reading at ``PointwiseOp``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import dtype as dtypes
from ..dtype import DType
from ..errors import FormulaError
from ..kernels import machine
from ..kernels.derive import derivative
from ..kernels.formula import Formula, is_constant, symbol
from ..kernels.loops import ElementwiseKernel
from ..tape import Counter, Node, SavedOutput, grad_mode, next_sequence, user_location
from ..tensor import Tensor, wrap
from .base import broadcast_shape, same_device, sum_to_shape

__all__ = ["elementwise"]

_new = object.__new__
_NUMBERS = (float, int, bool)


@dataclass(frozen=True)
class GradRule:
    """How the gradient of one input is computed: an op on ``g`` and saved values.

    sources: -1 for ``g``, else the position among the saved values (inputs, then the output).
    op is None where the gradient is ``g`` itself; zero where it vanishes.
    """

    op: PointwiseOp | None
    sources: tuple[int, ...]
    zero: bool = False


class PointwiseNode(Node):
    """A recorded elementwise op."""

    op: PointwiseOp
    meta: tuple[Any, ...] | None = None

    def name(self) -> str:
        return self.op.node_name

    def run(self, grads: list[Any]) -> list[Any]:
        """Apply the gradient formula of each input that needs one."""
        g = grads[0]
        values = self.unpack()
        values.append(g)  # so that source -1 is g
        op, meta = self.op, self.meta
        results: list[Any] = []
        for i, edge in enumerate(self.edges):
            if edge is None:
                results.append(None)
                continue
            rule = op.rules[i]
            if rule.op is None:
                result = None if rule.zero else g
            else:
                result = rule.op(*[values[s] for s in rule.sources])
            if meta is not None and result is not None:
                shape, dtype = meta[i]
                if result._array.shape != shape:
                    result = sum_to_shape(result, shape)
                if result._dtype is not dtype:
                    result = result.to(dtype)
            results.append(result)
        return results


class PointwiseOp:
    """An elementwise operation made from a scalar formula.

    result: "same" (the promoted dtype), "float" (ints become the default float) or "bool".
    """

    def __init__(
        self,
        name: str,
        function: Callable | Formula,
        grads: dict[str, Callable] | None = None,
        result: str = "same",
        doc: str | None = None,
    ):
        self.name = name
        self.node_name = f"{_camel(name)}Backward"
        self._function = function
        self._grads = grads or {}
        self.result = result
        self.__doc__ = doc
        if isinstance(function, Formula):
            self.inputs = function.inputs
            self.defaults: tuple[Any, ...] = ()
        else:
            code = function.__code__
            self.inputs = code.co_varnames[: code.co_argcount]
            self.defaults = function.__defaults__ or ()
        self._fast: dict[Any, Any] = {}
        self._plans: dict[tuple[bool, ...], tuple[Any, ...]] = {}

    # -- the formula and its gradients, read when first needed ------------------------------------

    @functools.cached_property
    def formula(self) -> Formula:
        """The scalar formula."""
        if isinstance(self._function, Formula):
            return self._function
        return Formula.from_function(self._function, self.name)

    @functools.cached_property
    def kernel(self) -> ElementwiseKernel:
        """The formula on arrays."""
        return ElementwiseKernel(self.formula)

    @functools.cached_property
    def rules(self) -> list[GradRule]:
        """One gradient rule per input."""
        return [self._rule(name) for name in self.inputs]

    def _rule(self, wrt: str) -> GradRule:
        written = self._grads.get(wrt)
        if written is not None:
            formula = Formula.from_function(written, f"{self.name}_grad_{wrt}")
        elif self.result == "bool":
            return GradRule(None, (), zero=True)
        else:
            formula = derivative(self.formula, wrt)
        if is_constant(formula.body, 0):
            return GradRule(None, (), zero=True)
        incoming = formula.inputs[0]
        if formula.body is symbol(incoming):
            return GradRule(None, (-1,))
        names = (*self.inputs, "out")
        sources = []
        for name in formula.inputs:
            if name == incoming:
                sources.append(-1)
            elif name in names:
                sources.append(names.index(name))
            else:
                raise FormulaError(
                    f"{formula.name}: parameter {name} is none of {', '.join(names)}."
                )
        return GradRule(PointwiseOp(formula.name, formula), tuple(sources))

    def saves(self, needs: tuple[bool, ...]) -> tuple[Any, ...]:
        """Positions of the inputs to save, and whether the output is, for these needs."""
        plan = self._plans.get(needs)
        if plan is None:
            used = {s for r, n in zip(self.rules, needs, strict=True) if n for s in r.sources}
            count = len(self.inputs)
            keep = tuple(i in used for i in range(count))
            plan = self._plans[needs] = (keep, count in used, bool(used - {-1}))
        return plan

    # -- calls -----------------------------------------------------------------------------------

    def __call__(self, *args: Any) -> Tensor:
        """Apply to tensors and numbers of any shapes that broadcast."""
        n = len(args)
        if n == 2:
            return self.binary(*args)
        return self.unary(*args) if n == 1 else self.general(args)

    def unary(self, x: Tensor) -> Tensor:
        """One tensor, already contiguous in the common case."""
        if isinstance(x, Tensor) and x._flat and not machine.recording:
            array = x._array
            found = self._fast.get(x._dtype)
            if found is None:
                found = self._prepare(x._dtype, (x._dtype,), (array.dtype,))
            entry, out_dtype, numpy_dtype, grain = found
            if array.size < grain:
                out_array = np.empty(array.shape, numpy_dtype)
                entry(out_array, array)
                out = _new(Tensor)
                out._array = out_array
                out._dtype = out_dtype
                edge = x._edge
                if edge is not None and grad_mode.enabled and out_dtype.is_floating_point:
                    self._record((x,), (edge,), out)
                return out
        return self.general((x,))

    def binary(self, x: Any, y: Any) -> Tensor:
        """Two tensors of one shape and dtype, or a tensor and a number, in the common case."""
        if isinstance(x, Tensor) and x._flat and not machine.recording:
            array = x._array
            dtype = x._dtype
            if isinstance(y, Tensor):
                other = y._array
                if y._dtype is dtype and y._flat and other.shape == array.shape:
                    found = self._fast.get(dtype)
                    if found is None:
                        found = self._prepare(dtype, (dtype, dtype), (array.dtype, array.dtype))
                    entry, out_dtype, numpy_dtype, grain = found
                    if array.size < grain:
                        out_array = np.empty(array.shape, numpy_dtype)
                        entry(out_array, array, other)
                        out = _new(Tensor)
                        out._array = out_array
                        out._dtype = out_dtype
                        ex, ey = x._edge, y._edge
                        if (
                            (ex is not None or ey is not None)
                            and grad_mode.enabled
                            and out_dtype.is_floating_point
                        ):
                            self._record((x, y), (ex, ey), out)
                        return out
            elif type(y) in _NUMBERS:
                key = (dtype, type(y))
                found = self._fast.get(key)
                if found is None:
                    found = self._prepare(key, (dtype, y), (array.dtype, type(y)))
                entry, out_dtype, numpy_dtype, grain = found
                if array.size < grain:
                    out_array = np.empty(array.shape, numpy_dtype)
                    entry(out_array, array, y)
                    out = _new(Tensor)
                    out._array = out_array
                    out._dtype = out_dtype
                    edge = x._edge
                    if edge is not None and grad_mode.enabled and out_dtype.is_floating_point:
                        self._record((x, y), (edge, None), out)
                    return out
        return self.general((x, y))

    def general(self, args: tuple) -> Tensor:
        """Any mixture of tensors and numbers."""
        if len(args) < len(self.inputs):
            missing = len(self.inputs) - len(args)
            if missing > len(self.defaults):
                raise TypeError(
                    f"{self.name}() takes {len(self.inputs)} arguments ({', '.join(self.inputs)}), "
                    f"got {len(args)}."
                )
            args = args + self.defaults[len(self.defaults) - missing :]
        elif len(args) > len(self.inputs):
            raise TypeError(
                f"{self.name}() takes {len(self.inputs)} arguments ({', '.join(self.inputs)}), "
                f"got {len(args)}."
            )
        args = tuple([self._checked(i, a) for i, a in enumerate(args)])
        tensors = [a for a in args if isinstance(a, Tensor)]
        if not tensors:
            raise TypeError(f"{self.name}(): at least one argument must be a Tensor.")
        device = same_device(self.name, tensors) if len(tensors) > 1 else tensors[0]._device
        out_dtype = self.result_dtype(args)
        shape = tensors[0]._array.shape
        if any([t._array.shape != shape for t in tensors]):
            shape = broadcast_shape(self.name, *[t._array.shape for t in tensors])
        out = wrap(machine.empty(shape, out_dtype.numpy, device), out_dtype)
        operands = [a._array if isinstance(a, Tensor) else a for a in args]
        machine.launch(self.kernel, out._array, *operands)
        if grad_mode.enabled and out_dtype.is_floating_point:
            edges = tuple([a._edge if isinstance(a, Tensor) else None for a in args])
            if any([e is not None for e in edges]):
                self._record(args, edges, out)
        return out

    def result_dtype(self, args: tuple) -> DType:
        """The dtype of the result for these arguments."""
        if self.result == "bool":
            return dtypes.bool_
        promoted = dtypes.result_type(
            [
                (a._dtype, 2 if a._array.ndim else 1)
                if isinstance(a, Tensor)
                else (dtypes.of_number(a), 0)
                for a in args
            ]
        )
        if self.result == "float" and not promoted.is_floating_point:
            return dtypes.get_default_dtype()
        return promoted

    def _checked(self, position: int, value: Any) -> Any:
        if isinstance(value, Tensor) or type(value) in _NUMBERS:
            return value
        if isinstance(value, (np.floating, np.integer, np.bool_)):
            return value.item()
        raise TypeError(
            f"{self.name}(): argument '{self.inputs[position]}' must be Tensor or number, not "
            f"{type(value).__name__}. Convert it with ng.tensor(...)."
        )

    def _prepare(self, key: Any, operands: tuple, types: tuple) -> tuple:
        """Compile the flat kernel for these dtypes and remember it under ``key``."""
        wrapped = [
            (d, 2) if isinstance(d, DType) else (dtypes.of_number(d), 0) for d in operands
        ]
        if self.result == "bool":
            out_dtype = dtypes.bool_
        else:
            out_dtype = dtypes.result_type(wrapped)
            if self.result == "float" and not out_dtype.is_floating_point:
                out_dtype = dtypes.get_default_dtype()
        if len(types) != len(self.inputs):
            return (None, out_dtype, out_dtype.numpy, -1)  # defaults: the general way
        entry = self.kernel.entry((out_dtype.numpy, *types), None, False)
        found = self._fast[key] = (entry, out_dtype, out_dtype.numpy, self.kernel.grain)
        return found

    def _record(self, args: tuple, edges: tuple, out: Tensor) -> None:
        """Put a node for ``out`` on the tape."""
        node = _new(PointwiseNode)
        node.op = self
        node.edges = edges
        node.sequence = next_sequence()
        keep, keep_out, any_saved = self.saves(tuple([e is not None for e in edges]))
        if any_saved:
            saved = [a if k else None for a, k in zip(args, keep, strict=True)]
            if keep_out:
                out._counter = Counter()
                saved.append(SavedOutput(out, 0))
            else:
                saved.append(None)
            node.saved = tuple(saved)
            moved = False
            for a in saved:
                if isinstance(a, Tensor) and a._counter is not None:
                    moved = True
            if moved:
                node.versions = tuple(
                    [a._counter.value if getattr(a, "_counter", None) else 0 for a in saved]
                )
            node.where = user_location(3)
        shape = out._array.shape
        dtype = out._dtype
        for a in args:
            if isinstance(a, Tensor) and (a._array.shape != shape or a._dtype is not dtype):
                node.meta = tuple(
                    [(a._array.shape, a._dtype) if isinstance(a, Tensor) else None for a in args]
                )
                break
        out._edge = node

    def __repr__(self) -> str:
        return f"<elementwise op {self.formula}>"

    def to_function(self) -> Callable:
        """A plain function that applies the op, with keywords and documentation."""
        op, inputs = self, self.inputs

        def function(*args: Any, **kwargs: Any) -> Tensor:
            if kwargs:
                args = _with_keywords(op, args, kwargs)
            return op(*args)

        if len(inputs) == 1:

            def unary(x: Tensor) -> Tensor:
                return op.unary(x)

            function = unary
        elif len(inputs) == 2 and not self.defaults:

            def binary(x: Any, y: Any) -> Tensor:
                return op.binary(x, y)

            function = binary
        function.__name__ = function.__qualname__ = self.name
        function.__doc__ = self.__doc__
        function.op = op  # type: ignore[attr-defined]
        return function


def _with_keywords(op: PointwiseOp, args: tuple, kwargs: dict) -> tuple:
    values = list(args)
    first_default = len(op.inputs) - len(op.defaults)
    for position in range(len(args), len(op.inputs)):
        name = op.inputs[position]
        if name in kwargs:
            values.append(kwargs.pop(name))
        elif position >= first_default:
            values.append(op.defaults[position - first_default])
        else:
            raise TypeError(f"{op.name}() missing required argument: '{name}'")
    if kwargs:
        raise TypeError(f"{op.name}() got an unexpected keyword argument '{next(iter(kwargs))}'")
    return tuple(values)


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.replace("<lambda>", "fn").split("_"))


class Elementwise:
    """Base of elementwise ops: a class with a ``formula`` and, if wished, ``grad_<input>``.

    Subclassing makes the op; ``cls.op`` is it and ``cls.function`` the function users call.
    domain: where tests may sample the first input. result: see ``PointwiseOp``.
    """

    op: PointwiseOp
    function: Callable
    domain: tuple[float, float] = (-2.0, 2.0)
    result = "same"
    name: str | None = None

    def __init_subclass__(cls) -> None:
        name = cls.__dict__.get("name") or _snake(cls.__name__)
        grads = {k[5:]: v for k, v in cls.__dict__.items() if k.startswith("grad_")}
        formula = cls.__dict__["formula"]
        cls.op = PointwiseOp(name, formula, grads, cls.result, cls.__doc__)
        cls.function = staticmethod(cls.op.to_function())


def _snake(name: str) -> str:
    return "".join("_" + c.lower() if c.isupper() and i else c.lower() for i, c in enumerate(name))


def elementwise(function: Callable | None = None, **grads: Callable) -> Any:
    """Make a plain scalar function a differentiable op on tensors, compiled by Numba.

    function: arithmetic, comparisons, ``math`` functions, ``if``, assignments, ``return``, and
    calls of other such functions, on one or several numbers. The op broadcasts its arguments,
    takes float32 and float64 tensors (integers become the default float) and Python numbers, and
    has gradients of every order, derived from the formula; ``grad_x=f`` gives one by hand, as a
    formula of the incoming gradient ``g``, any of the inputs, and ``out``.

    Raises FormulaError, naming the line, for Python that is not a formula.

    >>> @elementwise
    ... def softsquare(x, y):
    ...     return x * x / (1 + abs(y))
    """
    if function is None:
        return functools.partial(elementwise, **grads)
    for name in grads:
        if not name.startswith("grad_"):
            raise TypeError(f"elementwise: unknown keyword {name}; gradients are grad_<input>.")
    formula = Formula.from_function(function)
    op = PointwiseOp(
        function.__name__,
        function,
        {k[5:]: v for k, v in grads.items()},
        "bool" if formula.body.is_bool else "float",
        function.__doc__,
    )
    for name in op._grads:
        if name not in op.inputs:
            raise FormulaError(
                f"elementwise {op.name}: grad_{name} names no input; they are "
                f"{', '.join(op.inputs)}."
            )
    op.__dict__["formula"] = formula if formula.name.isidentifier() else Formula(
        "formula", formula.inputs, formula.body
    )
    result = op.to_function()
    result.__module__ = function.__module__
    result.__wrapped__ = function  # type: ignore[attr-defined]
    return result
