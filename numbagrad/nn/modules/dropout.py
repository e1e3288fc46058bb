"""``Dropout``, of channels and for SELU: random zeros, or lowest values, while training."""

from __future__ import annotations

from ...tensor import Tensor
from .. import functional
from .module import Module

__all__ = [
    "AlphaDropout",
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "FeatureAlphaDropout",
]


class _DropoutNd(Module):
    """What all share: the chance p, and whether the input itself is written."""

    def __init__(self, p: float = 0.5, inplace: bool = False):
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(
                f"{type(self).__name__}: dropout probability has to be between 0 and 1, but got "
                f"{p}."
            )
        self.p = p
        self.inplace = inplace

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """Zeroes each element with chance p and scales the rest by 1 / (1 - p); off in eval mode."""

    def forward(self, input: Tensor) -> Tensor:
        """``input`` with random zeros."""
        return functional.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_DropoutNd):
    """Dropout of whole channels of (n, c, l) or (c, l) (Tompson et al., 2015)."""

    def forward(self, input: Tensor) -> Tensor:
        """``input`` with random channels zeroed."""
        return functional.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_DropoutNd):
    """Dropout of whole channels of (n, c, h, w) (Tompson et al., 2015).

    >>> Dropout2d(0.2)
    Dropout2d(p=0.2, inplace=False)
    """

    def forward(self, input: Tensor) -> Tensor:
        """``input`` with random channels zeroed."""
        return functional.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_DropoutNd):
    """Dropout of whole channels of (n, c, d, h, w).

    >>> Dropout3d(0.2)
    Dropout3d(p=0.2, inplace=False)
    """

    def forward(self, input: Tensor) -> Tensor:
        """``input`` with random channels zeroed."""
        return functional.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_DropoutNd):
    """Dropout for nets of SELU, which keeps mean and variance (Klambauer et al., 2017).

    >>> AlphaDropout(0.2)
    AlphaDropout(p=0.2, inplace=False)
    """

    def forward(self, input: Tensor) -> Tensor:
        """``input`` with random elements at SELU's lowest value, scaled and shifted."""
        return functional.alpha_dropout(input, self.p, self.training, self.inplace)


class FeatureAlphaDropout(_DropoutNd):
    """AlphaDropout of whole channels of (n, c, ...).

    >>> FeatureAlphaDropout(0.2)
    FeatureAlphaDropout(p=0.2, inplace=False)
    """

    def forward(self, input: Tensor) -> Tensor:
        """``input`` with random channels at SELU's lowest value, scaled and shifted."""
        return functional.feature_alpha_dropout(input, self.p, self.training, self.inplace)
