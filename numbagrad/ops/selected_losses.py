"""Losses of rows that a mask selects while a step is recorded; see ``selected_rules.py``.

A loss is computed for each row, or ignores what is not selected. Start reading at ``_loss``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import dtypes
from ..tensor import Tensor
from . import reduce
from .elementwise import cast
from .reduction import reduction_of
from .selected import RULES, Selected, Unsized
from .selected_rules import by_name, first_of, gated, kept, lined_up, rows_of, spread, widest_of

__all__: list[str] = []  # nothing that users call


def _loss(function: Callable, *args: Any, **options: Any) -> Any:
    """A loss that is one number for each element or row, then their mean or sum."""
    named = by_name(function, args, options)
    rows = widest_of(tuple(named.values()))
    flags = named.pop("size_average", None), named.pop("reduce", None)
    reduction = named.pop("reduction")
    batch = function.__name__ == "kl_div" and reduction == "batchmean"
    if not batch:
        reduction = reduction_of(function.__name__, reduction, *flags)
    if named.get("weight") is not None and function.__name__ in _WEIGHED and reduction == "mean":
        raise Unsized(rows, f"{function.__name__} with weight and a mean")
    if function.__name__ == "binary_cross_entropy":  # which looks at them
        named |= {k: v.beside(gated(v.whole, v.mask)) for k, v in _selections(named).items()}
    losses = rows_of(function, {**named, "reduction": "none"}, rows)
    if batch:
        return reduce.sum(losses) / rows.mask.sum()
    if reduction == "none":
        return losses
    return reduce.mean(losses) if reduction == "mean" else reduce.sum(losses)


def _selections(named: dict[str, Any]) -> dict[str, Selected]:
    return {k: v for k, v in named.items() if type(v) is Selected}


_WEIGHED = frozenset(("mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss"))
"""Losses whose mean with weights divides by their sum."""


def _class_loss(function: Callable, *args: Any, **options: Any) -> Any:
    """Cross entropy and likelihood: what is not selected is ignored."""
    named = by_name(function, args, options)
    if named["target"]._dtype.is_floating_point:
        return _loss(function, **named)
    rows, name = first_of((named["input"], named["target"])), function.__name__
    for operand in ("input", "target"):
        x = named[operand]
        if type(x) is not Selected and not x._array.ndim:
            raise Unsized(rows, f"{name} with an {operand} of no dimensions")
        lined = lined_up(name, rows, x) if type(x) is Selected else spread(name, x, rows)
        named[operand] = lined
    if named["input"]._array.ndim < 2:
        raise Unsized(rows, f"{name} of one row")
    classes = cast(named["target"], dtypes.int64)
    named["target"] = kept(classes, rows.mask, int(named["ignore_index"]))
    found = function(**named)
    return rows.beside(found) if found._array.ndim else found


def _is_for_rows(key: str, x: Tensor, rows: Selected) -> bool:
    """Whether an operand of a loss has a row, of a target a number, for each of ``rows``."""
    if type(x) is Selected:
        return x.rank == rows.rank - (key == "target")
    shape = x._array.shape
    return len(shape) == rows.rank - (key == "target") and shape[0] != 1


def _row_loss(function: Callable, *args: Any, **options: Any) -> Any:
    """A loss that is one number for each row, of operands of any rank, then their mean or sum."""
    named = by_name(function, args, options)
    rows, name = widest_of(tuple(named.values())), function.__name__
    tensors = {k: v for k, v in named.items() if isinstance(v, Tensor)}
    if rows.rank < 2 or not all(_is_for_rows(k, v, rows) for k, v in tensors.items()):
        raise Unsized(rows, f"{name} of operands of such shapes")
    reduction = reduction_of(
        name, named.pop("reduction"), named.pop("size_average"), named.pop("reduce")
    )
    for key, x in tensors.items():
        lined = lined_up(name, rows, x) if type(x) is Selected else spread(name, x, rows)
        named[key] = gated(lined, rows.mask)
    losses = rows.beside(gated(function(**named, reduction="none"), rows.mask))
    if reduction == "none":
        return losses
    return reduce.mean(losses) if reduction == "mean" else reduce.sum(losses)


_LOSSES = """
    mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy kl_div
    binary_cross_entropy_with_logits margin_ranking_loss hinge_embedding_loss soft_margin_loss
    poisson_nll_loss
"""
RULES.update(dict.fromkeys(_LOSSES.split(), _loss))
RULES.update(dict.fromkeys("cosine_embedding_loss triplet_margin_loss".split(), _row_loss))
RULES.update(dict.fromkeys("cross_entropy nll_loss".split(), _class_loss))
