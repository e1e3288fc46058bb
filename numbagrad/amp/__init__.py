"""Mixed precision on a GPU: ``autocast`` chooses dtypes, ``GradScaler`` keeps small gradients."""

from __future__ import annotations

from .autocast import (
    autocast,
    custom_bwd,
    custom_fwd,
    get_autocast_dtype,
    is_autocast_enabled,
)
from .grad_scaler import GradScaler

__all__ = [
    "GradScaler",
    "autocast",
    "custom_bwd",
    "custom_fwd",
    "get_autocast_dtype",
    "is_autocast_enabled",
]
