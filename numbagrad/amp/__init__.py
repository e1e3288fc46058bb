"""Mixed precision on a GPU: ``autocast`` chooses dtypes, ``GradScaler`` keeps small gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..later import asked_for
from .autocast import (
    autocast,
    custom_bwd,
    custom_fwd,
    get_autocast_dtype,
    is_autocast_enabled,
)

if TYPE_CHECKING:
    from .grad_scaler import GradScaler

__all__ = [
    "GradScaler",
    "autocast",
    "custom_bwd",
    "custom_fwd",
    "get_autocast_dtype",
    "is_autocast_enabled",
]

__getattr__ = asked_for(__name__, {"GradScaler": "grad_scaler"})
