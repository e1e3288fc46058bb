"""The two Functions that most contract tests share, as a user would write them."""

from __future__ import annotations

from numbagrad.autograd import Function


class MulConstant(Function):
    """A tensor times a number."""

    @staticmethod
    def forward(ctx, x, constant=2.0):
        ctx.constant = constant
        return x * constant

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.constant, None


class Linear(Function):
    """``x @ weight.t() + bias`` for a matrix ``x``."""

    @staticmethod
    def forward(ctx, x, weight, bias=None):
        ctx.save_for_backward(x, weight, bias)
        out = x.mm(weight.t())
        if bias is not None:
            out += bias.unsqueeze(0).expand_as(out)
        return out

    @staticmethod
    def backward(ctx, grad_output):
        x, weight, bias = ctx.saved_tensors
        gx = gweight = gbias = None
        if ctx.needs_input_grad[0]:
            gx = grad_output.mm(weight)
        if ctx.needs_input_grad[1]:
            gweight = grad_output.t().mm(x)
        if bias is not None and ctx.needs_input_grad[2]:
            gbias = grad_output.sum(0)
        return gx, gweight, gbias


class Square(Function):
    """``x * x``, differentiable to any order because it saves its input."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * 2.0 * x
