"""Attention and its gradients, by blocks: the matrix of all scores is never made.

A task takes some rows of queries of one head and goes over the keys in blocks. It keeps the largest
score of each row so far and the sum of exponentials; when a block brings a larger one, what has
been summed is scaled down (Rabe and Staats, "Self-attention does not need O(n^2) memory", 2021;
Dao, "FlashAttention-2", 2023). Forward saves the logarithm of the sum of exponentials, from which
the gradients compute each block of probabilities again. How work is cut depends on the sizes alone,
so the result does not depend on the threads.

Arrays are (batch, heads, rows, features). Several heads of queries may share one of keys. Start
reading at ``scores``, then ``attention_rows`` and ``attention_grad_columns``. Which
keys a block of rows looks at and what becomes of their products, ``causal_block``, ``causal_span``,
``masked_scores`` and ``masked_grads`` say; ``flex_attention.py`` has others in their place.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from ..blas import blas_alone, blas_restore
from ..inner import device, inner, keep
from ..intrinsics import address, larger, pointer
from ..product import gemm, strided_gemm_kernel
from ..simd_math import exp, falling_exp, log
from .norm import summing
from .philox import words_of

__all__ = ["attention", "attention_grad", "attention_mask_grad"]

GRAIN = 8192
"""Elements of the largest array from which a second thread pays: 10 us of work at 32 keys."""

ROWS, COLUMNS = 64, 256
"""Queries and keys of a block: its scores and their gradients stay in the second cache."""

SHORT = 128
"""Rows up to which a causal sequence is cut into blocks of half as many: 15 % at 64 rows."""

TASKS = 8
"""Tasks among which the gradient is shared at least, if there are keys enough."""


stage = inner(forceinline=True)
"""Decorator of what is done with a row: called with all that it may need, it is slow."""


@device
def row_length(x):
    """Elements from one row of ``x`` (b, h, n, e) to the next."""
    return max(x.strides[2] // x.itemsize, x.shape[3])


@device
def place(x, b, h, i):
    """The address of row ``i`` of a head."""
    return address(x) + b * x.strides[0] + h * x.strides[1] + i * x.strides[2]


@device
def add_mask(row, size, scale, mask, b, h, i, j):
    """``row * scale`` and the mask from column ``j`` on, any strides."""
    at = address(mask) + b * mask.strides[0] + h * mask.strides[1]
    at += i * mask.strides[2] + j * mask.strides[3]
    step = mask.strides[3]
    if step == mask.itemsize:
        line = pointer(at, mask.dtype)
        for j in range(size):
            row[j] = row[j] * scale + line[j]
    else:
        for j in range(size):
            row[j] = row[j] * scale + pointer(at + j * step, mask.dtype)[0]


@device
def scaled_max(row, size, scale, visible, hidden):
    """``row * scale``, from ``visible`` on ``hidden``, which is -inf; the largest, NaN if there is
    one. A loop of one length for all rows: lengths of their own cost twice as much."""
    peak = hidden
    for j in range(size):
        row[j] = row[j] * scale if np.int32(j) < visible else hidden
        peak = larger(peak, row[j])
    return peak


@summing
def exponentials(row, size, peak, total):
    """Make ``row`` the exponentials of ``row - peak``; their sum and ``total``, a zero."""
    for j in range(size):
        row[j] = falling_exp(row[j] - peak)
        total += row[j]
    return total


@summing
def dot(x, y, size, total):
    """The sum of the products of so many numbers at two pointers and ``total``, a zero."""
    for j in range(size):
        total += x[j] * y[j]
    return total


@device
def scaled(where, size, factor):
    """Multiply so many numbers at a pointer by ``factor``."""
    for j in range(size):
        where[j] *= factor


@device
def clear(x, b, h, first, count):
    """Zeros in some rows of a head."""
    for i in range(first, first + count):
        row = pointer(place(x, b, h, i), x.dtype)
        for j in range(x.shape[3]):
            row[j] = 0


@device
def drop(row, size, state, at, p, keep):
    """Multiply ``row`` by ``keep``, or by 0 with probability ``p``.

    at: the counter of its first four elements. The same words as those of ``random.dropout`` on
    rows that are filled up to a multiple of four, and that much is written.
    """
    key, start = np.uint64(state[0]), np.uint64(state[1])
    limit, nothing = np.uint64(p * 4294967296.0), keep - keep
    for i in range((size + 3) >> 2):
        a, b, c, d = words_of(key, start, at + i)
        row[4 * i] *= keep if np.uint64(a) >= limit else nothing
        row[4 * i + 1] *= keep if np.uint64(b) >= limit else nothing
        row[4 * i + 2] *= keep if np.uint64(c) >= limit else nothing
        row[4 * i + 3] *= keep if np.uint64(d) >= limit else nothing


@device
def kept(p, like):
    """What a probability that is not dropped is multiplied by."""
    return like.dtype.type(1 / (1 - p) if p < 1 else 0)


@device
def counter_of(q, k, b, h, i, j):
    """The counter of the random numbers for score ``j`` of a row; j: a multiple of four."""
    row = (b * q.shape[1] + h) * q.shape[2] + i
    return row * ((k.shape[2] + 3) // 4) + j // 4


@device
def scores(tile, q, k, b, h, i, j, n, m):
    """The products of n queries from ``i`` on with m keys from ``j`` on, into ``tile``."""
    shared = h // (q.shape[1] // k.shape[1])
    factors = place(q, b, h, i), row_length(q), place(k, b, shared, j), row_length(k)
    gemm(tile, 0, 1, n, m, q.shape[3], *factors, 0, 0, address(tile), tile.shape[1])


@device
def seen(causal, i, j, m):
    """How many of ``m`` keys from ``j`` on query ``i`` looks at: 32 bits, as wide as a float."""
    return np.int32(min(m, max(0, i + 1 - j)) if causal else m)


@device
def whole_line(keys):
    """Columns of a block in memory: a multiple of four, see ``drop``."""
    return min(COLUMNS, (keys + 3) // 4 * 4)


@device
def rows_at_once(q, causal):
    """Queries of a block: few of a short causal sequence, to leave out more of what is hidden."""
    return ROWS // 2 if causal and q.shape[2] <= SHORT else ROWS


@device
def causal_block(t, q, more):
    """The first row and the number of rows of block ``t`` of queries, and all blocks of a head."""
    step, length = rows_at_once(q, more[2]), q.shape[2]
    return t * step, min(step, length - t * step), (length + step - 1) // step


@device
def causal_span(j, end, b, h, i, n, more):
    """How many keys from ``j`` on, below ``end``, to take next for n queries from ``i`` on; and
    how: 0 to leave them out."""
    last = min(end, i + n) if more[2] else end
    return (min(COLUMNS, last - j), 1) if j < last else (end - j, 0)


@stage
def masked_scores(row, m, way, scale, b, h, i, j, more):
    """Make a row of products scores, by mask and causality; the largest of them."""
    mask, masked, causal = more
    real = mask.dtype.type
    if masked:
        add_mask(row, m, scale, mask, b, h, i, j)
    visible, by = seen(causal, i, j, m), real(1) if masked else scale
    return scaled_max(row, m, by, visible, real(-np.inf))


@device(allocates=True)
def attention_rows(task, out, lse, q, k, v, state, scale, p, more):
    """Some rows of queries of one head. more: mask, masked and causal."""
    heads, length, keys, width = q.shape[1], q.shape[2], k.shape[2], v.shape[3]
    blocks, real = causal_block(0, q, more)[2], q.dtype.type
    b, h = task // blocks // heads, task // blocks % heads
    first, n, _ = causal_block(task % blocks, q, more)
    line, started = whole_line(keys), False
    tile, state_of_rows = np.empty((n, line), q.dtype), np.empty((2, n), q.dtype)
    scores_at = address(tile)
    peak = pointer(address(state_of_rows), q.dtype)
    total = pointer(address(state_of_rows) + n * q.itemsize, q.dtype)
    for r in range(n):
        peak[r], total[r] = -np.inf, 0
    to, ldout = place(out, b, h, first), row_length(out)
    j = 0
    while j < keys:
        m, way = causal_span(j, keys, b, h, first, n, more)
        if way:
            scores(tile, q, k, b, h, first, j, n, m)
            for r in range(n):
                i = first + r
                row = pointer(scores_at + r * line * q.itemsize, q.dtype)
                largest = masked_scores(row, m, way, real(scale), b, h, i, j, more)
                before = peak[r]
                if largest > before or largest != largest:
                    peak[r] = largest
                shift = real(0) if peak[r] == -np.inf else peak[r]
                mass = exponentials(row, m, shift, real(0))
                if p > 0:
                    drop(row, m, state, counter_of(q, k, b, h, i, j), p, kept(p, q))
                if started:
                    less = exp(before - shift)
                    mass += total[r] * less
                    scaled(pointer(to + r * ldout * out.itemsize, out.dtype), width, less)
                total[r] = mass
            begin = to if started else 0
            source = place(v, b, h // (heads // k.shape[1]), j), row_length(v)
            gemm(out, 0, 0, n, width, m, scores_at, line, *source, begin, ldout, to, ldout)
            started = True
        j += m
    if not started:
        clear(out, b, h, first, n)
    sums = pointer(address(lse) + ((b * heads + h) * length + first) * q.itemsize, q.dtype)
    for r in range(n):
        # A row that sees nothing is 0, and infinity makes its probabilities 0 in the gradient.
        sums[r] = real(np.inf) if total[r] == 0 else peak[r] + log(total[r])
    for r in range(n):
        inverse = real(1) if total[r] == 0 else real(1) / total[r]
        scaled(pointer(to + r * ldout * out.itemsize, out.dtype), width, inverse)
    keep(tile)
    keep(state_of_rows)


@strided_gemm_kernel(grain=GRAIN, outputs=2, allocates=True)
def attention(out, lse, q, k, v, mask, state, scale, p, masked, causal):
    """``out = softmax(scale q k^T + mask) v``; lse: the logarithms of the sums of exponentials.

    out (b, h, l, w), lse (b, h, l), q (b, h, l, e), k (b, g, s, e), v (b, g, s, w), rows of unit
    stride, g divides h; mask (b, h, l, s), any strides, or without ``masked`` any array of rank 4.
    state (2,): random numbers that drop probabilities with chance ``p``. causal: row i sees the
    columns up to i. A row that sees nothing becomes 0, its lse infinity.
    """
    more = mask, masked, causal
    tasks = q.shape[0] * q.shape[1] * causal_block(0, q, more)[2]
    previous = blas_alone(q.size * k.shape[2])
    for task in prange(0, tasks):
        attention_rows(task, out, lse, q, k, v, state, scale, p, more)
    blas_restore(previous)


@stage
def masked_grads(row, grad, m, way, scale, factor, shift, less, flags, p, b, h, i, j, more):
    """Make a row of products probabilities, as dropped, and ``grad`` the gradients of scores times
    ``factor``. shift: the row's lse; less: what all gradients of the row lose; flags: with ``p``
    the factors of dropped probabilities."""
    mask, masked, causal = more
    real = mask.dtype.type
    hidden = real(-np.inf)
    most = real(0)  # of large scores, made of other sums than in forward, the rest may be above it
    if masked:
        add_mask(row, m, scale, mask, b, h, i, j)
    visible, by = seen(causal, i, j, m), real(1) if masked else scale
    if p > 0:
        for c in range(m):
            x = row[c] * by - shift
            x = most if x > most else x
            weight = falling_exp(x if np.int32(c) < visible else hidden)
            grad[c] = weight * (flags[c] * grad[c] - less) * factor
            row[c] = weight * flags[c]
    else:
        for c in range(m):
            x = row[c] * by - shift
            x = most if x > most else x
            weight = falling_exp(x if np.int32(c) < visible else hidden)
            grad[c] = weight * (grad[c] - less) * factor
            row[c] = weight


@device(allocates=True)
def score_grads(
    tile, other, lost, g, lse, q, k, v, state, scale, factor, p, more, b, h, i, j, n, m, way
):
    """The probabilities of a block, as dropped, into ``tile``; the gradients of its scores times
    ``factor`` into ``other``. lost (l): the products of the rows of g and out. more: mask,
    masked and causal."""
    shared, real, line = h // (q.shape[1] // k.shape[1]), q.dtype.type, tile.shape[1]
    size = q.itemsize
    scores(tile, q, k, b, h, i, j, n, m)
    factors = place(g, b, h, i), row_length(g), place(v, b, shared, j), row_length(v)
    gemm(tile, 0, 1, n, m, v.shape[3], *factors, 0, 0, address(other), line)
    dropped = np.empty(line if p > 0 else 0, q.dtype)
    sums = pointer(address(lse) + (b * q.shape[1] + h) * q.shape[2] * size, q.dtype)
    for r in range(n):
        row = pointer(address(tile) + r * line * size, q.dtype)
        grad = pointer(address(other) + r * line * size, q.dtype)
        flags = pointer(address(dropped), q.dtype)
        if p > 0:
            for c in range(m):
                flags[c] = 1
            drop(flags, m, state, counter_of(q, k, b, h, i + r, j), p, kept(p, q))
        masked_grads(
            *(row, grad, m, way, real(scale), real(factor), sums[i + r], lost[i + r], flags, p),
            *(b, h, i + r, j, more),
        )
    keep(dropped)
    keep(tile)


@device
def lost_rows(lost, g, out, b, h):
    """The products of the rows of ``g`` and ``out`` in one head, into ``lost``."""
    nothing = g.dtype.type(0)
    for i in range(lost.size):
        x, y = pointer(place(g, b, h, i), g.dtype), pointer(place(out, b, h, i), g.dtype)
        lost[i] = dot(x, y, g.shape[3], nothing)


@device
def chunks_of(k):
    """Among how many tasks the keys of a head are shared: see ``attention_grad_columns``."""
    blocks = (k.shape[2] + COLUMNS - 1) // COLUMNS
    return max(1, min(blocks, TASKS // max(k.shape[0] * k.shape[1], 1)))


@device(allocates=True)
def attention_grad_columns(task, rest, gq, gk, gv, g, out, lse, q, k, v, state, scale, p, more):
    """A chunk of the keys of one head of keys, for all heads of queries that share it.

    rest: of chunks but the first, what they add to gq. more: mask, masked and causal.
    """
    chunks = rest.shape[0] + 1
    b, shared = task // chunks // k.shape[1], task // chunks % k.shape[1]
    chunk, group = task % chunks, q.shape[1] // k.shape[1]
    length, keys, e, width = q.shape[2], k.shape[2], q.shape[3], v.shape[3]
    blocks = (keys + COLUMNS - 1) // COLUMNS
    begin = chunk * blocks // chunks * COLUMNS
    end = min(keys, (chunk + 1) * blocks // chunks * COLUMNS)
    most, blocks = causal_block(0, q, more)[1:]
    tile = np.empty((most, whole_line(keys)), q.dtype)
    other, lost = np.empty_like(tile), np.empty(length, q.dtype)
    line = tile.shape[1]
    to = gq if chunk == 0 else rest[chunk - 1]
    clear(gk, b, shared, begin, end - begin)
    clear(gv, b, shared, begin, end - begin)
    for h in range(shared * group, (shared + 1) * group):
        clear(to, b, h, 0, length)
        lost_rows(lost, g, out, b, h)
        for start in range(begin, end, COLUMNS):
            stop = min(start + COLUMNS, end)
            for t in range(blocks):
                i, n, _ = causal_block(t, q, more)
                j = start
                while j < stop:
                    m, way = causal_span(j, stop, b, h, i, n, more)
                    if way:
                        score_grads(
                            tile, other, lost, g, lse, q, k, v, state, scale, scale, p, more,
                            b, h, i, j, n, m, way,
                        )  # fmt: skip
                        at, row = place(gv, b, shared, j), row_length(gv)
                        factors = address(tile), line, place(g, b, h, i), row_length(g)
                        gemm(tile, 1, 0, m, width, n, *factors, at, row, at, row)
                        at, row = place(gk, b, shared, j), row_length(gk)
                        factors = address(other), line, place(q, b, h, i), row_length(q)
                        gemm(tile, 1, 0, m, e, n, *factors, at, row, at, row)
                        at, row = place(to, b, h, i), row_length(to)
                        factors = address(other), line, place(k, b, shared, j), row_length(k)
                        gemm(tile, 0, 0, n, e, m, *factors, at, row, at, row)
                    j += m
    keep(tile)
    keep(other)


@device
def add_chunks(task, gq, rest):
    """Add what all chunks have for one head of queries, in their order."""
    b, h = task // gq.shape[1], task % gq.shape[1]
    for c in range(rest.shape[0]):
        for i in range(gq.shape[2]):
            for j in range(gq.shape[3]):
                gq[b, h, i, j] += rest[c, b, h, i, j]


@strided_gemm_kernel(grain=GRAIN, outputs=3, allocates=True)
def attention_grad(gq, gk, gv, g, out, lse, q, k, v, mask, state, scale, p, masked, causal):
    """The gradients of ``attention`` with respect to q, k and v.

    gq, gk, gv: shaped as q, k, v; g as out; rows of unit stride. The rest as there.
    """
    chunks, more = chunks_of(k), (mask, masked, causal)
    rest = np.empty((chunks - 1, *q.shape), q.dtype)
    previous = blas_alone(q.size * k.shape[2])
    for task in prange(0, k.shape[0] * k.shape[1] * chunks):
        attention_grad_columns(task, rest, gq, gk, gv, g, out, lse, q, k, v, state, scale, p, more)
    blas_restore(previous)
    if chunks > 1:
        for task in prange(0, q.shape[0] * q.shape[1]):
            add_chunks(task, gq, rest)


@device(allocates=True)
def mask_grad_rows(task, blocks, gmask, g, out, lse, q, k, v, mask, state, scale, p):
    """Some rows of one head of the mask, from all heads to which it is broadcast."""
    sizes, heads, length, keys = gmask.shape, q.shape[1], q.shape[2], k.shape[2]
    mb, mh = task // blocks // sizes[1], task // blocks % sizes[1]
    first, last = task % blocks * ROWS, min(length, (task % blocks + 1) * ROWS)
    by_row, by_column = sizes[2] > 1, sizes[3] > 1
    if not by_row:
        last = length
    clear(gmask, mb, mh, first, last - first if by_row else 1)
    tile = np.empty((min(ROWS, length), whole_line(keys)), q.dtype)
    other, lost = np.empty_like(tile), np.empty(length, q.dtype)
    more = mask, 1, 0
    b0, b1 = (mb, mb + 1) if sizes[0] > 1 else (0, q.shape[0])
    h0, h1 = (mh, mh + 1) if sizes[1] > 1 else (0, heads)
    for b in range(b0, b1):
        for h in range(h0, h1):
            lost_rows(lost, g, out, b, h)
            for i in range(first, last, ROWS):
                n = min(ROWS, last - i)
                for j in range(0, keys, COLUMNS):
                    m = min(COLUMNS, keys - j)
                    score_grads(
                        tile, other, lost, g, lse, q, k, v, state, scale, 1.0, p, more,
                        b, h, i, j, n, m, 1,
                    )  # fmt: skip
                    for r in range(n):
                        at = place(gmask, mb, mh, i + r if by_row else 0)
                        to = pointer(at, gmask.dtype)
                        for c in range(m):
                            to[j + c if by_column else 0] += other[r, c]
    keep(tile)
    keep(other)


@strided_gemm_kernel(grain=GRAIN, allocates=True)
def attention_mask_grad(gmask, g, out, lse, q, k, v, mask, state, scale, p):
    """The gradient of ``attention`` with respect to a mask before it was broadcast.

    gmask: C, each of its four sizes that of mask (b, h, l, s), or 1. The rest as for
    ``attention_grad``.
    """
    blocks = 1 if gmask.shape[2] == 1 else (gmask.shape[2] + ROWS - 1) // ROWS
    previous = blas_alone(q.size * k.shape[2])
    for task in prange(0, gmask.shape[0] * gmask.shape[1] * blocks):
        mask_grad_rows(task, blocks, gmask, g, out, lse, q, k, v, mask, state, scale, p)
    blas_restore(previous)
