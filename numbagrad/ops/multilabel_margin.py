"""The margin loss of several true classes at once; exported by ``nn.functional``."""

from __future__ import annotations

from .. import dtypes
from ..errors import DTypeError, ShapeError
from ..kernels import machine
from ..tensor import Tensor
from .activation import relu
from .autocasting import BOTH, raised
from .axes import DTYPE_WORDS
from .base import as_operand, zeros_like
from .elementwise import cast, where
from .gather import _scattered, gathered
from .reduction import reduced, reduction_of
from .remembered import remembered

__all__ = ["multilabel_margin_loss"]


@remembered
def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """``sum_jk max(0, 1 - input[j] + input[k]) / classes`` over all true j and all other k.

    input (n, classes) or (classes), floating; target: int64, of that shape, the true classes of
    each row in front, then -1: what stands behind the first -1 does not count. Takes memory for
    n classes^2 numbers. Raises IndexError for a class that is not there.

    >>> multilabel_margin_loss(tensor([0.5, 0.0, 1.0]), tensor([2, -1, -1])).item()
    0.1666666716337204
    """
    name = "multilabel_margin_loss"
    reduction = reduction_of(name, reduction, size_average, reduce)
    shape = as_operand(name, input)._array.shape
    sizes = as_operand(name, target, 1)._array.shape
    if len(shape) > 2 or 0 in shape[-1:]:
        raise ShapeError(
            f"{name}: Expected non-empty vector or matrix with optional 0-dim batch size, but got: "
            f"{list(shape)}."
        )
    if (sizes or (1,)) != (shape or (1,)):
        raise ShapeError(
            f"{name}: inconsistent target size: {list(sizes)} for input of size: {list(shape)}. "
            f"Fill the rows of target with -1."
        )
    if not input._dtype.is_floating_point:
        raise DTypeError(
            f"{name}: not implemented for '{DTYPE_WORDS[input._dtype.name]}', input must be "
            f"floating. Convert it with .float()."
        )
    if target._dtype is not dtypes.int64:
        word = DTYPE_WORDS.get(target._dtype.name, target._dtype.name)
        raise DTypeError(
            f"{name}: expected scalar type Long but found {word}. Convert target with .long()."
        )
    if machine.autocasting:
        (input,) = raised(input, on=BOTH)
    classes = shape[-1] if shape else 1
    x, classes_in_front = input.reshape(-1, classes), target.reshape(-1, classes)
    ends = classes_in_front.eq(-1)
    at = where(ends, 0, classes_in_front)
    counts = ends.cumsum(1).eq(0)
    is_true = _scattered(name, zeros_like(at), 1, at, cast(counts, dtypes.int64), True).gt(0)
    gap = relu(1 - gathered(name, x, 1, at).unsqueeze(2) + x.unsqueeze(1))
    compared = counts.unsqueeze(2).logical_and(is_true.logical_not().unsqueeze(1))
    losses = where(compared, gap, 0.0).sum((1, 2)) / classes
    return reduced(losses if len(shape) == 2 else losses.reshape(()), reduction)
