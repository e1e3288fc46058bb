"""Contract lines F1 to F9: Function and apply."""

from __future__ import annotations

import pytest

import numbagrad as ng
from numbagrad.autograd import Function
from numbagrad.errors import GradError

from .functions import Linear, MulConstant, Square


def leaf(*values):
    return ng.tensor(list(values), requires_grad=True)


def test_F1_apply_is_a_plain_callable():
    mul_constant = MulConstant.apply
    x = leaf(1.0, 2.0)
    y = mul_constant(x, 5.5)
    assert y.tolist() == [5.5, 11.0]
    y.sum().backward()
    assert x.grad.tolist() == [5.5, 5.5]


def test_F1_keyword_arguments_are_accepted():
    x = leaf(1.0, 2.0)
    y = MulConstant.apply(x, constant=3.0)
    assert y.tolist() == [3.0, 6.0]
    y.sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]


def test_F1_static_methods_of_a_base_class_are_inherited():
    class Inherited(MulConstant):
        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * 100.0, None

    x = leaf(1.0)
    Inherited.apply(x, 2.0).backward(ng.tensor([1.0]))
    assert x.grad.tolist() == [100.0]


class NoBackward(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2.0


def test_F2_missing_backward_runs_forward_and_fails_in_backward():
    x = leaf(1.0, 2.0)
    y = NoBackward.apply(x)
    assert y.tolist() == [2.0, 4.0]
    assert y.requires_grad
    total = y.sum()
    with pytest.raises(RuntimeError, match="NoBackward"):
        total.backward()
    assert x.grad is None


def test_F2_missing_backward_is_no_error_where_the_pass_does_not_reach_it():
    x = leaf(1.0)
    NoBackward.apply(x)
    (x * 3.0).sum().backward()
    assert x.grad.tolist() == [3.0]


def test_F3_defaults_apply():
    x, weight = ng.randn(4, 3, requires_grad=True), ng.randn(2, 3, requires_grad=True)
    Linear.apply(x, weight).sum().backward()
    expected = weight.detach().sum(0).tolist()
    for row in x.grad.tolist():
        assert row == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_F3_any_python_objects():
    class TakesAnything(Function):
        @staticmethod
        def forward(ctx, x, words, table, nothing, function=abs):
            assert words == "words" and table == {"a": 1} and nothing is None and function is len
            return x + len(words)

        @staticmethod
        def backward(ctx, g):
            return g, None, None, None, None

    x = leaf(1.0)
    y = TakesAnything.apply(x, "words", {"a": 1}, None, len)
    y.backward(ng.tensor([2.0]))
    assert y.tolist() == [6.0]
    assert x.grad.tolist() == [2.0]


def test_F3_no_arguments_at_all():
    class One(Function):
        @staticmethod
        def forward(ctx):
            return ng.ones(2)

    y = One.apply()
    assert y.tolist() == [1.0, 1.0]
    assert not y.requires_grad


def test_F4_grad_mode_is_off_and_the_same_objects_come_in():
    seen = {}

    class Look(Function):
        @staticmethod
        def forward(ctx, x, other):
            seen.update(mode=ng.is_grad_enabled(), x=x, other=other)
            inner = x * 2.0
            seen["inner"] = inner.requires_grad
            return inner

        @staticmethod
        def backward(ctx, g):
            return g * 2.0, None

    x, other = leaf(1.0), [1, 2]
    y = Look.apply(x, other)
    assert seen["mode"] is False
    assert seen["inner"] is False
    assert seen["x"] is x and seen["other"] is other
    assert ng.is_grad_enabled()
    assert y.requires_grad


def test_F4_grad_mode_returns_after_an_error_in_forward():
    class Fails(Function):
        @staticmethod
        def forward(ctx, x):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        Fails.apply(leaf(1.0))
    assert ng.is_grad_enabled()


def test_F4_in_place_work_on_a_fresh_result_is_legal():
    x = ng.randn(4, 3, requires_grad=True)
    weight = ng.randn(2, 3, requires_grad=True)
    bias = ng.randn(2, requires_grad=True)
    y = Linear.apply(x, weight, bias)  # adds the bias with `out +=`
    y.sum().backward()
    assert bias.grad.tolist() == [4.0, 4.0]


def test_F4_the_returned_tensor_gets_the_node():
    made = []

    class Keeps(Function):
        @staticmethod
        def forward(ctx, x):
            out = x * 2.0
            made.append(out)
            return out

        @staticmethod
        def backward(ctx, g):
            return g * 2.0

    y = Keeps.apply(leaf(1.0))
    assert y is made[0]
    assert y.grad_fn is not None
    assert y.grad_fn.name() == "KeepsBackward"


def test_F4_returning_an_input_unchanged_gives_a_tensor_with_the_node():
    class Identity(Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 5.0

    x = leaf(1.0, 2.0)
    y = Identity.apply(x)
    assert y is not x
    assert x.is_leaf and x.grad_fn is None
    y.sum().backward()
    assert x.grad.tolist() == [5.0, 5.0]


def test_F5_containers_are_not_searched():
    class FromList(Function):
        @staticmethod
        def forward(ctx, tensors, table):
            return tensors[0] * 2.0 + table["x"]

        @staticmethod
        def backward(ctx, g):
            raise AssertionError("must not be called")

    x = leaf(1.0)
    y = FromList.apply([x], {"x": x})
    assert y.tolist() == [3.0]
    assert not y.requires_grad
    assert y.grad_fn is None


def returning(make, slots=1):
    """A Function whose forward returns ``make(x)`` and whose backward records what it gets."""

    class Returns(Function):
        received = None

        @staticmethod
        def forward(ctx, x):
            return make(x)

        @staticmethod
        def backward(ctx, *grads):
            Returns.received = grads
            assert len(grads) == slots
            return grads[0] * 2.0

    return Returns


def test_F6_a_tuple_of_one_stays_a_tuple():
    out = returning(lambda x: (x * 2.0,)).apply(leaf(1.0))
    assert type(out) is tuple and len(out) == 1
    assert out[0].requires_grad


def test_F6_a_tuple_of_two():
    class Split(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2.0, x * 3.0

        @staticmethod
        def backward(ctx, g, h):
            return g * 2.0 + h * 3.0

    x = leaf(1.0, 1.0)
    y, z = Split.apply(x)
    assert y.grad_fn is z.grad_fn
    (y * 10.0 + z).sum().backward()
    assert x.grad.tolist() == [23.0, 23.0]


def test_F6_members_that_are_no_tensors_pass_through_with_a_gradient_slot_of_none():
    function = returning(lambda x: (x * 2.0, "text", None), slots=3)
    x = leaf(1.0)
    y, text, nothing = function.apply(x)
    assert text == "text" and nothing is None
    y.sum().backward()
    assert function.received[0].tolist() == [1.0]
    assert function.received[1:] == (None, None)
    assert x.grad.tolist() == [2.0]


def test_F6_a_list_passes_through_untracked():
    out = returning(lambda x: [x * 2.0, x * 3.0]).apply(leaf(1.0))
    assert type(out) is list
    assert [t.requires_grad for t in out] == [False, False]
    assert [t.tolist() for t in out] == [[2.0], [3.0]]


def test_F6_none_passes_through():
    assert returning(lambda x: None).apply(leaf(1.0)) is None


def test_F7_no_input_needs_a_gradient():
    y = MulConstant.apply(ng.ones(2), 3.0)
    assert y.requires_grad is False
    assert y.grad_fn is None


@pytest.mark.parametrize("guard", ["no_grad", "inference_mode", "set_grad_enabled"])
def test_F7_grad_mode_off(guard):
    x = leaf(1.0)
    context = ng.set_grad_enabled(False) if guard == "set_grad_enabled" else getattr(ng, guard)()
    with context:
        y = MulConstant.apply(x, 3.0)
    assert y.requires_grad is False
    assert y.grad_fn is None
    assert ng.is_grad_enabled()


def test_F7_every_floating_output_requires_a_gradient():
    class Outputs(Function):
        @staticmethod
        def forward(ctx, x, constant):
            return x * 2.0, constant * 2.0, x.long(), x > 0

        @staticmethod
        def backward(ctx, g, *rest):
            return g, None

    outs = Outputs.apply(leaf(1.0), ng.ones(1))
    assert [out.requires_grad for out in outs] == [True, True, False, False]
    assert [out.grad_fn is None for out in outs] == [False, False, True, True]


def test_F8_instances_are_refused():
    with pytest.raises(RuntimeError, match=r"apply|static"):
        MulConstant()(leaf(1.0), 2.0)


def test_F8_calls_do_not_share_state():
    x = leaf(1.0)
    first, second = MulConstant.apply(x, 2.0), MulConstant.apply(x, 7.0)
    assert first.grad_fn is not second.grad_fn
    first.sum().backward()
    assert x.grad.tolist() == [2.0]
    x.grad = None
    second.sum().backward()
    assert x.grad.tolist() == [7.0]


def test_F9_next_functions_walks_the_graph():
    class Three(Function):
        @staticmethod
        def forward(ctx, a, b, c):
            return a + b + c

        @staticmethod
        def backward(ctx, g):
            return g, g, g

    x = leaf(1.0)
    inner = Square.apply(x)
    y = Three.apply(inner, x, ng.ones(1))
    (to_inner, slot), (to_leaf, _), (to_constant, _) = y.grad_fn.next_functions
    assert to_inner is inner.grad_fn
    assert slot == 0
    assert "AccumulateGrad" in to_leaf.name()
    assert to_leaf.variable is x
    assert to_constant is None
    assert to_inner.next_functions[0][0].name() == to_leaf.name()


def test_F9_the_slot_tells_which_output_was_used():
    class Split(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2.0, x * 3.0

        @staticmethod
        def backward(ctx, g, h):
            return g * 2.0 + h * 3.0

    y, z = Split.apply(leaf(1.0))
    out = Square.apply(z)
    assert out.grad_fn.next_functions == ((y.grad_fn, 1),)


def test_F9_name_and_creator():
    y = MulConstant.apply(leaf(1.0), 2.0)
    assert y.grad_fn.name() == "MulConstantBackward"
    assert y.creator is y.grad_fn
    assert leaf(1.0).creator is None


class Scaled(Function):
    """Times k, in place."""

    @staticmethod
    def forward(ctx, a, k):
        a.mul_(k)
        ctx.mark_dirty(a)
        ctx.k = k
        return a

    @staticmethod
    def backward(ctx, g):
        return g * ctx.k, None


def test_a_view_that_is_changed_in_place_carries_its_base():
    x = ng.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    y = x * 1
    earlier = y[0]
    assert Scaled.apply(y[0], 2.0).tolist() == [2.0, 4.0]
    Scaled.apply(y[0][1:], 5.0)
    assert y.tolist() == [[2.0, 20.0], [3.0, 4.0]] and earlier.tolist() == [2.0, 20.0]
    (earlier * y).sum().backward()
    assert x.grad.tolist() == [[14.0, 440.0], [2.0, 20.0]]
    y = x * 1
    column = Scaled.apply(y[:, 1], 3.0)
    x.grad = None
    (y.sum() + column.sum()).backward()
    assert x.grad.tolist() == [[1.0, 6.0], [1.0, 6.0]]
    untracked = ng.ones(2, 2)
    Scaled.apply(untracked[0], 2.0)
    assert untracked.tolist() == [[2.0, 2.0], [1.0, 1.0]] and not untracked.requires_grad


def test_a_view_that_may_not_be_changed_in_place():
    x = ng.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    with pytest.raises(GradError, match="leaf"):
        Scaled.apply(x[0], 2.0)
    y = x * 1
    row = y[0]
    square = row * row
    Scaled.apply(row, 2.0)
    with pytest.raises(GradError, match="modified by an inplace operation"):
        square.sum().backward()
    with pytest.raises(RuntimeError, match="single memory location"):
        Scaled.apply((x * 1)[:, :1].expand(2, 3), 2.0)
