"""Mixed precision by its older address: ``ng.amp`` of a GPU, without its name as an argument."""

from __future__ import annotations

from typing import Any

from .. import amp
from ..amp import custom_bwd, custom_fwd

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


class autocast(amp.autocast):
    """``ng.autocast("cuda", ...)``: see there."""

    def __init__(self, enabled: bool = True, dtype: Any = None, cache_enabled: bool = True):
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """``ng.amp.GradScaler("cuda", ...)``: see there."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__("cuda", *args, **kwargs)
