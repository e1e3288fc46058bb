"""Operations made of others: limits on one side, angles, quantiles, membership."""

from __future__ import annotations

import math
from typing import Any

from .. import dtypes
from ..dtypes import DType
from ..errors import DTypeError, ShapeError
from ..kernels import machine
from ..tensor import Tensor
from .autocasting import CPU, raised
from .base import as_operand, full, normalize_dim
from .comparison import eq, isnan
from .elementwise import cast, clamp, lerp, pow, sub, trunc, where
from .formulas import Logit
from .gather import gather
from .index import index_select
from .moments import norm
from .overwrite import fill_
from .reduce import any as any_
from .remembered import remembered
from .search import searchsorted
from .sort import sort
from .special import Logaddexp2, both_floating

__all__ = [
    "can_cast",
    "clamp_max",
    "clamp_min",
    "deg2rad",
    "fix",
    "float_power",
    "is_floating_point",
    "is_nonzero",
    "isin",
    "isneginf",
    "isposinf",
    "logaddexp2",
    "logit",
    "nanquantile",
    "positive",
    "quantile",
    "rad2deg",
    "renorm",
    "result_type",
    "rsub",
]

MANY = 8
"""So many elements and more are sorted, and the others looked up among them."""


def clamp_min(x: Tensor, min: Any) -> Tensor:
    """``x``, at least ``min``.

    >>> clamp_min(tensor([1.0, 3.0]), 2.0).tolist()
    [2.0, 3.0]
    """
    return clamp(x, min)


def clamp_max(x: Tensor, max: Any) -> Tensor:
    """``x``, at most ``max``.

    >>> clamp_max(tensor([1.0, 3.0]), 2.0).tolist()
    [1.0, 2.0]
    """
    return clamp(x, None, max)


def deg2rad(x: Tensor) -> Tensor:
    """Degrees as radians.

    >>> deg2rad(tensor([180.0])).tolist()
    [3.1415927410125732]
    """
    return as_operand("deg2rad", x) * (math.pi / 180.0)


def rad2deg(x: Tensor) -> Tensor:
    """Radians as degrees.

    >>> rad2deg(tensor([0.0])).tolist()
    [0.0]
    """
    return as_operand("rad2deg", x) * (180.0 / math.pi)


@remembered
def logit(x: Tensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), the inverse of sigmoid; with eps, of x limited to [eps, 1 - eps].

    >>> logit(tensor([0.5])).tolist()
    [0.0]
    """
    x = as_operand("logit", x)
    if eps is not None:
        x = clamp(x, eps, 1.0 - eps)
    return Logit.op(x)


def fix(x: Tensor) -> Tensor:
    """Rounded towards 0, as ``trunc``.

    >>> fix(tensor([-1.5, 1.5])).tolist()
    [-1.0, 1.0]
    """
    return trunc(x)


def positive(x: Tensor) -> Tensor:
    """``x`` itself. Raises DTypeError for bools.

    >>> positive(tensor([-1.0])).tolist()
    [-1.0]
    """
    if as_operand("positive", x)._dtype is dtypes.bool_:
        raise DTypeError("positive: the + operator, on a bool tensor is not supported.")
    return x


@remembered
def float_power(x: Any, exponent: Any) -> Tensor:
    """``x ** exponent`` in float64, whatever the dtypes; one of them may be a number.

    >>> float_power(tensor([2, 3]), 2).tolist()
    [4.0, 9.0]
    """
    x, exponent = (cast(v, dtypes.float64) if isinstance(v, Tensor) else v for v in (x, exponent))
    if not isinstance(x, Tensor):
        x = full((), x, dtypes.float64, as_operand("float_power", exponent, 1)._device)
    return pow(x, exponent)


def rsub(x: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """``other - alpha * x``. Raises DTypeError for bools.

    >>> rsub(tensor([1.0]), 5).tolist()
    [4.0]
    """
    return sub(other, as_operand("rsub", x), alpha=alpha)


@remembered
def renorm(x: Tensor, p: Any, dim: int, maxnorm: Any) -> Tensor:
    """``x`` with those slices of ``dim`` shortened to ``maxnorm`` whose p-norm is greater.

    x: floating, of two or more dimensions. Raises ShapeError unless p is positive and maxnorm not
    negative.

    >>> renorm(tensor([[3.0, 4.0], [0.5, 0.0]]), 2, 0, 1).round(decimals=3).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.5, 0.0]]
    """
    rank = as_operand("renorm", x)._array.ndim
    if p <= 0:
        raise ShapeError(f"renorm: non-positive-norm not supported, got p={p}.")
    if maxnorm < 0:
        raise ShapeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm}.")
    if rank < 2:
        raise ShapeError(f"renorm: input needs at least 2 dimensions, got {rank} dimensions.")
    if not x._dtype.is_floating_point:
        raise DTypeError(f"renorm: Expected a floating point tensor as input. Got {x._dtype}.")
    dim = normalize_dim("renorm", dim, rank)
    others = tuple([d for d in range(rank) if d != dim])
    length = norm(x, p, others, True)
    return x * where(length > maxnorm, maxnorm / (length + 1e-7), 1.0)


def isposinf(x: Tensor) -> Tensor:
    """Whether each element is positive infinity.

    >>> isposinf(tensor([-math.inf, math.inf])).tolist()
    [False, True]
    """
    return eq(x, math.inf)


def isneginf(x: Tensor) -> Tensor:
    """Whether each element is negative infinity.

    >>> isneginf(tensor([-math.inf, math.inf])).tolist()
    [True, False]
    """
    return eq(x, -math.inf)


@remembered
def logaddexp2(x: Tensor, other: Tensor) -> Tensor:
    """log2(2 ** x + 2 ** other) of floating tensors, broadcast, without overflow.

    >>> logaddexp2(tensor([3.0]), tensor([3.0])).tolist()
    [4.0]
    """
    x, other = both_floating("logaddexp2", x, other)
    return Logaddexp2.op(x, other)


def isin(
    elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """Whether each of ``elements`` is among ``test_elements``; with invert, whether it is not.

    assume_unique: accepted, and changes nothing.

    >>> isin(tensor([1, 2, 3]), tensor([3, 1])).tolist()
    [True, False, True]
    """
    if not isinstance(elements, Tensor):
        elements = full((), elements, dtypes.of_number(elements), test_elements._device)
    if not isinstance(test_elements, Tensor):
        test_elements = full((), test_elements, dtypes.of_number(test_elements), elements._device)
    among = test_elements.detach().reshape((-1,))
    if among._array.size >= MANY:
        common = dtypes.promote_types(elements._dtype, among._dtype)
        edges, values = sort(among.to(common), 0)[0], elements.detach().to(common)
        place = clamp(searchsorted(edges, values), None, among._array.size - 1)
        found = index_select(edges, 0, place.reshape((-1,))).reshape(place.shape) == values
    else:
        found = any_(elements.unsqueeze(-1) == among, -1)
    return ~found if invert else found


@remembered
def quantile(
    x: Tensor,
    q: Any,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """The values below which a part ``q`` of the elements lies, along ``dim`` or of all.

    q: a number in [0, 1], or a 1-d tensor of them, which makes a new first dimension.
    interpolation, between two elements: "linear", "lower", "higher", "nearest" or "midpoint". NaN
    where there is a NaN. Gradient: to the one or two elements. Raises DTypeError for ints.

    >>> quantile(tensor([1.0, 2.0, 4.0]), 0.75).item()
    3.0
    """
    return _quantile("quantile", x, q, dim, keepdim, interpolation)


@remembered
def nanquantile(
    x: Tensor,
    q: Any,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """``quantile`` of the elements that are not NaN; NaN where all are.

    >>> nanquantile(tensor([1.0, float("nan"), 2.0]), 0.5).item()
    1.5
    """
    return _quantile("nanquantile", x, q, dim, keepdim, interpolation)


def _quantile(
    name: str, x: Tensor, q: Any, dim: int | None, keepdim: bool, interpolation: str
) -> Tensor:
    if machine.autocasting:
        (x,) = raised(x, on=CPU)
    if as_operand(name, x)._dtype not in dtypes.FLOATING:
        raise DTypeError(
            f"{name}: input tensor must be either float or double dtype, got {x._dtype}. Convert "
            f"with .float()."
        )
    if interpolation not in ("linear", "lower", "higher", "nearest", "midpoint"):
        raise ValueError(
            f"{name}: interpolation must be one of linear, lower, higher, nearest or midpoint, "
            f"but got {interpolation}."
        )
    if not x._array.size:
        raise ShapeError(
            f"{name}: quantile() input tensor must be non-empty, got shape {list(x._array.shape)}."
        )
    single = not isinstance(q, Tensor)
    wanted = full((1,), q, x._dtype, x._device) if single else q.reshape((-1,))
    if single and not 0 <= q <= 1:
        raise ValueError(f"{name}: q must be in the range [0, 1], but got {q}.")
    rank = x.dim()
    where_to = normalize_dim(name, dim, rank) if dim is not None else 0
    values = x.reshape((-1,)) if dim is None or not rank else x.movedim(where_to, -1)
    values = sort(values, -1).values
    bad = isnan(values)  # they come last
    at = cast(wanted, x._dtype)
    if name == "nanquantile":
        at = at * cast(clamp((~bad).sum(-1, True) - 1, 0), x._dtype)
    else:
        at = at * (values.shape[-1] - 1)

    def taken(place: Tensor) -> Tensor:
        index = cast(place, dtypes.int64)
        return values[..., index] if index.dim() == 1 else gather(values, -1, index)

    low = at.floor()
    if interpolation == "nearest":
        low = at.round()
    if interpolation == "higher":
        low = at.ceil()
    found = taken(low)
    if interpolation in ("linear", "midpoint"):
        above = taken(at.ceil())
        found = lerp(found, above, 0.5 if interpolation == "midpoint" else at - low)
    if name == "quantile":
        found = where(any_(bad, -1, True), float("nan"), found)
    found = found.movedim(-1, 0)  # the quantiles come first
    if keepdim:
        shape = list(x.shape) if dim is not None else [1] * rank
        if rank:
            shape[where_to] = 1
        found = found.reshape((found.shape[0], *shape))
    return found[0] if single or q.dim() == 0 else found


def fill_diagonal_(x: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """The diagonal set to ``fill_value``, in place: the elements whose indices are all equal.

    Of two or more dimensions, of equal length if there are more than two. wrap: in a matrix of
    more rows than columns a further diagonal begins after each, one row left out.

    >>> tensor([[1.0, 2.0], [3.0, 4.0]]).fill_diagonal_(0.0).tolist()
    [[0.0, 2.0], [3.0, 0.0]]
    """
    shape = x._array.shape
    if len(shape) < 2:
        raise ShapeError(
            f"fill_diagonal_: dimensions must larger than 1, but got shape {list(shape)}."
        )
    if len(shape) > 2 and len(set(shape)) > 1:
        raise ShapeError(
            f"fill_diagonal_: all dimensions of input must be of equal length, got {list(shape)}."
        )
    again = shape[0] if len(shape) == 2 and wrap else 1
    for first in range(0, again, shape[1] + 1):
        part = (x.narrow(0, first, shape[0] - first) if first else x).diagonal()
        while part._array.ndim > 1:  # the diagonals so far, and one more dimension
            part = part.diagonal(0, 0, part._array.ndim - 1)
        fill_(part, fill_value)
    return x


def is_floating_point(x: Tensor) -> bool:
    """Whether the dtype is float32 or float64.

    >>> is_floating_point(tensor([1]))
    False
    """
    as_operand("is_floating_point", x)
    return x.is_floating_point()


def is_nonzero(x: Tensor) -> bool:
    """Whether the only element is not zero.

    >>> is_nonzero(tensor([0.0]))
    False
    """
    return bool(x)


def result_type(x: Any, y: Any) -> DType:
    """The dtype of ``x + y``, tensors or numbers.

    >>> result_type(tensor([1]), 1.5)
    ng.float32
    """
    return dtypes.result_type(
        [
            (v._dtype, 2 if v.dim() else 1) if isinstance(v, Tensor) else (dtypes.of_number(v), 0)
            for v in (x, y)
        ]
    )


def can_cast(from_: DType, to: DType) -> bool:
    """Whether a conversion stays within its kind or goes to a wider one: bool, int, float.

    >>> import numbagrad as ng
    >>> can_cast(ng.float32, ng.int64)
    False
    """
    return from_.category <= to.category


METHODS: dict[str, Any] = {
    "clamp_max": clamp_max,
    "clamp_min": clamp_min,
    "deg2rad": deg2rad,
    "fill_diagonal_": fill_diagonal_,
    "fix": fix,
    "float_power": float_power,
    "is_nonzero": is_nonzero,
    "isneginf": isneginf,
    "isposinf": isposinf,
    "logaddexp2": logaddexp2,
    "logit": logit,
    "nanquantile": nanquantile,
    "positive": positive,
    "quantile": quantile,
    "rad2deg": rad2deg,
    "renorm": renorm,
}


def _float_power_here(x: Tensor, exponent: Any) -> Tensor:
    """``float_power`` of a tensor that can hold the result."""
    if x._dtype is not dtypes.float64:
        raise DTypeError(
            f"float_power_: the base given to float_power_ has dtype {x._dtype} but the "
            f"operation's result requires dtype {dtypes.float64}. Convert it with .double()."
        )
    return float_power(x, exponent)


INPLACE: dict[str, Any] = {
    f"{name}_": METHODS[name]
    for name in "clamp_max clamp_min deg2rad fix logit rad2deg renorm".split()
} | {"float_power_": _float_power_here}
