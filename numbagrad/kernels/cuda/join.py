"""Putting arrays side by side."""

from __future__ import annotations

from .runtime import elementwise

__all__ = ["place"]


def place(out, x, start):
    """out (n, w), x (n, v) C: columns start to start + v of out become x; out is kept elsewhere."""
    n, v = x.shape
    elementwise.copy(out.element_view((n, v), (out.shape[1], 1), start), x)
