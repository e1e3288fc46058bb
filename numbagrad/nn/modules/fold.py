"""``Unfold`` and ``Fold``: patches of images as columns, and back. No parameters."""

from __future__ import annotations

from typing import Any

from ...tensor import Tensor
from .. import functional as F
from .configured import REQUIRED, Configured

__all__ = ["Fold", "Unfold"]

WINDOW = {"kernel_size": REQUIRED, "dilation": 1, "padding": 0, "stride": 1}


class Unfold(Configured):
    """(n, c, h, w) to (n, c kh kw, places): the patch under a window as a column, for each place.

    kernel_size, dilation, padding, stride: ints or pairs; see ``functional.unfold``.
    """

    kernel_size: Any
    dilation: Any
    padding: Any
    stride: Any
    options = WINDOW

    def forward(self, input: Tensor) -> Tensor:
        """The patches of ``input``."""
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)}" for name in self.options)


class Fold(Unfold):
    """(n, c kh kw, places) to (n, c, *output_size): patches added to where they came from.

    Other arguments as for Unfold; see ``functional.fold``.
    """

    output_size: Any
    options = {"output_size": REQUIRED, **WINDOW}

    def forward(self, input: Tensor) -> Tensor:
        """The images that the patches of ``input`` add up to."""
        window = self.kernel_size, self.dilation, self.padding, self.stride
        return F.fold(input, self.output_size, *window)
