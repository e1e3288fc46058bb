"""Functions of whole numbers: divisors and multiples, and bits moved to the left or right."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..errors import DTypeError
from ..kernels import machine
from ..kernels.cpu import whole_numbers as kernels
from ..tensor import Tensor
from .base import as_operand, broadcast_shape, contiguous, new_empty, same_device
from .elementwise import abs as abs_
from .elementwise import cast, clamp, mul
from .from_formula import Elementwise
from .remembered import remembered
from .view import expand

__all__ = ["bitwise_left_shift", "bitwise_right_shift", "gcd", "lcm"]


def _whole(name: str, x: Any) -> None:
    """Refuse what is neither a tensor of ints nor an int."""
    kind = x._dtype if isinstance(x, Tensor) else dtypes.of_number(x)
    if kind.is_floating_point or (kind is dtypes.bool_ and isinstance(x, Tensor)):
        raise DTypeError(f"{name}: not implemented for {kind}. Convert it with .long().")


@remembered
def gcd(x: Tensor, other: Tensor) -> Tensor:
    """The greatest common divisors of ints, broadcast; never negative, and 0 only of 0 and 0.

    Raises DTypeError for floats and bools.

    >>> gcd(tensor([4, -6]), tensor([6, 9])).tolist()
    [2, 3]
    """
    for i, value in enumerate((x, other)):
        _whole("gcd", as_operand("gcd", value, i))
    device = same_device("gcd", (x, other))
    dtype = dtypes.result_type([(v._dtype, 2 if v._array.ndim else 1) for v in (x, other)])
    shape = broadcast_shape("gcd", x._array.shape, other._array.shape)
    out = new_empty(shape, dtype, device)
    if out._array.size:
        first, second = (contiguous(expand(cast(v, dtype), shape)) for v in (x, other))
        flat = [v._array.reshape(-1) for v in (out, first, second)]
        machine.launch(kernels.gcd, *flat)
    return out


@remembered
def lcm(x: Tensor, other: Tensor) -> Tensor:
    """The least common multiples of ints, broadcast; never negative, and 0 where one is 0.

    Raises DTypeError for floats and bools.

    >>> lcm(tensor([4, -6]), tensor([6, 9])).tolist()
    [12, 18]
    """
    for i, value in enumerate((x, other)):
        _whole("lcm", as_operand("lcm", value, i))
    divisor = clamp(gcd(x, other), 1)
    kind = divisor._dtype
    return mul(abs_(cast(x, kind) // divisor), abs_(cast(other, kind)))


class LeftShift(Elementwise):
    """x * 2 ** y in the bits of the dtype; 0 where y is negative or no less than their number."""

    name = "bitwise_left_shift"

    def formula(x, y):
        return x << y if y >= 0 and y < 64 else 0


class RightShift(Elementwise):
    """x / 2 ** y, rounded down; what no bit is left of is 0, or -1 for a negative x."""

    name = "bitwise_right_shift"

    def formula(x, y):
        return x >> (y if y >= 0 and y < 63 else 63)


def bitwise_left_shift(x: Any, other: Any) -> Tensor:
    """``x << other`` of ints: times ``2 ** other``, in the bits that the dtype has.

    0 where other is negative or no less than the number of bits. Raises DTypeError for floats and
    bools.

    >>> bitwise_left_shift(tensor([1, 3]), 2).tolist()
    [4, 12]
    """
    for value in (x, other):
        _whole("bitwise_left_shift", value)
    return LeftShift.op.binary(x, other)


def bitwise_right_shift(x: Any, other: Any) -> Tensor:
    """``x >> other`` of ints: divided by ``2 ** other``, rounded down.

    Where other is negative or no less than the number of bits, -1 for a negative x and else 0.
    Raises DTypeError for floats and bools.

    >>> bitwise_right_shift(tensor([5, -1]), 1).tolist()
    [2, -1]
    """
    for value in (x, other):
        _whole("bitwise_right_shift", value)
    return RightShift.op.binary(x, other)


METHODS: dict[str, Any] = {name: globals()[name] for name in __all__}
INPLACE: dict[str, Any] = {f"{name}_": METHODS[name] for name in METHODS}
OPERATORS: dict[str, Any] = {
    "__lshift__": bitwise_left_shift,
    "__rshift__": bitwise_right_shift,
    "__rlshift__": lambda x, y: bitwise_left_shift(y, x),
    "__rrshift__": lambda x, y: bitwise_right_shift(y, x),
}
