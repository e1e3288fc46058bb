"""``multi_head_attention_forward``, in nn.functional: attention of several heads between affine
maps. ``attend`` does the work, for either order of the first two dimensions."""

from __future__ import annotations

import math
from typing import Any

from .. import dtypes
from ..errors import DTypeError, ShapeError
from ..tensor import Tensor
from .attention import scaled_dot_product_attention
from .base import as_operand, full
from .elementwise import where
from .join import cat, chunk
from .linalg import linear, matmul
from .norm import softmax
from .pad import pad
from .random import dropout

__all__: list[str] = []

NAME = "multi_head_attention_forward"


def additive(name: str, mask: Tensor | None, like: Tensor) -> Tensor | None:
    """``mask``, which is added to scores; of a bool one -inf where it is True."""
    if mask is None or mask.dtype.is_floating_point:
        return mask
    if mask.dtype is not dtypes.bool_:
        raise DTypeError(f"{name}: only bool and floating masks are supported, got {mask.dtype}.")
    return where(mask, -math.inf, full((), 0, like._dtype, like._device))


def _projections(
    query: Tensor, key: Tensor, value: Tensor, weights: tuple[Tensor, ...], bias: Tensor | None
) -> tuple[Tensor, ...]:
    """The affine maps of query, key and value; weights: three, or all of them in one."""
    if len(weights) == 3:
        biases = (None, None, None) if bias is None else chunk(bias, 3)
        given = query, key, value
        return tuple([linear(x, w, b) for x, w, b in zip(given, weights, biases, strict=True)])
    (weight,) = weights
    if query is key and key is value:
        return chunk(linear(query, weight, bias), 3, -1)
    return _projections(query, key, value, chunk(weight, 3), bias)


def _check(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None,
    num_heads: int,
    apart: bool,
) -> None:
    rank = query.dim()
    if rank not in (2, 3) or key.dim() != rank or value.dim() != rank:
        raise ShapeError(
            f"{NAME}: query should be unbatched 2D or batched 3D tensor, and key and value of as "
            f"many dimensions, but got {query.dim()}D query, {key.dim()}D key and {value.dim()}D "
            f"value."
        )
    same = key.shape[:-1] == value.shape[:-1] if apart else key.shape == value.shape
    if not same:
        raise ShapeError(
            f"{NAME}: key shape {list(key.shape)} does not match value shape {list(value.shape)}."
        )
    if query.shape[-1] % num_heads:
        raise ShapeError(
            f"{NAME}: embed_dim {query.shape[-1]} not divisible by num_heads {num_heads}."
        )
    if key_padding_mask is not None and key_padding_mask.dim() != rank - 1:
        raise ShapeError(
            f"{NAME}: For {rank}D query, expected key_padding_mask to be None or {rank - 1}D, but "
            f"found {key_padding_mask.dim()}D tensor instead."
        )


def _merged(
    attn_mask: Tensor | None, padding: Tensor | None, sizes: tuple[int, int, int, int], more: int
) -> Tensor | None:
    """The sum of both masks, of rank 4; with ``more`` columns of zeros for keys added behind."""
    batch, heads, rows, columns = sizes
    if attn_mask is not None:
        allowed = (rows, columns), (batch * heads, rows, columns)
        if attn_mask._array.shape not in allowed:
            raise ShapeError(
                f"{NAME}: The shape of attn_mask is {list(attn_mask.shape)}, but should be "
                f"{list(allowed[0])} or {list(allowed[1])}."
            )
        attn_mask = pad(attn_mask, (0, more)) if more else attn_mask
        lead = (1, 1) if attn_mask.dim() == 2 else (batch, heads)
        attn_mask = attn_mask.reshape(*lead, rows, columns + more)
    if padding is None:
        return attn_mask
    if padding._array.shape != (batch, columns):
        raise ShapeError(
            f"{NAME}: expected key_padding_mask of size {[batch, columns]}, but got "
            f"{list(padding.shape)}."
        )
    padding = pad(padding, (0, more)) if more else padding
    padding = padding.reshape(batch, 1, 1, columns + more)
    return padding if attn_mask is None else attn_mask + padding


def _weighted(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p: float
) -> tuple[Tensor, Tensor]:
    """The result of attention, and its probabilities, which are made whole."""
    scores = matmul(q * (1 / math.sqrt(q.shape[-1])), k.transpose(2, 3))
    weights = softmax(scores if mask is None else scores + mask)
    weights = dropout(weights, p) if p else weights
    return matmul(weights, v), weights


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    num_heads: int,
    weights: tuple[Tensor, ...],
    bias: Tensor | None,
    last: tuple[Tensor, Tensor | None],
    *,
    added: tuple[Tensor | None, Tensor | None],
    zero: bool,
    p: float,
    padding: Tensor | None,
    need_weights: bool,
    attn_mask: Tensor | None,
    average: bool,
    causal: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor | None]:
    """``multi_head_attention_forward``; batch_first: query is (b, l, e), not (l, b, e).

    weights, last: of the maps before and after; added: a key and a value behind all others, zero:
    another of zeros.
    """
    _check(query, key, value, padding, num_heads, len(weights) == 3)
    if causal and attn_mask is None:
        raise ShapeError(
            f"{NAME}: Need attn_mask if specifying the is_causal hint, which only says what it is."
        )
    padding = additive("key_padding_mask", padding, query)
    if causal and padding is None and not need_weights:
        attn_mask = None
    else:
        attn_mask, causal = additive("attn_mask", attn_mask, query), False
    batched, side = query.dim() == 3, 0 if batch_first else 1
    if not batched:
        shared = query is key and key is value
        query = query.unsqueeze(side)
        key = query if shared else key.unsqueeze(side)
        value = query if shared else value.unsqueeze(side)
        padding = None if padding is None else padding.unsqueeze(0)
    embedding, width = query.shape[2], query.shape[2] // num_heads
    batch, rows, columns = query.shape[side], query.shape[1 - side], key.shape[1 - side]
    q, k, v = _projections(query, key, value, weights, bias)
    if added[0] is not None and added[1] is not None:
        shape = (batch, 1, embedding) if batch_first else (1, batch, embedding)
        k, v = (cat([x, y.expand(shape)], 1 - side) for x, y in ((k, added[0]), (v, added[1])))

    def heads(x: Tensor) -> Tensor:
        """(b, h, n, width)"""
        split = x.reshape(*x.shape[:2], num_heads, width)
        return split.permute(side, 2, 1 - side, 3)

    q, k, v = heads(q), heads(k), heads(v)
    if zero:
        nothing = full((batch, num_heads, 1, width), 0, k._dtype, k._device)
        k, v = cat([k, nothing], 2), cat([v, nothing], 2)
    sizes = batch, num_heads, rows, columns
    mask = _merged(attn_mask, padding, sizes, k.shape[2] - columns)
    found = None
    if need_weights:
        out, found = _weighted(q, k, v, mask, p)
    else:
        out = scaled_dot_product_attention(q, k, v, mask, p, causal)
    out = out.permute(0, 2, 1, 3) if batch_first else out.permute(2, 0, 1, 3)
    out = linear(out.reshape(*out.shape[:2], embedding), *last)
    if found is not None:
        found = found.mean(1) if average else found
        found = found if batched else found.squeeze(0)
    return out if batched else out.squeeze(side), found


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention of several heads, and its weights if asked for (Vaswani et al., 2017).

    query (l, b, e), key (s, b, ek), value (s, b, ev), or without b; in_proj_weight (3 e, e), or
    with use_separate_proj_weight three weights (e, ..); the result is (l, b, e). attn_mask (l, s)
    or (b heads, l, s) and key_padding_mask (b, s): bool, True where a row may *not* look, or added
    to the scores. is_causal says that attn_mask hides what comes later. The weights, (b, l, s) or
    for each head (b, heads, l, s), are what makes memory grow with l s: need_weights=False goes by
    blocks, and gives 0, not NaN, in a row that may look nowhere. static_k and static_v are not
    supported.
    """
    if static_k is not None or static_v is not None:
        raise ShapeError(f"{NAME}: static_k and static_v are not supported; leave them out.")
    if as_operand(NAME, query).shape[-1] != embed_dim_to_check:
        raise ShapeError(
            f"{NAME}: was expecting embedding dimension of {embed_dim_to_check}, but got "
            f"{query.shape[-1]}."
        )
    apart = q_proj_weight, k_proj_weight, v_proj_weight
    weights: Any = apart if use_separate_proj_weight else (in_proj_weight,)
    if any([w is None for w in weights]):
        raise ShapeError(
            f"{NAME}: use_separate_proj_weight is {use_separate_proj_weight}, but a weight for it "
            f"is None."
        )
    return attend(
        *(query, key, value, num_heads, weights, in_proj_bias, (out_proj_weight, out_proj_bias)),
        added=(bias_k, bias_v),
        zero=add_zero_attn,
        p=dropout_p if training else 0.0,
        padding=key_padding_mask,
        need_weights=need_weights,
        attn_mask=attn_mask,
        average=average_attn_weights,
        causal=is_causal,
        batch_first=False,
    )
