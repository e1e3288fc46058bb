"""Contract lines B1 to B7: what backward gets, what it may return, and the backward pass."""

from __future__ import annotations

import math

import pytest

import numbagrad as ng
from numbagrad.autograd import Function
from numbagrad.autograd.function import once_differentiable
from numbagrad.errors import GradError, NotScalarError, ShapeError

from .functions import Linear, MulConstant, Square


def leaf(*values, dtype=None):
    return ng.tensor(list(values), requires_grad=True, dtype=dtype)


def function_with(backward, forward=lambda x: x * 2.0):
    """A Function ``Custom`` with this forward (without ctx) and this backward (without ctx)."""

    class Custom(Function):
        pass

    Custom.forward = staticmethod(lambda ctx, *args: forward(*args))
    Custom.backward = staticmethod(lambda ctx, *grads: backward(*grads))
    return Custom


# B1 -------------------------------------------------------------------------------------------


def test_B1_zeros_for_an_unused_output_and_none_for_what_is_no_tensor():
    received = []

    def backward(*grads):
        received.extend(grads)
        return grads[0] * 2.0

    split = function_with(backward, lambda x: (x * 2.0, "text", x.sum()))
    x = leaf(1.0, 2.0)
    y, _, _ = split.apply(x)
    y.sum().backward()
    used, text, unused = received
    assert used.tolist() == [1.0, 1.0]
    assert text is None
    assert unused.tolist() == 0.0
    assert unused.shape == ()


def test_B1_the_gradient_has_the_shape_and_dtype_of_the_output():
    received = []
    keep = function_with(lambda g: received.append(g) or g.sum(0), lambda x: x.expand(3, 2) * 2.0)
    keep.apply(leaf(1.0, 2.0, dtype=ng.double)).sum().backward()
    assert received[0].shape == (3, 2)
    assert received[0].dtype is ng.double


def test_B1_both_outputs_used_arrive_in_order_and_in_one_call():
    calls = []

    def backward(g, h):
        calls.append((g.tolist(), h.tolist()))
        return g

    y, z = function_with(backward, lambda x: (x * 2.0, x * 3.0)).apply(leaf(1.0))
    (z * 7.0 + y * 5.0 + z).sum().backward()
    assert calls == [([5.0], [8.0])]


# B2 -------------------------------------------------------------------------------------------


def product(x, constant):
    return x * constant


@pytest.mark.parametrize(
    "returned", [lambda g: (g, None, g), lambda g: (g, None, None, g)], ids=["one", "late"]
)
def test_B2_extra_values_raise(returned):
    x = leaf(1.0)
    y = function_with(returned, product).apply(x, 2.0)
    count = len(returned(0))
    with pytest.raises(GradError) as caught:
        y.sum().backward()
    wanted = f"returned an incorrect number of gradients (expected 2, got {count})"
    assert wanted in str(caught.value)
    assert "Custom" in str(caught.value)
    assert x.grad is None


@pytest.mark.parametrize("returned", [lambda g: g, lambda g: (g,)], ids=["bare", "tuple"])
def test_B2_too_few_values_raise(returned):
    y = function_with(returned, lambda x, y: x * y).apply(leaf(1.0), leaf(2.0))
    with pytest.raises(GradError) as caught:
        y.sum().backward()
    wanted = "returned an incorrect number of gradients (expected 2, got 1)"
    assert wanted in str(caught.value)


def test_B2_extra_nones_are_ignored():
    x = leaf(1.0)
    function_with(lambda g: (g * 2.0, None, None, None), product).apply(x, 2.0).sum().backward()
    assert x.grad.tolist() == [2.0]


@pytest.mark.parametrize("returned", [lambda g: g * 2.0, lambda g: (g * 2.0,)])
def test_B2_one_argument_may_return_a_bare_tensor(returned):
    x = leaf(1.0)
    function_with(returned).apply(x).sum().backward()
    assert x.grad.tolist() == [2.0]


@pytest.mark.parametrize("wrong", [3.0, "text", {"a": 1}])
def test_B2_only_tensors_or_none_may_be_returned(wrong):
    y = function_with(lambda g: wrong).apply(leaf(1.0))
    with pytest.raises((RuntimeError, TypeError), match=type(wrong).__name__):
        y.sum().backward()


# B3 -------------------------------------------------------------------------------------------


def test_B3_a_gradient_for_an_input_that_needs_none_is_no_error():
    x, constant = leaf(3.0), ng.tensor([4.0])
    function_with(lambda g: (g, g), product).apply(x, constant).sum().backward()
    assert x.grad.tolist() == [1.0]
    assert constant.grad is None


def test_B3_none_for_a_needed_input_contributes_nothing():
    x, y = leaf(3.0), leaf(4.0)
    out = function_with(lambda g: (None, g), product).apply(x, y)
    (out + x * 10.0).sum().backward()
    assert x.grad.tolist() == [10.0]
    assert y.grad.tolist() == [1.0]


def test_B3_none_alone_leaves_grad_none():
    x = leaf(3.0)
    function_with(lambda g: None).apply(x).sum().backward()
    assert x.grad is None


# B4 -------------------------------------------------------------------------------------------


def test_B4_an_argument_that_is_no_tensor_must_get_none():
    y = function_with(lambda g: (g, g), product).apply(leaf(1.0), 2.0)
    with pytest.raises(GradError, match=r"different (than|from) None at position 2") as caught:
        y.sum().backward()
    assert "Custom" in str(caught.value)


# B5 -------------------------------------------------------------------------------------------


def test_B5_a_gradient_of_the_wrong_shape_raises():
    x = leaf(1.0, 2.0)
    y = function_with(lambda g: ng.ones(3)).apply(x)
    with pytest.raises(ShapeError) as caught:
        y.sum().backward()
    wanted = "invalid gradient at index 0 - got [3] but expected shape compatible with [2]"
    assert wanted in str(caught.value)
    assert x.grad is None


def test_B5_the_index_is_that_of_the_argument():
    y = function_with(lambda g: (g, ng.ones(3, 1)), lambda x, y: x * y).apply(
        leaf(1.0, 2.0), leaf(1.0, 2.0)
    )
    with pytest.raises(ShapeError) as caught:
        y.sum().backward()
    wanted = "invalid gradient at index 1 - got [3, 1] but expected shape compatible with [2]"
    assert wanted in str(caught.value)


def test_B5_a_gradient_that_only_broadcasts_to_the_input_is_wrong():
    y = function_with(lambda g: ng.ones(1)).apply(leaf(1.0, 2.0))
    with pytest.raises(ShapeError, match=r"got \[1\]"):
        y.sum().backward()


@pytest.mark.parametrize("shape", [(3, 2), (4, 3, 2)])
def test_B5_one_that_the_input_broadcasts_to_is_sum_reduced(shape):
    x = leaf(1.0, 2.0)
    function_with(lambda g: ng.ones(*shape)).apply(x).sum().backward()
    count = float(shape[0] if len(shape) == 2 else shape[0] * shape[1])
    assert x.grad.tolist() == [count, count]


def test_B5_sum_reduction_of_a_dimension_of_size_one():
    x = ng.ones(3, 1, requires_grad=True)
    function_with(lambda g: ng.ones(3, 5)).apply(x).sum().backward()
    assert x.grad.tolist() == [[5.0]] * 3


@pytest.mark.parametrize("given, wanted", [(ng.float, ng.double), (ng.double, ng.float)])
def test_B5_a_wrong_floating_dtype_is_cast(given, wanted):
    x = leaf(1.0, 2.0, dtype=wanted)
    function_with(lambda g: ng.ones(2, dtype=given)).apply(x).sum().backward()
    assert x.grad.dtype is wanted
    assert x.grad.tolist() == [1.0, 1.0]


# B6 -------------------------------------------------------------------------------------------


def test_B6_grad_mode_inside_backward_follows_create_graph():
    modes = []
    look = function_with(lambda g: modes.append(ng.is_grad_enabled()) or g * 2.0)
    x = leaf(1.0)
    ng.autograd.grad(look.apply(x).sum(), x)
    ng.autograd.grad(look.apply(x).sum(), x, create_graph=True)
    assert modes == [False, True]
    assert ng.is_grad_enabled()


def test_B6_any_order():
    class Cube(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return MulConstant.apply(g * Square.apply(x), 3.0)  # other Functions included

    x = leaf(2.0, dtype=ng.double)
    y = Cube.apply(x)
    found = []
    for _ in range(3):
        (y,) = ng.autograd.grad(y.sum(), x, create_graph=True)
        found.append(y.tolist()[0])
    assert found == [12.0, 12.0, 6.0]


def test_B6_linear_differentiates_twice_through_every_input():
    x = ng.randn(5, 3, dtype=ng.double, requires_grad=True)
    weight = ng.randn(2, 3, dtype=ng.double, requires_grad=True)
    bias = ng.randn(2, dtype=ng.double, requires_grad=True)
    y = Linear.apply(x, weight, bias)
    gx, gweight, gbias = ng.autograd.grad((y * y).sum(), (x, weight, bias), create_graph=True)
    (again,) = ng.autograd.grad(gbias.sum(), bias, retain_graph=True)
    assert again.tolist() == pytest.approx([10.0, 10.0])
    (mixed,) = ng.autograd.grad(gx.sum(), bias, retain_graph=True)
    expected = (weight.detach().sum(1) * 10.0).tolist()
    assert mixed.tolist() == pytest.approx(expected)
    (mixed,) = ng.autograd.grad(gweight.sum(), bias)
    assert mixed.tolist() == pytest.approx([2.0 * x.detach().sum().item()] * 2)


class OnceOnly(Function):
    """``x ** 3`` whose gradient is right once."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        assert not ng.is_grad_enabled()
        return g * 3.0 * x * x


def test_B6_once_differentiable_works_once():
    x = leaf(2.0)
    OnceOnly.apply(x).sum().backward()
    assert x.grad.tolist() == [12.0]


def test_B6_once_differentiable_makes_the_second_derivative_raise():
    x = leaf(2.0)
    y = OnceOnly.apply(x)
    (gx,) = ng.autograd.grad((y * y).sum(), x, create_graph=True)
    assert gx.tolist() == [192.0]
    with pytest.raises(GradError, match="once_differentiable"):
        gx.sum().backward()
    assert x.grad is None


def test_B6_once_differentiable_raises_where_only_saved_tensors_depend_on_the_input():
    """The gradient that comes in is a constant here, and PyTorch drops the second derivative."""
    x = leaf(2.0)
    (gx,) = ng.autograd.grad(OnceOnly.apply(x).sum(), x, create_graph=True)
    with pytest.raises(GradError, match="once_differentiable"):
        (gx + x).sum().backward()


class SavesIntermediate(Function):
    """``sinh(x)``, whose backward uses what forward computed on the way (pytorch#58509)."""

    @staticmethod
    def forward(ctx, x):
        up, down = x.exp(), (-x).exp()
        ctx.save_for_backward(up, down)
        return (up - down) * 0.5

    @staticmethod
    def backward(ctx, g):
        up, down = ctx.saved_tensors
        return g * (up + down) * 0.5


def test_B6_a_saved_intermediate_is_right_once():
    x = leaf(0.0)
    SavesIntermediate.apply(x).sum().backward()
    assert x.grad.tolist() == [1.0]


def test_B6_the_second_derivative_through_a_saved_intermediate_raises():
    x = leaf(1.0)
    y = SavesIntermediate.apply(x)
    (gx,) = ng.autograd.grad((y * y).sum(), x, create_graph=True)
    with pytest.raises(GradError, match="SavesIntermediate"):
        ng.autograd.grad(gx.sum(), x)


def test_B6_the_second_derivative_raises_also_beside_a_path_that_is_right():
    """With a constant incoming gradient nothing but the intermediate leads back to x."""
    x = leaf(1.0)
    y = SavesIntermediate.apply(x)
    (gx,) = ng.autograd.grad(y.sum(), x, create_graph=True)
    with pytest.raises(GradError, match="SavesIntermediate"):
        (gx + x).sum().backward()
    assert x.grad is None


def test_B6_an_intermediate_kept_as_an_attribute_is_no_way_round():
    class KeepsIntermediate(SavesIntermediate):
        @staticmethod
        def forward(ctx, x):
            ctx.up, ctx.down, ctx.x = x.exp(), (-x).exp(), x
            return (ctx.up - ctx.down) * 0.5

        @staticmethod
        def backward(ctx, g):
            return g * (ctx.up + ctx.down) * 0.5

    class UsesInput(KeepsIntermediate):
        @staticmethod
        def backward(ctx, g):
            return g * (ctx.x.exp() + (-ctx.x).exp()) * 0.5

    x = leaf(1.0)
    (gx,) = ng.autograd.grad(KeepsIntermediate.apply(x).sum(), x, create_graph=True)
    with pytest.raises(GradError, match="KeepsIntermediate"):
        (gx + x).sum().backward()
    (gx,) = ng.autograd.grad(UsesInput.apply(x).sum(), x, create_graph=True)
    (ggx,) = ng.autograd.grad(gx, x)
    assert ggx.tolist() == pytest.approx([math.sinh(1.0)])
    KeepsIntermediate.apply(x).sum().backward()
    assert x.grad.tolist() == pytest.approx([math.cosh(1.0)])


def test_B6_saved_intermediates_that_are_not_floating_are_constants():
    class Rectify(Function):
        @staticmethod
        def forward(ctx, x):
            positive = x > 0
            ctx.save_for_backward(positive)
            return x * positive

        @staticmethod
        def backward(ctx, g):
            (positive,) = ctx.saved_tensors
            return g * positive

    x = leaf(2.0, -2.0)
    y = Rectify.apply(x)
    (gx,) = ng.autograd.grad((y * y).sum(), x, create_graph=True)
    (ggx,) = ng.autograd.grad(gx.sum(), x)
    assert gx.tolist() == [4.0, 0.0]
    assert ggx.tolist() == [2.0, 0.0]


def test_B6_a_saved_constant_is_no_intermediate():
    class Scale(Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.save_for_backward(factor)
            return x * factor

        @staticmethod
        def backward(ctx, g):
            (factor,) = ctx.saved_tensors
            return g * factor, None

    x = leaf(2.0)
    y = Scale.apply(x, ng.tensor([3.0]))
    (gx,) = ng.autograd.grad((y * y).sum(), x, create_graph=True)
    (ggx,) = ng.autograd.grad(gx.sum(), x)
    assert ggx.tolist() == [18.0]


def test_B6_a_missing_backward_raises_in_the_second_derivative_too():
    class NoBackward(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2.0

    class UsesIt(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2.0

        @staticmethod
        def backward(ctx, g):
            return NoBackward.apply(g)

    x = leaf(1.0)
    y = UsesIt.apply(x)
    (gx,) = ng.autograd.grad((y * y).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="NoBackward"):
        gx.sum().backward()


# B7 -------------------------------------------------------------------------------------------


def test_B7_gradients_accumulate_into_grad_of_leaves():
    x = leaf(1.0, 2.0)
    (x * 3.0).sum().backward()
    (x * 4.0).sum().backward()
    assert x.grad.tolist() == [7.0, 7.0]
    assert x.grad.requires_grad is False


def test_B7_a_leaf_used_twice_gets_the_sum():
    x = leaf(3.0)
    (x * x + x).sum().backward()
    assert x.grad.tolist() == [7.0]


def test_B7_the_gradient_passed_in_is_not_written_to():
    x, gradient = leaf(1.0), ng.tensor([5.0])
    y = x.view(1)
    y.backward(gradient, retain_graph=True)
    (x * 2.0).sum().backward()
    assert x.grad.tolist() == [7.0]
    assert gradient.tolist() == [5.0]


def test_B7_two_leaves_do_not_share_one_gradient():
    x, y = leaf(1.0), leaf(2.0)
    (x + y).sum().backward()
    (x * 3.0).sum().backward()
    assert x.grad.tolist() == [4.0]
    assert y.grad.tolist() == [1.0]


@pytest.mark.filterwarnings("ignore")
def test_B7_others_only_after_retain_grad():
    x = leaf(1.0)
    inner, kept = x * 2.0, x * 5.0
    kept.retain_grad()
    (inner * 3.0 + kept * 4.0).sum().backward()
    assert inner.grad is None
    assert kept.grad.tolist() == [4.0]
    assert kept.retains_grad and not inner.retains_grad
    assert x.grad.tolist() == [26.0]


def test_B7_autograd_grad_returns_and_does_not_accumulate():
    x, y = leaf(2.0), leaf(3.0)
    inner = x * y
    total = (inner * inner).sum()
    gx, ginner = ng.autograd.grad(total, (x, inner))
    assert gx.tolist() == [36.0]
    assert ginner.tolist() == [12.0]
    assert x.grad is None and y.grad is None and inner.grad is None


def test_B7_autograd_backward_of_several_tensors():
    x = leaf(2.0)
    ng.autograd.backward([x * 3.0, x * x], [None, ng.tensor([10.0])])
    assert x.grad.tolist() == [43.0]
    with pytest.raises(RuntimeError, match="2 tensors"):
        ng.autograd.backward([x * 3.0, x * x], [ng.tensor([1.0])])


def test_B7_autograd_grad_with_several_outputs_and_grad_outputs():
    x = leaf(1.0, 2.0)
    (gx,) = ng.autograd.grad(
        (x * 2.0, x * x), x, grad_outputs=(ng.tensor([1.0, 10.0]), ng.tensor([1.0, 1.0]))
    )
    assert gx.tolist() == [4.0, 24.0]


def test_B7_autograd_grad_of_an_unused_input():
    x, unused = leaf(1.0), leaf(1.0)
    y = (x * 2.0).sum()
    with pytest.raises(GradError, match="allow_unused=True"):
        ng.autograd.grad(y, (x, unused), retain_graph=True)
    gx, nothing = ng.autograd.grad(y, (x, unused), allow_unused=True, retain_graph=True)
    assert gx.tolist() == [2.0] and nothing is None
    _, zeros = ng.autograd.grad(y, (x, unused), materialize_grads=True)
    assert zeros.tolist() == [0.0]


def test_B7_backward_gradient():
    x = leaf(1.0, 2.0)
    (x * 2.0).backward(gradient=ng.tensor([1.0, 10.0]))
    assert x.grad.tolist() == [2.0, 20.0]


def test_B7_backward_of_several_elements_needs_a_gradient():
    x = leaf(1.0, 2.0)
    with pytest.raises(NotScalarError, match="scalar output"):
        (x * 2.0).backward()
    assert x.grad is None


def test_B7_backward_of_one_element_needs_none():
    x = leaf(1.0)
    (x * 2.0).backward()
    assert x.grad.tolist() == [2.0]


def test_B7_backward_inputs_restricts_what_is_accumulated():
    x, y = leaf(2.0), leaf(3.0)
    (x * y).sum().backward(inputs=[x])
    assert x.grad.tolist() == [3.0]
    assert y.grad is None


def test_B7_backward_create_graph_leaves_a_differentiable_gradient():
    x = leaf(3.0)
    (x * x * x).sum().backward(create_graph=True)
    gx = x.grad
    assert gx.requires_grad
    x.grad = None
    gx.sum().backward()
    assert x.grad.tolist() == [18.0]


def test_B7_a_hook_on_a_tensor_sees_and_may_replace_the_gradient():
    x = leaf(1.0)
    inner = x * 2.0
    seen = []
    looks = inner.register_hook(lambda g: seen.append(g.tolist()))
    inner.register_hook(lambda g: g * 10.0)
    (inner * 3.0).sum().backward(retain_graph=True)
    assert seen == [[3.0]]
    assert x.grad.tolist() == [60.0]
    looks.remove()
    (inner * 3.0).sum().backward()
    assert seen == [[3.0]]
    assert x.grad.tolist() == [120.0]


def test_B7_a_hook_on_a_leaf_sees_the_summed_gradient_of_a_pass():
    x = leaf(3.0)
    seen = []
    x.register_hook(lambda g: seen.append(g.tolist()) or g * 2.0)
    (x * x + x).sum().backward()
    assert seen == [[7.0]]
    assert x.grad.tolist() == [14.0]


def test_B7_a_hook_on_a_tensor_that_needs_no_gradient_raises():
    with pytest.raises(RuntimeError, match="doesn't require gradient"):
        ng.ones(1).register_hook(lambda g: g)


def test_B7_hooks_on_nodes():
    x = leaf(1.0)
    y = MulConstant.apply(x, 3.0)
    before, after = [], []
    y.grad_fn.register_prehook(lambda grads: before.append([g.tolist() for g in grads]))
    handle = y.grad_fn.register_hook(
        lambda gin, gout: after.append((gin[0].tolist(), gout[0].tolist()))
    )
    (y * 2.0).sum().backward(retain_graph=True)
    assert before == [[[2.0]]]
    assert after == [([6.0], [2.0])]
    handle.remove()
    y.sum().backward()
    assert len(after) == 1 and len(before) == 2


def test_B7_grad_of_the_output_itself_and_of_an_input_asked_for_twice():
    x = leaf(2.0)
    y = x * 3.0
    gy, gx, again = ng.autograd.grad(y, (y, x, x))
    assert (gy.tolist(), gx.tolist(), again.tolist()) == ([1.0], [3.0], [3.0])


def test_B7_a_backward_pass_inside_backward():
    class Inner(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            with ng.enable_grad():
                again = x.detach().requires_grad_()
                (slope,) = ng.autograd.grad((again * again * again).sum(), again)
            assert not ng.is_grad_enabled()
            return g * slope

    x = leaf(2.0)
    (Inner.apply(x) * 2.0).sum().backward()
    assert x.grad.tolist() == [24.0]


def test_B7_in_place_on_a_constant_makes_it_part_of_the_graph():
    x = leaf(1.0, 2.0)
    total = ng.zeros(2)
    total += x * 3.0
    total[0] *= x[1]
    assert total.requires_grad and not total.is_leaf
    total.sum().backward()
    assert total.tolist() == [6.0, 6.0]
    assert x.grad.tolist() == [6.0, 6.0]


def test_B7_a_view_follows_its_base_through_a_change_in_place():
    x = leaf(1.0, 2.0, 3.0, 4.0)
    base = x * 1.0
    view = base.view(2, 2)
    base.mul_(2.0)
    view[1].mul_(5.0)
    assert base.tolist() == [2.0, 4.0, 30.0, 40.0]
    (view * ng.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward(retain_graph=True)
    assert x.grad.tolist() == [2.0, 4.0, 30.0, 40.0]
    x.grad = None
    base.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 10.0, 10.0]


def test_B7_grad_mode_switches():
    x = leaf(1.0)
    with ng.no_grad():
        assert not (x * 2.0).requires_grad
        with ng.enable_grad():
            assert (x * 2.0).requires_grad
        assert not ng.is_grad_enabled()

    @ng.no_grad()
    def frozen(t):
        return t * 2.0

    assert not frozen(x).requires_grad
    assert ng.is_grad_enabled()
    with ng.set_grad_enabled(False):
        assert not ng.is_grad_enabled()
    assert ng.is_grad_enabled()


def test_B7_grad_mode_returns_after_an_error():
    with pytest.raises(KeyError), ng.no_grad():
        raise KeyError("mine")
    assert ng.is_grad_enabled()


def test_trap_bias_gradient_with_one_output_feature():
    x = ng.randn(4, 3, requires_grad=True)
    weight = ng.randn(1, 3, requires_grad=True)
    bias = ng.zeros(1, requires_grad=True)
    y = Linear.apply(x, weight, bias)
    assert y.shape == (4, 1)
    y.sum().backward()
    assert bias.grad.shape == (1,)
    assert bias.grad.tolist() == [4.0]
