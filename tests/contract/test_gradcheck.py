"""Contract lines G1 and G2; the checker itself is shown wrong gradients that it must find."""

from __future__ import annotations

import math
import re
import warnings

import pytest

import numbagrad as ng
from numbagrad.autograd import Function, gradcheck, gradgradcheck
from numbagrad.autograd.function import once_differentiable
from numbagrad.errors import GradcheckError, GradError

from .functions import Linear, MulConstant, Square

MODES = pytest.mark.parametrize("fast_mode", [False, True], ids=["full", "fast"])


def double(*shape, requires_grad=True):
    return ng.randn(*shape, dtype=ng.double, requires_grad=requires_grad)


def values(*numbers):
    return ng.tensor(list(numbers), dtype=ng.double, requires_grad=True)


class Sine(Function):
    """sin(x), whose gradient is wrong by ``factor``."""

    factor = 1.0

    @classmethod
    def wrong_by(cls, factor):
        """A class whose gradient is multiplied by ``factor``."""
        return type("Sine", (cls,), {"factor": factor, "backward": staticmethod(cls._of(factor))})

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def _of(factor):
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * x.cos() * factor

        return backward


@MODES
def test_G1_a_right_gradient_is_true(fast_mode):
    x = double(3, 4)
    right = Sine.wrong_by(1.0).apply
    assert gradcheck(right, x, fast_mode=fast_mode) is True
    assert gradcheck(right, (x,), eps=1e-6, atol=1e-8, rtol=1e-6, fast_mode=fast_mode) is True
    assert gradgradcheck(right, x, fast_mode=fast_mode) is True


@MODES
def test_G1_a_gradient_wrong_by_a_thousandth_is_found(fast_mode):
    wrong = Sine.wrong_by(1.001).apply
    x = values(0.1, 0.2, 0.3)
    with pytest.raises(GradcheckError):
        gradcheck(wrong, x, atol=1e-7, rtol=1e-4, fast_mode=fast_mode)
    assert gradcheck(Sine.wrong_by(1.0).apply, x, atol=1e-7, rtol=1e-4, fast_mode=fast_mode)


def test_G1_the_default_tolerances_find_what_lies_just_outside_of_them():
    x = values(0.0)  # the gradient is 1, so atol + rtol is 1.01e-3
    assert gradcheck(Sine.wrong_by(1.0010).apply, x)
    with pytest.raises(GradcheckError):
        gradcheck(Sine.wrong_by(1.0011).apply, x)


@MODES
def test_G1_a_second_derivative_wrong_by_a_thousandth_is_found(fast_mode):
    class CosGrad(Function):
        @staticmethod
        def forward(ctx, g, x):
            ctx.save_for_backward(g, x)
            return g * x.cos()

        @staticmethod
        def backward(ctx, gg):
            g, x = ctx.saved_tensors
            return gg * x.cos(), gg * g * -x.sin() * 1.001

    class SineTwice(Sine):
        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return CosGrad.apply(g, x)

    x = values(0.7, 1.2)
    assert gradcheck(SineTwice.apply, x, atol=1e-7, rtol=1e-4)
    with pytest.raises(GradcheckError, match="gradient of SineTwice"):
        gradgradcheck(SineTwice.apply, x, atol=1e-7, rtol=1e-4, fast_mode=fast_mode)


def test_G1_the_report_names_everything():
    class Product(Function):
        @staticmethod
        def forward(ctx, scale, x, y):
            ctx.save_for_backward(x, y)
            return x.sum(), x * y * scale

        @staticmethod
        def backward(ctx, g, h):
            x, y = ctx.saved_tensors
            wrong = ng.tensor([[1.0, 1.0], [1.0, 1.5]], dtype=ng.double)
            return None, g + h * y * 2.0, h * x * 2.0 * wrong

    x = ng.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=ng.double, requires_grad=True)
    y = ng.ones(2, 2, dtype=ng.double, requires_grad=True)
    with pytest.raises(GradcheckError) as caught:
        gradcheck(Product.apply, (2.0, x, y), eps=1e-5, atol=1e-6, rtol=1e-4)
    report = str(caught.value)
    assert "output 1 with respect to input 2" in report
    assert "Product" in report
    assert "output[1, 1] by input[1, 1]" in report
    assert "analytical: 12" in report
    numerical = re.search(r"numerical: (\S+)", report)
    assert float(numerical[1]) == pytest.approx(8.0, abs=1e-5)
    assert "eps=1e-05" in report and "atol=1e-06" in report and "rtol=0.0001" in report


@MODES
def test_G1_raise_exception_false_returns_false(fast_mode):
    wrong = Sine.wrong_by(1.5).apply
    x = values(0.1, 0.2)
    assert gradcheck(wrong, x, raise_exception=False, fast_mode=fast_mode) is False
    assert gradgradcheck(wrong, x, raise_exception=False, fast_mode=fast_mode) is True


def test_G1_a_tensor_or_a_tuple_and_other_arguments():
    x = double(3)
    assert gradcheck(MulConstant.apply, (x, 3.0))
    assert gradcheck(MulConstant.apply, x)
    assert gradcheck(lambda a, flag, words: a * a if flag else a, (x, True, ["text"]))
    assert gradgradcheck(MulConstant.apply, (x, 3.0))


def test_G1_inputs_that_need_no_gradient_are_left_out():
    x, constant = double(3), double(3, requires_grad=False)
    before = constant.tolist()
    assert gradcheck(lambda a, b: a * b, (x, constant))
    assert constant.tolist() == before and constant.grad is None


def test_G1_inputs_and_gradients_are_left_as_they_were():
    x = double(2, 3)
    before, version = x.tolist(), x._version
    assert gradcheck(Square.apply, x)
    assert gradgradcheck(Square.apply, x, fast_mode=True)
    assert x.tolist() == before
    assert x._version == version
    assert x.grad is None and x.is_leaf


def test_G1_inputs_are_left_as_they_were_when_the_function_fails_midway():
    calls = []

    def fails(x):
        calls.append(1)
        if len(calls) == 5:
            raise KeyError("mine")
        return x * 2.0

    x = values(0.1, 0.2, 0.3)
    with pytest.raises(KeyError, match="mine"):
        gradcheck(fails, x)
    assert x.tolist() == [0.1, 0.2, 0.3]


def test_G1_no_input_that_needs_a_gradient_is_a_value_error():
    for check in (gradcheck, gradgradcheck):
        with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
            check(Square.apply, ng.ones(2, dtype=ng.double))
        with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
            check(MulConstant.apply, (ng.ones(2, dtype=ng.double), 2.0), raise_exception=False)


def test_G1_float32_warns():
    x = ng.tensor([1.0, 2.0], requires_grad=True)
    with pytest.warns(UserWarning, match="double precision"):
        gradcheck(MulConstant.apply, (x, 2.0), eps=1e-2, atol=1e-2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradcheck(MulConstant.apply, (values(1.0), 2.0))


def test_G1_stride_zero_is_an_error():
    x = double(3, 1, requires_grad=False).expand(3, 4).requires_grad_()
    with pytest.raises(RuntimeError, match="stride 0"):
        gradcheck(Square.apply, x)
    assert gradcheck(Square.apply, x.detach().clone().requires_grad_())


def test_G1_transposed_inputs():
    x = ng.randn(3, 4, dtype=ng.double).t().requires_grad_()
    before = x.tolist()
    assert gradcheck(Square.apply, x)
    assert gradcheck(Square.apply, x, fast_mode=True)
    assert x.tolist() == before


def test_G1_inputs_that_are_no_leaves():
    x = values(1.0, 2.0) * 3.0
    assert gradcheck(Square.apply, x)
    assert x.tolist() == [3.0, 6.0]


def test_G1_zero_dimensional_and_empty_inputs():
    assert gradcheck(Square.apply, ng.tensor(1.5, dtype=ng.double, requires_grad=True))
    assert gradcheck(Square.apply, double(0, 3))


def test_G1_outputs_that_are_no_floating_tensors_are_left_out():
    assert gradcheck(lambda x: (x * 2.0, x > 0, "text", x.long()), values(1.5, -2.5))


@MODES
def test_G1_an_output_cut_off_the_graph_must_be_constant(fast_mode):
    assert gradcheck(lambda x: ng.ones(2, dtype=ng.double), double(3), fast_mode=fast_mode)
    with pytest.raises(GradcheckError, match="output 0"):
        gradcheck(lambda x: x.detach() * 2.0, double(3), fast_mode=fast_mode)


def test_G1_nan_is_never_right():
    class NotANumber(Sine):
        @staticmethod
        def backward(ctx, g):
            return g * math.nan

    for fast_mode in (False, True):
        with pytest.raises(GradcheckError):
            gradcheck(NotANumber.apply, values(1.0, 2.0), fast_mode=fast_mode)


def test_G1_a_backward_that_ignores_its_gradient_is_found():
    class Ignores(Function):
        @staticmethod
        def forward(ctx, x):
            return x.sum()

        @staticmethod
        def backward(ctx, g):
            return ng.ones(3, dtype=ng.double)

    with pytest.raises(GradcheckError, match="not multiplied by grad_output"):
        gradcheck(Ignores.apply, double(3), check_undefined_grad=False)


@MODES
def test_G1_nondet_tol(fast_mode):
    count = [0]

    class Drifts(Sine):
        @staticmethod
        def backward(ctx, g):
            count[0] += 1
            (x,) = ctx.saved_tensors
            return g * x.cos() * (1.0 + 1e-9 * count[0])

    x = values(0.1, 0.2)
    with pytest.raises(GradcheckError, match="reentrant"):
        gradcheck(Drifts.apply, x, check_undefined_grad=False, fast_mode=fast_mode)
    assert gradcheck(
        Drifts.apply, x, nondet_tol=1e-5, check_undefined_grad=False, fast_mode=fast_mode
    )


@MODES
def test_G1_check_undefined_grad(fast_mode):
    class Careful(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2.0, x * 3.0, x * 4.0

        @staticmethod
        def backward(ctx, *grads):
            parts = [g * c for g, c in zip(grads, (2.0, 3.0, 4.0), strict=True) if g is not None]
            return sum(parts) if parts else None

    class Wrong(Careful):  # but only where exactly one gradient is None
        @staticmethod
        def backward(ctx, *grads):
            right = Careful.backward(ctx, *grads)
            return right * 7.0 if sum(g is None for g in grads) == 1 else right

    class Fails(Careful):
        @staticmethod
        def backward(ctx, *grads):
            if sum(g is None for g in grads) == 1:
                raise TypeError("no gradient")
            return Careful.backward(ctx, *grads)

    x = values(1.0, 2.0)
    assert gradcheck(Careful.apply, x, fast_mode=fast_mode)
    with pytest.raises(GradcheckError, match="undefined"):
        gradcheck(Wrong.apply, x, fast_mode=fast_mode)
    with pytest.raises(GradcheckError, match=r"TypeError.*undefined.*no gradient"):
        gradcheck(Fails.apply, x, fast_mode=fast_mode)
    for function in (Wrong, Fails):
        assert gradcheck(function.apply, x, check_undefined_grad=False, fast_mode=fast_mode)


def test_G1_what_cannot_be_differentiated_twice_raises():
    class Once(Square):
        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 2.0 * x

    x = values(1.0, 2.0)
    assert gradcheck(Once.apply, x)
    with pytest.raises(GradError, match="once_differentiable"):
        gradgradcheck(Once.apply, x)


def test_G1_gradgradcheck_with_given_grad_outputs():
    x = values(1.0, 2.0)
    assert gradgradcheck(Square.apply, (x,), values(0.5, 0.25))
    assert gradgradcheck(lambda t: (t * t, t.sum()), x)


@MODES
def test_G2_linear(fast_mode):
    x, weight, bias = double(20, 20), double(30, 20), double(30)
    assert gradcheck(Linear.apply, (x, weight, bias), fast_mode=fast_mode) is True
    assert gradcheck(Linear.apply, (x, weight), fast_mode=fast_mode) is True


def test_G2_linear_twice():
    x, weight, bias = double(4, 3), double(2, 3), double(2)
    assert gradgradcheck(Linear.apply, (x, weight, bias)) is True


def test_G2_linear_with_one_output_feature():
    x, weight, bias = double(4, 3), double(1, 3), double(1)
    assert gradcheck(Linear.apply, (x, weight, bias)) is True
    assert gradgradcheck(Linear.apply, (x, weight, bias)) is True
