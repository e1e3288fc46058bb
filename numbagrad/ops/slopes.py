"""The slopes of a sampled function, along each dimension: ``gradient``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import dtypes
from ..errors import ShapeError
from ..tensor import Tensor
from .base import as_operand, normalize_dim, same_device
from .elementwise import cast
from .join import cat
from .part import narrow
from .remembered import remembered
from .view import reshape

__all__ = ["gradient"]


@remembered
def gradient(
    x: Tensor, *, spacing: Any = None, dim: Any = None, edge_order: int = 1
) -> tuple[Tensor, ...]:
    """The slopes of samples ``x`` along each of ``dim`` (one, several, or None for all).

    spacing: the distance of samples, 1 by default; one number (or 0-d tensor) or one for each dim;
    or vectors of coordinates.
    Inside by the parabola through three neighbours (central differences), at the edges by the line
    through two (edge_order=1) or the parabola through three (2). Raises ShapeError where a dim has
    no more than edge_order samples.

    >>> gradient(tensor([1.0, 4.0, 9.0]))[0].tolist()
    [3.0, 4.0, 5.0]
    """
    rank = as_operand("gradient", x)._array.ndim
    if edge_order not in (1, 2):
        raise ShapeError(
            f"gradient: only supports edge_order=1 and edge_order=2, got {edge_order}."
        )
    given = range(rank) if dim is None else (dim,) if isinstance(dim, int) else dim
    dims = [normalize_dim("gradient", d, rank) for d in given]
    if len(set(dims)) != len(dims):
        raise ShapeError(f"gradient: dim appears multiple times in the list of dims {tuple(dims)}.")
    steps = _spacings(spacing, dims)
    if not x._dtype.is_floating_point:
        x = cast(x, dtypes.get_default_dtype())
    found = []
    for d, step in zip(dims, steps, strict=True):
        n = x._array.shape[d]
        if n <= edge_order:
            raise ShapeError(
                f"gradient: expected each dimension size to be at least edge_order+1, but "
                f"dimension {d} has size {n}."
            )
        if isinstance(step, Tensor) and step._array.ndim:
            found.append(_uneven(x, d, _gaps(x, step, d), edge_order))
        else:
            found.append(_even(x, d, step, edge_order))
    return tuple(found)


def _spacings(spacing: Any, dims: list[int]) -> Sequence[Any]:
    """A number or vector for each of ``dims``; 1 for None."""
    spacing = 1 if spacing is None else spacing
    if not isinstance(spacing, (list, tuple)):
        return [spacing] * len(dims)
    if len(spacing) != len(dims):
        raise ShapeError(
            f"gradient: expected spacing to be unspecified, a scalar, or a list of length equal "
            f"to the number of dims, {len(dims)}, but got a list of length {len(spacing)}."
        )
    return spacing


def _gaps(x: Tensor, points: Tensor, dim: int) -> Tensor:
    """The distances of neighbouring ``points``, beside ``x`` along ``dim``."""
    same_device("gradient", (x, points))
    n = x._array.shape[dim]
    if points._array.shape != (n,):
        raise ShapeError(
            f"gradient: expected each element of spacing to be a vector with a coordinate for "
            f"each sample, {n}, but got shape {list(points.shape)}."
        )
    gaps = narrow(points, 0, 1, n - 1) - narrow(points, 0, 0, n - 1)
    return reshape(gaps, (n - 1,) + (1,) * (x._array.ndim - 1 - dim))


def _even(x: Tensor, dim: int, step: Any, edge_order: int) -> Tensor:
    n = x._array.shape[dim]
    at = [narrow(x, dim, i, 1) for i in (*range(min(n, 3)), *range(-min(n, 3), 0))]
    if edge_order == 1:
        first, last = (at[1] - at[0]) / step, (at[-1] - at[-2]) / step
    else:
        first = (at[1] * 4 - at[0] * 3 - at[2]) / (2 * step)
        last = (at[-1] * 3 - at[-2] * 4 + at[-3]) / (2 * step)
    inner = (narrow(x, dim, 2, n - 2) - narrow(x, dim, 0, n - 2)) / (2 * step) if n > 2 else None
    return cat([first, last] if inner is None else [first, inner, last], dim)


def _uneven(x: Tensor, dim: int, gaps: Tensor, edge_order: int) -> Tensor:
    n = x._array.shape[dim]
    slopes = (narrow(x, dim, 1, n - 1) - narrow(x, dim, 0, n - 1)) / gaps
    ends = narrow(slopes, dim, 0, 1), narrow(slopes, dim, n - 2, 1)
    if n == 2:
        return cat(list(ends), dim)
    before, after = narrow(gaps, 0, 0, n - 2), narrow(gaps, 0, 1, n - 2)
    left, right = narrow(slopes, dim, 0, n - 2), narrow(slopes, dim, 1, n - 2)
    both = before + after
    inner = (left * after + right * before) / both
    if edge_order == 2:  # the parabola's slope changes evenly: from the middle of a gap to its end
        bend = (right - left) / both
        first = narrow(left, dim, 0, 1) - narrow(bend * before, dim, 0, 1)
        last = narrow(right, dim, n - 3, 1) + narrow(bend * after, dim, n - 3, 1)
        ends = first, last
    return cat([ends[0], inner, ends[1]], dim)
