"""Distances, covariances, and areas under samples."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..errors import DTypeError, ShapeError
from ..kernels import machine
from ..tensor import Tensor
from .base import as_operand, normalize_dim
from .elementwise import cast, clamp, mul, sqrt, sub
from .moments import norm
from .part import diagonal, narrow, select
from .reduce import sum as sum_
from .remembered import remembered
from .scan import cumsum
from .view import unsqueeze

__all__ = [
    "corrcoef",
    "cov",
    "cumulative_trapezoid",
    "dist",
    "trapezoid",
    "trapz",
]


# -- distances -------------------------------------------------------------------------------------


@remembered
def dist(x: Tensor, other: Tensor, p: Any = 2) -> Tensor:
    """The p-norm of the difference.

    >>> dist(tensor([1.0, 2.0]), tensor([4.0, 6.0])).item()
    5.0
    """
    return norm(sub(as_operand("dist", x), as_operand("dist", other, 1)), p)


# -- variables in rows -----------------------------------------------------------------------------


def _weights(name: str, w: Tensor | None, n: int, counts: bool) -> None:
    """Refuse weights that are no vector of ``n``, or negative, or that count and are no ints."""
    if w is None:
        return
    if as_operand("cov", w)._array.shape != (n,):
        raise ShapeError(
            f"cov(): expected {name} to have the same numel as there are observations in the "
            f"input, {n}, and one dimension, but got shape {list(w.shape)}."
        )
    if counts == w._dtype.is_floating_point or w._dtype is dtypes.bool_:
        kind = "an integer" if counts else "a floating point"
        raise DTypeError(f"cov(): expected {name} to have {kind} dtype, but got {w._dtype}.")
    if machine.is_recording() or not n:
        return  # its values are not known yet
    if float(w.detach().min()) < 0:
        raise ValueError(f"cov(): {name} cannot be negative.")
    if not float(sum_(w.detach())):
        raise ValueError(f"cov(): {name} sum to zero, can't be normalized.")


@remembered
def cov(
    x: Tensor,
    *,
    correction: int = 1,
    fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Tensor:
    """The covariances of the rows of ``x`` (variables, observations); a vector is one variable.

    The result is 0-d for one variable. correction: what is taken from the number of observations.
    fweights: how often each observation counts, ints; aweights: how much, floats. Raises ShapeError
    for three dimensions.

    >>> cov(tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]])).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    rank = as_operand("cov", x)._array.ndim
    if rank > 2:
        raise ShapeError(
            f"cov(): expected input to have two or fewer dimensions but got an input with {rank} "
            f"dimensions."
        )
    if x._dtype is dtypes.bool_:
        raise DTypeError("cov(): bool dtype is not supported for input. Convert it with .float().")
    if not x._dtype.is_floating_point:
        x = cast(x, dtypes.get_default_dtype())
    rows = x if rank == 2 else x.reshape((1, -1))
    n = rows._array.shape[1]
    _weights("fweights", fweights, n, True)
    _weights("aweights", aweights, n, False)
    given = [w for w in (fweights, aweights) if w is not None]
    if not given:
        centred = rows - rows.mean(1, keepdim=True)
        product = centred @ centred.t()
        found = product * (1.0 / max(n - correction, 0) if n > correction else float("inf"))
    else:
        weight = given[0] if len(given) == 1 else mul(*given)
        weight = cast(weight, x._dtype)
        total = sum_(weight)
        centred = rows - sum_(rows * weight, 1, True) / total
        taken: Any = correction
        if aweights is not None:
            taken = correction * sum_(weight * cast(aweights, x._dtype)) / total
        found = (centred * weight) @ centred.t() / clamp(total - taken, 0.0)
    return found if found._array.size != 1 else found.reshape(())


@remembered
def corrcoef(x: Tensor) -> Tensor:
    """The correlations of the rows of ``x`` (variables, observations), from -1 to 1 (Pearson).

    >>> corrcoef(tensor([[0.0, 1.0, 2.0], [4.0, 2.0, 0.0]])).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    found = cov(as_operand("corrcoef", x))
    if found._array.ndim == 0:
        return found / found
    deviation = sqrt(diagonal(found))
    return clamp(found / unsqueeze(deviation, 1) / deviation, -1.0, 1.0)


# -- areas -----------------------------------------------------------------------------------------


def _strips(name: str, y: Tensor, x: Tensor | None, dx: Any, dim: int) -> tuple[Tensor, int]:
    """The areas of the strips between neighbouring samples, and their dimension."""
    shape = as_operand(name, y)._array.shape
    dim = normalize_dim(name, dim, len(shape))
    if not shape:
        raise ShapeError(f"{name}: expected a tensor of one dimension or more.")
    n = shape[dim]
    pairs = narrow(y, dim, 1, max(n - 1, 0)) + narrow(y, dim, 0, max(n - 1, 0)) if n else y
    if x is None:
        return pairs * ((1 if dx is None else dx) / 2), dim
    if dx is not None:
        raise TypeError(f"{name}: takes x or dx, not both.")
    points = as_operand(name, x, 1)
    if points._array.ndim > len(shape):
        raise ShapeError(
            f"{name}: x must have as many dimensions as y, {len(shape)}, or one, got "
            f"{points._array.ndim}."
        )
    if points._array.ndim == 1 and len(shape) > 1:
        points = points.reshape((-1,) + (1,) * (len(shape) - 1 - dim))
        along = 0
    else:
        along = normalize_dim(name, dim - len(shape), points._array.ndim)
    if n == 0:  # no samples, and as many areas
        return pairs, dim
    if points._array.shape[along] != n:
        raise ShapeError(
            f"{name}: There must be one `x` value for each sample point, got {n} samples and "
            f"{points._array.shape[along]} values."
        )
    widths = narrow(points, along, 1, max(n - 1, 0)) - narrow(points, along, 0, max(n - 1, 0))
    return pairs * widths / 2, dim


@remembered
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """The area under samples ``y`` along ``dim``, by the trapezoidal rule.

    Samples stand at ``x``, a vector or a tensor that broadcasts, or ``dx`` (1) apart.

    >>> trapezoid(tensor([1.0, 5.0, 10.0])).item()
    10.5
    """
    if x is not None or not as_operand("trapezoid", y)._array.size:
        areas, dim = _strips("trapezoid", y, x, dx, dim)
        return sum_(areas, dim)
    ends = select(y, dim, 0) + select(y, dim, -1)
    return (sum_(y, dim) - ends * 0.5) * (1 if dx is None else dx)


def trapz(y: Tensor, x: Tensor | None = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """The same as ``trapezoid``.

    >>> trapz(tensor([1.0, 5.0, 10.0]), tensor([0.0, 2.0, 4.0])).item()
    21.0
    """
    return trapezoid(y, x, dx=dx, dim=dim)


@remembered
def cumulative_trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: Any = None, dim: int = -1
) -> Tensor:
    """The areas under samples up to each but the first; arguments as for ``trapezoid``.

    >>> cumulative_trapezoid(tensor([1.0, 5.0, 10.0])).tolist()
    [3.0, 10.5]
    """
    areas, dim = _strips("cumulative_trapezoid", y, x, dx, dim)
    return cumsum(areas, dim)


METHODS: dict[str, Any] = {"corrcoef": corrcoef, "cov": cov, "dist": dist}
