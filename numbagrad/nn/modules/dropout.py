"""Dropout: random zeros while training, of elements or of whole channels."""

from __future__ import annotations

from ...tensor import Tensor
from .. import functional
from .module import Module

__all__ = ["Dropout", "Dropout1d", "Dropout2d"]


class Dropout(Module):
    """Zeroes each element with chance p and scales the rest by 1 / (1 - p); off in eval mode."""

    def __init__(self, p: float = 0.5, inplace: bool = False):
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(
                f"{type(self).__name__}: dropout probability has to be between 0 and 1, but got "
                f"{p}."
            )
        self.p = p
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """``input`` with random zeros."""
        return functional.dropout(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout1d(Dropout):
    """Zeroes whole channels of (n, c, l) with chance p and scales the rest; off in eval mode."""

    def forward(self, input: Tensor) -> Tensor:
        """``input`` with random channels of zeros."""
        return functional.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(Dropout):
    """Zeroes whole channels of (n, c, h, w) with chance p and scales the rest; off in eval mode."""

    def forward(self, input: Tensor) -> Tensor:
        """``input`` with random channels of zeros."""
        return functional.dropout2d(input, self.p, self.training, self.inplace)
