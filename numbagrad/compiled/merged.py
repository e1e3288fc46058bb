"""Launches that take the same exponentials become one: losses, logsumexp and their gradients.

Start reading at ``with_gradients_merged``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..kernels.cpu import loss, norm
from ..kernels.expr import expr, symbol
from ..kernels.formula import Formula
from ..kernels.loops import ElementwiseKernel
from ..kernels.tile import FULL
from . import record

KEPT = 0 if FULL else 1 << 23
"""Bytes from which a softmax waits for its gradient: vectors of 512 bits compute a small one again
as soon as it is read, those of 256 bits take a third longer at any size."""

_MUL = ElementwiseKernel(Formula("mul", ("x", "y"), expr("mul", symbol("x"), symbol("y"))))


def with_gradients_merged(events: list[Any]) -> list[Any]:
    """``events`` with each cross entropy, or logsumexp, and its own gradient as one launch."""
    merged = list(events)
    for k, event in enumerate(events):
        merge = _MERGES.get(getattr(event, "kernel", None))
        if merge is not None:
            merge(merged, k, event)
    return [event for event in merged if event is not None]


def _cross_entropy(events: list[Any], k: int, event: record.Launch) -> None:
    """The gradient must be that of the loss itself, unweighted."""
    out, losses, lse, scale, bad, *rest = event.args
    x, target, _, weighted, _, smoothing, reduction = rest
    if weighted or smoothing or reduction == loss.NONE or 0 in x.shape:
        return
    for j, later in _until_written(events, k, (x, target, lse, scale)):
        if later.kernel is loss.cross_entropy_grad:
            gx, g, *same = later.args
            if same == [x, lse, scale, *rest[1:]] and _is_one(events[k:j], g):
                args = (out, losses, lse, scale, bad, gx, *rest)
                events[k] = replace(event, kernel=loss.cross_entropy_with_grad, args=args)
                events[j] = None
                return


def _logsumexp(events: list[Any], k: int, event: record.Launch) -> None:
    """The softmax waits where its product with the gradient goes."""
    out, x = event.args
    size = x.memory.dtype.itemsize * x.memory.size
    if 0 in x.shape or size < KEPT:
        return
    for j, later in _until_written(events, k, (x, out)):
        if later.kernel is norm.LOGSUMEXP_GRAD:
            gx, g, of, lse = later.args
            if of == x and lse.memory is out.memory and gx.strides == x.strides:
                kernel = norm.logsumexp_with_softmax
                events[k] = replace(event, kernel=kernel, args=(out, gx, x))
                events[j] = replace(later, kernel=_MUL, args=(gx, gx, g))
                return


_MERGES: dict[Any, Callable[[list[Any], int, record.Launch], None]] = {
    loss.cross_entropy: _cross_entropy,
    norm.logsumexp_rows: _logsumexp,
}


def _until_written(events: list[Any], k: int, kept: tuple[record.Ref, ...]) -> Any:
    """The launches after the ``k``-th, with their places, while none has written to ``kept``."""
    memories = {ref.memory for ref in kept}
    for j in range(k + 1, len(events)):
        if isinstance(events[j], record.Launch):
            yield j, events[j]
            if _writes(events[j]) & memories:
                return


def _writes(event: Any) -> set[record.Memory]:
    """The memories that an event may write."""
    if not isinstance(event, record.Launch):
        return set()
    count = getattr(event.kernel, "outputs", len(event.args))
    found: set[record.Memory] = set()
    for arg in event.args[:count]:
        refs = arg if isinstance(arg, list) else [arg]
        found |= {ref.memory for ref in refs if isinstance(ref, record.Ref)}
    return found


def _is_one(events: list[Any], g: record.Ref) -> bool:
    """Whether ``g`` was last written by filling it with ones."""
    for event in reversed(events):
        if g.memory in _writes(event):
            filled = isinstance(event.kernel, ElementwiseKernel) and len(event.args) == 2
            return filled and event.args[0].shape == () and event.args[1] in (1, 1.0)
    return False
