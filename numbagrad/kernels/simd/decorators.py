"""The decorators of what the vectorised functions are made of: formulas, and pieces of them."""

from __future__ import annotations

from typing import Any

import numba

__all__ = ["OPTIONS", "formula", "piece"]

# Forced inlining: a call in the loop would stop LLVM from vectorising it. No reassociation and no
# assumption that NaN or inf cannot occur: the rounding trick and the selects rely on both.
OPTIONS: dict[str, Any] = {
    "error_model": "numpy",
    "forceinline": True,
    "fastmath": {"contract", "nsz"},
    "nogil": True,
    "no_cpython_wrapper": True,  # only compiled code calls these: see ``inner.py``
    "no_cfunc_wrapper": True,
}
formula = numba.njit(**OPTIONS)
piece = numba.njit(inline="always", **OPTIONS)  # of a formula: it compiles in 5 ms, not in 50
