"""The decorators of what the vectorised functions are made of: formulas, and pieces of them."""

from __future__ import annotations

from typing import Any

from .. import inner

__all__ = ["OPTIONS", "apart", "formula", "piece"]

# Forced inlining: a call in the loop would stop LLVM from vectorising it. No reassociation and no
# assumption that NaN or inf cannot occur: the rounding trick and the selects rely on both.
_OURS: dict[str, Any] = {"forceinline": True, "fastmath": {"contract", "nsz"}}
OPTIONS: dict[str, Any] = inner.OPTIONS | _OURS
formula = inner.inner(**_OURS)
apart = inner.inner(fastmath=_OURS["fastmath"])  # called, see ``rarely``
piece = inner.inner(inline="always", **_OURS)  # of a formula: it compiles in 5 ms, not in 50
