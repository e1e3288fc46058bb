"""The elementwise functions users call: PyTorch's names and arguments over ``formulas.py``."""

from __future__ import annotations

import math
from typing import Any

from .. import devices, dtypes, memory_formats
from ..devices import Device
from ..dtypes import DType
from ..errors import DTypeError, ShapeError
from ..kernels import machine
from ..kernels.expr import plus, symbol
from ..kernels.formula import Formula
from ..kernels.loops import ElementwiseKernel
from ..kernels.strides import order_of
from ..tape import NUMBERS
from ..tensor import Tensor, wrap
from . import formulas as f
from .autocasting import raised
from .base import SHORT, Op, as_operand, copy_kernel, meets, new_empty, ones_like, short_copy
from .from_formula import elementwise
from .operand import number_of
from .powers import BY_EXPONENT
from .remembered import remembered
from .short_way import make_binary
from .transfer import transfer
from .warned import warn_user

# -- conversions and copies ------------------------------------------------------------------------


class Clone(Op, plain_notes=True):
    """A copy that lies as ``x`` does, without gaps, with its history."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        short = short_copy(x, x._dtype)
        return copied(x, x._dtype) if short is None else short

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g


class Contiguous(Op, plain_notes=True):
    """A contiguous copy, with its history."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        short = short_copy(x, x._dtype)
        return copied(x, x._dtype, row_major=True) if short is None else short

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g


class Cast(Op, plain_notes=True):
    """The elements in another dtype."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dtype: DType) -> Tensor:
        ctx.dtype = x._dtype
        short = short_copy(x, dtype)
        return copied(x, dtype) if short is None else short

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return cast(g, ctx.dtype)


def copied(x: Tensor, dtype: DType, row_major: bool = False) -> Tensor:
    """The elements of ``x`` in ``dtype``, without a history, lying as ``x`` does."""
    shape = x._array.shape
    order = None if row_major or x._flat else order_of(shape, [x._array])
    out = new_empty(shape, dtype, x._device, order)
    machine.launch(copy_kernel, out._array, x._array)
    return out


@remembered
def clone(x: Tensor, *, memory_format: Any = None) -> Tensor:
    """A copy with its own memory; the gradient passes through.

    memory_format: ``contiguous_format`` for a contiguous copy; others lie as ``x`` does.
    """
    if memory_format is not None:
        memory_formats.check("clone", memory_format)
        if memory_format is memory_formats.contiguous_format:
            return Contiguous.apply(as_operand("clone", x))
    return Clone.apply(as_operand("clone", x))


def contiguous_copy(x: Tensor) -> Tensor:
    """A contiguous copy of ``x``, with its history."""
    array = x._array
    if x._edge is None and array.size < SHORT and (not machine.recording or machine.on_host(x)):
        return wrap(array.copy(), x._dtype)
    return Contiguous.apply(x)


def cast(x: Tensor, dtype: DType) -> Tensor:
    """``x`` in ``dtype``; ``x`` itself if it already is."""
    return x if x._dtype is dtype else Cast.apply(x, dtype)


def to(
    x: Tensor,
    *args: Any,
    dtype: Any = None,
    device: Any = None,
    copy: bool = False,
    non_blocking: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """``x.to(dtype)``, ``x.to(device)``, ``x.to(other)``: converted; ``x`` if nothing changes.

    non_blocking: accepted; a copy to the GPU is asynchronous where ``x`` is pinned. memory_format:
    ``contiguous_format`` for a contiguous copy, if there is one; others change nothing.
    """
    if memory_format is not None:
        memory_formats.check("to", memory_format)
    for arg in args:
        if isinstance(arg, Tensor):
            dtype, device = arg._dtype, arg._device
        elif isinstance(arg, (str, Device)):
            device = arg
        elif isinstance(arg, bool):
            pass  # non_blocking
        elif arg is not None:
            dtype = arg
    out = x if dtype is None else cast(x, dtypes.to_dtype(dtype))
    if device is not None:
        out = transfer(out, devices.to_device(device))
    if memory_format is memory_formats.contiguous_format and (copy or out is not x):
        return Contiguous.apply(out) if out is x or not out._flat else out
    return clone(out) if copy and out is x else out


def type_as(x: Tensor, other: Tensor) -> Tensor:
    """``x`` in the dtype of ``other``, and on its device."""
    return transfer(cast(x, other._dtype), other._device)


def _add_in_place(x: Tensor, y: Tensor) -> None:
    """x += y outside the tape: how gradients accumulate."""
    dtype = x._dtype
    a, b = x._array, y._array
    done = False
    here = not machine.recording or machine.on_host(x, y)
    if y._dtype is dtype and x._flat and here:
        op = f.Add.op
        found = op.fast.get(dtype) or op.prepare(dtype, (dtype, dtype), (a.dtype, a.dtype))
        done = found[0](a, a, b)
    if not done:
        if meets(x, y):  # it may be x, turned: what is written would be read again
            b = new_empty(b.shape, y._dtype, y._device)._array
            machine.launch(copy_kernel, b, y._array)
        machine.launch(PARTS if machine.is_compiling() else f.Add.op.kernel, a, a, b)
    (x._counter or x._version_counter()).bump()


def _add_parts(x: Tensor, y: Tensor) -> Tensor:
    """x + y outside the tape, where both are parts of one gradient; see ``expr.plus``."""
    if x._dtype is not y._dtype or x._array.shape != y._array.shape or x._device != y._device:
        return x + y
    out = new_empty(x._array.shape, x._dtype, x._device)
    machine.launch(PARTS, out._array, x._array, y._array)
    return out


PARTS = ElementwiseKernel(Formula("add", ("x", "y"), plus(symbol("x"), symbol("y"))))

# -- arithmetic ------------------------------------------------------------------------------------


def add(x: Any, y: Any, older: Any = None, *, alpha: Any = 1) -> Tensor:
    """x + alpha * y."""
    if older is not None:
        y, alpha = in_older_order("add", y, older)
    return f.Add.op.binary(x, y) if alpha == 1 else _scaled(x, y, alpha)


def sub(x: Any, y: Any, older: Any = None, *, alpha: Any = 1) -> Tensor:
    """x - alpha * y. Raises DTypeError for bools: use logical_xor."""
    if older is not None:
        y, alpha = in_older_order("sub", y, older)
    for operand in (x, y):
        if isinstance(operand, Tensor) and operand._dtype is dtypes.bool_:
            raise DTypeError(
                "sub: Subtraction, the `-` operator, with a bool tensor is not supported. Use "
                "ng.logical_xor, or convert with .int()."
            )
    return f.Sub.op.binary(x, y) if alpha == 1 else _scaled(x, y, -alpha)


@remembered
def _scaled(x: Any, y: Any, alpha: Any) -> Tensor:
    if not (isinstance(x, Tensor) or isinstance(y, Tensor)):
        from .from_data import tensor

        x = tensor(x)
    kinds = {v._dtype if isinstance(v, Tensor) else dtypes.of_number(v) for v in (x, y)}
    if kinds == {dtypes.bool_}:  # of alpha then counts whether it is 0
        return f.Add.op.binary(x, y) if alpha else f.Add.op.binary(x, f.Mul.op.binary(y, False))
    return f.AddScaled.op(x, y, alpha)


def in_older_order(name: str, factor: Any, y: Any) -> tuple[Any, Any]:
    """y and alpha of ``x.add_(factor, y)``, and of ``x.add_(1, 2)``, which PyTorch still takes."""
    if type(factor) in NUMBERS and type(y) in NUMBERS:
        return factor, y
    if not isinstance(y, Tensor) or type(factor) not in NUMBERS:
        raise TypeError(
            f"{name}() takes 2 positional arguments but 3 were given. Use alpha= for a factor."
        )
    warn_user(f"{name}: a factor before the tensor is deprecated. Use {name}(y, alpha={factor}).")
    return y, factor


def div(x: Any, y: Any, *, rounding_mode: str | None = None) -> Tensor:
    """x / y; rounding_mode "floor" or "trunc" rounds the quotient and keeps integers."""
    if rounding_mode is None:
        return f.Div.op.binary(x, y)
    if rounding_mode == "floor":
        return f.FloorDivide.op.binary(x, y)
    if rounding_mode != "trunc":
        raise ValueError(
            f"div: rounding_mode must be None, 'floor' or 'trunc', got {rounding_mode!r}."
        )
    dtype = f.Add.op.result_dtype((x, y))
    if not dtype.is_floating_point and dtype is not dtypes.bool_:
        return f.TruncDivide.op.binary(x, y)
    out = f.Trunc.op(f.Div.op.binary(x, y))
    return out if dtype.is_floating_point else cast(out, dtype)


def pow(x: Any, exponent: Any) -> Tensor:
    """x ** exponent. Raises ValueError for an integer tensor with a negative exponent."""
    if machine.autocasting:
        x, exponent = raised(x, exponent)
    integer = isinstance(x, Tensor) and not x._dtype.is_floating_point
    if integer and isinstance(exponent, int) and exponent < 0:
        raise DTypeError("pow: Integers to negative integer powers are not allowed; use .float().")
    if type(exponent) in (int, float):
        whole = integer and type(exponent) is int and x._dtype is not dtypes.bool_
        op = BY_EXPONENT.get(exponent)
        if op is not None and (exponent < 2 or whole or not integer):  # else the dtype is another
            return op(x)
    return f.Pow.op.binary(x, exponent)


def square(x: Any) -> Tensor:
    """x * x; bools give int64."""
    if isinstance(x, Tensor) and x._dtype is dtypes.bool_:
        return f.Pow.op.binary(x, 2)
    return f.Square.function(x)


def neg(x: Tensor) -> Tensor:
    """-x. Raises DTypeError for bools."""
    if x._dtype is dtypes.bool_:
        raise DTypeError(
            "neg: Negation, the `-` operator, on a bool tensor is not supported. Use "
            "ng.logical_not."
        )
    return f.Neg.op.unary(x)


def round(x: Tensor, *, decimals: int = 0) -> Tensor:
    """The nearest integer, ties to even; or rounded to ``decimals`` digits."""
    if decimals == 0:
        return f.Round.op.unary(x)
    if x._dtype in dtypes.HALVES:  # which would not hold what is rounded
        return cast(round(cast(x, dtypes.float32), decimals=decimals), x._dtype)
    if decimals > 0:
        scale = 10.0**decimals
        return f.Round.op.unary(x * scale) / scale
    scale = 10.0**-decimals  # a power below 1 would not be exact
    return f.Round.op.unary(x / scale) * scale


@remembered
def clamp(x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """x limited to [min, max]; either may be None, a number or a tensor."""
    if min is None and max is None:
        raise ValueError("clamp: At least one of 'min' or 'max' must not be None.")
    op, bounds = _limiting(min, max)
    return op(x, *bounds)


@remembered
def where(condition: Tensor, x: Any = None, y: Any = None) -> Any:
    """x where condition holds, else y; with the condition alone, the indices where it holds."""
    if x is None and y is None:
        from .masks import nonzero

        return nonzero(condition, as_tuple=True)
    as_operand("where", condition)
    if condition._dtype is dtypes.uint8:
        warn_user("where: a condition of uint8 is deprecated; use ng.bool.")
        condition = cast(condition, dtypes.bool_)
    if condition._dtype is not dtypes.bool_:
        raise DTypeError(
            f"where: expected condition to be a boolean tensor, but got {condition._dtype}. "
            f"Compare it, condition != 0 say."
        )
    return _Select.op(condition, x, y)


class _SelectOp(type(f.Where.op)):  # type: ignore[misc]
    """Where: the condition does not take part in promotion."""

    def promoted(self, operands: list) -> DType:
        return super().promoted(operands[1:])


class _Select:
    op = _SelectOp("where", f.Where.__dict__["formula"], {}, "same", f.Where.__doc__)


@remembered
def masked_fill(x: Tensor, mask: Tensor, value: Any) -> Tensor:
    """x with value where mask holds. Raises DTypeError unless mask is bool."""
    if not isinstance(mask, Tensor) or mask._dtype is not dtypes.bool_:
        got = mask._dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise DTypeError(f"masked_fill: only supports boolean masks, but got {got}.")
    if not isinstance(value, Tensor):
        value = number_of("masked_fill", value, x._dtype)
    elif value._array.ndim:
        raise ShapeError(
            f"masked_fill: only supports a 0-dimensional value tensor, but got one of shape "
            f"{list(value.shape)}. Use where(mask, value, x)."
        )
    return _Fill.op(x, mask, value)


class _MaskedFillOp(type(f.Where.op)):  # type: ignore[misc]
    """MaskedFill: the result has the dtype of x."""

    def promoted(self, operands: list) -> DType:
        return operands[0][0]


class _Fill:
    op = _MaskedFillOp("masked_fill", f.MaskedFill.__dict__["formula"], {}, "same", "")


@remembered
def nan_to_num(x: Tensor, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> Tensor:
    """x with NaN, inf and -inf replaced; by default with 0 and the largest finite numbers."""
    if not x._dtype.is_floating_point:
        return clone(x)
    limits = dtypes.finfo(x._dtype)
    high = float(limits.max) if posinf is None else posinf
    low = float(limits.min) if neginf is None else neginf
    return f.NanToNum.op(x, nan, high, low)


_TYPE_NAMES = {
    "float32": "Float", "float64": "Double", "int64": "Long", "int32": "Int", "int16": "Short",
    "int8": "Char", "uint8": "Byte", "bool": "Bool", "float16": "Half", "bfloat16": "BFloat16",
}  # fmt: skip


def type_(x: Tensor, dtype: Any = None) -> Any:
    """``x.type()`` is the name of its type, ``x.type(dtype)`` the elements in that dtype."""
    if dtype is None:
        return f"ng.{_TYPE_NAMES[x._dtype.name]}Tensor"
    for name, kind in _TYPE_NAMES.items():
        if dtype in (f"ng.{kind}Tensor", f"torch.{kind}Tensor"):
            dtype = name
    return cast(x, dtypes.to_dtype(dtype))


mul = multiply = f.Mul.function
subtract = sub
divide = true_divide = div
floor_divide = f.FloorDivide.function
remainder = f.Remainder.function
negative = neg
reciprocal = f.Reciprocal.function
abs = absolute = f.Abs.function
sign = f.Sign.function
maximum = f.Maximum.function
minimum = f.Minimum.function
lerp = f.Lerp.function
addcmul = f.Addcmul.function
addcdiv = f.Addcdiv.function
exp = f.Exp.function
expm1 = f.Expm1.function
log = f.Log.function
log2 = f.Log2.function
log10 = f.Log10.function
log1p = f.Log1p.function
sqrt = f.Sqrt.function
rsqrt = f.Rsqrt.function
sin = f.Sin.function
cos = f.Cos.function
tan = f.Tan.function
asin = arcsin = f.Asin.function
acos = arccos = f.Acos.function
atan = arctan = f.Atan.function
atan2 = arctan2 = f.Atan2.function
sinh = f.Sinh.function
cosh = f.Cosh.function
tanh = f.Tanh.function
erf = f.Erf.function
sigmoid = f.Sigmoid.function
floor = f.Floor.function
ceil = f.Ceil.function
trunc = f.Trunc.function
clip = clamp

_PUBLIC = """
    abs absolute acos add addcdiv addcmul arccos arcsin arctan arctan2 asin atan atan2 ceil clamp
    clip clone cos cosh div divide erf exp expm1 floor floor_divide lerp log log10 log1p log2
    masked_fill maximum minimum mul multiply nan_to_num neg negative pow reciprocal remainder round
    rsqrt sigmoid sign sin sinh sqrt square sub subtract tan tanh true_divide trunc where
""".split()
__all__ = [*_PUBLIC, "elementwise"]


def _dtype_method(dtype: DType) -> Any:
    def method(x: Tensor) -> Tensor:
        return cast(x, dtype)

    method.__doc__ = f"The elements as {dtype}."
    return method


def _where_method(x: Tensor, condition: Tensor, y: Any) -> Tensor:
    """``x`` where ``condition``, else ``y``."""
    return where(condition, x, y)


METHODS: dict[str, Any] = {name: globals()[name] for name in _PUBLIC if name != "where"}
METHODS |= {
    "_add_in_place": _add_in_place,
    "_add_parts": _add_parts,
    "_ones_like": ones_like,
    "to": to,
    "type": type_,
    "type_as": type_as,
    "where": _where_method,
    "float": _dtype_method(dtypes.float32),
    "double": _dtype_method(dtypes.float64),
    "half": _dtype_method(dtypes.float16),
    "bfloat16": _dtype_method(dtypes.bfloat16),
    "long": _dtype_method(dtypes.int64),
    "int": _dtype_method(dtypes.int32),
    "short": _dtype_method(dtypes.int16),
    "char": _dtype_method(dtypes.int8),
    "byte": _dtype_method(dtypes.uint8),
    "bool": _dtype_method(dtypes.bool_),
}

_IN_PLACE = """
    abs absolute acos add addcdiv addcmul arccos arcsin arctan arctan2 asin atan atan2 ceil clamp
    clip cos cosh div divide erf exp expm1 floor floor_divide lerp log log10 log1p log2 masked_fill
    mul multiply nan_to_num neg negative pow reciprocal remainder round rsqrt sigmoid sign sin sinh
    sqrt square sub subtract tan tanh true_divide trunc
""".split()
INPLACE: dict[str, Any] = {f"{name}_": globals()[name] for name in _IN_PLACE}
INPLACE_OPS: dict[str, Any] = {
    "add_": f.Add.op,
    "div_": f.Div.op,
    "divide_": f.Div.op,
    "sub_": f.Sub.op,
    "subtract_": f.Sub.op,
    "true_divide_": f.Div.op,
}


def _limiting(min: Any = None, max: Any = None) -> tuple[Any, tuple]:
    """The op that ``clamp`` with these bounds is, and its further operands."""
    if max is None:
        return f.ClampMin.op, (min,)
    return (f.ClampMax.op, (max,)) if min is None else (f.Clamp.op, (min, max))


def _filling(mask: Any, value: Any) -> tuple[Any, tuple]:
    """The op that ``masked_fill`` is; none where it has something to check."""
    fits = isinstance(mask, Tensor) and mask._dtype is dtypes.bool_ and type(value) in NUMBERS
    fits = fits and not 65504 < abs(value) < math.inf  # which float16 has no more
    return (_Fill.op, (mask, value)) if fits else (None, ())


def _raising(exponent: Any) -> tuple[Any, tuple]:
    """The op that ``pow`` with this exponent is, of floats."""
    if type(exponent) not in (int, float):
        return None, ()
    op = BY_EXPONENT.get(exponent)
    return (op, ()) if op is not None else (f.Pow.op, (exponent,))


def _in_order(op: Any) -> Any:
    """The op ``addcmul`` or ``addcdiv``, whose factor may come first."""
    return lambda y, z, value=1: (op, op.in_order((None, y, z, value))[1:])


INPLACE_OPS |= {
    "addcdiv_": _in_order(f.Addcdiv.op),
    "addcmul_": _in_order(f.Addcmul.op),
    "clamp_": _limiting,
    "clip_": _limiting,
    "masked_fill_": _filling,
    "neg_": lambda: (f.Neg.op, ()),
    "negative_": lambda: (f.Neg.op, ()),
    "pow_": _raising,
    "round_": lambda decimals=0: (None if decimals else f.Round.op, ()),
    "square_": lambda: (f.Square.op, ()),
}


def _reflected(op: Any) -> Any:
    return lambda x, y: op(y, x)


def _operator(formula: Any) -> Any:
    return make_binary(formula.op, operator=True)


OPERATORS: dict[str, Any] = {
    "__add__": _operator(f.Add),
    "__radd__": _operator(f.Add),
    "__sub__": sub,
    "__rsub__": _reflected(sub),
    "__mul__": _operator(f.Mul),
    "__rmul__": _operator(f.Mul),
    "__truediv__": _operator(f.Div),
    "__rtruediv__": _reflected(f.Div.op.binary),
    "__floordiv__": _operator(f.FloorDivide),
    "__rfloordiv__": _reflected(f.FloorDivide.op.binary),
    "__mod__": _operator(f.Remainder),
    "__rmod__": _reflected(f.Remainder.op.binary),
    "__pow__": pow,
    "__rpow__": _reflected(f.Pow.op.binary),
    "__neg__": neg,
    "__pos__": lambda x: x,
    "__abs__": abs,
}
