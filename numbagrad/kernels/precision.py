"""How exactly a GPU multiplies matrices of float32."""

from __future__ import annotations

from . import machine

__all__ = ["get_float32_matmul_precision", "set_float32_matmul_precision"]

_LEVELS = ("highest", "high", "medium")

float32_products = "highest"


def set_float32_matmul_precision(precision: str) -> None:
    """Let products of float32 matrices on a GPU round their factors.

    "highest": they do not. "high", "medium": tensor cores multiply factors of 10 bits of fraction
    (tf32) and add in float32. Only for products of matrices, not convolutions, and not on the CPU.
    """
    global float32_products
    if precision not in _LEVELS:
        words = ", ".join(map(repr, _LEVELS))
        raise ValueError(
            f"set_float32_matmul_precision: expected one of {words}, got {precision!r}."
        )
    if precision != float32_products:
        float32_products = precision
        machine.changed()


def get_float32_matmul_precision() -> str:
    """What ``set_float32_matmul_precision`` has set; "highest" at first."""
    return float32_products
