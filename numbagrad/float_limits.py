"""What ``finfo`` returns: imported when it is first asked for, as a dataclass takes its time."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FloatLimits"]


@dataclass(frozen=True)
class FloatLimits:
    """What ``finfo`` returns: Python floats, and the dtype's name."""

    bits: int
    eps: float
    max: float
    min: float
    tiny: float
    smallest_normal: float
    resolution: float
    dtype: str
