"""Random numbers that several distributions are made from."""

from __future__ import annotations

from typing import Any

from ..ops.base import new_empty
from ..ops.elementwise import log
from ..ops.random import exponential_
from ..tensor import Tensor

__all__ = ["exponential_like", "gumbel_like", "logistic_like"]


def exponential_like(like: Tensor, shape: Any) -> Tensor:
    """Exponential numbers of rate 1, of the dtype and on the device of ``like``."""
    return exponential_(new_empty(shape, like._dtype, like._device))


def gumbel_like(like: Tensor, shape: Any) -> Tensor:
    """Standard Gumbel numbers: their softmax's largest is drawn by weight."""
    return -log(exponential_like(like, shape))


def logistic_like(like: Tensor, shape: Any) -> Tensor:
    """Standard logistic numbers."""
    return gumbel_like(like, shape) - gumbel_like(like, shape)
