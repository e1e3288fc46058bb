"""What functions of samples give for those that a mask selects: convolutions, pools, norms.

A sample's result does not depend on the others, but in ``batch_norm``, whose statistics are of the
selected ones alone. See ``selected_rules.py``. Start reading at ``_of_samples``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import dtypes
from ..autograd.modes import no_grad
from ..errors import ShapeError
from ..kernels import machine
from ..tensor import Tensor
from .batch_norm import channels_of, check_channels
from .elementwise import cast, rsqrt, where
from .norm import single
from .selected import RULES, Selected, Unsized
from .selected_over_all import variance_of_all
from .selected_rules import by_name, first_of, gated, keywords_of, lined_up, rows_of
from .view import reshape

__all__: list[str] = []  # nothing that users call

_RANKS = {
    "conv1d": 3, "conv2d": 4, "conv3d": 5, "conv_transpose1d": 3, "conv_transpose2d": 4,
    "conv_transpose3d": 5, "max_pool1d": 3, "max_pool2d": 4, "max_pool3d": 5, "avg_pool1d": 3,
    "avg_pool2d": 4, "avg_pool3d": 5, "adaptive_avg_pool1d": 3, "adaptive_avg_pool2d": 4,
    "adaptive_avg_pool3d": 5, "adaptive_max_pool1d": 3, "adaptive_max_pool2d": 4,
    "adaptive_max_pool3d": 5, "interpolate": 3, "pixel_shuffle": 4, "group_norm": 2,
}  # fmt: skip
"""Functions of samples, and the least number of dimensions of a batch; of fewer, the first are
channels."""


def _of_samples(function: Callable, *args: Any, **options: Any) -> Any:
    """A function of each sample, whose weights all samples share."""
    named = by_name(function, args, options)
    first, rows = next(iter(named.items()))
    if type(rows) is not Selected or any(
        type(v) is Selected for k, v in named.items() if k != first
    ):
        raise Unsized(first_of(named.values()), f"{function.__name__} with such weights")
    if rows.rank < _RANKS[function.__name__]:
        raise Unsized(rows, f"{function.__name__} over all rows")
    found = function(**{**keywords_of(named), first: gated(rows.whole, rows.mask)})
    if isinstance(found, tuple):
        return type(found)(*[rows.beside(gated(each, rows.mask)) for each in found])
    return rows.beside(gated(found, rows.mask))


def _padded(function: Callable, *args: Any, **options: Any) -> Any:
    """``pad`` within each row."""
    named = by_name(function, args, options)
    rows = first_of(named.values())
    if len(named["pad"]) // 2 >= rows.rank:
        raise Unsized(rows, "pad of all rows")
    return rows_of(function, named, rows)


def _attention(function: Callable, *args: Any, **options: Any) -> Any:
    """Attention within each of the selected sequences."""
    named = by_name(function, args, options)
    name, rows = function.__name__, first_of(named.values())
    for role in ("query", "key", "value"):
        if type(named[role]) is not Selected or named[role].rank != rows.rank or rows.rank < 3:
            raise Unsized(rows, f"{name} but of query, key and value of the same mask")
        named[role] = gated(lined_up(name, rows, named[role]), rows.mask)
    mask = named["attn_mask"]
    if type(mask) is Selected:
        named["attn_mask"] = gated(lined_up(name, rows, mask), rows.mask)
    elif isinstance(mask, Tensor) and mask._array.ndim == rows.rank and mask._array.shape[0] != 1:
        raise Unsized(rows, f"{name} with a mask for each sequence, but attn_mask[mask],")
    return rows.beside(gated(function(**keywords_of(named)), rows.mask))


def _batch_norm(function: Callable, *args: Any, **options: Any) -> Any:
    """``batch_norm`` by the statistics of the selected samples, or by running ones."""
    named = by_name(function, args, options)
    rows = named["input"]
    if type(rows) is not Selected or rows.rank < 2:
        raise Unsized(first_of(named.values()), "batch_norm of other than (n, c, ...)")
    if not named["training"]:
        return rows.beside(
            gated(function(**{**named, "input": gated(rows.whole, rows.mask)}), rows.mask)
        )
    name, whole, kind = "batch_norm", rows.whole, rows._dtype
    vectors = {k: named[k] for k in ("running_mean", "running_var", "weight", "bias")}
    if kind in dtypes.HALVES:
        vectors = {k: single(name, k, v, kind) for k, v in vectors.items()}
        whole = cast(whole, dtypes.float32)
    check_channels(name, whole, channels_of(name, whole), whole._dtype, **vectors)
    if named["eps"] < 0:
        raise ValueError(f"{name}: eps must not be negative, but got {named['eps']}.")
    dims = (0, *range(2, rows.rank))
    spread, center, _, count = variance_of_all(rows, dims, True, 0)

    def fail(_: int) -> None:
        raise ShapeError(
            "batch_norm: Expected more than 1 value per channel when training, but the mask "
            "selects one number of each."
        )

    machine.check(where(count.eq(1), 0, -1).reshape((1,))._array, fail)
    if named["running_mean"] is not None and named["running_var"] is not None:
        share, unbiased = named["momentum"], spread * (count / (count - 1))
        with no_grad():
            for role, found in (("running_mean", center), ("running_var", unbiased)):
                old = vectors[role]  # of halves in float32: rounded once
                new = old * (1 - share) + reshape(found, old._array.shape) * share
                named[role].copy_(where(count > 0, new, old))  # nothing moves them by nothing
    out = (rows.beside(whole) - center) * rsqrt(spread + named["eps"])
    along = (1, -1, *[1] * (rows.rank - 2))
    if vectors["weight"] is not None:
        out = out * vectors["weight"].reshape(along)
    if vectors["bias"] is not None:
        out = out + vectors["bias"].reshape(along)
    return out.beside(cast(out.whole, kind))


RULES.update(dict.fromkeys(_RANKS, _of_samples))
RULES.update(
    pad=_padded,
    scaled_dot_product_attention=_attention,
    batch_norm=_batch_norm,
)
