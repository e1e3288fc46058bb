"""What an op costs beside its arithmetic: tensors of one element."""

from __future__ import annotations

from typing import Any

from .case import Case, Run


def _scalars(lib: Any, requires_grad: bool) -> Any:
    return [lib.tensor([value], requires_grad=requires_grad) for value in (0.5, 1.5, -0.25)]


def _multiply_add(requires_grad: bool) -> Any:
    def build(lib: Any) -> Run:
        a, b, c = _scalars(lib, requires_grad)
        return lambda: (a * b + c,)

    return build


def _chain(lib: Any) -> Run:
    x, a, b = _scalars(lib, False)
    x.requires_grad_()

    def run() -> tuple[Any, ...]:
        x.grad = None
        y = x * a + b
        y = y * a + b
        y = y * a + b
        y = y * a + b
        y = y * a + b
        y.backward()
        return y, x.grad

    return run


def _mixed_chain(lib: Any) -> Run:
    x, a, b = _scalars(lib, False)
    x.requires_grad_()

    def run() -> tuple[Any, ...]:
        x.grad = None
        y = (x * a).tanh()
        y = (y - b).sigmoid()
        y = (y + a).exp()
        y = (y / b).relu()
        y = y.neg().sum()
        y.backward()
        return y, x.grad

    return run


def _mul_constant(lib: Any) -> Run:
    class MulConstant(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, constant: float) -> Any:
            ctx.constant = constant
            return x * constant

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.constant, None

    x = lib.tensor([0.5], requires_grad=True)

    def run() -> tuple[Any, ...]:
        x.grad = None
        y = MulConstant.apply(x, 5.5)
        y.backward()
        return y, x.grad

    return run


CASES = [
    Case("a*b+c, forward, no gradient", _multiply_add(False), at_most=0.7),
    Case("a*b+c, forward, requires_grad", _multiply_add(True), at_most=0.7),
    Case("ten ops (x*a+b), forward and backward", _chain, at_most=0.5),
    Case("ten mixed ops, forward and backward", _mixed_chain, at_most=0.5),
    Case("MulConstant.apply, forward and backward", _mul_constant, at_most=0.6),
]
