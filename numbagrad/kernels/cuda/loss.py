"""Cross entropy and negative log likelihood of class indices, with their gradients.

A row belongs to a warp, or to a block where it is long. Then one block adds up the losses, in an
order that depends on their number alone. A small batch is one launch of one block. A target that is
no class is reported through ``bad``; its row's loss is NaN, and nothing outside the arrays is
touched.
"""

from __future__ import annotations

from typing import Any

from numba import cuda, float64, int64

from ..halves import arithmetic
from . import reduce
from .runtime import device
from .runtime.held import Held, grid_for_rows, held_by, reader, summed, writer
from .runtime.intrinsics import as_type
from .runtime.launch import made, start, strided_grid
from .runtime.maths import math
from .runtime.shape import BLOCK, SIMULATED, WARP, WARPS
from .runtime.teams import Team, exponentials, grid_of, team_for
from .runtime.warp import block_sum, inlined, shuffle_down, split

__all__ = ["cross_entropy", "cross_entropy_grad", "nll", "nll_grad", "reduce_losses", "target_rows"]

NONE, MEAN, SUM = 0, 1, 2
NO_ROW = 1 << 62

FEW, SHORT = (6, 4) if SIMULATED else (2 * BLOCK, 32)
"""Most rows and classes of a loss that one block makes by one launch."""


def _ending(real: Any) -> Any:
    @inlined
    def ended(
        losses, lse, x, target, i, row, peak, high, rest, weight, c, weighted, ignore, smoothing
    ):
        """Write the logsumexp of row i, and its loss, which is the result.

        row: where its logits begin; high: the logarithm of their mass; rest: the sum over classes.
        """
        lse[i] = high + peak
        t = target[i]
        loss = real(0)
        if t < 0 or t >= c:
            if t != ignore:
                loss = real(math.nan)
        elif t != ignore:
            loss = high - (x[row + t] - peak)
            if weighted:
                loss *= weight[t]
            if smoothing > 0.0:
                loss = loss * real(1.0 - smoothing) + rest * real(smoothing / c)
        losses[i] = loss
        return loss

    return ended


def _rows_kernel(real: Any, team: Team) -> Any:
    """Loss and logsumexp of each row."""
    width, count, total_of = team.width, team.count, team.sum
    (peak_of, mass_of), ended = exponentials(real, team), _ending(real)

    def loss_rows(losses, lse, x, target, weight, n, c, weighted, ignore, smoothing):
        shared = cuda.shared.array(WARPS, real)
        lane = cuda.threadIdx.x % width
        base = cuda.blockIdx.x * count
        while base < n:
            i = base + cuda.threadIdx.x // width
            row = i * c
            end = c if i < n else 0
            peak = peak_of(x, row, 1, lane, end, shared)
            if peak == real(-math.inf):
                peak = real(0)
            total = mass_of(x, row, 1, lane, end, peak, shared)
            high = real(math.log(total)) if end > 0 else real(0)
            rest = real(0)
            if smoothing > 0.0:
                for j in range(lane, end, width):
                    each = high - (x[row + j] - peak)
                    rest += each * weight[j] if weighted else each
                rest = total_of(rest, shared)
            if lane == 0 and i < n:
                ended(
                    losses, lse, x, target, i, row, peak, high, rest, weight, c, weighted, ignore,
                    smoothing,
                )  # fmt: skip
            base += cuda.gridDim.x * count

    return loss_rows


def _held_kernel(real: Any, held: Held) -> Any:
    """Loss and logsumexp of each row, for rows that a team can hold."""
    width, count, size, lanes = held.width, held.count, held.size, held.lanes
    read, (total_of, largest_of), ended = reader(real, held), summed(held), _ending(real)

    def held_rows(losses, lse, x, target, weight, n, c, weighted, ignore, smoothing):
        shared = cuda.shared.array(WARPS, real)
        values = cuda.local.array(size, real)
        lane = cuda.threadIdx.x % width
        base = cuda.blockIdx.x * count
        while base < n:
            i = base + cuda.threadIdx.x // width
            row = i * c
            end = c if i < n else 0
            read(values, x, row, lane, end, real(-math.inf))
            peak = values[0]
            for k in range(1, size):
                peak = values[k] if values[k] > peak or values[k] != values[k] else peak
            peak = largest_of(peak, shared)
            if peak == real(-math.inf):
                peak = real(0)
            total = real(0)
            for k in range(size):
                total += real(math.exp(values[k] - peak))
            total = total_of(total, shared)
            high = real(math.log(total)) if end > 0 else real(0)
            rest = real(0)
            if smoothing > 0.0:
                for k in range(size):
                    j = (k // lanes * width + lane) * lanes + k % lanes
                    if j < end:
                        each = high - (values[k] - peak)
                        rest += each * weight[j] if weighted else each
                rest = total_of(rest, shared)
            if lane == 0 and i < n:
                ended(
                    losses, lse, x, target, i, row, peak, high, rest, weight, c, weighted, ignore,
                    smoothing,
                )  # fmt: skip
            base += cuda.gridDim.x * count

    return held_rows


@inlined
def _counted(loss, t, i, sums, wrong, weight, c, weighted, ignore):
    """Take the loss of row i into the sums of losses and weights, and the first wrong row."""
    if t != ignore:
        inside = t >= 0 and t < c
        if not inside:
            wrong = min(wrong, int64(i))
        sums[0] += float64(loss)
        if weighted:
            sums[1] += float64(weight[t]) if inside else math.nan
        else:
            sums[1] += 1.0
    return wrong


@inlined
def _ended(out, norm, bad, sums, wrong, reduction, shared, places):
    """Join what the threads of a block have counted, and write the results."""
    delta = WARP // 2
    while delta > 0:
        wrong = min(wrong, shuffle_down(wrong, delta))
        delta //= 2
    if cuda.threadIdx.x % WARP == 0:
        places[cuda.threadIdx.x // WARP] = wrong
    total = block_sum(sums[0], shared)
    cuda.syncthreads()
    mass = block_sum(sums[1], shared)
    if cuda.threadIdx.x == 0:
        for other in range(1, WARPS):
            wrong = min(wrong, places[other])
        bad[0] = -1 if wrong == NO_ROW else wrong
        # With nothing to average the mean is NaN, but the gradient of the ignored rows is 0.
        norm[0] = mass if reduction == MEAN and mass != 0.0 else 1.0
        if reduction == MEAN:
            out[0] = total / mass if mass != 0.0 else math.nan
        elif reduction == SUM:
            out[0] = total


def _reduce_losses(out, losses, norm, bad, target, weight, n, c, weighted, ignore, reduction):
    """One block: the sum of the losses, over the weight of the targets for a mean; fills bad."""
    shared = cuda.shared.array(WARPS, float64)
    places = cuda.shared.array(WARPS, int64)
    sums = cuda.local.array(2, float64)
    sums[0], sums[1], wrong = float64(0), float64(0), int64(NO_ROW)
    i = int64(cuda.threadIdx.x)
    while i + 3 * BLOCK < n:  # eight loads under way at a time
        loss_0, loss_1 = losses[i], losses[i + BLOCK]
        loss_2, loss_3 = losses[i + 2 * BLOCK], losses[i + 3 * BLOCK]
        t_0, t_1 = target[i], target[i + BLOCK]
        t_2, t_3 = target[i + 2 * BLOCK], target[i + 3 * BLOCK]
        wrong = _counted(loss_0, t_0, i, sums, wrong, weight, c, weighted, ignore)
        wrong = _counted(loss_1, t_1, i + BLOCK, sums, wrong, weight, c, weighted, ignore)
        wrong = _counted(loss_2, t_2, i + 2 * BLOCK, sums, wrong, weight, c, weighted, ignore)
        wrong = _counted(loss_3, t_3, i + 3 * BLOCK, sums, wrong, weight, c, weighted, ignore)
        i += 4 * BLOCK
    while i < n:
        wrong = _counted(losses[i], target[i], i, sums, wrong, weight, c, weighted, ignore)
        i += BLOCK
    _ended(out, norm, bad, sums, wrong, reduction, shared, places)


def reduce_losses(out, losses, norm, bad, target, weight, weighted, ignore, reduction, classes):
    """Add up ``losses`` in float64, divide by the weight of targets for a mean; fill ``bad``."""
    options = losses.size, classes, weighted, ignore, reduction
    start(_reduce_losses, 1, BLOCK, out, losses, norm, bad, target, weight, *options)


def _small_kernel(real: Any) -> Any:
    """All of a cross entropy by one block, a thread to a row: its launch is what it costs."""
    ended = _ending(real)

    def small_loss(
        out, losses, lse, norm, bad, x, target, weight, n, c, weighted, ignore, smoothing, reduction
    ):
        shared = cuda.shared.array(WARPS, float64)
        places = cuda.shared.array(WARPS, int64)
        sums = cuda.local.array(2, float64)
        sums[0], sums[1], wrong = float64(0), float64(0), int64(NO_ROW)
        for i in range(cuda.threadIdx.x, n, BLOCK):
            row = i * c
            peak = x[row]
            for j in range(1, c):
                value = x[row + j]
                peak = value if value > peak or value != value else peak
            if peak == real(-math.inf):
                peak = real(0)
            total = real(0)
            for j in range(c):
                total += real(math.exp(x[row + j] - peak))
            high, rest = real(math.log(total)), real(0)
            if smoothing > 0.0:
                for j in range(c):
                    each = high - (x[row + j] - peak)
                    rest += each * weight[j] if weighted else each
            loss = ended(
                losses, lse, x, target, i, row, peak, high, rest, weight, c, weighted, ignore,
                smoothing,
            )  # fmt: skip
            wrong = _counted(loss, target[i], i, sums, wrong, weight, c, weighted, ignore)
        _ended(out, norm, bad, sums, wrong, reduction, shared, places)

    return small_loss


def cross_entropy(
    out, losses, lse, norm, bad, x, target, weight, weighted, ignore, smoothing, reduction
):
    """Cross entropy of logits and class indices.

    out (1), written unless reduction is NONE; losses (n), lse (n): of each row the loss and the
    logsumexp; norm (1) what the sum was divided by; bad (1) int64 position of a wrong target or
    -1; x (n, c) C; target (n) int64; weight (c), used if ``weighted``; scalars ignore (int),
    smoothing (float), reduction.
    """
    n, c = x.shape
    options = n, c, weighted, ignore
    if 0 < c <= SHORT and n <= FEW:
        kernel, arrays = made(_small_kernel, x.itemsize), (x, target, weight)
        start(
            kernel, 1, BLOCK, out, losses, lse, norm, bad, *arrays, *options, smoothing, reduction
        )
        return
    held = held_by(c, x) if x.size else None
    if held is None:
        team = team_for(c)
        kernel, grid = made(_rows_kernel, x.itemsize, team), grid_of(team, n)
    else:
        kernel, grid = made(_held_kernel, x.itemsize, held), grid_for_rows(held, n)
    start(kernel, grid, BLOCK, losses, lse, x, target, weight, *options, smoothing)
    reduce_losses(out, losses, norm, bad, target, weight, weighted, ignore, reduction, c)


def _cross_entropy_grad(
    gx, g, x, lse, norm, target, weight, mass, size, c, weighted, ignore, smoothing, reduction
):
    """A thread for each of ``size`` logits. mass: one number, the sum of the weights."""
    at = cuda.grid(1)
    while at < size:
        i, j = split(at, c)
        t = target[i]
        value = as_type(gx, 0)
        if t != ignore and t >= 0 and t < c:
            scale = g[i] if reduction == NONE else as_type(gx, g[0] / norm[0])
            sharp = as_type(gx, 1.0 - smoothing)
            smooth = as_type(gx, smoothing / c)
            own = sharp * weight[t] if weighted else sharp
            whole = mass[0] if weighted else as_type(gx, c)
            value = scale * (own + smooth * whole) * as_type(gx, math.exp(x[at] - lse[i]))
            if j == t:
                value -= scale * own
            if smoothing > 0.0:
                value -= scale * smooth * (weight[j] if weighted else as_type(gx, 1))
        gx[at] = value
        at += cuda.gridsize(1)


def _held_grad(real: Any, held: Held) -> Any:
    """The same for rows that a team can hold: what a row has in common is found once."""
    width, count, size, lanes = held.width, held.count, held.size, held.lanes
    read, write = reader(real, held), writer(held)

    def held_grad(
        gx, g, x, lse, norm, target, weight, mass, n, c, weighted, ignore, smoothing, reduction
    ):
        values = cuda.local.array(size, real)
        lane = cuda.threadIdx.x % width
        sharp, smooth = real(1.0 - smoothing), real(smoothing / c)
        whole = mass[0] if weighted else real(c)
        base = cuda.blockIdx.x * count
        while base < n:
            i = base + cuda.threadIdx.x // width
            end = c if i < n else 0
            read(values, x, i * c, lane, end, real(0))
            t = target[i] if i < n else ignore
            if t != ignore and t >= 0 and t < c:
                scale = g[i] if reduction == NONE else real(g[0] / norm[0])
                own = sharp * weight[t] if weighted else sharp
                high, mine = scale * (own + smooth * whole), scale * own
                shift = lse[i]
                for k in range(size):
                    j = (k // lanes * width + lane) * lanes + k % lanes
                    value = high * real(math.exp(values[k] - shift))
                    if j == t:
                        value -= mine
                    if smoothing > 0.0 and j < end:
                        value -= scale * smooth * (weight[j] if weighted else real(1))
                    values[k] = value
            else:
                for k in range(size):
                    values[k] = real(0)
            write(gx, values, i * c, lane, end)
            base += cuda.gridDim.x * count

    return held_grad


def cross_entropy_grad(gx, g, x, lse, norm, target, weight, weighted, ignore, smoothing, reduction):
    """Gradient of ``cross_entropy``: ``g / norm (mass softmax(x) - target row)``.

    gx (n, c) C; g (1), or (n) if reduction is NONE; the rest as for ``cross_entropy``.
    """
    n, c = x.shape
    mass = norm
    if weighted:
        mass = device.empty((1, 1, 1), arithmetic(x.dtype), x.device)
        reduce.sum(mass, weight.reshape(1, c, 1))
    arrays, size = (gx, g, x, lse, norm, target, weight, mass), x.size
    options = c, weighted, ignore, smoothing, reduction
    held = held_by(c, gx, x) if size else None
    if held is not None:
        kernel = made(_held_grad, x.itemsize, held)
        start(kernel, grid_for_rows(held, n), BLOCK, *arrays, n, *options)
    elif size:
        start(_cross_entropy_grad, strided_grid(size), BLOCK, *arrays, size, *options)


def _target_rows(out, target, weight, size, c, weighted, ignore, smoothing):
    """A thread for each of ``size`` elements."""
    at = cuda.grid(1)
    while at < size:
        i, j = split(at, c)
        t = target[i]
        share = smoothing / c + (1.0 - smoothing if j == t else 0.0)
        if weighted:
            share *= weight[j]
        out[at] = share if t != ignore and t >= 0 and t < c else 0.0
        at += cuda.gridsize(1)


def target_rows(out, target, weight, weighted, ignore, smoothing):
    """The distribution that ``cross_entropy`` compares with, weighted; a row of zeros if ignored.

    out (n, c) C; target (n) int64, checked; weight (c).
    """
    size, c = out.size, out.shape[1]
    if size:
        options = weighted, ignore, smoothing
        start(_target_rows, strided_grid(size), BLOCK, out, target, weight, size, c, *options)


def _nll(losses, x, target, weight, n, c, p, weighted, ignore):
    """A thread for each of ``n`` rows."""
    i = cuda.grid(1)
    while i < n:
        plane, place = split(i, p)
        t = target[i]
        loss = as_type(losses, 0)
        if t < 0 or t >= c:
            if t != ignore:
                loss = as_type(losses, math.nan)
        elif t != ignore:
            own = x[(plane * c + t) * p + place]
            loss = -own * weight[t] if weighted else -own
        losses[i] = loss
        i += cuda.gridsize(1)


def nll(out, losses, norm, bad, x, target, weight, weighted, ignore, reduction):
    """Negative log likelihood: minus the entry of each row that ``target`` names, reduced.

    x (b, c, p) C, of which a row is along c; losses, target (b p); the rest as for
    ``cross_entropy``.
    """
    b, c, p = x.shape
    n, options = b * p, (weighted, ignore)
    start(_nll, strided_grid(n), BLOCK, losses, x, target, weight, n, c, p, *options)
    reduce_losses(out, losses, norm, bad, target, weight, weighted, ignore, reduction, c)


def _nll_grad(gx, g, norm, target, weight, size, c, p, weighted, ignore, reduction):
    """A thread for each of ``size`` elements."""
    at = cuda.grid(1)
    while at < size:
        row, place = split(at, p)
        plane, j = split(row, c)
        i = plane * p + place
        t = target[i]
        value = as_type(gx, 0)
        if j == t and t != ignore:
            scale = g[i] if reduction == NONE else as_type(gx, g[0] / norm[0])
            value = -scale * weight[t] if weighted else -scale
        gx[at] = value
        at += cuda.gridsize(1)


def nll_grad(gx, g, norm, target, weight, weighted, ignore, reduction):
    """Gradient of ``nll``: ``-g weight / norm`` where ``target`` points, else 0. gx (b, c, p) C."""
    size, (_, c, p) = gx.size, gx.shape
    if size:
        options = size, c, p, weighted, ignore, reduction
        start(_nll_grad, strided_grid(size), BLOCK, gx, g, norm, target, weight, *options)
