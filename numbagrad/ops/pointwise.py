"""From a scalar formula to a differentiable op: dispatch, recording, gradients.

Formulas come from from_formula.py. The parameter names that a gradient's formula uses decide what
is saved; it is an elementwise op itself, so every order exists. Start reading at ``PointwiseOp``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..errors import FormulaError, class_name
from ..kernels import machine
from ..kernels.derive import derivative
from ..kernels.expr import is_constant, symbol
from ..kernels.formula import Formula
from ..kernels.loops import ElementwiseKernel
from ..kernels.strides import maker, order_of
from ..tape import NUMBERS, Rare, SavedOutput, grad_mode, next_sequence
from ..tensor import Tensor, wrap
from . import device_way
from .argument_names import UNUSUAL, USUAL, signature_of
from .autocasting import raised_args
from .base import beside_others, broadcast_shape, new_empty, zeros_like
from .pointwise_node import GradRule, PointwiseNode, SavePlan
from .remembered import remembered
from .selected import Selected
from .short_way import SMALL, empty, make_binary, make_mixed, make_unary, never

_new = object.__new__

WITHOUT_OUT = {n: signature_of(("x", "y")[:n]) for n in (1, 2)}
"""What help shows of a function of so many operands."""


class PointwiseOp:
    """An elementwise operation made from a scalar formula.

    result: "same" (the promoted dtype), "float" (ints become the default float) or "bool".
    lead: the operand after whose strides the result lies; the others follow it. twice: if there is
    one, the gradient of both operands where they are one tensor, as a formula of ``g`` and that.
    """

    twice: Callable | None = None

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
        self.fast: dict[Any, Any] = {}
        self.lead = 0
        self.plans: dict[Any, SavePlan] = {}
        self.nests: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self.casts: dict[tuple[Any, ...], DType] = {}  # what some operands are cast to first
        self.walks: dict[tuple[Any, ...], tuple[Any, ...]] = {}  # the same on a GPU

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

    def _rule(self, wrt: str, written: Callable | None = None) -> GradRule:
        written = written or self._grads.get(wrt)
        if written is not None:
            formula = Formula.from_function(written, f"{self.name}_grad_{wrt}")
        elif self.result == "bool":
            return GradRule(zeros_like, (-1,))
        else:
            formula = derivative(self.formula, wrt)
        if is_constant(formula.body, 0):
            return GradRule(zeros_like, (-1,))
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
        op = PointwiseOp(formula.name, formula)
        op.lead = 1  # not as ``g`` lies, which may be a view, but as what is saved
        apply = {1: op.unary, 2: op.binary}.get(len(sources), op)
        second = sources[1] if len(sources) == 2 and sources[0] == -1 else None
        return GradRule(apply, tuple(sources), second)

    def plan(self, edges: tuple, numbers: tuple[bool, ...] = ()) -> SavePlan:
        """What to save when the inputs with an edge need gradients; ``numbers``: which inputs
        are Python numbers."""
        needs = tuple([e is not None for e in edges])
        key = (needs, numbers)
        known = self.plans.get(key)
        if known is not None:
            return known
        rules = tuple([r if n else None for r, n in zip(self.rules, needs, strict=True)])
        used = {s for r in rules if r is not None for s in r.sources} - {-1}
        keep = tuple(i in used for i in range(len(needs)))
        passes = None
        if not any([r is not None and r.apply is not None for r in rules]):
            passes = tuple([r is not None for r in rules])
        checks = tuple(i for i in sorted(used) if not (i < len(numbers) and numbers[i]))
        running = [r for r in rules if r is not None]
        only = running[0] if len(running) == 1 and len(rules) <= 2 else None
        if only is not None and only.second is None:
            only = None
        keep_out = len(needs) in used
        twice = self._rule("twice", self.twice) if self.twice and all(needs) else None
        found = SavePlan(self, keep, keep_out, rules, not used, passes, checks, only, twice)
        self.plans[key] = found
        return found

    # -- calls -----------------------------------------------------------------------------------

    def __call__(self, *args: Any) -> Tensor:
        """Apply to tensors and numbers of any shapes that broadcast."""
        n, wanted = len(args), len(self.inputs)
        if n < wanted <= n + len(self.defaults):
            args, n = args + self.defaults[n - wanted :], wanted
        if n == wanted == 2:
            return self.binary(*args)
        return self.unary(*args) if n == wanted == 1 else self.mixed(args)

    @functools.cached_property
    def unary(self) -> Callable:
        """The op of one tensor, with a short way for a contiguous one."""
        return make_unary(self)

    @functools.cached_property
    def binary(self) -> Callable:
        """The op of two operands, with a short way for equal shapes and for numbers."""
        return make_binary(self, operator=False)

    @functools.cached_property
    def mixed(self) -> Callable[[tuple], Tensor]:
        """The op of three operands and more, with a short way for equal shapes and for numbers."""
        return make_mixed(self)

    def into(self, args: tuple, surplus: Any, out: Any) -> Tensor:
        """The result in ``out``. surplus: what came by position after ``args``: refused."""
        from .out import checked_surplus, into  # a higher family

        checked_surplus(self.name, len(args), surplus)
        return into(self.name, self, out, args, {}, self)

    def general(self, args: tuple) -> Tensor:
        """Any mixture of tensors and numbers."""
        if machine.is_compiling() and any([type(a) is Selected for a in args]):
            from .selected_rules import pointwise  # which stands on ops

            return pointwise(self, args)
        batch = machine.recorder.current if machine.closed else None
        if batch is not None and getattr(batch, "eager", False) and not machine.autocasting:
            out = batch.pointwise(self, args)
            if out is not None:
                return out
        else:
            batch = None
        here = not machine.recording or machine.all_on_host(args)
        away = not here and machine.away is not None and machine.recorder.current is None
        if away and not machine.autocasting:
            out = device_way.seen_before(self, args)
            if out is not None:
                return out
        if len(args) != len(self.inputs):
            raise TypeError(
                f"{self.name}() takes {len(self.inputs)} arguments ({', '.join(self.inputs)}), "
                f"got {len(args)}."
            )
        if here:
            out = self._seen_before(args)
            if out is not None:
                return out
        if self.casts and (common := self.casts.get(_layout(args))) is not None:
            return self._after_casts(args, common)
        if machine.autocasting:
            args = raised_args(self.name, args)
        args = tuple([self._checked(i, a) for i, a in enumerate(args)])
        tensors = [a for a in args if isinstance(a, Tensor)]
        if not tensors:
            if len(self.inputs) != 2:
                raise TypeError(f"{self.name}(): at least one argument must be a Tensor.")
            from .from_data import tensor

            return self.general((tensor(args[0]), args[1]))
        device = tensors[0]._device
        if len(tensors) > 1 and any([t._device is not device for t in tensors]):
            args, device = beside_others(self.name, args)
            tensors = [a for a in args if isinstance(a, Tensor)]
        if len(tensors) > 1 and any([not t._array.ndim for t in tensors]):
            common = _common(self, tensors)
            if common is not None:
                if len(self.casts) >= 512:
                    self.casts.clear()
                self.casts[_layout(args)] = common
                return self._after_casts(args, common)
        out_dtype = self.result_dtype(args)
        shape = tensors[0]._array.shape
        if any([t._array.shape != shape for t in tensors]):
            shape = broadcast_shape(self.name, *[t._array.shape for t in tensors])
        lead = self.lead if self.lead < len(tensors) else 0
        order = order_of(shape, [t._array for t in (*tensors[lead:], *tensors[:lead])])
        out = new_empty(shape, out_dtype, device, order)
        operands = [a._array if isinstance(a, Tensor) else a for a in args]
        machine.launch(self.kernel, out._array, *operands)
        if batch is not None:
            batch.remember_pointwise(self, args, out)
        if away and device.type != "cpu":
            device_way.remember(self, args, out)
        else:
            self._remember(args, out, operands, order)
        self._record_if_needed(args, out)
        return out

    def _after_casts(self, args: tuple, common: DType) -> Tensor:
        from .elementwise import cast

        return self.general(tuple([cast(a, common) if _holds_more(a, common) else a for a in args]))

    def _seen_before(self, args: tuple) -> Tensor | None:
        """The result for operands whose shapes, strides and dtypes have come before.

        Planning a loop nest costs 10 us, to find the result's dtype, shape and order as many; a
        model meets the same few again and again.
        """
        found = self.nests.get(_layout(args))
        if found is None:
            return None
        loop, plan, shape, dtype, numpy_dtype, *_, make = found
        out = wrap(make(shape, numpy_dtype), dtype)
        out._flat = out._array.flags.c_contiguous
        loop(plan, (out._array, *[a._array if isinstance(a, Tensor) else a for a in args]))
        self._record_if_needed(args, out)
        return out

    def _remember(self, args: tuple, out: Tensor, operands: list, order: Any) -> None:
        """Keep the loop nest of this call for ``_seen_before``."""
        if machine.closed or not out._array.size:
            return
        dtype = out._dtype
        if dtype.is_floating_point and not any([getattr(a, "_dtype", 0) is dtype for a in args]):
            return  # the default dtype decided, which may change
        if len(self.nests) >= 512:
            self.nests.clear()
        loop: Any = self._by_threads
        plan: Any = None
        if out._array.size < self.kernel.grain:
            loop, plan = self.kernel.nest((out._array, *operands))
        found = loop, plan, out._array.shape, dtype, dtype.numpy, dtype.is_floating_point
        plans: list[SavePlan | None] = [None] * 4  # by which inputs need gradients
        make: Any = empty if out._array.size < SMALL else machine.empty
        if order is not None:
            make = maker(order, make)
        self.nests[_layout(args)] = (*found, what_differs(args, out), plans, make)

    def _by_threads(self, plan: None, operands: tuple) -> None:
        """A loop nest that asks at each call how many threads there are."""
        self.kernel(*operands)

    def _record_if_needed(self, args: tuple, out: Tensor) -> None:
        if grad_mode.enabled and out._dtype.is_floating_point:
            edges = tuple([a._edge if isinstance(a, Tensor) else None for a in args])
            if any([e is not None for e in edges]):
                self.record(args, edges, out)

    def prepared(self, args: tuple) -> tuple | None:
        """What ``prepare`` gives for tensors and numbers as ``args``, None if they are others."""
        key = tuple([a._dtype if isinstance(a, Tensor) else type(a) for a in args])
        found = self.fast.get(key)
        if found is None:
            if not all([isinstance(k, DType) or k in NUMBERS for k in key]):
                return None
            if not any([isinstance(k, DType) for k in key]):
                return None
            operands = tuple(
                [k if isinstance(k, DType) else a for k, a in zip(key, args, strict=True)]
            )
            types = tuple([getattr(k, "numpy", k) for k in key])
            found = self.prepare(key, operands, types)
        return found

    def result_dtype(self, args: tuple) -> DType:
        """The dtype of the result for these arguments."""
        return self.promoted(
            [
                (a._dtype, 2 if a._array.ndim else 1)
                if isinstance(a, Tensor)
                else (dtypes.of_number(a), 0)
                for a in args
            ]
        )

    def promoted(self, operands: list[tuple[DType, int]]) -> DType:
        """The dtype of the result for operands of these dtypes and ranks of promotion."""
        if self.result == "bool":
            return dtypes.bool_
        promoted = dtypes.result_type(operands)
        if self.result == "float" and not promoted.is_floating_point:
            return dtypes.get_default_dtype()
        return promoted

    def _checked(self, position: int, value: Any) -> Any:
        if isinstance(value, Tensor) or type(value) in NUMBERS:
            return value
        if isinstance(value, (np.floating, np.integer, np.bool_)):
            return value.item()
        if isinstance(value, (int, float)):  # of a class of its own, as members of an IntEnum
            return dtypes.plain_number(value)
        if isinstance(value, np.ndarray):
            from .from_data import as_tensor

            return as_tensor(value)
        raise TypeError(
            f"{self.name}(): argument '{self.inputs[position]}' must be Tensor or number, not "
            f"{class_name(value)}. Convert it with ng.tensor(...)."
        )

    def prepare(self, key: Any, operands: tuple, types: tuple) -> tuple:
        """Compile the flat kernel for these dtypes and remember it under ``key``."""
        wrapped = [(d, 2) if isinstance(d, DType) else (dtypes.of_number(d), 0) for d in operands]
        out_dtype = self.promoted(wrapped)
        if len(types) != len(self.inputs):
            return (never, out_dtype, out_dtype.numpy, False)  # which the general way refuses
        entry = self.kernel.entry((out_dtype.numpy, *types))
        found = (entry, out_dtype, out_dtype.numpy, out_dtype.is_floating_point)
        if not out_dtype.is_floating_point or out_dtype in operands:
            self.fast[key] = found  # else the default dtype decides, which may change
        return found

    def record(self, args: tuple, edges: tuple, out: Tensor) -> None:
        """Put a node for ``out`` on the tape."""
        numbers = tuple([type(a) in NUMBERS for a in args])
        self.tape(args, edges, out, numbers, what_differs(args, out))

    def tape(
        self, args: tuple, edges: tuple, out: Tensor, numbers: tuple, differs: Rare | None
    ) -> None:
        """``record``; numbers: which of ``args`` are; differs: what ``what_differs`` gives."""
        node = _new(PointwiseNode)
        node._edges = edges
        node._sequence = next_sequence()
        node._hooks = node._rare = None
        node._saved = ()
        node.plan = plan = self.plan(edges, numbers)
        if not plan.nothing:
            saved = [a if k else None for a, k in zip(args, plan.keep, strict=True)]
            if plan.keep_out:
                saved.append(SavedOutput(out, 0))
            node._save(tuple(saved))
        if differs is not None:
            if node._rare is not None:
                node._rare.meta = differs.meta
            else:
                node._rare = differs
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
            function = make_unary(op)
        elif len(inputs) == 2 and not self.defaults:
            function = make_binary(op, operator=False)
        function.__name__ = function.__qualname__ = self.name
        function.__doc__ = self.__doc__
        function.op = op  # type: ignore[attr-defined]
        if "_out" in function.__code__.co_varnames:
            function.__signature__ = WITHOUT_OUT[len(inputs)]  # type: ignore[attr-defined]
            return function
        return remembered(function)


def what_differs(args: tuple, out: Tensor) -> Rare | None:
    """Shapes and dtypes to bring gradients back to, where an operand's are not those of ``out``."""
    shape, dtype = out._array.shape, out._dtype
    tensors = [a for a in args if isinstance(a, Tensor)]
    if all([a._array.shape == shape and a._dtype is dtype for a in tensors]):
        return None
    rare = Rare()
    rare.meta = tuple(
        [(a._array.shape, a._dtype) if isinstance(a, Tensor) else ((), None) for a in args]
    )
    return rare


def _layout(args: tuple) -> tuple:
    """What decides the loop nest: dtype, shape and strides of each operand, one after another."""
    key: list[Any] = []
    for a in args:
        if isinstance(a, Tensor):
            key += (a._dtype, a._array.shape, a._array.strides)
        else:
            key.append(type(a))
    return tuple(key)


_STEPS = frozenset(
    """clamp clamp_max clamp_min floor_divide fmax fmin fmod maximum minimum remainder
    trunc_divide""".split()
)
"""Ops beside the comparisons of which a last bit of an operand, or one that does not fit, decides
the result."""


def _common(op: PointwiseOp, tensors: list[Tensor]) -> DType | None:
    """What tensors without dims are cast to before the op: the dtype of those with dims, where that
    decides and holds less. 0.1 of float64 beside float32 is the 0.1 of float32, as in PyTorch.

    Of other ops the loop converts them, with what they hold, and rounds once.
    """
    if op.result != "bool" and op.name not in _STEPS:
        return None
    kinds = [t._dtype for t in tensors if t._array.ndim]
    if not kinds:
        return None
    common = functools.reduce(dtypes.promote_types, kinds)
    if op.result != "bool" and common.is_floating_point and common.itemsize < 4:
        return None  # what is computed beside halves is float32
    return common if any([_holds_more(t, common) for t in tensors]) else None


def _holds_more(x: Any, common: DType) -> bool:
    """Whether ``x`` is a tensor without dims that ``common``, of its category, does not hold."""
    if not isinstance(x, Tensor) or x._array.ndim or x._dtype.category != common.category:
        return False
    return dtypes.promote_types(x._dtype, common) is not common


def _with_keywords(op: PointwiseOp, args: tuple, kwargs: dict) -> tuple:
    values = list(args)
    first_default = len(op.inputs) - len(op.defaults)
    for position in range(len(args), len(op.inputs)):
        name = op.inputs[position]
        pytorchs = UNUSUAL.get(op.name, USUAL).get(name, name)
        if pytorchs in kwargs:
            name = pytorchs
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
    return "".join(
        part[:1].upper() + part[1:] for part in name.replace("<lambda>", "fn").split("_")
    )
