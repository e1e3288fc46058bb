"""Arithmetic of PTX that is not an operator of Python's: roundings, saturation, shifts, halves.

All are compiled functions of numbers. Facts are from the PTX ISA, chapter "Instruction Set".
"""

from __future__ import annotations

import math

import numpy as np
from numba import float32, float64, int64, njit, uint64

from .bits import READ, WRITE, ceil, floor, nearest, trunc

inner = njit(error_model="numpy")

_MASK32 = uint64(0xFFFFFFFF)
_LEAST = float32(2.0**-126)
_f32_of, _f64_of, _u32_of, _u64_of = READ["f32"], READ["f64"], READ["u32"], READ["u64"]
_s64_of, _of_s64 = READ["s64"], WRITE["s64"]
_of_f32, _of_f64 = WRITE["f32"], WRITE["f64"]

# -- ints ------------------------------------------------------------------------------------------


@inner
def shift_left(x, n, width):
    """``x << n``; 0 where n is too large."""
    return x << n if n < uint64(width) else uint64(0)


@inner
def shift_right(x, n, width):
    """``x >> n`` of unsigned."""
    return x >> n if n < uint64(width) else uint64(0)


@inner
def shift_signed(x, n, width):
    """``x >> n`` of signed: a shift that is too large is one by all bits but one."""
    return x >> int64(n if n < uint64(width) else uint64(width - 1))


@inner
def high_unsigned(x, y):
    """The upper 64 of the 128 bits of a product of unsigned."""
    a, b, c, d = x >> uint64(32), x & _MASK32, y >> uint64(32), y & _MASK32
    low = b * d
    middle = a * d + (low >> uint64(32))
    other = b * c + (middle & _MASK32)
    return a * c + (middle >> uint64(32)) + (other >> uint64(32))


@inner
def high_signed(x, y):
    """The upper 64 of the 128 bits of a product of signed."""
    ux, uy = _of_s64(x), _of_s64(y)
    high = _s64_of(high_unsigned(ux, uy))
    if x < 0:
        high -= y
    if y < 0:
        high -= x
    return high


@inner
def quotient(x, y):
    """Signed division that cuts; by 0 all bits are set, as GPUs do."""
    if y == 0:
        return int64(-1)
    size, by = uint64(-x if x < 0 else x), uint64(-y if y < 0 else y)
    q = int64(size // by)
    return q if (x < 0) == (y < 0) else -q


@inner
def remainder(x, y):
    """What ``quotient`` leaves; by 0 it is x."""
    return x if y == 0 else x - quotient(x, y) * y


@inner
def quotient_unsigned(x, y):
    """Unsigned division; by 0 all bits are set."""
    return uint64(0xFFFFFFFFFFFFFFFF) if y == uint64(0) else x // y


@inner
def remainder_unsigned(x, y):
    """What is left; by 0 it is x."""
    return x if y == uint64(0) else x - x // y * y


@inner
def inserted(a, b, position, length, width):
    """``bfi``: the low bits of a in place of ``length`` bits of b."""
    position, length = position & uint64(0xFF), length & uint64(0xFF)
    if position >= uint64(width) or length == uint64(0):
        return b
    ones = shift_left(uint64(1), length, 64) - uint64(1)
    field = shift_left(ones, position, 64)
    return (b & ~field) | (shift_left(a, position, 64) & field)


@inner
def extracted(a, position, length, width, signed):
    """``bfe``: ``length`` bits of a from ``position``, with their sign."""
    position, length = position & uint64(0xFF), length & uint64(0xFF)
    if length == uint64(0):
        return uint64(0)
    top = min(position + length - uint64(1), uint64(width - 1))
    sign = shift_right(a, top, 64) & uint64(1) if signed else uint64(0)
    ones = shift_left(uint64(1), length, 64) - uint64(1)
    found = shift_right(a, position, 64) & ones
    kept = top - position + uint64(1) if top >= position else uint64(0)
    there = shift_left(uint64(1), kept, 64) - uint64(1)
    return (found & there) | (~there if sign else uint64(0))


@inner
def leading_zeros(x, width):
    """``clz``."""
    n = uint64(0)
    for k in range(width):
        if x & (uint64(1) << uint64(width - 1 - k)):
            break
        n += uint64(1)
    return n


@inner
def ones(x):
    """``popc``."""
    n = uint64(0)
    while x:
        x &= x - uint64(1)
        n += uint64(1)
    return n


@inner
def reversed_bits(x, width):
    """``brev``."""
    out = uint64(0)
    for k in range(width):
        if x & (uint64(1) << uint64(k)):
            out |= uint64(1) << uint64(width - 1 - k)
    return out


@inner
def permuted(a, b, selector):
    """``prmt`` in its default mode: each byte of the result is one of eight, or its sign."""
    both, out = a | (b << uint64(32)), uint64(0)
    for k in range(4):
        s = (selector >> uint64(4 * k)) & uint64(0xF)
        byte = (both >> (uint64(8) * (s & uint64(7)))) & uint64(0xFF)
        if s & uint64(8):
            byte = uint64(0xFF) if byte & uint64(0x80) else uint64(0)
        out |= byte << uint64(8 * k)
    return out


@inner
def funnel(low, high, n, left, wraps):
    """``shf``: the upper word of two that go left, or the lower of two that go right."""
    n = n & uint64(31) if wraps else min(n, uint64(32))
    both = low | (high << uint64(32))
    if left:
        return high if n == uint64(0) else shift_right(both, uint64(32) - n, 64) & _MASK32
    return shift_right(both, n, 64) & _MASK32


@inner
def logic3(a, b, c, table):
    """``lop3``: bit by bit what the table of eight says."""
    out = uint64(0)
    for k in range(8):
        if table & (uint64(1) << uint64(k)):
            x = a if k & 4 else ~a
            y = b if k & 2 else ~b
            z = c if k & 1 else ~c
            out |= x & y & z
    return out & _MASK32


@inner
def dot4(a, b, c, signed_a, signed_b):
    """``dp4a``: the products of four pairs of bytes, and c."""
    total = c
    for k in range(4):
        x, y = int64((a >> uint64(8 * k)) & uint64(255)), int64((b >> uint64(8 * k)) & uint64(255))
        x -= 256 if signed_a and x > 127 else 0
        y -= 256 if signed_b and y > 127 else 0
        total += uint64(x * y)
    return total


# -- floats ----------------------------------------------------------------------------------------


@inner
def flushed(x):
    """A float32 whose subnormal values are 0, with their sign: ``.ftz``."""
    return x if abs(x) >= _LEAST or x != x else float32(math.copysign(float32(0), x))


@inner
def odd_sum(x, y):
    """x + y in float64, to the neighbour with an odd last bit where it is not exact.

    Rounded once more to fewer bits it gives what one rounding of the sum gives: Boldo and
    Melquiond, "Emulation of a FMA and correctly rounded sums", 2008.
    """
    s = x + y
    if not math.isfinite(s):
        return s
    part = s - x
    error = (x - (s - part)) + (y - part)
    bits = _of_f64(s)
    if error == 0 or bits & uint64(1):
        return s
    away = (error > 0) == (s > 0)
    return _f64_of(bits + uint64(1) if away else bits - uint64(1))


@inner
def rounded32(x, mode):
    """float64 to float32; mode: 0 nearest, 1 down, 2 up, 3 towards 0."""
    r = float32(x)
    if mode == 0 or x != x or math.isinf(x):
        return r
    low, high = r, r
    if float64(r) > x:
        low = np.nextafter(r, float32(-np.inf))
    elif float64(r) < x:
        high = np.nextafter(r, float32(np.inf))
    if mode == 1:
        return low
    if mode == 2:
        return high
    return low if x > 0 else high


@inner
def fma_rounded(a, b, c, mode):
    """float32 a b + c with one directed rounding: the product is exact in float64."""
    return rounded32(odd_sum(float64(a) * float64(b), float64(c)), mode)


@inner
def upper_half(x):
    """A float64 with the lower 32 bits 0; subnormal values are 0."""
    x = _f64_of(_of_f64(x) & uint64(0xFFFFFFFF00000000))
    return math.copysign(0.0, x) if abs(x) < 2.0**-1022 else x


@inner
def rough_reciprocal(x):
    """``rcp.approx.ftz.f64``: of the upper 32 bits, with 20 bits that are right."""
    return upper_half(1.0 / upper_half(x))


@inner
def rough_root(x):
    """``rsqrt.approx.ftz.f64``: the same of one over the square root."""
    return upper_half(1.0 / math.sqrt(upper_half(x)))


@inner
def saturated(x):
    """float32 to [0, 1]; NaN becomes 0."""
    if not x > 0:
        return float32(0)
    return min(x, float32(1))


@inner
def least(x, y):
    """``min``: the other where one is NaN; -0 is less than 0."""
    if x != x:
        return y
    if y != y:
        return x
    if x == y:
        return x if math.copysign(1.0, x) < 0 else y
    return min(x, y)


@inner
def greatest(x, y):
    """``max``: the other where one is NaN; 0 is more than -0."""
    if x != x:
        return y
    if y != y:
        return x
    if x == y:
        return y if math.copysign(1.0, x) < 0 else x
    return max(x, y)


@inner
def whole(x, mode):
    """float64 rounded to a whole number; mode: 0 nearest even, 1 down, 2 up, 3 towards 0."""
    if mode == 0:
        return nearest(x)
    if mode == 1:
        return floor(x)
    return ceil(x) if mode == 2 else trunc(x)


@inner
def to_signed(x, width, wide):
    """A whole float64 to ``width`` bits, saturated. NaN: see "cvt", wide if 64 bits take part."""
    if x != x:
        return int64(-(2 ** (width - 1))) if wide else int64(0)
    if x >= 2.0 ** (width - 1):
        return int64(2 ** (width - 1) - 1)
    if x <= -(2.0 ** (width - 1)):
        return int64(-(2 ** (width - 1)))
    return int64(x)


@inner
def to_unsigned(x, width, wide):
    """The same for unsigned."""
    if x != x:
        return uint64(1) << uint64(width - 1) if wide else uint64(0)
    if x >= 2.0**width:
        return uint64(0xFFFFFFFFFFFFFFFF) >> uint64(64 - width)
    return uint64(0) if x <= 0 else uint64(x)


# -- halves ----------------------------------------------------------------------------------------


@inner
def from_half(h):
    """float32 of the bits of a float16."""
    sign = float32(-1.0) if h & uint64(0x8000) else float32(1.0)
    exponent, part = (h >> uint64(10)) & uint64(31), h & uint64(1023)
    if exponent == uint64(31):
        return float32(np.nan) if part else sign * float32(np.inf)
    if exponent == uint64(0):
        return sign * float32(part) * float32(2.0**-24)
    return sign * float32(float64(part + uint64(1024)) * 2.0 ** (int64(exponent) - 25))


@inner
def to_half(x):
    """The bits of the nearest float16, ties to even."""
    bits = _of_f32(x)
    sign, size = (bits >> uint64(16)) & uint64(0x8000), abs(float64(x))
    if x != x:
        return uint64(0x7FFF)
    if size >= 65520.0:
        return sign | uint64(0x7C00)
    if size < 2.0**-14:
        return sign | uint64(nearest(size * 2.0**24))
    bits &= uint64(0x7FFFFFFF)
    bits += uint64(0xFFF) + ((bits >> uint64(13)) & uint64(1))
    return sign | ((bits >> uint64(13)) - uint64(112 << 10))


@inner
def to_brain(x):
    """The bits of the nearest bfloat16, ties to even."""
    bits = _of_f32(x)
    if x != x:
        return uint64(0x7FFF)
    return (bits + uint64(0x7FFF) + ((bits >> uint64(16)) & uint64(1))) >> uint64(16)


@inner
def from_brain(h):
    """float32 of the bits of a bfloat16."""
    return _f32_of(h << uint64(16))


@inner
def to_tf32(x):
    """The bits of a float32 with 10 bits of fraction, ties away from 0: ``cvt.rna.tf32``."""
    bits = _of_f32(x)
    if x != x:
        return uint64(0x7FFFFFFF)
    return bits if math.isinf(x) else (bits + uint64(0x1000)) & uint64(0xFFFFE000)
