"""What the instructions compute that need no memory and no other thread: a line for each.

A row is the types of the result and of the operands, and an expression of the operands a, b, c, d.
Whole numbers come as 64 bits, so results may be too wide; what is written back is cut. Operands
that stand in the name, such as a rounding mode, are in the expression. A word of an instruction
that is in no row is an error where the kernel is assembled.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["ROWS", "Row", "known_as"]


@dataclass(frozen=True)
class Row:
    """One instruction: the type of its result, those of its operands, and what it computes."""

    result: str
    operands: tuple[str, ...]
    expression: str


ROWS: dict[str, Row] = {}
"""By name, as the text of a kernel has it."""


def row(name: str, result: str, operands: str, expression: str) -> None:
    ROWS[name] = Row(result, tuple(operands.split()), expression)


MODES = {"rn": 0, "rm": 1, "rp": 2, "rz": 3}
LIKE = (
    (r"(add|sub|mul\.lo|mad\.lo)\.s(\d+)", r"\1.u\2"),
    (r"(add|sub|mul)\.rn\.(f\d+)", r"\1.\2"),
    (r"selp\.[suf](\d+)", r"selp.b\1"),
    (r"setp\.(eq|ne)\.[sb](\d+)", r"setp.\1.u\2"),
    (r"cvt\.[su](\d+)\.([su]\d+)", r"cvt.b\1.\2"),
    (r"shr\.b(\d+)", r"shr.u\1"),
)
"""Names of the same work on the same bits."""


def known_as(name: str) -> str:
    """The name in the table of an instruction."""
    for pattern, instead in LIKE:
        found = re.fullmatch(pattern, name)
        if found is not None:
            return found.expand(instead)
    return name


def wholes() -> None:
    """Arithmetic of ints."""
    for width in (16, 32, 64):
        s, u, b = (f"{k}{width}" for k in "sub")
        row(f"add.{u}", u, f"{u} {u}", "a + b")
        row(f"sub.{u}", u, f"{u} {u}", "a - b")
        row(f"mul.lo.{u}", u, f"{u} {u}", "a * b")
        row(f"shl.{b}", b, f"{b} u32", f"shift_left(a, b, {width})")
        row(f"shr.{s}", s, f"{s} u32", f"shift_signed(a, b, {width})")
        row(f"shr.{u}", u, f"{u} u32", f"shift_right(a, b, {width})")
        row(f"not.{b}", b, b, "~a")
        row(f"neg.{s}", s, s, "-a")
        row(f"abs.{s}", s, s, "abs(a)")
        for t in (s, u):
            row(f"min.{t}", t, f"{t} {t}", "a if a < b else b")
            row(f"max.{t}", t, f"{t} {t}", "a if a > b else b")
        for t, tail in ((s, ""), (u, "_unsigned")):
            row(f"div.{t}", t, f"{t} {t}", f"quotient{tail}(a, b)")
            row(f"rem.{t}", t, f"{t} {t}", f"remainder{tail}(a, b)")
    for width in (32, 64):
        s, u, b = (f"{k}{width}" for k in "sub")
        row(f"mad.lo.{u}", u, f"{u} {u} {u}", "a * b + c")
        row(f"bfi.{b}", b, f"{b} {b} u32 u32", f"inserted(a, b, c, d, {width})")
        row(f"clz.{b}", "u32", b, f"leading_zeros(a, {width})")
        row(f"popc.{b}", "u32", b, "ones(a)")
        row(f"brev.{b}", b, b, f"reversed_bits(a, {width})")
        for t in (s, u):
            row(f"bfe.{t}", t, f"u{width} u32 u32", f"extracted(a, b, c, {width}, {t == s})")
    for t in ("s16", "u16", "s32", "u32"):
        kind, width = t[0], int(t[1:])
        row(f"mul.hi.{t}", t, f"{t} {t}", f"(a * b) >> {kind}({width})")
        row(f"mul.wide.{t}", f"{kind}{2 * width}", f"{t} {t}", "a * b")
        row(f"mad.wide.{t}", f"{kind}{2 * width}", f"{t} {t} {kind}{2 * width}", "a * b + c")
    row("mul.hi.s64", "s64", "s64 s64", "high_signed(a, b)")
    row("mul.hi.u64", "u64", "u64 u64", "high_unsigned(a, b)")
    for a in "us":
        for b in "us":
            dot = f"dot4(a, b, c, {a == 's'}, {b == 's'})"
            row(f"dp4a.{a}32.{b}32", "b32", "b32 b32 b32", dot)
    row("prmt.b32", "b32", "b32 b32 b32", "permuted(a, b, c)")
    row("lop3.b32", "b32", "b32 b32 b32 b32", "logic3(a, b, c, d)")
    for side, left in (("l", True), ("r", False)):
        for mode, wraps in (("wrap", True), ("clamp", False)):
            expression = f"funnel(a, b, c, {left}, {wraps})"
            row(f"shf.{side}.{mode}.b32", "b32", "b32 b32 u32", expression)


def truths() -> None:
    """Predicates, choices and comparisons."""
    for t in ("b16", "b32", "b64", "pred"):
        for name, sign in (("and", "&"), ("or", "|"), ("xor", "^")):
            row(f"{name}.{t}", t, f"{t} {t}", f"a {sign} b")
        if t != "pred":
            row(f"selp.{t}", t, f"{t} {t} pred", "a if c else b")
    row("not.pred", "pred", "pred", "not a")
    order = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}
    equal = {"eq": "==", "ne": "!="}
    comparisons: dict[tuple[str, str], str] = {}
    for width in (16, 32, 64):
        for t in (f"s{width}", f"u{width}"):
            for name, sign in (order | equal if t[0] == "u" else order).items():
                comparisons[name, t] = f"a {sign} b"
    for t in ("f32", "f64"):
        for name, sign in (order | equal).items():
            comparisons[name, t] = f"a {sign} b" + (
                " and a == a and b == b" if name == "ne" else ""
            )
            comparisons[f"{name}u", t] = f"a {sign} b or a != a or b != b"
        comparisons["num", t] = "a == a and b == b"
        comparisons["nan", t] = "a != a or b != b"
    for (name, t), expression in comparisons.items():
        row(f"setp.{name}.{t}", "pred", f"{t} {t}", expression)


def floats() -> None:
    """Arithmetic of floats. Without a mode, and with ``rn``, it rounds to the nearest."""
    for t in ("f32", "f64"):
        real = f"float{t[1:]}"
        for name, sign in (("add", "+"), ("sub", "-"), ("mul", "*")):
            row(f"{name}.{t}", t, f"{t} {t}", f"a {sign} b")
        row(f"div.rn.{t}", t, f"{t} {t}", "a / b")
        row(f"rcp.rn.{t}", t, t, f"{real}(1) / a")
        row(f"sqrt.rn.{t}", t, t, f"root{t[1:]}(a)")
        row(f"fma.rn.{t}", t, f"{t} {t} {t}", f"fma{t[1:]}(a, b, c)")
        row(f"neg.{t}", t, t, "-a")
        row(f"abs.{t}", t, t, "abs(a)")
        row(f"min.{t}", t, f"{t} {t}", f"{real}(least(a, b))")
        row(f"max.{t}", t, f"{t} {t}", f"{real}(greatest(a, b))")
        row(f"copysign.{t}", t, f"{t} {t}", f"{real}(math.copysign(b, a))")
    for name, mode in MODES.items():
        if mode:
            exact = "odd_sum(float64(a), float64(b))"
            row(f"add.{name}.f32", "f32", "f32 f32", f"rounded32({exact}, {mode})")
            product = "float64(a) * float64(b)"
            row(f"mul.{name}.f32", "f32", "f32 f32", f"rounded32({product}, {mode})")
            row(f"fma.{name}.f32", "f32", "f32 f32 f32", f"fma_rounded(a, b, c, {mode})")


def rough() -> None:
    """The special function unit: here right to the last bit, there to about 2 of them."""
    functions = {
        "ex2": "2.0 ** x", "lg2": "math.log2(x)", "rcp": "1.0 / x", "sqrt": "math.sqrt(x)",
        "rsqrt": "1.0 / math.sqrt(x)", "sin": "math.sin(x)", "cos": "math.cos(x)",
        "tanh": "math.tanh(x)",
    }  # fmt: skip
    for name, function in functions.items():
        wide = function.replace("x)", "float64(a))").replace(" x", " float64(a)")
        row(f"{name}.approx.f32", "f32", "f32", f"float32({wide})")
        flushed = function.replace("x)", "float64(flushed(a)))").replace(
            " x", " float64(flushed(a))"
        )
        row(f"{name}.approx.ftz.f32", "f32", "f32", f"flushed(float32({flushed}))")
    for name in ("approx", "full"):
        row(f"div.{name}.f32", "f32", "f32 f32", "a / b")
        row(f"div.{name}.ftz.f32", "f32", "f32 f32", "flushed(flushed(a) / flushed(b))")
    row("rcp.approx.ftz.f64", "f64", "f64", "rough_reciprocal(a)")
    row("rsqrt.approx.ftz.f64", "f64", "f64", "rough_root(a)")


def conversions() -> None:
    """``cvt``: ints to ints are cut or extended, floats to ints saturate."""
    ints = tuple(f"{k}{w}" for k in "su" for w in (8, 16, 32, 64))
    for width in (8, 16, 32, 64):
        for source in ints:
            row(f"cvt.b{width}.{source}", f"b{width}", source, "u(a)")
    for t in ("f32", "f64"):
        for source in ints:
            row(f"cvt.rn.{t}.{source}", t, source, f"float{t[1:]}(a)")
        for name, mode in MODES.items():
            whole = f"whole(float64(a), {mode})"
            row(f"cvt.{name}i.{t}.{t}", t, t, f"float{t[1:]}({whole})")
            for to in ints:
                signed, width = to[0] == "s", int(to[1:])
                if width < 32:
                    continue
                function = "to_signed" if signed else "to_unsigned"
                wide = t == "f64" or width == 64
                row(f"cvt.{name}i.{to}.{t}", to, t, f"{function}({whole}, {width}, {wide})")
    for name, mode in MODES.items():
        row(f"cvt.{name}.f32.f64", "f32", "f64", f"rounded32(a, {mode})")
    row("cvt.f64.f32", "f64", "f32", "float64(a)")
    row("cvt.sat.f32.f32", "f32", "f32", "saturated(a)")
    row("cvt.f32.f16", "f32", "b16", "from_half(a)")
    row("cvt.rn.f16.f32", "b16", "f32", "to_half(a)")
    row("cvt.f32.bf16", "f32", "b16", "from_brain(a)")
    row("cvt.rn.bf16.f32", "b16", "f32", "to_brain(a)")
    row("cvt.rna.tf32.f32", "b32", "f32", "to_tf32(a)")


def moves() -> None:
    """Bits that only change their place, and sums of 32 bits with a carry, kept in d or e."""
    row("mov", "b64", "b64", "a")
    row("join.16", "b32", "b16 b16", "a | (b << u(16))")
    row("join.32", "b64", "b32 b32", "a | (b << u(32))")
    for width in (16, 32):
        row(f"part.{width}", f"b{width}", "b64 b32", "a >> b")
    operands = {
        "add": "u32 u32",
        "sub": "u32 u32",
        "mad.lo": "u32 u32 u32",
        "mad.hi": "u32 u32 u32",
    }
    exact = {
        "add": "a + b", "sub": "a - b", "mad.lo": "((a * b) & u(0xFFFFFFFF)) + c",
        "mad.hi": "((a * b) >> u(32)) + c",
    }  # fmt: skip
    for name, types in operands.items():
        step = "-" if name == "sub" else "+"
        base, _, half = name.partition(".")
        half = half and f".{half}"
        carry = "bcd"[len(types.split()) - 1]
        after = f"{exact[name]} {step} {carry}"
        row(f"{base}{half}.cc.u32", "u32", types, exact[name])
        row(f"{base}{half}.cc.u32.carry", "u32", types, f"(({exact[name]}) >> u(32)) & u(1)")
        row(f"{base}c{half}.u32", "u32", f"{types} b32", after)
        row(f"{base}c{half}.cc.u32", "u32", f"{types} b32", after)
        row(f"{base}c{half}.cc.u32.carry", "u32", f"{types} b32", f"(({after}) >> u(32)) & u(1)")


wholes()
truths()
floats()
rough()
conversions()
moves()
