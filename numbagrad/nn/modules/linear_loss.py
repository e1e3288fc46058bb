"""A linear layer with its cross entropy: ``LinearCrossEntropyLoss``."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from types import NoneType
from typing import Any

from ...dtypes import DType
from ...errors import ShapeError
from ...tensor import Tensor
from .. import functional as F
from .linear import Linear
from .loss import _WeightedLoss
from .module import Module

__all__ = ["LinearCrossEntropyLoss", "LinearCrossEntropyOptions"]

POLICIES = ("auto", "accurate", "balanced", "compact")


@dataclass(eq=False)  # frozen it would take 0.3 ms of the import
class LinearCrossEntropyOptions:
    """What PyTorch's programs say of chunks; here any asks for blocks of classes, no more.

    Gradients may be taken again, and differentiated, with any of them, and how many classes a block
    has is measured. Raises ValueError for values that PyTorch refuses.
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: Any = None

    def __post_init__(self) -> None:
        name = type(self).__name__
        if self.acc_policy not in POLICIES:
            raise ValueError(f"{name}: invalid acc_policy {self.acc_policy!r}, not of {POLICIES}.")
        if not isinstance(self.acc_dtype, (NoneType, DType)):
            raise ValueError(f"{name}: acc_dtype must be a dtype or None, got {self.acc_dtype!r}.")
        size = self.batch_chunk_size
        if size is not None and not (isinstance(size, int) and size > 0):
            raise ValueError(
                f"{name}: batch_chunk_size must be a positive int or None, got {size!r}."
            )
        if self.chunking_method not in (None, "auto"):
            kind, colon, factor = self.chunking_method.partition(":")
            told = not colon or (factor.isdecimal() and int(factor) > 0)
            if kind != "aspect_ratio" or not told:
                raise ValueError(
                    f"{name}: invalid chunking_method {self.chunking_method!r}: it is 'auto', "
                    f"'aspect_ratio', 'aspect_ratio:2' say, or None."
                )


class LinearCrossEntropyLoss(_WeightedLoss):
    """Cross entropy of a linear layer's outputs, of which a block of classes exists at a time.

    input (n, in_features), target (n) classes; with ``out_features`` (d1, ...) a loss at each of
    them, target (n, d1, ...). See ``nn.functional.linear_cross_entropy``.

    >>> list(LinearCrossEntropyLoss(8, 100, bias=True).state_dict())
    ['linear.weight', 'linear.bias']
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: Any = None,
        dtype: Any = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: LinearCrossEntropyOptions | None = None,
    ):
        Module.__init__(self)
        name = type(self).__name__
        if weight is not None and weight._array.shape != (num_classes,):
            raise ShapeError(
                f"{name}: weight must have shape [{num_classes}], got {list(weight.shape)}."
            )
        if not 0.0 <= label_smoothing <= 1.0:
            raise ValueError(
                f"{name}: label_smoothing must be between 0.0 and 1.0, got {label_smoothing}."
            )
        self.num_classes, self.out_features = num_classes, tuple(out_features)
        outputs = num_classes * math.prod(self.out_features)
        self.linear = Linear(in_features, outputs, bias, device, dtype)
        self.register_buffer("weight", weight)
        self.reduction, self.ignore_index = reduction, ignore_index
        self.label_smoothing = label_smoothing
        self.options: Any = options

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of ``linear(input)`` against ``target``."""
        sizes, bias = (self.num_classes, *self.out_features), self.linear.bias
        return F.linear_cross_entropy(
            input,
            self.linear.weight.reshape((*sizes, self.linear.in_features)),
            target,
            linear_bias=None if bias is None else bias.reshape(sizes),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
        )

    def extra_repr(self) -> str:
        """What it was made with, as PyTorch says it."""
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes}, "
            f"out_features={self.out_features}, bias={self.linear.bias is not None}, "
            f"reduction={self.reduction}, ignore_index={self.ignore_index}, "
            f"label_smoothing={self.label_smoothing}, options={self.options}"
        )


_, *_given = inspect.signature(LinearCrossEntropyLoss.__init__).parameters.values()
LinearCrossEntropyLoss.__signature__ = inspect.Signature(_given)  # not that of other losses
