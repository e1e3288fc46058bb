"""``Dropout``: random zeros while training."""

from __future__ import annotations

from ...tensor import Tensor
from .. import functional
from .module import Module

__all__ = ["Dropout"]


class Dropout(Module):
    """Zeroes each element with chance p and scales the rest by 1 / (1 - p); off in eval mode."""

    def __init__(self, p: float = 0.5, inplace: bool = False):
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(
                f"Dropout: dropout probability has to be between 0 and 1, but got {p}."
            )
        self.p = p
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """``input`` with random zeros."""
        return functional.dropout(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"
