"""``softmax`` and its kin of nn.functional, which choose a dimension where none is given.

PyTorch's choice, by the number of dimensions, is rarely what is meant: it is made with a warning.
"""

from __future__ import annotations

import warnings
from typing import Any

from ..ops import norm
from ..tensor import Tensor

__all__ = ["log_softmax", "softmax", "softmin"]


def _chosen(name: str, input: Tensor, dim: int | None) -> int:
    """``dim``, or 0 for 0, 1 and 3 dimensions, and 1 for others."""
    if dim is not None:
        return dim
    rank = input.dim() if isinstance(input, Tensor) else 1
    found = 0 if rank in (0, 1, 3) else 1
    warnings.warn(
        f"{name}: Implicit dimension choice has been deprecated: dim={found} is taken for {rank} "
        f"dimensions. Pass dim, -1 for the last one say.",
        stacklevel=3,
    )
    return found


def softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """``ng.softmax`` along ``dim``; if that is None, along 0 of 0, 1 or 3 dimensions, else 1."""
    return norm.softmax(input, _chosen("softmax", input, dim), dtype)


def log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """``ng.log_softmax``; a ``dim`` of None as in ``softmax``."""
    return norm.log_softmax(input, _chosen("log_softmax", input, dim), dtype)


def softmin(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """The softmax of ``-input``; a ``dim`` of None as in ``softmax``."""
    return norm.softmin(input, _chosen("softmin", input, dim), dtype)
