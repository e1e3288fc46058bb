"""numba-cuda beside a NumPy that is newer than it.

numba-cuda 0.30.4 registers a twin of ``np.row_stack``, which NumPy 2.5 has no longer: its library
of device functions fails to load then, and no kernel compiles. Its requirements do not say so.
"""

from __future__ import annotations

import numpy as np

__all__ = ["load_device_functions"]

_GONE = {"row_stack": np.vstack}


def load_device_functions() -> None:
    """Import numba-cuda's device functions; meanwhile NumPy has the names that they look for."""
    lacking = {name: found for name, found in _GONE.items() if not hasattr(np, name)}
    for name, found in lacking.items():
        setattr(np, name, found)
    try:
        import numba.cuda.cudaimpl  # noqa: F401
    finally:
        for name in lacking:
            delattr(np, name)
