"""Sums of products that share factors, as fewer products: of gradients, with ``fastmath`` of all.

Where x is used n times, its gradient is a sum of n products, each a chain of factors that begins
as the others do: ``g*y2 + (g*x)*y1 + (g*x*x)*y0``. Taking out what most terms have in common, again
and again, makes that ``g*(y2 + x*(y1 + x*y0))``, Horner's rule for several variables (greedy, as in
M. Ceberio and V. Kreinovich, Greedy algorithms for optimizing multivariate Horner schemes, ACM
SIGSAM Bulletin 38, 2004). LLVM reorders terms and factors, but takes out few.

What a user has written is reordered with ``fastmath`` only. In which order the parts of a gradient
are added up nobody has written: those sums are "plus" nodes, and always looked at.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from operator import itemgetter

from ..kernels.expr import ONE, Expr, add, build, is_constant, mul, neg, sub, topological
from .fusion import tidy
from .program import Line, Loop, Program

Term = tuple[int, tuple[Expr, ...]]
"""A product's sign and its factors."""

MANY = 200
"""Operations from which expressions are gone through from below, or Python's stack would end."""
MOST = 32
"""Terms of a sum that is looked at: its text becomes as many parentheses deep."""

LONGEST = 512
"""Factors of all terms of a sum that is looked at: x squared 30 times has 2^30."""


def factored(program: Program) -> Program:
    """Take common factors out of the sums in every loop, where that leaves fewer operations."""
    return program.with_instructions(
        _in_loop(i, _WRITTEN) if isinstance(i, Loop) else i for i in program.instructions
    )


def gradients_factored(program: Program) -> Program:
    """``factored`` of the sums that nobody wrote."""
    return program.with_instructions(
        _in_loop(i, _UNWRITTEN) if isinstance(i, Loop) else i for i in program.instructions
    )


_UNWRITTEN = frozenset(["plus"])
_WRITTEN = frozenset(["plus", "add", "sub"])


def _in_loop(loop: Loop, sums: frozenset[str]) -> Loop:
    for k, line in enumerate(loop.lines):
        if not _plain(line):
            continue
        body = _Sums(loop, line.dtype, sums).rewritten(line.expr)
        if body is not line.expr:
            lines = (*loop.lines[:k], replace(line, expr=body), *loop.lines[k + 1 :])
            shorter = tidy(replace(loop, lines=lines))
            if _cost(shorter) < _cost(loop):
                return _in_loop(shorter, sums)
    return loop


def _plain(line: Line) -> bool:
    """Whether a line is calculated in the precision that it has."""
    return line.compute == line.dtype and line.dtype.startswith("float") and not line.rounded


def _cost(loop: Loop) -> int:
    """How many operations one index takes."""
    return sum(1 for node in topological([line.expr for line in loop.lines]) if node.args)


class _Sums:
    """The sums in one line's expression. products: lines that are products of its type."""

    def __init__(self, loop: Loop, dtype: str, sums: frozenset[str]):
        self.sums = sums
        self.inside = sums | {"mul", "neg"}
        self.products = {
            line.name: line.expr
            for line in loop.lines
            if _plain(line) and line.dtype == dtype and line.expr.op in ("mul", "neg")
        }
        self.lengths: dict[Expr, int] = {}
        self.done: dict[Expr, Expr] = {}

    def length(self, node: Expr) -> int:
        """How many factors the terms of ``node`` have together."""
        if node not in self.lengths:
            below = node.args if node.op in self.inside else ()
            if node.op == "input" and node.value in self.products:
                below = (self.products[node.value],)
            self.lengths[node] = sum(map(self.length, below)) if below else 1
        return self.lengths[node]

    def rewritten(self, root: Expr) -> Expr:
        """``root`` with common factors taken out of each sum in it."""
        if root not in self.done:
            order = topological([root])
            for node in order[:-1] if len(order) > MANY else ():
                if node not in self.done:
                    self.length(node)
                    self.done[node] = self._rewritten(node)
            self.done[root] = self._rewritten(root)
        return self.done[root]

    def _rewritten(self, root: Expr) -> Expr:
        if root.op in self.sums and self.length(root) <= LONGEST:
            terms = self.terms(root, 1)
            if 2 <= len(terms) <= MOST:
                found = _horner(terms)
                if found is not None:
                    return found
        args = [self.rewritten(a) for a in root.args]
        same = all(a is b for a, b in zip(args, root.args, strict=True))
        return root if same else build(root.op, *args)

    def terms(self, node: Expr, sign: int) -> list[Term]:
        """What ``node``, a sum, adds up."""
        if node.op in self.sums:
            second = -sign if node.op == "sub" else sign
            return self.terms(node.args[0], sign) + self.terms(node.args[1], second)
        turned, factors = self.factors(node)
        return [(sign * turned, tuple(factors))]

    def factors(self, node: Expr) -> tuple[int, list[Expr]]:
        """The sign and the factors of ``node``, also of what it names."""
        if node.op == "input" and node.value in self.products:
            return self.factors(self.products[node.value])
        if node.op == "neg":
            sign, factors = self.factors(node.args[0])
            return -sign, factors
        if node.op == "mul":
            (a, first), (b, second) = map(self.factors, node.args)
            return a * b, first + second
        return 1, [node]


def _horner(terms: list[Term]) -> Expr | None:
    """The sum of ``terms`` with the most common factor taken out, and so on; None if none is."""
    counts = Counter(f for _, factors in terms for f in dict.fromkeys(factors))
    factor, most = max(counts.items(), key=itemgetter(1), default=(ONE, 0))
    if most < 2:
        return None
    inside = [(sign, _without(factors, factor)) for sign, factors in terms if factor in factors]
    outside = [term for term in terms if factor not in term[1]]
    others = _horner(inside) or _sum(inside)
    if is_constant(others, 0):
        return None  # of a factor that is not finite, g - g is no zero
    product = mul(factor, others)
    if not outside:
        return product
    rest = _horner(outside) or _sum(outside)
    return sub(product, rest.args[0]) if rest.op == "neg" else add(rest, product)


def _without(factors: tuple[Expr, ...], one: Expr) -> tuple[Expr, ...]:
    at = factors.index(one)
    return factors[:at] + factors[at + 1 :]


def _sum(terms: list[Term]) -> Expr:
    total: Expr | None = None
    for sign, factors in sorted(terms, key=lambda term: -term[0]):  # what is added first
        product = _product(factors)
        if total is None:
            total = product if sign > 0 else neg(product)
        else:
            total = add(total, product) if sign > 0 else sub(total, product)
    assert total is not None
    return total


def _product(factors: tuple[Expr, ...]) -> Expr:
    product = ONE
    for factor in factors:
        product = mul(product, factor)
    return product
