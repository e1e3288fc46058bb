"""``flex_attention``: attention with scores of the user's formula. Start at ``FlexAttention``."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from .. import devices, dtypes
from ..autograd import enable_grad, grad
from ..errors import DTypeError, ShapeError
from ..kernels import machine
from ..kernels.cpu import flex_attention as kernels
from ..kernels.expr import Expr, constant, expr, inputs_of, symbol, topological
from ..kernels.expr import where as pick
from ..kernels.formula import Formula
from ..kernels.score import POSITIONS, Score, kind_of
from ..tape import grad_mode
from ..tensor import Tensor
from .attention import check_dtypes, like_rows, normalised, repeated, rows_of
from .base import Op, as_operand, full, new_empty, same_device
from .block_mask import BlockMask
from .create import arange
from .elementwise import cast, where
from .linalg import matmul
from .pointwise import PointwiseOp
from .score_formula import check_reads, score_of

__all__ = ["flex_attention"]

NAME = "flex_attention"


class FlexAttention(Op):
    """``softmax(score_mod(scale q k^T)) v`` and the logarithms of the sums of exponentials.

    blocks: rows and columns of a block of ``kinds``, see ``BlockMask``; without, all is seen.
    captured: what the formula reads.
    """

    @staticmethod
    def forward(
        ctx: Any,
        score: Score,
        blocks: tuple[int, int],
        scale: float,
        kinds: Tensor | None,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *captured: Tensor,
    ) -> tuple[Tensor, Tensor]:
        arrays = rows_of(q), rows_of(k), rows_of(v)
        out = like_rows(arrays[0], v._array.shape[3], v)
        wide = dtypes.float32 if q._dtype in dtypes.HALVES else q._dtype
        lse = new_empty(q._array.shape[:3], wide, q._device)
        bad = machine.flag(q._array)
        sources = *arrays, _table(kinds, q), *[c._array for c in captured], *blocks, scale
        kernel = kernels.flex_attention(score)
        machine.launch(kernel, out._array, lse._array, bad, *sources)
        check_reads(NAME, bad, score, captured)
        ctx.options = score, blocks, scale
        ctx.save(kinds, q, k, v, *captured, out, lse)
        return out, lse

    @staticmethod
    def backward(ctx: Any, g: Tensor, glse: Tensor) -> tuple:
        score, blocks, scale = ctx.options
        kinds, q, k, v, *captured, out, lse = ctx.saved_tensors
        needs = ctx.needs_input_grad[4:]
        on_gpu = q._device.type != "cpu"
        if grad_mode.enabled or (on_gpu and any(needs[3:])):  # no kernel adds these up there
            found = _differentiable_grads(ctx.options, g, glse, (q, k, v, *captured), needs)
            return None, None, None, None, *found
        arrays = rows_of(q), rows_of(k), rows_of(v)
        grads = [like_rows(a, a.shape[3], g) for a in arrays]
        wrt = tuple([i for i, needed in enumerate(needs[3:]) if needed])
        more = [new_empty(captured[i]._array.shape, captured[i]._dtype, g._device) for i in wrt]
        machine.launch(
            kernels.flex_attention_grad(score, wrt),
            *[x._array for x in (*grads, *more)],
            *(rows_of(g), rows_of(out), lse._array, glse._array, *arrays, _table(kinds, q)),
            *[c._array for c in captured],
            *blocks,
            scale,
        )
        by_slot: dict[int, Tensor] = dict(zip(wrt, more, strict=True))
        rest = [by_slot.get(i) for i in range(len(captured))]
        return None, None, None, None, *grads, *rest


_SEEN = np.full((1, 1, 1, 1), kernels.FULL, np.int32)


def _table(kinds: Tensor | None, q: Tensor) -> Any:
    """The array of ``kinds``; that of one block, all of which is seen."""
    return machine.table(_SEEN, q._array) if kinds is None else kinds._array


# -- of differentiable functions -------------------------------------------------------------------


@functools.cache
def _op(body: Expr) -> PointwiseOp:
    inputs = tuple(sorted(inputs_of(body)))
    return PointwiseOp("flex_score", Formula("flex_score", inputs, body))


class _Values:
    """What expressions are on whole tensors; integers are tensors of int64."""

    def __init__(self, score: Score, q: Tensor, k: Tensor, captured: tuple[Tensor, ...]):
        self.score, self.captured, self.device = score, captured, q._device
        self.kinds = dict(score.kinds)
        b, h, rows, _ = q._array.shape
        sizes = b, h, rows, k._array.shape[2]
        self.of: dict[str, Tensor] = {}
        for d, (name, size) in enumerate(zip(POSITIONS, sizes, strict=True)):
            shape = [1] * d + [size] + [1] * (3 - d)
            self.of[name] = arange(size, device=q._device).reshape(shape)
        for read in score.reads:
            self.of[read.name] = self.element(read)

    def element(self, read: Any) -> Tensor:
        """The elements that are read; where there is none, which is hidden, any."""
        source = self.captured[read.slot]
        places = []
        for d, index in enumerate(read.indices):
            size = source._array.shape[d]
            place = cast(self.whole(index), dtypes.int64)
            places.append(where(place < 0, place + size, place).clamp(0, size - 1))
        return source[tuple(places)] if places else source

    def whole(self, index: Expr) -> Tensor:
        """An expression of positions."""
        if kind_of(index, self.kinds) != "T":
            return self.evaluated(index, dtypes.int64)
        return self.evaluated(self.without_integers(index), dtypes.float64)

    def evaluated(self, body: Expr, dtype: Any) -> Tensor:
        """An expression in ``dtype``."""
        if body.op == "const":
            return full((), body.value, dtype, self.device)
        names = sorted(inputs_of(body))
        if not names:
            return _op(expr("add", body, symbol("zero")))(full((), 0, dtype, self.device))
        return _op(body)(*[cast(self.of[n], dtype) for n in names])

    def without_integers(self, body: Expr) -> Expr:
        """``body`` with inputs in the place of what is made of integers alone."""
        known: dict[Expr, str] = {}
        kind_of(body, self.kinds, known)
        done: dict[Expr, Expr] = {}
        for node in topological([body]):
            if not node.args:
                done[node] = node
            elif known[node] != "T" and not node.is_bool:
                name = f"w{len(self.of)}"
                self.of[name], self.kinds[name] = self.evaluated(node, dtypes.int64), "int64"
                done[node] = symbol(name)
            else:
                done[node] = expr(node.op, *[done[a] for a in node.args])
        return done[body]


def _composed(
    options: tuple, q: Tensor, k: Tensor, v: Tensor, captured: tuple[Tensor, ...]
) -> tuple[Tensor, Tensor]:
    """Result and lse of FlexAttention, made of differentiable functions."""
    score, _, scale = options
    h, dtype = q._array.shape[1], q._dtype
    keys, values = repeated(k, h), repeated(v, h)
    scores = matmul(q, keys.transpose(2, 3)) * scale
    shape = scores._array.shape
    known = _Values(score, q, k, captured)
    known.of["score"] = scores
    body = score.body
    if score.mask is not None:  # in one formula: where it is hidden a slope may be NaN
        body = pick(score.mask, body, constant(-math.inf))
    scores = known.evaluated(known.without_integers(body), dtype).expand(shape)
    weights, lse = normalised(scores)
    return matmul(weights, values), lse


def _differentiable_grads(
    options: tuple, g: Tensor, glse: Tensor, inputs: tuple[Tensor, ...], needs: tuple[bool, ...]
) -> list[Tensor | None]:
    """The gradients of FlexAttention, which can be differentiated; memory grows with l times s."""
    again = grad_mode.enabled
    with enable_grad():
        # Each has a node of its own, for one tensor may be several of the inputs.
        apart = [x.view_as(x) if n else x for x, n in zip(inputs, needs, strict=True)]
        q, k, v, *captured = apart
        outputs = _composed(options, q, k, v, tuple(captured))
        wanted = [x for x, n in zip(apart, needs, strict=True) if n]
        found = iter(grad(outputs, wanted, (g, glse), create_graph=again, allow_unused=True))
    return [next(found) if n else None for n in needs]


# -- what the arguments must be --------------------------------------------------------------------


def _sizes(shapes: list[tuple[int, ...]]) -> str:
    q, k, v = map(list, shapes)
    return f"query {q}, key {k} and value {v}"


def _check(q: Tensor, k: Tensor, v: Tensor, enable_gqa: bool) -> None:
    for position, tensor in enumerate((q, k, v)):
        as_operand(NAME, tensor, position)
    shapes = [t._array.shape for t in (q, k, v)]
    if any(len(s) != 4 for s in shapes):
        raise ShapeError(
            f"{NAME}: Expected query, key, and value to be 4-dimensional, (batch, heads, length, "
            f"features), but got {_sizes(shapes)}. Add dimensions with unsqueeze(0)."
        )
    check_dtypes(NAME, q, k, v)
    wide = q._dtype in (dtypes.float32, dtypes.float64)
    if not (wide or (q._dtype in dtypes.HALVES and q._device is devices.cpu)):
        raise DTypeError(
            f"{NAME}: needs float32 or float64, on the CPU also halves, but got {q._dtype} on "
            f"{q._device}, as autocast makes of products. Convert with .float()."
        )
    (b, h, _, e), (kb, groups, keys, ke), (vb, vh, values, _) = shapes
    if e != ke or keys != values or groups != vh or kb != vb or kb not in (1, b):
        raise ShapeError(
            f"{NAME}: Expected key to have the features of query, and the batch, heads and length "
            f"of value, and their batch to be that of query or 1, but got "
            f"{_sizes(shapes)}."
        )
    if not enable_gqa and h != groups:
        raise ShapeError(
            f"{NAME}: Expect query and key/value to have the same number of heads but got Hq={h} "
            f"and Hkv={groups}. Try setting enable_gqa=True for GQA."
        )
    if h != groups and (not groups or h % groups):
        raise ShapeError(
            f"{NAME}: Expect number of query heads to be a multiple of kv heads for GQA but got "
            f"Hq={h} and Hkv={groups}."
        )
    same_device(NAME, [q, k, v])


def _check_mask(mask: Any, q: Tensor, k: Tensor) -> None:
    if not isinstance(mask, BlockMask):
        raise TypeError(
            f"{NAME}: block_mask must be a BlockMask, as create_block_mask makes, got "
            f"{type(mask).__name__}."
        )
    b, h, rows, _ = q._array.shape
    sizes = b, h, rows, k._array.shape[2]
    if mask.seq_lengths != sizes[2:]:
        raise ShapeError(
            f"{NAME}: block_mask was created for Q_LEN={mask.seq_lengths[0]} and "
            f"KV_LEN={mask.seq_lengths[1]}, but got q_len={sizes[2]} and kv_len={sizes[3]}. Create "
            f"one of these lengths."
        )
    for word, made, size in zip(("B", "H"), mask.shape, sizes, strict=False):
        if made not in (1, size):
            raise ShapeError(
                f"{NAME}: block_mask was created for {word}={made}, but query has {word}={size}. "
                f"Create it with {word}={size}, or {word}=None where all are alike."
            )


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Any = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
) -> Any:
    """``softmax(score_mod(query @ key.T * scale)) @ value``, by blocks, with a formula for scores.

    query (b, h, l, e), key (b, g, s, e), value (b, g, s, w), float32 or float64, on the CPU also
    float16 or bfloat16; the result is (b, h, l, w). score_mod: a plain function
    ``(score, b, h, q_idx, kv_idx) -> score`` of numbers, see ``ng.elementwise``; its gradient is
    derived. It may capture tensors and read elements of them, ``slopes[h]`` or
    ``table[q_idx - kv_idx + 127]``, which then have gradients too, the same
    on any number of threads; indices below 0 count from the end. block_mask: of
    ``create_block_mask``; blocks that are hidden are left out. scale: by default ``1 / sqrt(e)``.
    enable_gqa: g heads of key and value are shared by the h of query. return_lse: the logarithms
    of the sums of exponentials (b, h, l) too. A query that sees nothing gives 0 and lse -inf.

    Memory grows with ``l + s``, not their product; for a second derivative it grows with the
    product. Gradients: for query, key, value and captured tensors.
    Raises ShapeError for sizes that do not fit, DTypeError for other dtypes, FormulaError for a
    function that is no formula, IndexError for elements that are not there.

    >>> x = tensor([[[[1.0, 0.0], [0.0, 1.0]]]])
    >>> flex_attention(x, x, x, lambda s, b, h, q, k: s if q >= k else -math.inf)[0, 0, 0].tolist()
    [1.0, 0.0]
    """
    _check(query, key, value, enable_gqa)
    if block_mask is not None:
        _check_mask(block_mask, query, key)
    mask_mod = None if block_mask is None else block_mask.mask_mod
    score, captured = score_of(NAME, score_mod, mask_mod)
    for tensor, about in zip(captured, score.captured, strict=True):
        if not tensor._array.size:
            raise ShapeError(f"{NAME}: {about.name}, which a formula reads, has no elements.")
    b, _, rows, features = query._array.shape
    width = value._array.shape[3]
    if key._array.shape[0] != b:
        key, value = (x.expand(b, *x._array.shape[1:]) for x in (key, value))
    scale = float(1 / math.sqrt(max(features, 1)) if scale is None else scale)
    kinds, blocks = None, (max(rows, 1), max(key._array.shape[2], 1))
    if block_mask is not None:
        kinds, blocks = block_mask.kinds, block_mask.BLOCK_SIZE
    same_device(NAME, [query, *captured] if kinds is None else [query, kinds, *captured])
    if features and width and key._array.size and query._array.size:
        out, lse = FlexAttention.apply(score, blocks, scale, kinds, query, key, value, *captured)
        if return_lse:  # the kernel has inf where the gradient needs it
            lse = where(lse == math.inf, -math.inf, lse)
    else:  # no product to run
        out, lse = _composed((score, blocks, scale), query, key, value, captured)
    return (out, lse) if return_lse else out
