"""The machine for PTX, instruction by instruction, against NumPy and exact fractions.

The text is written here, so nothing of NVIDIA's is needed.
"""

from __future__ import annotations

import math
import os
from fractions import Fraction

import numpy as np
import pytest
from ptx.assemble import assemble
from ptx.machine import Machine
from ptx.memory import GIVEN, WRITTEN, Space
from ptx.parse import NotCovered, parse

if os.environ.get("NUMBAGRAD_PTX", "0") in ("", "0"):
    pytest.skip("compiling the machine takes a minute: NUMBAGRAD_PTX=1", allow_module_level=True)

I16, I32, I64, F32, F64, U16, U32, U64 = (
    np.dtype(t) for t in "int16 int32 int64 float32 float64 uint16 uint32 uint64".split()
)
RNG = np.random.default_rng(3)


class Bench:
    """A small machine, with arrays in its memory."""

    def __init__(self, order=0):
        self.space = Space(1 << 21, 1 << 20)
        self.machine = Machine(self.space, order)
        self.top = self.space.base + (1 << 20) + 4096

    def put(self, array, written=True):
        """The address of a copy of ``array``."""
        array = np.ascontiguousarray(array)
        address = self.top
        self.space.mark(address, array.nbytes, WRITTEN if written else GIVEN)
        at = address - self.space.base
        self.space.bytes[at : at + array.nbytes] = array.view(np.uint8).ravel()
        self.top = -(-(address + array.nbytes + 256) // 512) * 512
        return address

    def get(self, address, like):
        at = address - self.space.base
        raw = self.space.bytes[at : at + like.nbytes]
        return raw.copy().view(like.dtype).reshape(like.shape)

    def run(self, text, grid, block, *args):
        self.machine.run(assemble(parse(text), {}), (*grid, 1, 1)[:3], (*block, 1, 1)[:3], [*args])


NAMES = ", ".join(f"%{letter}, %{letter}<9>" for letter in "abcdeiopq")


def text_of(body, count, head=""):
    """An entry with ``count`` pointers in %rd1, %rd2, and so on, and the thread in %r1."""
    parameters = ", ".join(f".param .u64 k_param_{n}" for n in range(count))
    loads = "".join(f"ld.param.u64 %rd{n + 1}, [k_param_{n}];\n" for n in range(count))
    return (
        f".version 8.0\n.target sm_80\n.address_size 64\n{head}.visible .entry k({parameters})\n"
        f"{{\n.reg .b64 %rd<99>;\n.reg .b64 {NAMES};\n.reg .b32 %r<9>;\n"
        f"{loads}mov.u32 %r1, %tid.x;\n{body}\nret;\n}}"
    )


def computed(line, result, *operands):
    """``line`` on arrays, a thread for each element; it reads %a, %b, %c and writes %d."""
    bench, n = Bench(), len(operands[0])
    out = np.zeros(n, result)
    body = ""
    for k, array in enumerate(operands):
        size = array.dtype.itemsize
        body += f"mul.wide.u32 %rd50, %r1, {size};\nadd.s64 %rd51, %rd{k + 2}, %rd50;\n"
        body += f"ld.global.b{8 * size} %{'abc'[k]}, [%rd51];\n"
    body += f"{line};\nmul.wide.u32 %rd50, %r1, {out.itemsize};\nadd.s64 %rd51, %rd1, %rd50;\n"
    body += f"st.global.b{8 * out.itemsize} [%rd51], %d;"
    places = [bench.put(a) for a in (out, *operands)]
    bench.run(text_of(body, len(places)), (1,), (n,), *places)
    return bench.get(places[0], out)


def ints(dtype, n=200):
    info = np.iinfo(dtype)
    found = RNG.integers(info.min, info.max, n, dtype, endpoint=True)
    found[:6] = 0, 1, info.max, info.min, 2, info.max - 1
    return found


def floats(dtype, n=300):
    found = (RNG.standard_normal(n) * 10.0 ** RNG.integers(-30, 30, n)).astype(dtype)
    special = [0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 0.5, 1.5, 2.5, -2.5, 1e-45, 3.4e38]
    found[: len(special)] = special
    return found


WHOLE = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul.lo": lambda a, b: a * b,
    "min": np.minimum, "max": np.maximum,
    "and.b": lambda a, b: a & b, "or.b": lambda a, b: a | b, "xor.b": lambda a, b: a ^ b,
}  # fmt: skip


@pytest.mark.parametrize("dtype", [I16, I32, I64, U16, U32, U64], ids=str)
@pytest.mark.parametrize("name", WHOLE)
def test_ints(name, dtype):
    a, b = ints(dtype), RNG.permutation(ints(dtype))
    kind = "s" if dtype.kind == "i" else "u"
    word = name if name.endswith(".b") else f"{name}.{kind}"
    got = computed(f"{word}{8 * dtype.itemsize} %d, %a, %b", dtype, a, b)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got, WHOLE[name](a, b))


def big(f, *arrays):
    """``f`` of Python's ints, element by element."""
    return [f(*map(int, each)) for each in zip(*arrays, strict=True)]


def cut(values, dtype):
    """Whole numbers to a dtype, by their low bits."""
    bits = 8 * dtype.itemsize
    return np.array([v % (1 << bits) for v in values], f"uint{bits}").view(dtype)


def truncated(a, b):
    return -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


MORE = {
    "div": truncated, "rem": lambda a, b: a if b == 0 else a - b * truncated(a, b),
    "mul.hi": None, "mul.wide": None,
}  # fmt: skip


@pytest.mark.parametrize("dtype", [I16, I32, I64, U16, U32, U64], ids=str)
@pytest.mark.parametrize("name", MORE)
def test_quotients_and_wide_products(name, dtype):
    bits, kind = 8 * dtype.itemsize, dtype.kind.replace("i", "s")
    if name == "mul.wide" and bits == 64:
        pytest.skip("no such instruction")
    a, b = ints(dtype), RNG.permutation(ints(dtype))
    result = np.dtype(f"{dtype.name.rstrip('0123456789')}{2 * bits}") if "wide" in name else dtype
    work = {"mul.hi": lambda x, y: x * y >> bits, "mul.wide": lambda x, y: x * y}.get(name)
    got = computed(f"{name}.{kind}{bits} %d, %a, %b", result, a, b)
    np.testing.assert_array_equal(got, cut(big(work or MORE[name], a, b), result))


@pytest.mark.parametrize("width", [16, 32, 64])
def test_shifts_saturate(width):
    signed, unsigned = np.dtype(f"int{width}"), np.dtype(f"uint{width}")
    n = np.arange(200, dtype=np.uint32) % (2 * width)
    a = ints(unsigned)
    left = cut(big(lambda x, k: x << k, a, n), unsigned)
    np.testing.assert_array_equal(computed(f"shl.b{width} %d, %a, %b", unsigned, a, n), left)
    right = cut(big(lambda x, k: x >> k, a, n), unsigned)
    np.testing.assert_array_equal(computed(f"shr.u{width} %d, %a, %b", unsigned, a, n), right)
    s = ints(signed)
    right = cut(big(lambda x, k: x >> k, s, n), signed)
    np.testing.assert_array_equal(computed(f"shr.s{width} %d, %a, %b", signed, s, n), right)


def test_bits():
    a, b = ints(U32), RNG.permutation(ints(U32))
    assert computed("popc.b32 %d, %a", U32, a).tolist() == big(int.bit_count, a)
    assert computed("clz.b32 %d, %a", U32, a).tolist() == big(lambda x: 32 - x.bit_length(), a)
    turned = big(lambda x: int(f"{x:032b}"[::-1], 2), a)
    assert computed("brev.b32 %d, %a", U32, a).tolist() == turned
    bytes_ = np.concatenate([a.view(np.uint8).reshape(-1, 4), b.view(np.uint8).reshape(-1, 4)], 1)
    expected = np.ascontiguousarray(bytes_[:, [6, 1, 4, 3]]).view(U32).ravel()
    np.testing.assert_array_equal(computed("prmt.b32 %d, %a, %b, 0x3416", U32, a, b), expected)
    chosen = computed("lop3.b32 %d, %a, %b, 255, 0xCA", U32, a, b)
    np.testing.assert_array_equal(chosen, (a & b) | (~a & np.uint32(255)))
    field = computed("bfi.b32 %d, %a, %b, 5, 7", U32, a, b)
    mask = np.uint32(127 << 5)
    np.testing.assert_array_equal(field, (b & ~mask) | ((a << np.uint32(5)) & mask))
    taken = computed("bfe.s32 %d, %a, 5, 7", I32, a)
    np.testing.assert_array_equal(taken, (a.view(I32) << 20) >> 25)
    both = a.astype(U64) | (b.astype(U64) << np.uint64(32))
    wrapped = computed("shf.l.wrap.b32 %d, %a, %b, 9", U32, a, b)
    np.testing.assert_array_equal(wrapped, (both >> np.uint64(23)).astype(U32))


@pytest.mark.parametrize("one,other", ["uu", "us", "su", "ss"])
def test_products_of_four_bytes(one, other):
    a, b, c = ints(U32), RNG.permutation(ints(U32)), RNG.permutation(ints(U32))
    bytes_ = [x.view("int8" if k == "s" else "uint8") for x, k in ((a, one), (b, other))]
    x, y = (z.reshape(-1, 4).astype(I64) for z in bytes_)
    got = computed(f"dp4a.{one}32.{other}32 %d, %a, %b, %c", U32, a, b, c)
    np.testing.assert_array_equal(got, ((x * y).sum(1) + c).astype(U32))


def test_sums_with_a_carry():
    a, b = ints(U64), RNG.permutation(ints(U64))
    halves = "mov.b64 {%a0, %a1}, %a;\nmov.b64 {%b0, %b1}, %b;\n"
    line = halves + "add.cc.u32 %d0, %a0, %b0;\naddc.u32 %d1, %a1, %b1;\nmov.b64 %d, {%d0, %d1}"
    plus = computed(line, U64, a, b)
    np.testing.assert_array_equal(plus, a + b)
    minus = computed(line.replace("add", "sub"), U64, a, b)
    np.testing.assert_array_equal(minus, a - b)
    product = (
        halves + "mul.lo.u32 %d0, %a0, %b0;\nmul.hi.u32 %d1, %a0, %b0;\n"
        "mad.lo.cc.u32 %d1, %a0, %b1, %d1;\nmadc.hi.u32 %d2, %a0, %b1, 0;\n"
        "mad.lo.cc.u32 %d1, %a1, %b0, %d1;\nmadc.hi.u32 %d2, %a1, %b0, %d2;\n"
        "mov.b64 %d, {%d0, %d1}"
    )
    np.testing.assert_array_equal(computed(product, U64, a, b), a * b)


def exact_fma(a, b, c, dtype):
    """a b + c rounded once, by fractions."""
    if not all(map(math.isfinite, (a, b, c))):
        with np.errstate(all="ignore"):
            whole = math.isfinite(a) and math.isfinite(b)
            return dtype.type(c if whole else a * b + c)
    total = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if total == 0:
        return dtype.type(float(a) * float(b) + float(c)) * 0
    return rounded(total, dtype)


def rounded(total, dtype):
    """The float nearest to a fraction, ties to even."""
    digits, least = (24, -149) if dtype == F32 else (53, -1074)
    size = abs(total)
    power = size.numerator.bit_length() - size.denominator.bit_length()
    power = max(power - (size < Fraction(2) ** power) - digits + 1, least)
    whole = round(size / Fraction(2) ** power)  # Python's rounds to even
    try:
        value = math.ldexp(whole, power)
    except OverflowError:
        value = math.inf
    with np.errstate(over="ignore"):
        return dtype.type(math.copysign(value, total))


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_fma_rounds_once(dtype):
    a, b = floats(dtype), RNG.permutation(floats(dtype))
    with np.errstate(all="ignore"):
        c = -(a * b)  # so that all that is left is what rounding took
    c[::3] = floats(dtype)[::3]
    got = computed(f"fma.rn.f{8 * dtype.itemsize} %d, %a, %b, %c", dtype, a, b, c)
    expected = np.array([exact_fma(*each, dtype) for each in zip(a, b, c, strict=True)], dtype)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("mode,up", [("rm", -1), ("rp", 1), ("rz", 0)])
def test_directed_roundings_of_float32(mode, up):
    n = 300
    a, b, c = (RNG.standard_normal(n).astype(F32) * 10.0 ** RNG.integers(-6, 6, n) for _ in "abc")
    a, b, c = (x.astype(F32) for x in (a, b, c))
    got = computed(f"fma.{mode}.f32 %d, %a, %b, %c", F32, a, b, c)
    for k in range(n):
        exact = Fraction(float(a[k])) * Fraction(float(b[k])) + Fraction(float(c[k]))
        away = np.float32(np.inf if (up or (-1 if exact > 0 else 1)) > 0 else -np.inf)
        found, inward = Fraction(float(got[k])), np.nextafter(got[k], -away)
        direction = 1 if away > 0 else -1
        assert direction * found >= direction * exact > direction * Fraction(float(inward)) or (
            found == exact
        )


UNARY = {
    "neg": np.negative, "abs": np.abs, "sqrt.rn": np.sqrt, "rcp.rn": lambda x: x.dtype.type(1) / x,
}  # fmt: skip
BINARY = {
    "add.rn": np.add, "sub": np.subtract, "mul": np.multiply, "div.rn": np.divide,
    "min": np.fmin, "max": np.fmax, "copysign": lambda a, b: np.copysign(b, a),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_floats(dtype):
    a, b, t = floats(dtype), RNG.permutation(floats(dtype)), f"f{8 * dtype.itemsize}"
    with np.errstate(all="ignore"):
        for name, work in UNARY.items():
            np.testing.assert_array_equal(computed(f"{name}.{t} %d, %a", dtype, a), work(a), name)
        for name, work in BINARY.items():
            got = computed(f"{name}.{t} %d, %a, %b", dtype, a, b)
            np.testing.assert_array_equal(got, work(a, b), name)
    zeros = np.array([0.0, -0.0], dtype), np.array([-0.0, 0.0], dtype)
    assert np.signbit(computed(f"min.{t} %d, %a, %b", dtype, *zeros)).all()
    assert not np.signbit(computed(f"max.{t} %d, %a, %b", dtype, *zeros)).any()


@pytest.mark.parametrize(
    "name,work",
    [
        ("ex2", np.exp2),
        ("rcp", np.reciprocal),
        ("rsqrt", lambda x: 1 / np.sqrt(x)),
        ("lg2", np.log2),
    ],
)
def test_rough_functions(name, work):
    x = np.abs(RNG.standard_normal(100)).astype(F32)
    got = computed(f"{name}.approx.ftz.f32 %d, %a", F32, x)
    np.testing.assert_allclose(got, work(x.astype(F64)), rtol=1.2e-7)
    tiny = np.array([1e-40, -1e-40], F32)
    with np.errstate(all="ignore"):
        expected = work(np.array([0.0, -0.0], F32)).astype(F32)
    np.testing.assert_array_equal(computed(f"{name}.approx.ftz.f32 %d, %a", F32, tiny), expected)
    rough = computed("rcp.approx.ftz.f64 %d, %a", F64, x.astype(F64))
    np.testing.assert_allclose(rough, 1 / x.astype(F64), rtol=2.0**-20)
    assert not (rough.view(U64) & np.uint64(0xFFFFFFFF)).any()


COMPARED = {
    "eq": np.equal, "ne": lambda a, b: (a != b) & (a == a) & (b == b), "lt": np.less,
    "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


@pytest.mark.parametrize("dtype", [I32, U32, I64, U64, F32, F64], ids=str)
def test_comparisons(dtype):
    real = dtype.kind == "f"
    a = floats(dtype) if real else ints(dtype)
    b = np.where(RNG.random(len(a)) < 0.3, a, RNG.permutation(a))
    t = f"{dtype.kind.replace('i', 's')}{8 * dtype.itemsize}"
    for name, work in COMPARED.items():
        got = computed(f"setp.{name}.{t} %p, %a, %b;\nselp.u32 %d, 1, 0, %p", U32, a, b)
        np.testing.assert_array_equal(got, work(a, b), name)
        if real:
            got = computed(f"setp.{name}u.{t} %p, %a, %b;\nselp.u32 %d, 1, 0, %p", U32, a, b)
            np.testing.assert_array_equal(got, work(a, b) | np.isnan(a) | np.isnan(b), name)
    line = f"setp.lt.and.{t} %p|%q, %a, %b, %o;\nselp.u32 %d, 1, 0, %q"
    got = computed(f"setp.ne.u32 %o, %r1, 5;\n{line}", U32, a, b)
    expected = ~np.less(a, b)
    expected[5] = False
    np.testing.assert_array_equal(got, expected)


def test_every_number_but_zero_is_true():
    for number, expected in ((-1, 3), (1, 3), (0, 4)):
        line = f"mov.pred %p, {number};\nmov.u32 %d, 4;\n@%p mov.u32 %d, 3"
        assert (computed(line, U32, np.zeros(32, U32)) == expected).all()


def test_floats_become_ints():
    x = np.array([0.5, 1.5, -1.5, 2.6, -2.6, 3e9, -3e9, 1e20, -1e20, np.nan, np.inf], F32)
    got = computed("cvt.rzi.s32.f32 %d, %a", I32, x)
    top, low = 2**31 - 1, -(2**31)
    assert got.tolist() == [0, 1, -1, 2, -2, top, low, top, low, 0, top]
    assert computed("cvt.rni.s32.f32 %d, %a", I32, x)[:5].tolist() == [0, 2, -2, 3, -3]
    assert computed("cvt.rmi.s32.f32 %d, %a", I32, x)[:5].tolist() == [0, 1, -2, 2, -3]
    wide = computed("cvt.rzi.s64.f32 %d, %a", I64, x)
    assert wide[5:].tolist() == [3 * 10**9, -3 * 10**9, 2**63 - 1, -(2**63), -(2**63), 2**63 - 1]
    none = computed("cvt.rzi.u64.f64 %d, %a", U64, np.array([-1.0, np.nan, 2.0**64], F64))
    assert none.tolist() == [0, 2**63, 2**64 - 1]
    whole = computed("cvt.rni.f64.f64 %d, %a", F64, x.astype(F64))
    np.testing.assert_array_equal(whole, np.rint(x.astype(F64)))
    assert computed("cvt.sat.f32.f32 %d, %a", F32, x)[[0, 1, 2, 9]].tolist() == [0.5, 1, 0, 0]


def test_ints_become_others():
    a = ints(I64)
    np.testing.assert_array_equal(computed("cvt.rn.f32.s64 %d, %a", F32, a), a.astype(F32))
    u = a.view(U64)
    np.testing.assert_array_equal(computed("cvt.rn.f64.u64 %d, %a", F64, u), u.astype(F64))
    np.testing.assert_array_equal(computed("cvt.s64.s8 %d, %a", I64, a), a.astype(np.int8))
    np.testing.assert_array_equal(computed("cvt.u64.u16 %d, %a", U64, u), u.astype(U16))
    np.testing.assert_array_equal(computed("cvt.u32.u64 %d, %a", U32, u), u.astype(U32))


def nearest_brain(value):
    """The bfloat16 nearest to a float32, ties to the one whose last bit is zero, as its bits."""
    bits = int(np.float32(value).view(U32))
    below = bits >> 16  # towards zero
    if bits & 0xFFFF == 0:
        return below

    def exact(brain):
        exponent, fraction = brain >> 7 & 0xFF, brain & 0x7F
        if exponent == 0:
            return Fraction(fraction, 2**133)
        return Fraction(128 + fraction) * Fraction(2) ** (exponent - 134)  # 2**128 for infinity

    size = abs(Fraction(float(value)))
    down, up = size - exact(below), exact(below + 1) - size
    return below + (up < down or (up == down and below & 1))


def test_halves():
    every = np.arange(1 << 16, dtype=U16)[::71]
    got = computed("cvt.f32.f16 %d, %a", F32, every)
    np.testing.assert_array_equal(got, every.view(np.float16).astype(F32))
    x = np.concatenate([floats(F32), got, RNG.standard_normal(99).astype(F32)])[:1000]
    x[-9:] = 65504, 65519.9, 65520, 6e-8, 2.9e-8, 3e-8, 6.1e-5, -6.1e-5, 1 + 2**-11
    half = computed("cvt.rn.f16.f32 %d, %a", U16, x)
    with np.errstate(over="ignore"):
        expected = x.astype(np.float16)
    np.testing.assert_array_equal(half.view(np.float16), expected)
    found = computed("cvt.rn.bf16.f32 %d, %a", U16, x)
    assert found.tolist() == [0x7FFF if np.isnan(v) else nearest_brain(v) for v in x]
    tf32 = computed("cvt.rna.tf32.f32 %d, %a", F32, np.array([1 + 2**-11, 1 + 2**-12, -1.0], F32))
    assert tf32.tolist() == [1 + 2**-10, 1, -1]


SHUFFLED = {
    "up": lambda lane, n: lane - n if lane >= n else lane,
    "down": lambda lane, n: lane + n if lane + n < 32 else lane,
    "bfly": lambda lane, n: lane ^ n, "idx": lambda lane, n: n,
}  # fmt: skip


@pytest.mark.parametrize("mode", SHUFFLED)
@pytest.mark.parametrize("distance", [0, 1, 7, 31])
def test_shuffles(mode, distance):
    x = ints(U32, 96)
    clamp = 0 if mode == "up" else 31
    line = f"shfl.sync.{mode}.b32 %d|%p, %a, {distance}, {clamp}, -1"
    got = computed(line, U32, x).reshape(3, 32)
    source = [SHUFFLED[mode](lane, distance) for lane in range(32)]
    np.testing.assert_array_equal(got, x.reshape(3, 32)[:, source])


def test_shuffles_of_parts_of_a_warp():
    x = ints(U32, 32)
    got = computed("shfl.sync.down.b32 %d|%p, %a, 3, 0x181F, -1", U32, x)  # parts of 8
    source = [lane + 3 if lane % 8 < 5 else lane for lane in range(32)]
    np.testing.assert_array_equal(got, x[source])


def test_votes():
    x = np.arange(64, dtype=U32)
    line = "setp.lt.u32 %p, %a, 40;\nvote.sync.{0}.{1} %d, %p, -1"
    ballot = computed(line.format("ballot", "b32"), U32, x)
    assert ballot.tolist() == [0xFFFFFFFF] * 32 + [0xFF] * 32
    yes = computed("setp.lt.u32 %p, %a, 40;\nvote.sync.all.pred %q, %p, -1;\n"
                   "selp.u32 %d, 1, 0, %q", U32, x)  # fmt: skip
    assert yes.tolist() == [1] * 32 + [0] * 32


@pytest.mark.parametrize("kind", ["f16", "bf16", "tf32"])
def test_products_of_a_warp(kind):
    """Against NumPy, with fragments as the manual's figures show them, element by element."""
    wide = kind == "tf32"
    k = 8 if wide else 16
    a, b = RNG.integers(-8, 8, (16, k)), RNG.integers(-8, 8, (k, 8))
    c = RNG.integers(-99, 99, (16, 8)).astype(F32)

    def bits(x):
        x = np.asarray(x, F32)
        if wide:
            return x.view(U32)
        return x.astype(np.float16).view(U16) if kind == "f16" else (x.view(U32) >> 16).astype(U16)

    lanes_a, lanes_b, lanes_c = (
        np.zeros((32, 4), U32),
        np.zeros((32, 2), U32),
        np.zeros((32, 4), F32),
    )
    for lane in range(32):
        group, of_group = lane >> 2, lane % 4
        for i in range(4 if wide else 8):
            if wide:  # "Matrix Fragments for mma.m16n8k8": a0 to a3
                row, col = group + 8 * (i in (1, 3)), of_group + 4 * (i >= 2)
                lanes_a[lane, i] = bits(a[row, col])
            else:  # "Matrix Fragments for mma.m16n8k16 with floating point type": a0 to a7
                row = group if i in (0, 1, 4, 5) else group + 8
                col = of_group * 2 + (i & 1) + (8 if i >= 4 else 0)
                lanes_a[lane, i // 2] |= U32.type(bits(a[row, col])) << U32.type(16 * (i & 1))
        for i in range(2 if wide else 4):
            if wide:
                lanes_b[lane, i] = bits(b[of_group + 4 * i, group])
            else:
                row = of_group * 2 + (i & 1) + (8 if i >= 2 else 0)
                lanes_b[lane, i // 2] |= U32.type(bits(b[row, group])) << U32.type(16 * (i & 1))
        for i in range(4):
            lanes_c[lane, i] = c[group + 8 * (i >= 2), of_group * 2 + (i & 1)]
    shape = "m16n8k8" if wide else "m16n8k16"
    body = "".join(
        f"mul.wide.u32 %rd50, %r1, {4 * n};\nadd.s64 %rd5{m}, %rd{m}, %rd50;\n"
        f"ld.global.v{n}.b32 {{{', '.join(f'%{x}{i}' for i in range(n))}}}, [%rd5{m}];\n"
        for m, n, x in ((2, 4, "a"), (3, 2, "b"), (4, 4, "c"))
    )
    body += (
        f"mma.sync.aligned.{shape}.row.col.f32.{kind}.{kind}.f32 {{%d0, %d1, %d2, %d3}}, "
        "{%a0, %a1, %a2, %a3}, {%b0, %b1}, {%c0, %c1, %c2, %c3};\n"
        "mul.wide.u32 %rd50, %r1, 16;\nadd.s64 %rd51, %rd1, %rd50;\n"
        "st.global.v4.b32 [%rd51], {%d0, %d1, %d2, %d3};"
    )
    bench = Bench()
    places = [bench.put(x) for x in (np.zeros_like(lanes_c), lanes_a, lanes_b, lanes_c)]
    bench.run(text_of(body, 4), (1,), (32,), *places)
    got, expected = bench.get(places[0], lanes_c), a @ b + c
    for lane in range(32):
        for i in range(4):
            assert got[lane, i] == expected[(lane >> 2) + 8 * (i >= 2), lane % 4 * 2 + (i & 1)]


@pytest.mark.parametrize("rows, k", [(8, 4), (16, 4), (16, 8)])
def test_products_of_float64_of_a_warp(rows, k):
    """Against NumPy: "Matrix Fragments for mma.m8n8k4", "m16n8k4" and "m16n8k8", with float64."""
    a, b, c = RNG.normal(size=(rows, k)), RNG.normal(size=(k, 8)), RNG.normal(size=(rows, 8))
    halves, groups = rows // 8, k // 4
    lanes_a, lanes_b = np.zeros((32, halves * groups)), np.zeros((32, groups))
    lanes_c = np.zeros((32, 2 * halves))
    for lane in range(32):
        group, of_group = lane >> 2, lane % 4
        for i in range(halves * groups):
            low = i in (1, 3) if rows == 16 else False
            lanes_a[lane, i] = a[group + 8 * low, of_group + 4 * (i >= 2)]
        for i in range(groups):
            lanes_b[lane, i] = b[of_group + 4 * i, group]
        for i in range(2 * halves):
            lanes_c[lane, i] = c[group + 8 * (i >= 2), of_group * 2 + (i & 1)]
    body, lists = "", {}
    for m, x, lanes in ((2, "a", lanes_a), (3, "b", lanes_b), (4, "c", lanes_c)):
        count = lanes.shape[1]
        lists[x] = ", ".join(f"%{x}{i}" for i in range(count))
        body += f"mul.wide.u32 %rd50, %r1, {8 * count};\nadd.s64 %rd5{m}, %rd{m}, %rd50;\n"
        body += "".join(f"ld.global.b64 %{x}{i}, [%rd5{m}+{8 * i}];\n" for i in range(count))
    results = [f"%d{i}" for i in range(2 * halves)]
    body += (
        f"mma.sync.aligned.m{rows}n8k{k}.row.col.f64.f64.f64.f64 {{{', '.join(results)}}}, "
        f"{{{lists['a']}}}, {{{lists['b']}}}, {{{lists['c']}}};\n"
        f"mul.wide.u32 %rd50, %r1, {16 * halves};\nadd.s64 %rd51, %rd1, %rd50;\n"
    )
    body += "".join(f"st.global.b64 [%rd51+{8 * i}], {d};\n" for i, d in enumerate(results))
    bench = Bench()
    places = [bench.put(x) for x in (np.zeros_like(lanes_c), lanes_a, lanes_b, lanes_c)]
    bench.run(text_of(body, 4), (1,), (32,), *places)
    got, expected = bench.get(places[0], lanes_c), a @ b + c
    for lane in range(32):
        for i in range(2 * halves):
            right = expected[(lane >> 2) + 8 * (i >= 2), lane % 4 * 2 + (i & 1)]
            np.testing.assert_allclose(got[lane, i], right, rtol=1e-13)


def test_branches_come_together():
    x = np.arange(64, dtype=U32)
    line = (
        "mov.u32 %d, 0;\nmov.u32 %i, 0;\n$TOP:\nsetp.ge.u32 %p, %i, %a;\n@%p bra $END;\n"
        "add.u32 %d, %d, %i;\nadd.u32 %i, %i, 1;\nbra.uni $TOP;\n$END:\n"
        "shfl.sync.bfly.b32 %e|%q, %d, 1, 31, -1;\n@!%p add.u32 %d, %d, 1000;\nadd.u32 %d, %d, %e"
    )
    sums = x * (x - 1) // 2
    np.testing.assert_array_equal(computed(line, U32, x), sums + sums[np.arange(64) ^ 1])


def test_atomics():
    bench, total = Bench(), np.zeros(2, U32)
    place = bench.put(total)
    body = "atom.global.add.u32 %a, [%rd1], %r1;\nred.global.max.u32 [%rd1+4], %r1;"
    bench.run(text_of(body, 1), (5,), (64,), place)
    assert bench.get(place, total).tolist() == [5 * 64 * 63 // 2, 63]


def test_what_is_not_known_is_refused():
    with pytest.raises(NotCovered, match=r"tex\.1d.*no row"):
        computed("tex.1d.v4 %d, %a, %b", U32, ints(U32), ints(U32))
    with pytest.raises(NotCovered, match="clock"):
        computed("mov.u32 %d, %clock", U32, ints(U32))
