"""PyTorch's choice among kernels of attention: here is one, so ``sdpa_kernel`` changes nothing.

``flex_attention`` is attention with scores of your own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum

from . import flex_attention

__all__ = ["SDPBackend", "flex_attention", "sdpa_kernel"]


class SDPBackend(Enum):
    """Ways to compute ``scaled_dot_product_attention`` that PyTorch tells apart."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextmanager
def sdpa_kernel(
    backends: Sequence[SDPBackend] | SDPBackend, set_priority: bool = False
) -> Iterator[None]:
    """A block that asks for some of the ways; all of them are one kernel, by blocks.

    Raises TypeError for what is no way.

    >>> with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
    ...     pass
    """
    asked = [backends] if isinstance(backends, SDPBackend) else backends
    known = isinstance(asked, (list, tuple)) and all([isinstance(b, SDPBackend) for b in asked])
    if not known:
        raise TypeError(
            f"sdpa_kernel: Backend must be an instance of SDPBackend or a list of SDPBackend "
            f"instances, got {backends!r}. They are in ng.nn.attention.SDPBackend."
        )
    yield
