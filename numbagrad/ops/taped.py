"""Gradients that can be differentiated, of ops whose kernels are not: ``again``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..autograd import grad as gradients

__all__: list[str] = []


def again(
    needs: Sequence[bool], function: Callable[..., Any], inputs: Sequence[Any], grads: tuple
) -> tuple:
    """The gradients of ``function`` at ``inputs`` where ``needs`` says so, by operations on the
    tape; grads: of its results, None of those that nothing used.

    The inputs go in as views, so that what one of them was made from does not count twice.
    """
    views = [None if t is None else t.view(*t._array.shape) for t in inputs]
    pairs = list(zip(views, needs, strict=False))
    wanted = [v for v, needed in pairs if needed]
    made = function(*views)
    made = made if type(made) is tuple else (made,)
    pairs_made = zip(made, grads, strict=True)
    used = [(m, g) for m, g in pairs_made if g is not None and m._edge is not None]
    if not used:
        return (None,) * len(pairs)
    made, given = zip(*used, strict=True)
    found = iter(gradients(made, wanted, given, create_graph=True, allow_unused=True))
    return tuple([next(found) if needed else None for _, needed in pairs])
