"""Contract lines C1 to C7: what ``ctx`` keeps, gives back and refuses."""

from __future__ import annotations

import inspect
import math
import re
import weakref

import pytest

import numbagrad as ng
from numbagrad.autograd import Function
from numbagrad.errors import GradError, GraphFreedError, VersionError

from .functions import Linear, MulConstant, Square


def leaf(*values):
    return ng.tensor(list(values), requires_grad=True)


class Exp(Function):
    """Saves its output."""

    @staticmethod
    def forward(ctx, x):
        out = x.exp()
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, g):
        (out,) = ctx.saved_tensors
        return g * out


# C1 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [3.0, "text", [1.0], object()])
def test_C1_only_tensors_or_none_can_be_saved(wrong):
    class Saves(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x, wrong)
            return x * 2.0

    with pytest.raises(TypeError, match=r"argument 1 "):
        Saves.apply(leaf(1.0))
    assert ng.is_grad_enabled()


def test_C1_at_most_one_call():
    class SavesTwice(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.save_for_backward(x)
            return x * 2.0

    with pytest.raises(GradError, match="save_for_backward"):
        SavesTwice.apply(leaf(1.0))


# C2 -------------------------------------------------------------------------------------------


def test_C2_a_tuple_in_the_same_order_with_none_kept():
    seen = {}

    class Saves(Function):
        @staticmethod
        def forward(ctx, x, constant):
            ctx.save_for_backward(None, constant, x, None)
            return x * constant

        @staticmethod
        def backward(ctx, g):
            seen["saved"] = ctx.saved_tensors
            return g * ctx.saved_tensors[1], None

    x, constant = leaf(1.0), ng.tensor([3.0])
    Saves.apply(x, constant).sum().backward()
    saved = seen["saved"]
    assert type(saved) is tuple and len(saved) == 4
    assert saved[0] is None and saved[3] is None
    assert saved[1].tolist() == [3.0]
    assert saved[2] is x


def test_C2_nothing_saved_is_an_empty_tuple():
    y = MulConstant.apply(leaf(1.0), 2.0)
    assert y.grad_fn.saved_tensors == ()


def test_C2_a_saved_input_comes_back_as_the_same_object_with_its_history():
    x = leaf(2.0)
    inner = x * 3.0
    y = Square.apply(inner)
    (saved,) = y.grad_fn.saved_tensors
    assert saved is inner
    assert saved.grad_fn is inner.grad_fn


def test_C2_a_saved_output_comes_back_with_this_node_as_its_grad_fn():
    seen = {}

    class Looks(Exp):
        @staticmethod
        def backward(ctx, g):
            (out,) = ctx.saved_tensors
            seen["same"] = out.grad_fn is ctx
            seen["values"] = out.tolist()
            return g * out

    y = Looks.apply(leaf(0.0))
    (saved,) = y.grad_fn.saved_tensors
    assert saved.grad_fn is y.grad_fn
    assert saved.requires_grad
    y.sum().backward()
    assert seen == {"same": True, "values": [1.0]}


def test_C2_double_backward_goes_through_a_saved_input():
    x = ng.tensor([0.5, -1.0], dtype=ng.double, requires_grad=True)
    (gx,) = ng.autograd.grad(Square.apply(x * 2.0).sum(), x, create_graph=True)
    (ggx,) = ng.autograd.grad(gx.sum(), x)
    assert gx.tolist() == pytest.approx([4.0, -8.0])
    assert ggx.tolist() == pytest.approx([8.0, 8.0])


def test_C2_double_backward_goes_through_a_saved_output():
    x = ng.tensor([0.5, -1.0], dtype=ng.double, requires_grad=True)
    (gx,) = ng.autograd.grad(Exp.apply(x * 2.0).sum(), x, create_graph=True)
    (ggx,) = ng.autograd.grad(gx.sum(), x, create_graph=True)
    (gggx,) = ng.autograd.grad(ggx.sum(), x)
    exps = [math.exp(1.0), math.exp(-2.0)]
    assert gx.tolist() == pytest.approx([2.0 * e for e in exps])
    assert ggx.tolist() == pytest.approx([4.0 * e for e in exps])
    assert gggx.tolist() == pytest.approx([8.0 * e for e in exps])


# C3 -------------------------------------------------------------------------------------------

SECOND_TIME = "backward through the graph a second time"


def test_C3_a_second_backward_raises():
    y = Square.apply(leaf(1.0))
    y.sum().backward()
    with pytest.raises(GraphFreedError, match=SECOND_TIME):
        y.sum().backward()


def test_C3_saved_tensors_after_the_graph_is_freed_raise():
    y = Square.apply(leaf(1.0))
    y.sum().backward()
    with pytest.raises(GraphFreedError, match=SECOND_TIME):
        _ = y.grad_fn.saved_tensors


def test_C3_retain_graph_keeps_them():
    x = leaf(3.0)
    y = Square.apply(x)
    total = y.sum()
    total.backward(retain_graph=True)
    assert y.grad_fn.saved_tensors[0] is x
    total.backward()
    assert x.grad.tolist() == [12.0]
    with pytest.raises(GraphFreedError, match=SECOND_TIME):
        total.backward()
    assert x.grad.tolist() == [12.0]


def test_C3_freeing_lets_the_saved_tensor_die():
    class SavesIntermediate(Function):
        @staticmethod
        def forward(ctx, x):
            inner = x * 3.0
            saved.append(weakref.ref(inner))
            ctx.save_for_backward(inner)
            return inner * 2.0

        @staticmethod
        def backward(ctx, g):
            return g * 6.0

    saved: list = []
    y = SavesIntermediate.apply(leaf(1.0))
    total = y.sum()
    assert y.grad_fn.saved_tensors[0].tolist() == [3.0]
    total.backward()
    assert saved[0]() is None


# C4 -------------------------------------------------------------------------------------------


def lines_named(message):
    """Line numbers of this file that an error message names."""
    return [int(n) for n in re.findall(r"test_context\.py\W+(?:line )?(\d+)", message)]


def here():
    """Number of the line that calls this function."""
    return inspect.currentframe().f_back.f_lineno


def test_C4_a_saved_input_changed_in_place_raises_and_names_everything():
    x = leaf(1.0, 2.0)
    inner = x * 2.0
    y, saved_at = Square.apply(inner), here()
    _, changed_at = inner.add_(1.0), here()
    with pytest.raises(VersionError, match="modified by an inplace operation") as caught:
        y.sum().backward()
    message = str(caught.value)
    assert "[2]" in message or "(2,)" in message
    assert "Square" in message
    assert re.search(r"version 1\b.*expected version 0\b", message, re.DOTALL)
    source, first = inspect.getsourcelines(Square.forward)
    in_forward = [first + i for i, text in enumerate(source) if "save_for_backward" in text]
    named = lines_named(message)
    assert changed_at in named
    assert saved_at in named or re.search(rf"functions\.py\W+(line )?{in_forward[0]}\b", message)
    assert x.grad is None


def test_C4_a_saved_output_changed_in_place_raises():
    x = leaf(0.0, 1.0)
    y = Exp.apply(x)
    y.mul_(2.0)
    with pytest.raises(VersionError, match=r"version 1\b.*expected version 0\b"):
        y.sum().backward()
    assert x.grad is None


def test_C4_a_builtin_op_is_named_with_both_lines():
    x = leaf(1.0, 2.0)
    inner = x * 2.0
    y, saved_at = inner * inner, here()
    inner[0], changed_at = 5.0, here()
    with pytest.raises(VersionError, match="modified by an inplace operation") as caught:
        y.sum().backward()
    message = str(caught.value)
    assert "Mul" in message
    assert {saved_at, changed_at} <= set(lines_named(message))


def test_C4_a_change_through_a_view_counts():
    inner = leaf(1.0, 2.0) * 2.0
    y = Square.apply(inner)
    inner[1:].zero_()
    with pytest.raises(VersionError, match="modified by an inplace operation"):
        y.sum().backward()


def test_C4_a_change_of_a_detached_alias_counts():
    inner = leaf(1.0, 2.0) * 2.0
    y = Square.apply(inner)
    inner.detach().zero_()
    with pytest.raises(VersionError, match="modified by an inplace operation"):
        y.sum().backward()


def test_C4_a_change_after_backward_is_no_error():
    x = leaf(1.0, 2.0)
    inner = x * 2.0
    Square.apply(inner).sum().backward()
    inner.zero_()
    assert x.grad.tolist() == [8.0, 16.0]


def test_C4_an_op_that_saves_nothing_does_not_mind():
    x = leaf(1.0, 2.0)
    inner = x * 2.0
    y = MulConstant.apply(inner, 3.0)
    inner.add_(1.0)
    y.sum().backward()
    assert x.grad.tolist() == [6.0, 6.0]


# C5 -------------------------------------------------------------------------------------------


def test_C5_any_value_on_ctx_and_ctx_is_the_node():
    seen = {}

    class Keeps(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.words, ctx.table, ctx.function = "words", {"a": [1]}, len
            seen["forward"] = ctx
            return x * 2.0

        @staticmethod
        def backward(ctx, g):
            assert (ctx.words, ctx.table, ctx.function) == ("words", {"a": [1]}, len)
            seen["backward"] = ctx
            return g * 2.0

    y = Keeps.apply(leaf(1.0))
    y.sum().backward()
    assert seen["forward"] is seen["backward"]
    assert seen["forward"] is y.grad_fn
    assert y.grad_fn.words == "words"


# C6 -------------------------------------------------------------------------------------------


def test_C6_one_bool_per_argument_readable_in_forward_too():
    seen = []

    class Looks(Function):
        @staticmethod
        def forward(ctx, a, b, c, d, e=None):
            seen.append(ctx.needs_input_grad)
            return a + b + c

        @staticmethod
        def backward(ctx, g):
            seen.append(ctx.needs_input_grad)
            return g, None, g, None

    inner = leaf(1.0) * 1.0
    Looks.apply(leaf(1.0), ng.ones(1), inner, 3.0).sum().backward()
    assert seen == [(True, False, True, False)] * 2


def test_C6_integer_tensors_need_none():
    class Looks(Function):
        @staticmethod
        def forward(ctx, x, index):
            assert ctx.needs_input_grad == (True, False)
            return x * 1.0

    assert Looks.apply(leaf(1.0), ng.tensor([1])).requires_grad


def test_C6_num_inputs_and_num_outputs():
    class Counts(Function):
        @staticmethod
        def forward(ctx, x, constant, *more):
            ctx.seen = ctx.num_inputs
            return x * 2.0, "text", x * constant

        @staticmethod
        def backward(ctx, g, _, h):
            return (g * 2.0,)

    y, _, _ = Counts.apply(leaf(1.0), 3.0, 4.0)
    assert y.grad_fn.seen == 3
    assert y.grad_fn.num_inputs == 3
    assert y.grad_fn.num_outputs == 2
    two = Linear.apply(ng.randn(4, 3, requires_grad=True), ng.randn(2, 3))
    assert two.grad_fn.num_inputs == 2
    assert two.grad_fn.num_outputs == 1


# C7 -------------------------------------------------------------------------------------------


class DoubleInPlace(Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2.0)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 2.0


def test_C7_mark_dirty_returns_the_input_itself_with_the_node():
    x = leaf(1.0, 2.0)
    inner = x * 3.0
    before = inner._version
    y = DoubleInPlace.apply(inner)
    assert y is inner
    assert inner.grad_fn.name() == "DoubleInPlaceBackward"
    assert inner._version > before
    assert inner.tolist() == [6.0, 12.0]
    inner.sum().backward()
    assert x.grad.tolist() == [6.0, 6.0]


class AddInPlace(Function):
    @staticmethod
    def forward(ctx, x, y):
        x.add_(y)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g, g


def test_C7_living_views_of_what_is_dirty_have_its_history():
    x, y = leaf(1.0, 2.0, 3.0), leaf(4.0, 5.0, 6.0)
    inner = x * 2.0
    view, kept = inner[1:], inner[:1]
    kept.retain_grad()
    AddInPlace.apply(inner, y)
    (view**2).sum().backward(retain_graph=True)
    assert x.grad.tolist() == [0.0, 36.0, 48.0] and y.grad.tolist() == [0.0, 18.0, 24.0]
    kept.sum().backward()
    assert kept.grad.tolist() == [1.0] and y.grad.tolist() == [1.0, 18.0, 24.0]
    inner = x * 1.0
    inner.retain_grad()
    (DoubleInPlace.apply(inner) ** 2).sum().backward()
    assert inner.grad.tolist() == [4.0, 8.0, 12.0]  # of what it is now


class Shows(Function):
    @staticmethod
    def forward(ctx, x, whole):
        return x if whole else x[1:]

    @staticmethod
    def backward(ctx, g):
        return ng.cat([g.new_zeros(3 - len(g)), g]), None


@pytest.mark.parametrize("whole", [True, False])
def test_an_argument_that_is_handed_back_cannot_be_changed_in_place(whole):
    """PyTorch refuses it too: the argument would keep the history of what it was."""
    y = leaf(1.0, 2.0, 3.0) * 1.0
    shown = Shows.apply(y, whole)
    for write in (lambda: shown.mul_(3.0), lambda: shown[:1].zero_()):
        with pytest.raises(RuntimeError, match=r"Output 0 of ShowsBackward is a view .* clone"):
            write()
    assert y.tolist() == [1.0, 2.0, 3.0]
    with ng.no_grad():
        shown.mul_(1.0)
    Shows.apply(ng.ones(3), whole).mul_(3.0)  # nothing has a history


def test_a_view_made_without_history_cannot_be_changed_with_one():
    y = leaf(1.0, 2.0) * 1.0
    with ng.no_grad():
        view = y[:1]
    with pytest.raises(RuntimeError, match="A view was created in no_grad mode"):
        view.mul_(2.0)
    with ng.no_grad():
        view.mul_(2.0)
    assert y.tolist() == [2.0, 2.0]


def test_C7_mark_dirty_of_a_leaf_that_needs_a_gradient_raises():
    with pytest.raises(RuntimeError, match=r"leaf .*in-place operation"):
        DoubleInPlace.apply(leaf(1.0))


def test_C7_mark_dirty_of_something_not_returned_raises():
    class Forgets(DoubleInPlace):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x * 2.0

    with pytest.raises(RuntimeError, match=r"dirty.*(returned|output)"):
        Forgets.apply(leaf(1.0) * 1.0)


def test_C7_mark_non_differentiable():
    received = []

    class Sorts(Function):
        @staticmethod
        def forward(ctx, x):
            floor = x.floor()
            positive = x > 0
            ctx.mark_non_differentiable(floor, positive)
            return x * 2.0, floor, positive

        @staticmethod
        def backward(ctx, *grads):
            received.extend(grads)
            return grads[0] * 2.0

    x = leaf(1.5, -1.5)
    y, floor, positive = Sorts.apply(x)
    assert (y.requires_grad, floor.requires_grad, positive.requires_grad) == (True, False, False)
    assert floor.grad_fn is None
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]
    assert received[1].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("materialize", [True, False])
def test_C7_set_materialize_grads(materialize):
    received = []

    class Two(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(materialize)
            return x * 2.0, x * 3.0

        @staticmethod
        def backward(ctx, g, h):
            received.append(h)
            return g * 2.0

    Two.apply(leaf(1.0, 1.0))[0].sum().backward()
    if materialize:
        assert received[0].tolist() == [0.0, 0.0]
    else:
        assert received == [None]


def test_C7_setup_context():
    class Separate(Function):
        @staticmethod
        def forward(x, constant=4.0):
            assert not ng.is_grad_enabled()
            return x * x * constant

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, constant = inputs
            ctx.save_for_backward(x)
            ctx.constant = constant
            ctx.output_is_tensor = isinstance(output, ng.Tensor)

        @staticmethod
        def backward(ctx, g):
            assert ctx.output_is_tensor
            (x,) = ctx.saved_tensors
            return g * 2.0 * x * ctx.constant, None

    x = leaf(3.0)
    Separate.apply(x, 5.0).sum().backward()
    assert x.grad.tolist() == [30.0]
    x.grad = None
    Separate.apply(x).sum().backward()
    assert x.grad.tolist() == [24.0]


def test_C5_no_attribute_name_is_taken_by_the_tape():
    names = "edges sequence saved rare where hooks outputs run unpack retain save name".split()

    class Square(ng.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            for name in names:
                setattr(ctx, name, name)
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            assert all(getattr(ctx, name) == name for name in names)
            (x,) = ctx.saved_tensors
            return 2 * x * g

    x = ng.tensor([3.0], requires_grad=True)
    y = Square.apply(x)
    assert "SquareBackward" in repr(y)
    y.backward()
    assert x.grad.item() == 6.0
    with pytest.raises(RuntimeError, match="SquareBackward: Trying to backward"):
        y.backward()
