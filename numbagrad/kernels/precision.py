"""How exactly matrices of float32 are multiplied, where bfloat16 or tf32 are multiplied faster."""

from __future__ import annotations

from . import machine

__all__ = ["get_float32_matmul_precision", "set_float32_matmul_precision"]

_LEVELS = ("highest", "high", "medium")

float32_products = "highest"


def set_float32_matmul_precision(precision: str) -> None:
    """Let products of float32 matrices round their factors, as ``torch``'s function of this name.

    "highest": they do not. On a CPU with a matrix unit (AMX) and on a GPU of compute capability
    9.0, which multiply bfloat16 fast, each factor of a large product is the sum of three of these
    and exact, "high": of two, 16 bits, "medium": of one, 8 bits. On other GPUs, and in small
    convolutions, "high" and "medium" let tensor cores multiply factors of 10 bits of fraction
    (tf32). On a CPU without such a unit that multiplies pairs of bfloat16 (AVX512-BF16), "medium"
    rounds factors of large products to these, where numbers below 2^-126 count as zero, for 0.55
    of the time; "high" changes nothing. All add in float32. Elsewhere nothing changes.
    """
    global float32_products
    if precision not in _LEVELS:
        words = ", ".join(map(repr, _LEVELS))
        raise ValueError(
            f"set_float32_matmul_precision: expected one of {words}, got {precision!r}."
        )
    if precision != float32_products:
        float32_products = precision
        from .amx import use_parts  # which takes an import 4 ms
        from .product import round_factors

        use_parts(3 - _LEVELS.index(precision))
        round_factors(precision == "medium")
        machine.changed()


def get_float32_matmul_precision() -> str:
    """What ``set_float32_matmul_precision`` has set; "highest" at first."""
    return float32_products
