"""How the losses of a batch become one: ``reduction``, or the two flags that were there before."""

from __future__ import annotations

from ..kernels.cpu import loss as kernels
from ..tensor import Tensor
from .warned import warn_user

REDUCTIONS = {"none": kernels.NONE, "mean": kernels.MEAN, "sum": kernels.SUM}


def reduction_of(
    name: str, reduction: str, size_average: bool | None = None, reduce: bool | None = None
) -> str:
    """``reduction``, or with a warning what the flags say: a flag that is None counts as True.

    Raises ValueError for what is none of ``REDUCTIONS``.
    """
    if size_average is not None or reduce is not None:
        reduction = older(size_average, reduce)
    if reduction not in REDUCTIONS:
        raise ValueError(
            f"{name}: {reduction} is not a valid value for reduction; use 'mean', 'sum' or 'none'."
        )
    return reduction


def older(size_average: bool | None, reduce: bool | None) -> str:
    """What the flags say, with a warning."""
    if reduce is not None and not reduce:
        reduction = "none"
    else:
        reduction = "mean" if size_average is None or size_average else "sum"
    warn_user(
        f"size_average and reduce are deprecated: say reduction='{reduction}', which is the same."
    )
    return reduction


def reduced(losses: Tensor, reduction: str) -> Tensor:
    """The mean or the sum of ``losses``, or with "none" these."""
    if reduction == "mean":
        return losses.mean()
    return losses.sum() if reduction == "sum" else losses
