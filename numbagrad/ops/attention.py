"""``scaled_dot_product_attention``: in nn.functional. Start reading at ``Attention``."""

from __future__ import annotations

import math
from typing import Any

from .. import dtypes
from ..errors import DTypeError, ShapeError
from ..kernels import machine
from ..kernels.cpu import attention as kernels
from ..kernels.halves import arithmetic
from ..tape import grad_mode
from ..tensor import Tensor, wrap
from .autocasting import lowered
from .axes import DTYPE_WORDS
from .base import (
    Op,
    as_operand,
    broadcast_shape,
    contiguous,
    full,
    new_empty,
    same_device,
    sum_to_shape,
)
from .create import ones
from .elementwise import exp, log, where
from .linalg import matmul
from .random import Dropout, state_for
from .remembered import remembered
from .shape import tril

__all__: list[str] = []

Sizes = tuple[int, ...]


def rows_of(x: Tensor) -> Any:
    """The array of ``x`` (b, h, n, e), whose rows are whole: unit stride, one after another."""
    array = x._array
    _, _, n, e = array.shape
    unit = e == 1 or array.strides[3] == array.itemsize
    if unit and (n == 1 or array.strides[2] >= e * array.itemsize):
        return array
    return contiguous(x)._array


def like_rows(array: Any, width: int, x: Tensor) -> Tensor:
    """Uninitialised: rows of ``width`` that lie in memory in the order of those of ``array``.

    Heads that were cut out of one row lie in one row again, so that no copy joins them.
    """
    sizes, steps = array.shape[:3], array.strides
    order = sorted(range(3), key=lambda d: -steps[d])
    if order == [0, 1, 2]:
        return new_empty((*sizes, width), x._dtype, x._device)
    base = machine.empty((*[sizes[d] for d in order], width), x._dtype.numpy, x._device)
    strides = [base.strides[order.index(d)] // base.itemsize for d in range(3)]
    out = wrap(machine.view(base, (*sizes, width), (*strides, 1), 0), x._dtype)
    out._flat = out._array.flags.c_contiguous
    return out


class Attention(Op, remembers=True):
    """``softmax(scale q k^T + mask) v`` of (b, h, l, e), (b, g, s, e), (b, g, s, w), by blocks.

    mask: of rank 4, broadcasts to (b, h, l, s), or None. state: of the random numbers that drop
    probabilities with chance ``p``, or None.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        state: Any,
        scale: float,
        p: float,
        causal: int,
    ) -> Tensor:
        arrays = rows_of(q), rows_of(k), rows_of(v)
        b, h, rows, _ = q._array.shape
        out = like_rows(arrays[0], v._array.shape[3], v)
        lse = machine.empty((b, h, rows), arithmetic(q._dtype.numpy), q._device)
        ctx.options = state, scale, p, causal
        machine.launch(kernels.attention, out._array, lse, *arrays, *_settings(ctx, q, k, mask))
        ctx.lse = lse
        ctx.save(q, k, v, mask, out)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        q, k, v, mask, out = ctx.saved_tensors
        if grad_mode.enabled:
            return _attention_grad(ctx, g, q, k, v, mask)
        arrays = rows_of(q), rows_of(k), rows_of(v)
        grads = [like_rows(a, a.shape[3], g) for a in arrays]
        sources = rows_of(g), rows_of(out), ctx.lse, *arrays, *_settings(ctx, q, k, mask)
        if any(ctx.needs_input_grad[:3]):
            machine.launch(kernels.attention_grad, *[x._array for x in grads], *sources)
        if not ctx.needs_input_grad[3]:
            return tuple(grads)
        gmask = new_empty(mask._array.shape, g._dtype, g._device)
        machine.launch(kernels.attention_mask_grad, gmask._array, *sources[:-2])
        return (*grads, gmask)


def _settings(ctx: Any, q: Tensor, k: Tensor, mask: Tensor | None) -> tuple:
    """mask, state, scale, p, masked and causal, as the kernels take them."""
    state, scale, p, causal = ctx.options
    if state is None:
        state = machine.empty((2,), dtypes.int64.numpy, q._device)  # nobody reads it
    seen = q._array if mask is None else _spread(mask, q, k)._array
    return seen, state, scale, p, int(mask is not None), causal


def _spread(mask: Tensor, q: Tensor, k: Tensor) -> Tensor:
    b, h, rows, _ = q._array.shape
    return mask.detach().expand(b, h, rows, k._array.shape[2])


def _probabilities(q: Tensor, k: Tensor, mask: Tensor | None, scale: float, causal: int) -> Tensor:
    """Softmax of the scores, made of differentiable functions; 0 in rows that see nothing."""
    scores = matmul(q, k.transpose(2, 3)) * scale
    if mask is not None:
        scores = scores + mask
    if causal:
        visible = tril(ones(scores.shape[2:], dtype=dtypes.bool_, device=q._device))
        scores = where(visible, scores, -math.inf)
    return normalised(scores)[0]


def normalised(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax of rows, 0 in those that see nothing, and the logarithms of sums of exponentials."""
    if scores._array.size == 0:
        return scores, full(scores._array.shape[:3], -math.inf, scores._dtype, scores._device)
    peak = scores.detach().amax(3, keepdim=True)
    alive = peak != -math.inf
    # The scores of a dead row are exchanged before and after, so that no NaN comes into gradients.
    shift = where(alive, peak, 0.0)
    weights = exp(where(alive, scores - shift, 0.0))
    total = weights.sum(3, keepdim=True)
    lse = where(alive, log(total) + shift, -math.inf)
    return where(alive, weights / total, 0.0), lse.squeeze(3)


def _kept(state: Any, p: float, like: Tensor) -> Tensor:
    """The factors of dropped probabilities: rows of the random numbers filled up to fours."""
    *lead, n = like._array.shape
    whole = full((*lead, (n + 3) // 4 * 4), 1, like._dtype, like._device)
    return Dropout.apply(whole, state, p)[..., :n]


def repeated(x: Tensor, heads: int) -> Tensor:
    """``x`` (b, g, n, e) with each of its heads repeated for those that share it."""
    b, groups, n, e = x._array.shape
    if groups == heads:
        return x
    spread = x.unsqueeze(2).expand(b, groups, heads // groups, n, e)
    return spread.reshape(b, heads, n, e)


def _attention_grad(
    ctx: Any, g: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None
) -> tuple:
    """The gradient of Attention as differentiable functions of g, q, k, v and mask."""
    state, scale, p, causal = ctx.options
    b, h, _, _ = q._array.shape
    groups = k._array.shape[1]
    keys, values = repeated(k, h), repeated(v, h)
    weights = _probabilities(q, keys, mask, scale, causal)
    gweights = matmul(g, values.transpose(2, 3))
    dropped = weights
    if p:
        kept = _kept(state, p, weights)
        dropped, gweights = weights * kept, gweights * kept
    gscores = weights * (gweights - (gweights * weights).sum(3, keepdim=True))

    def summed(x: Tensor) -> Tensor:
        """The sum over heads that share one of keys."""
        n, e = x._array.shape[2:]
        return x if groups == h else x.reshape(b, groups, h // groups, n, e).sum(2)

    gq = matmul(gscores, keys) * scale
    gk = summed(matmul(gscores.transpose(2, 3), q)) * scale
    gv = summed(matmul(dropped.transpose(2, 3), g))
    gmask = None
    if ctx.needs_input_grad[3] and mask is not None:
        gmask = sum_to_shape(gscores, mask._array.shape)
    return gq, gk, gv, gmask


# -- what the arguments must be --------------------------------------------------------------------

NAME = "scaled_dot_product_attention"


def check_dtypes(name: str, *tensors: Tensor) -> None:
    """Raise unless query, key and value have one dtype."""
    if len({t._dtype for t in tensors}) > 1:
        raise DTypeError(
            f"{name}: Expected query, key, and value to have the same dtype, but got "
            f"{', '.join(str(t._dtype) for t in tensors)}. Convert with .to(dtype)."
        )


def _check(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p: float) -> None:
    for position, tensor in enumerate((q, k, v)):
        as_operand(NAME, tensor, position)
    shapes = [t._array.shape for t in (q, k, v)]
    if min(map(len, shapes)) < 2:
        ranks = ", ".join(f"{n}.dim: {len(s)}" for n, s in zip(_NAMES, shapes, strict=True))
        raise ShapeError(
            f"{NAME}: Expected query, key, and value to all be at least 2 dimensional, but got "
            f"{ranks}. The last two are rows and features."
        )
    check_dtypes(NAME, q, k, v)
    if not q._dtype.is_floating_point:
        raise DTypeError(
            f"{NAME}: not implemented for '{DTYPE_WORDS[q._dtype.name]}', it needs a floating "
            f"dtype. Convert with .float()."
        )
    if mask is not None and as_operand(NAME, mask, 3)._dtype not in (dtypes.bool_, q._dtype):
        raise DTypeError(
            f"{NAME}: Expected attn_mask dtype to be bool or to match query dtype, but got "
            f"attn_mask.dtype: {mask._dtype} and query.dtype: {q._dtype}."
        )
    if shapes[0][-1] != shapes[1][-1] or shapes[1][-2] != shapes[2][-2]:
        raise ShapeError(
            f"{NAME}: Expected size of the last dimension of query to match that of key, and the "
            f"one before it of key that of value, but got query {list(shapes[0])}, key "
            f"{list(shapes[1])} and value {list(shapes[2])}."
        )
    if not 0 <= p <= 1:
        raise ShapeError(f"{NAME}: dropout probability has to be between 0 and 1, but got {p}.")
    same_device(NAME, [q, k, v] if mask is None else [q, k, v, mask])


_NAMES = "query", "key", "value"


def _lead(q: Tensor, k: Tensor, v: Tensor, enable_gqa: bool) -> tuple[Sizes, int]:
    """The sizes in front of rows and features, of queries; and the heads of keys."""
    shapes = [t._array.shape for t in (q, k, v)]
    if not enable_gqa or min(map(len, shapes)) < 3:
        lead = broadcast_shape(NAME, *[s[:-2] for s in shapes])
        return lead, lead[-1] if lead else 1
    heads, groups = shapes[0][-3], shapes[1][-3]
    if groups != shapes[2][-3] or not groups or heads % groups:
        raise ShapeError(
            f"{NAME}: Number of heads in key and value must divide the number of heads in query, "
            f"but got {groups} and {shapes[2][-3]} heads for {heads} of query."
        )
    return (*broadcast_shape(NAME, *[s[:-3] for s in shapes]), heads), groups


def _of_rank_4(x: Tensor, lead: Sizes) -> Tensor:
    """``x`` with ``lead`` in front of its last two dimensions, as (b, h, n, e)."""
    shape = (*lead, *x._array.shape[-2:])
    if x._array.shape != shape:
        x = x.expand(shape)
    if len(shape) == 4:
        return x
    heads = lead[-1] if lead else 1
    return x.reshape(math.prod(lead[:-1]), heads, *shape[-2:])


def _mask_of_rank_4(mask: Tensor, lead: Sizes, rows: int, columns: int) -> Tensor:
    """``mask`` as one of rank 4 that broadcasts to the scores."""
    found = broadcast_shape(NAME, mask._array.shape, (*lead, rows, columns))
    if found != (*lead, rows, columns):
        raise ShapeError(
            f"{NAME}: Expected attn_mask to broadcast to {[*lead, rows, columns]}, but got size "
            f"{list(mask._array.shape)}."
        )
    shape = mask._array.shape
    if len(shape) < 4:
        mask = mask.reshape((*(1,) * (4 - len(shape)), *shape))
    if len(lead) <= 2:
        return mask
    if math.prod(shape[:-2]) == 1:
        return mask.reshape((1, 1, *shape[-2:]))
    return _of_rank_4(mask, lead)


@remembered
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """``softmax(query @ key.T * scale + attn_mask) @ value``, by blocks (Dao, 2023).

    query (..., l, e), key (..., s, e), value (..., s, w), of one floating dtype; the result is
    (..., l, w). attn_mask broadcasts to (..., l, s): bool, True where a row may look, or of the
    dtype of query (or float32 beside halves), added to the scores. is_causal: row i looks at
    columns up to i. scale: by default ``1 / sqrt(e)``. dropout_p: the chance of a probability to be
    dropped, at all times: pass 0 in evaluation. enable_gqa: heads (the dimension before the last
    two) of query share those of key and value, which must divide them. A row that may look nowhere
    gives 0.

    Memory grows with ``l + s``, not their product; for a second derivative it grows with the
    product. Gradients: for query, key, value and an additive mask.
    Raises ShapeError for sizes that do not fit, DTypeError for mixed dtypes or integers.

    >>> x = tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> scaled_dot_product_attention(x, x, x, is_causal=True)[0].tolist()
    [1.0, 0.0]
    """
    if machine.autocasting:
        query, key, value, attn_mask = lowered(query, key, value, attn_mask)
    halves = isinstance(query, Tensor) and query._dtype in dtypes.HALVES
    if halves and isinstance(attn_mask, Tensor) and attn_mask._dtype is dtypes.float32:
        attn_mask = attn_mask.to(query._dtype)
    _check(query, key, value, attn_mask, dropout_p)
    if is_causal and attn_mask is not None:
        raise ShapeError(
            f"{NAME}: Explicit attn_mask should not be set when is_causal=True. Put -inf above the "
            f"diagonal of the mask instead."
        )
    lead, groups = _lead(query, key, value, enable_gqa)
    rows, features = query._array.shape[-2:]
    columns, width = value._array.shape[-2:]
    if scale is None:
        scale = 1 / math.sqrt(max(features, 1))
    mask = None
    if attn_mask is not None:
        if attn_mask._dtype is dtypes.bool_:
            nothing = full((), 0, query._dtype, query._device)
            attn_mask = where(attn_mask, nothing, -math.inf)
        mask = _mask_of_rank_4(attn_mask, lead, rows, columns)
    q = _of_rank_4(query, lead)
    k, v = (_of_rank_4(x, (*lead[:-1], groups) if lead else lead) for x in (key, value))
    p, state = float(dropout_p), None
    size = math.prod((*lead, rows)) * ((columns + 3) // 4 * 4)
    if p and size:
        state = state_for(None, size, 1)
    if features and width:
        out = Attention.apply(q, k, v, mask, state, float(scale), p, int(is_causal))
    else:  # no product to run
        weights = _probabilities(q, repeated(k, q._array.shape[1]), mask, scale, int(is_causal))
        weights = weights * _kept(state, p, weights) if p and size else weights
        out = matmul(weights, repeated(v, q._array.shape[1]))
    return out if len(lead) == 2 else out.reshape((*lead, rows, width))
