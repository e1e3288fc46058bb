"""Functions of PyTorch's package that ``nn.functional`` has in another form: ``ng.grid_sampler``.

``short_names.py`` finds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .nn import functional
from .ops.create import arange, ones, zeros
from .ops.elementwise import where
from .ops.index import index_add
from .ops.scatter_reduce import index_reduce
from .ops.search import searchsorted
from .tensor import Tensor

__all__ = [
    "affine_grid_generator",
    "alpha_dropout_",
    "constant_pad_nd",
    "dropout_",
    "embedding_bag",
    "feature_alpha_dropout_",
    "feature_dropout",
    "feature_dropout_",
    "grid_sampler",
]

SAMPLED = ("bilinear", "nearest", "bicubic")
OUTSIDE = ("zeros", "border", "reflection")
BAGS = ("sum", "mean", "max")


def dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """``nn.functional.dropout`` in place.

    >>> dropout_(ng.ones(2), 0.5, False).tolist()
    [1.0, 1.0]
    """
    return functional.dropout(input, p, train, inplace=True)


def alpha_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """``nn.functional.alpha_dropout`` in place.

    >>> alpha_dropout_(ng.ones(2), 0.5, False).tolist()
    [1.0, 1.0]
    """
    return functional.alpha_dropout(input, p, train, inplace=True)


def feature_alpha_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """``nn.functional.feature_alpha_dropout`` in place.

    >>> feature_alpha_dropout_(ng.ones(1, 2), 0.5, False).tolist()
    [[1.0, 1.0]]
    """
    return functional.feature_alpha_dropout(input, p, train, inplace=True)


def _feature_factors(name: str, input: Tensor, p: float, train: bool) -> Tensor | None:
    """What ``feature_dropout`` multiplies by, None for 1. Raises ValueError for what cannot be."""
    if not 0 <= p <= 1:
        raise ValueError(f"{name}: dropout probability has to be between 0 and 1, but got {p}.")
    if not train or p == 0 or not input.numel():
        return None
    if input.dim() < 2:
        raise ValueError(
            f"{name}: Feature dropout requires at least 2 dimensions in the input, got "
            f"{list(input.shape)}. Use ng.dropout."
        )
    shape = (*input.shape[:2], *(1,) * (input.dim() - 2))
    return functional.dropout(ones(shape, dtype=input.dtype, device=input.device), p)


def feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """``dropout`` of whole channels of ``input``, (n, c, ...). Raises ValueError for a vector.

    >>> feature_dropout(ng.ones(1, 2, 3), 1.0, True).sum().item()
    0.0
    """
    factors = _feature_factors("feature_dropout", input, p, train)
    return input if factors is None else input * factors


def feature_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """``feature_dropout`` in place.

    >>> feature_dropout_(ng.ones(1, 2), 1.0, True).tolist()
    [[0.0, 0.0]]
    """
    factors = _feature_factors("feature_dropout_", input, p, train)
    return input if factors is None else input.mul_(factors)


def constant_pad_nd(input: Tensor, pad: Sequence[int], value: Any = 0) -> Tensor:
    """``nn.functional.pad`` with a constant.

    >>> constant_pad_nd(ng.ones(1), (1, 0), 5).tolist()
    [5.0, 1.0]
    """
    return functional.pad(input, pad, "constant", value)


def affine_grid_generator(theta: Tensor, size: Any, align_corners: bool) -> Tensor:
    """``nn.functional.affine_grid``.

    >>> affine_grid_generator(ng.ones(1, 2, 3), (1, 1, 1, 1), False).tolist()
    [[[[1.0, 1.0]]]]
    """
    return functional.affine_grid(theta, size, align_corners)


def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """``nn.functional.grid_sample`` with numbers for words.

    interpolation_mode: 0 bilinear, 1 nearest, 2 bicubic. padding_mode: 0 zeros, 1 border,
    2 reflection. Raises ValueError for another.

    >>> grid_sampler(ng.ones(1, 1, 2, 2), ng.zeros(1, 1, 1, 2), 0, 0, False).item()
    1.0
    """
    for what, number in (("interpolation", interpolation_mode), ("padding", padding_mode)):
        if number not in (0, 1, 2):
            raise ValueError(f"grid_sampler: {what}_mode must be 0, 1 or 2, got {number!r}.")
    words = SAMPLED[interpolation_mode], OUTSIDE[padding_mode]
    return functional.grid_sample(input, grid, *words, align_corners)


def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``nn.functional.embedding_bag`` of (n) indices, and what each number of it was made of.

    mode: 0 sum, 1 mean, 2 max. padding_idx: -1 for none. The others are the bag of each index (n),
    the number of indices in each bag (bags), and of the largest the indices that they are from
    (bags, d), else once more the number. Raises ValueError for another mode.

    >>> embedding_bag(ng.ones(3, 1), ng.tensor([0, 2, 1]), ng.tensor([0, 2]))[0].tolist()
    [[2.0], [1.0]]
    """
    if mode not in (0, 1, 2):
        raise ValueError(f"embedding_bag: mode must be 0 (sum), 1 (mean) or 2 (max), got {mode!r}.")
    padding = None if padding_idx < 0 else padding_idx
    found = functional.embedding_bag(
        *(indices, weight, offsets, None, 2.0, scale_grad_by_freq, BAGS[mode], sparse),
        *(per_sample_weights, include_last_offset, padding),
    )
    count, bags = indices.shape[0], found.shape[0]
    place = arange(count, device=indices.device)
    bag = searchsorted(offsets[:-1] if include_last_offset else offsets, place, right=True) - 1
    counted = indices.ne(padding_idx)
    sizes = index_add(zeros(bags, dtype=place.dtype, device=place.device), 0, bag, counted.long())
    if mode != 2:
        return found, bag, sizes, sizes
    first = counted.unsqueeze(1) & weight.detach()[indices].eq(found.detach()[bag])
    at = where(first, place.unsqueeze(1), count)
    none = zeros(*found.shape, dtype=place.dtype, device=place.device) + count
    at = index_reduce(none, 0, bag, at, "amin", include_self=True)
    known = where(at.lt(count), indices[at.clamp(max=max(count - 1, 0))], 0) if count else at * 0
    return found, bag, sizes, known
