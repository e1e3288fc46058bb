"""Warnings at the user's line, given at each call: ``warn_user``."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from ..kernels import machine
from ..later import OUR_FILES


def warn_user(message: str) -> None:
    """Warn, at the first line outside of this package; a call that warns is not remembered."""
    watcher = machine.noting()
    if watcher is not None:
        watcher.warns()
    frame: Any = sys._getframe(1)
    level = 2
    while frame.f_back is not None and OUR_FILES[frame.f_code.co_filename]:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)
