"""The tape's switches, hooks and in-place rules, beyond the lines of the contract.

Lifetimes and deep chains are in test_graph_life.py, the contract's lines in tests/contract.
"""

from __future__ import annotations

import functools
import inspect
import threading

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.errors import (
    GradError,
    GraphFreedError,
    NotScalarError,
    RecordingError,
    VersionError,
)


def leaf(*values):
    return ng.tensor(list(values), dtype=ng.float64, requires_grad=True)


def here():
    """The caller's line."""
    return inspect.currentframe().f_back.f_lineno


# ---------------------------------------------------------------- hooks


def test_hooks_of_a_tensor_run_in_order_each_on_the_result_of_the_last():
    x = leaf(1.0, 2.0)
    y = x * 3
    seen = []
    y.register_hook(lambda g: seen.append(g.tolist()))
    y.register_hook(lambda g: g * 2)
    y.register_hook(lambda g: seen.append(g.tolist()))
    y.sum().backward()
    assert seen == [[1.0, 1.0], [2.0, 2.0]]
    assert x.grad.tolist() == [6.0, 6.0]


def test_a_removed_hook_is_silent():
    x = leaf(1.0)
    handle = x.register_hook(lambda g: g * 100)
    handle.remove()
    handle.remove()
    x.sum().backward()
    assert x.grad.tolist() == [1.0]
    with x.register_hook(lambda g: g * 100):
        x.sum().backward()
    x.sum().backward()
    assert x.grad.tolist() == [102.0]


def test_a_hook_sees_the_sum_over_all_uses():
    x = leaf(1.0)
    y = x * 2
    seen = []
    y.register_hook(lambda g: seen.append(g.item()))
    (y * 3 + y * 4).sum().backward()
    assert seen == [7.0]


def test_a_hook_on_one_output_of_several():
    x = leaf(1.0, 2.0, 3.0)
    first, second = x.split([1, 2])
    second.register_hook(lambda g: g * 10)
    (first.sum() + second.sum()).backward()
    assert x.grad.tolist() == [1.0, 10.0, 10.0]


def test_a_hook_keeps_the_result_differentiable_under_create_graph():
    x = leaf(3.0)
    y = x * x
    y.register_hook(lambda g: g * x)
    (g,) = ng.autograd.grad(y, x, create_graph=True)  # 2 x * x
    assert g.item() == 18.0
    assert ng.autograd.grad(g, x)[0].item() == 12.0


def test_a_hook_that_raises_leaves_the_mode_and_the_leaf_as_they_were():
    x = leaf(1.0)
    y = x * 2

    def fail(g):
        raise ZeroDivisionError("in a hook")

    handle = y.register_hook(fail)
    z = y * y
    with pytest.raises(ZeroDivisionError, match="in a hook"):
        z.backward(retain_graph=True)
    assert ng.is_grad_enabled()
    assert x.grad is None
    handle.remove()
    z.backward()
    assert x.grad.item() == 8.0


def test_hooks_of_a_node_see_and_replace():
    x = leaf(1.0, 2.0)
    y = x * 5
    calls = []

    def pre(grad_outputs):
        calls.append("pre")
        return tuple(g * 2 for g in grad_outputs)

    def post(grad_inputs, grad_outputs):
        calls.append(("post", grad_outputs[0].tolist(), grad_inputs[0].tolist()))
        return tuple(g if g is None else g + 1 for g in grad_inputs)

    y.grad_fn.register_prehook(pre)
    handle = y.grad_fn.register_hook(post)
    y.sum().backward(retain_graph=True)
    assert calls == ["pre", ("post", [2.0, 2.0], [10.0, 10.0])]
    assert x.grad.tolist() == [11.0, 11.0]
    handle.remove()
    y.sum().backward()
    assert x.grad.tolist() == [21.0, 21.0]


def test_a_hook_sees_the_gradients_of_both_operands_where_they_are_one_tensor():
    x = leaf(3.0)
    seen = []
    y = x * x
    y.grad_fn.register_hook(lambda into, out: seen.append([t.item() for t in into]))
    y.backward(retain_graph=True)
    assert seen == [[3.0, 3.0]] and x.grad.item() == 6.0
    (x * x).backward()  # without a hook there is one
    assert x.grad.item() == 12.0


def test_the_gradient_of_a_tensor_by_itself_is_one_kernel():
    x = ng.linspace(-2, 2, 12).reshape(3, 4).requires_grad_()
    with ng.profiler.profile() as profile:
        (x * x).backward(ng.ones(3, 4))
    names = [row.name for row in profile.key_averages()]
    assert [n for n in names if n.startswith("MulBackward")] == ["MulBackward.mul_grad_twice"], (
        names
    )
    assert x.grad.tolist() == (2 * x).tolist()
    row = x[0].detach().requires_grad_()
    y = x.detach() * row  # of one number each, but two tensors
    y.sum().backward()
    assert row.grad.tolist() == x.sum(0).tolist()


def test_a_post_accumulate_hook_that_returns_something_is_refused():
    x = ng.ones(2, requires_grad=True)
    x.register_post_accumulate_grad_hook(lambda t: t.grad * 2)
    with pytest.raises(GradError, match=r"should return None.*Change tensor.grad"):
        x.sum().backward()


def test_post_accumulate_hook_runs_after_the_gradient_is_there():
    x = leaf(2.0)
    seen = []
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.item()))
    (x * x).backward()
    (x * x).backward()
    assert seen == [4.0, 8.0]
    with pytest.raises(GradError, match="leaf"):
        (x * 2).register_post_accumulate_grad_hook(print)


# ---------------------------------------------------------------- retain


def test_retain_grad_keeps_the_gradient_of_a_result():
    x = leaf(1.0, 2.0)
    y = x * 3
    assert not y.retains_grad
    y.retain_grad()
    y.retain_grad()
    assert y.retains_grad
    (y * y).sum().backward()
    assert y.grad.tolist() == [6.0, 12.0]
    assert x.grad.tolist() == [18.0, 36.0]
    with pytest.raises(GradError, match="requires_grad=False"):
        ng.tensor([1.0]).retain_grad()


def test_retain_grad_sees_what_hooks_made():
    x = leaf(1.0)
    y = x * 1
    y.register_hook(lambda g: g * 5)
    y.retain_grad()
    y.sum().backward()
    assert y.grad.item() == 5.0


def test_retain_graph_once_then_freed():
    x = leaf(2.0)
    y = x.exp() * x
    y.backward(retain_graph=True)
    first = x.grad.item()
    y.backward()
    assert x.grad.item() == pytest.approx(2 * first)
    with pytest.raises(GraphFreedError, match="second time"):
        y.backward()
    assert x.grad.item() == pytest.approx(2 * first)


def test_a_graph_that_saves_nothing_can_be_walked_again():
    x = leaf(2.0)
    y = x + 1
    y.backward()
    y.backward()
    assert x.grad.item() == 2.0


def test_parts_of_a_graph_are_freed_apart():
    x = leaf(2.0)
    shared = x * x
    a, b = shared.exp(), shared + 1
    a.backward()
    with pytest.raises(GraphFreedError, match="second time"):
        b.backward()


# ---------------------------------------------------------------- create_graph and grad


def test_orders_up_to_five():
    x = leaf(0.5, 1.5)
    y = x**5
    for expected in (5 * x**4, 20 * x**3, 60 * x**2, 120 * x, 120 + 0 * x):
        (y,) = ng.autograd.grad(y.sum(), x, create_graph=True)
        np.testing.assert_allclose(y.detach().numpy(), expected.detach().numpy(), rtol=1e-12)


def test_gradient_penalty():
    """Backward through a norm of a gradient, accumulated into .grad."""
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    (g,) = ng.autograd.grad((w * x * x).sum(), x, create_graph=True)  # 2 w x
    (g * g).sum().backward()
    np.testing.assert_allclose(w.grad.tolist(), (8 * w * x * x).tolist())
    np.testing.assert_allclose(x.grad.tolist(), (8 * w * w * x).tolist())


def test_grad_of_a_non_leaf_and_of_an_output_itself():
    x = leaf(2.0)
    y = x * 3
    z = y * y
    gy, gx = ng.autograd.grad(z, [y, x], retain_graph=True)
    assert (gy.item(), gx.item()) == (12.0, 36.0)
    assert ng.autograd.grad(z, z, retain_graph=True)[0].item() == 1.0
    assert x.grad is None
    assert not gx.requires_grad


def test_grad_outputs_weigh_several_outputs():
    x = leaf(1.0, 2.0)
    weights = [ng.tensor([1.0, 10.0], dtype=ng.float64), None]
    (g,) = ng.autograd.grad([x * x, x.sum()], x, weights)
    assert g.tolist() == [3.0, 41.0]


def test_allow_unused_and_materialize():
    x, unused = leaf(1.0), leaf(1.0)
    y = x * 2
    with pytest.raises(GradError, match="allow_unused"):
        ng.autograd.grad(y, [x, unused], retain_graph=True)
    g, none = ng.autograd.grad(y, [x, unused], allow_unused=True, retain_graph=True)
    assert (g.item(), none) == (2.0, None)
    _, zero = ng.autograd.grad(y, [x, unused], materialize_grads=True)
    assert zero.tolist() == [0.0]


def test_grad_of_many_grad_outputs_and_of_a_dict():
    x = leaf(1.0, 2.0)
    rows = ng.eye(2, dtype=ng.float64)
    (jacobian,) = ng.autograd.grad(x * x, x, rows, is_grads_batched=True, create_graph=True)
    assert jacobian.tolist() == [[2.0, 0.0], [0.0, 4.0]]
    assert ng.autograd.grad(jacobian.sum(), x)[0].tolist() == [2.0, 2.0]
    y = x * 3
    found = ng.autograd.grad(y, {"x": x, "y": y}, rows, only_inputs=True, is_grads_batched=True)
    assert {k: g.tolist() for k, g in found.items()} == {
        "x": [[3.0, 0.0], [0.0, 3.0]],
        "y": [[1.0, 0.0], [0.0, 1.0]],
    }
    for wrong in (None, ng.ones(2, 2, dtype=ng.float64).sum(), rows[:0]):
        with pytest.raises(RuntimeError, match="is_grads_batched"):
            ng.autograd.grad(x * x, x, wrong, is_grads_batched=True)


def test_names_that_are_out_of_use():
    x = leaf(1.0, 2.0)
    with pytest.raises(ValueError, match="allow_unused to be True or not passed"):
        ng.autograd.grad(x.sum(), x, allow_unused=False, materialize_grads=True)
    with pytest.warns(FutureWarning, match="only_inputs") as told:
        ng.autograd.grad(x.sum(), {"x": x}, only_inputs=False)
    assert len(told) == 1
    with pytest.warns(FutureWarning, match="only_inputs"):
        assert ng.autograd.grad(x.sum(), x, only_inputs=False)[0].tolist() == [1.0, 1.0]
    with pytest.warns(UserWarning, match="grad_variables"):
        ng.autograd.backward(x * 2, grad_variables=ng.ones(2, dtype=ng.float64))
    assert x.grad.tolist() == [2.0, 2.0]
    with pytest.raises(GradError, match="grad_tensors"):
        ng.autograd.backward(x.sum(), ng.ones(()), grad_variables=ng.ones(()))


def test_grad_refuses_what_cannot_be():
    x = leaf(1.0, 2.0)
    with pytest.raises(NotScalarError, match="scalar outputs"):
        ng.autograd.grad(x * 2, x)
    with pytest.raises(GradError, match="does not require grad"):
        ng.autograd.grad(x.sum(), ng.tensor([1.0]))
    with pytest.raises(RuntimeError, match="shape"):
        ng.autograd.grad(x * 2, x, ng.ones(3, dtype=ng.float64))
    with pytest.raises(GradError, match="empty"):
        ng.autograd.grad(x.sum(), [])


def test_backward_inputs_leaves_the_other_leaves_alone():
    x, w = leaf(2.0), leaf(3.0)
    y = x * w
    y.backward(inputs=[w], retain_graph=True)
    assert x.grad is None
    assert w.grad.item() == 2.0
    y.backward(inputs=x)
    assert x.grad.item() == 3.0
    assert w.grad.item() == 2.0


def test_only_the_needed_part_of_the_graph_runs():
    x, w = leaf(2.0), leaf(3.0)

    class Fails(ng.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            return t.clone()

        @staticmethod
        def backward(ctx, g):
            raise AssertionError("not on a path to w")

    (g,) = ng.autograd.grad(Fails.apply(x) * w, w)
    assert g.item() == 2.0


def test_a_node_is_told_which_gradients_are_asked_for():
    """What autograd.grad and backward(inputs=) leave out is not computed, and is there again."""
    seen = []

    class Both(ng.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor, y):
            ctx.save_for_backward(x, y)
            return x * y * factor

        @staticmethod
        def backward(ctx, g):
            seen.append(ctx.needs_input_grad)
            x, y = ctx.saved_tensors
            return g * y, None, g * x

    x, y = (ng.randn(3, requires_grad=True) for _ in range(2))
    inner = x * 2.0
    out = Both.apply(inner, 1.0, y).sum()
    ng.autograd.grad(out, x, retain_graph=True)
    ng.autograd.grad(out, y, retain_graph=True, create_graph=True)
    ng.autograd.grad(out, (inner, y), retain_graph=True)
    out.backward(inputs=[y], retain_graph=True)
    out.backward()
    only_x, only_y, both = (True, False, False), (False, False, True), (True, False, True)
    assert seen == [only_x, only_y, both, only_y, both]
    assert ng.equal(y.grad, 2 * inner.detach()) and ng.equal(x.grad, 2 * y.detach())


def test_threads_ask_one_graph_for_different_gradients():
    """What one of them leaves out the other gets."""
    meet = threading.Barrier(2, timeout=60)

    class Both(ng.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx, g):
            meet.wait()  # both are in here now
            x, y = ctx.saved_tensors
            needs = ctx.needs_input_grad
            return g * y if needs[0] else None, g * x if needs[1] else None

    x, y = (ng.randn(3, requires_grad=True) for _ in range(2))
    out = Both.apply(x, y).sum()
    found = {}

    def ask(name, of):
        found[name] = ng.autograd.grad(out, of, retain_graph=True)[0]

    threads = [threading.Thread(target=ask, args=pair) for pair in (("x", x), ("y", y))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ng.equal(found["x"], y.detach()) and ng.equal(found["y"], x.detach())


def test_gradients_of_one_factor_launch_nothing_for_the_other():
    image, weight = ng.randn(2, 3, 5, 5, requires_grad=True), ng.randn(4, 3, 3, 3).requires_grad_()
    matrix = ng.randn(5, 5, requires_grad=True)
    convolved = ng.nn.functional.conv2d(image, weight)
    product = image @ matrix
    for out, of, left_out in (
        (convolved, image, "conv_weight_grad"),
        (convolved, weight, "conv_input_grad"),
        (product, matrix, None),
    ):
        whole = ng.autograd.grad(out.sum(), (of, image), retain_graph=True)[0]
        with ng.profiler.profile() as p:
            alone = ng.autograd.grad(out.sum(), of, retain_graph=True)[0]
        assert ng.equal(alone, whole)
        names = [e.name for e in p.events]
        if left_out:
            assert not any(left_out in name for name in names)
        else:
            assert sum(e.kind == "product" for e in p.events) == 1


def test_a_diamond_of_uses_sums_once():
    x = leaf(1.5)
    y = x
    for _ in range(30):
        y = y * 0.5 + y * 0.5
    y.backward()
    assert x.grad.item() == pytest.approx(1.0)


# ---------------------------------------------------------------- switches


@pytest.mark.parametrize("switch", [ng.no_grad, ng.inference_mode])
def test_no_grad_and_inference_mode_as_block_and_decorator(switch):
    x = leaf(1.0)

    @switch()
    def called(t):
        """Documentation."""
        return t * 2

    @switch
    def bare(t):
        return t * 2

    with switch():
        assert not ng.is_grad_enabled()
        inside = x * 2
    assert ng.is_grad_enabled()
    for y in (inside, called(x), bare(x)):
        assert not y.requires_grad
        assert y.grad_fn is None
    assert called.__doc__ == "Documentation."
    assert (x * 2).requires_grad


def test_switches_nest_and_come_back_after_errors():
    with ng.no_grad():
        with ng.enable_grad():
            assert ng.is_grad_enabled()
            with ng.set_grad_enabled(False):
                assert not ng.is_grad_enabled()
            assert ng.is_grad_enabled()
        assert not ng.is_grad_enabled()
    with pytest.raises(KeyError), ng.no_grad():
        raise KeyError
    assert ng.is_grad_enabled()


def test_set_grad_enabled_as_a_call_and_as_a_decorator():
    ng.set_grad_enabled(False)
    try:
        assert not ng.is_grad_enabled()
    finally:
        ng.set_grad_enabled(True)

    @ng.set_grad_enabled(False)
    def quiet(t):
        return t * 2

    assert ng.is_grad_enabled()
    assert not quiet(leaf(1.0)).requires_grad


def test_one_switch_object_may_be_entered_twice():
    switch = ng.no_grad()
    with switch, switch:
        assert not ng.is_grad_enabled()
    assert ng.is_grad_enabled()


def test_a_decorated_recursive_function_restores_the_mode():
    @ng.no_grad()
    def count(n):
        assert not ng.is_grad_enabled()
        return 0 if n == 0 else 1 + count(n - 1)

    assert count(5) == 5
    assert ng.is_grad_enabled()


def test_inference_mode_is_told_apart():
    assert not ng.is_inference_mode_enabled()
    with ng.inference_mode():
        assert ng.is_inference_mode_enabled()
    with ng.inference_mode(False):
        assert not ng.is_inference_mode_enabled()
        assert ng.is_grad_enabled()


# ---------------------------------------------------------------- in place


def test_a_chain_of_in_place_operations():
    x = leaf(1.0, 2.0)
    y = x * 1
    y += 3
    y *= x
    y.exp_()
    y.sum().backward()
    a = x.detach().numpy()
    np.testing.assert_allclose(x.grad.numpy(), (2 * a + 3) * np.exp((a + 3) * a))


def test_in_place_on_a_view_reaches_the_base():
    x = leaf(1.0, 2.0, 3.0, 4.0)
    base = x * 1
    view = base[1:3]
    view.mul_(10)
    assert base.tolist() == [1.0, 20.0, 30.0, 4.0]
    (base * base).sum().backward()
    assert x.grad.tolist() == [2.0, 400.0, 600.0, 8.0]


def test_in_place_on_the_base_reaches_the_view():
    x = leaf(1.0, 2.0, 3.0)
    base = x * 1
    view = base[:2]
    base.mul_(x.detach() * 2)
    assert view.tolist() == [2.0, 8.0]
    view.sum().backward()
    assert x.grad.tolist() == [2.0, 4.0, 0.0]


def test_in_place_on_a_view_of_a_view_and_a_sibling():
    x = leaf(1.0, 2.0, 3.0, 4.0)
    base = (x * 1).view(2, 2)
    row, column = base[1], base[:, 1]
    row[1:].mul_(5)  # the element 4, which the column shares
    assert column.tolist() == [2.0, 20.0]
    (column * column).sum().backward()
    assert x.grad.tolist() == [0.0, 4.0, 0.0, 200.0]


def test_assignment_of_a_tracked_value_into_an_untracked_tensor():
    x = leaf(2.0, 3.0)
    buffer = ng.zeros(4, dtype=ng.float64)
    buffer[1:3] = x * x
    assert buffer.requires_grad
    (buffer * 10).sum().backward()
    assert x.grad.tolist() == [40.0, 60.0]


def test_values_overwritten_get_no_gradient():
    x = leaf(1.0, 2.0, 3.0)
    y = x * 2
    y[0] = 7.0
    y.sum().backward()
    assert x.grad.tolist() == [0.0, 2.0, 2.0]
    x.grad = None
    z = x * 2
    z.zero_()
    z.sum().backward()
    assert x.grad is None or x.grad.tolist() == [0.0, 0.0, 0.0]


def test_a_leaf_may_be_changed_only_outside_the_tape():
    x = leaf(1.0, 2.0)
    for change in (lambda: x.add_(1), lambda: x[0:1].mul_(2), lambda: x.__setitem__(0, 5.0)):
        with pytest.raises(GradError, match="leaf"):
            change()
    assert x.tolist() == [1.0, 2.0]
    with ng.no_grad():
        x.add_(1)
    assert x.tolist() == [2.0, 3.0]
    assert x.is_leaf
    assert x.requires_grad


def test_versions_are_shared_by_views_and_detached_but_not_by_data():
    x = ng.zeros(3)
    view, detached, data = x[1:], x.detach(), x.data
    assert x._version == 0
    view.add_(1)
    assert x._version == view._version == detached._version == 1
    detached.add_(1)
    assert x._version == 2
    data.add_(1)
    assert x._version == 2
    assert x.tolist() == [2.0, 3.0, 3.0]


@pytest.mark.parametrize("alias", ["tensor", "view", "detached"])
def test_a_saved_value_that_changed_names_both_lines(alias):
    x = leaf(1.0, 2.0)
    y = x * 1
    z, saved = y.sin(), here()
    target = {"tensor": y, "view": y[:1], "detached": y.detach()}[alias]
    _, changed = target.mul_(2), here()
    with pytest.raises(VersionError, match="modified by an inplace operation") as caught:
        z.sum().backward()
    assert f"{__file__}:{saved}" in str(caught.value)
    assert f"{__file__}:{changed}" in str(caught.value)
    assert x.grad is None


def test_a_change_through_data_is_not_noticed():
    x = leaf(0.0)
    y = x * 1
    z = y.sin()
    y.data.add_(np.pi)
    z.backward()
    assert x.grad.item() == pytest.approx(-1.0)


def test_a_change_of_what_is_not_saved_is_fine():
    x = leaf(1.0, 2.0)
    y = x * 1
    z = y + 1
    y.mul_(100)
    z.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


def test_an_output_that_is_saved_may_not_change():
    x = leaf(0.5)
    y = x.exp()
    y.mul_(2)
    with pytest.raises(VersionError, match="ExpBackward"):
        y.backward()


def test_writing_to_an_expanded_tensor_is_refused():
    x = ng.zeros(1).expand(3)
    with pytest.raises(RuntimeError, match="single memory location"):
        x.add_(1)
    assert x.tolist() == [0.0, 0.0, 0.0]


def test_detach_in_place():
    x = leaf(1.0)
    y = x * 2
    y.detach_()
    assert y.is_leaf
    assert not y.requires_grad
    with pytest.raises(GradError, match="view"):
        (x * 2)[:1].detach_()


# ---------------------------------------------------------------- depth and threads


def test_a_deep_chain_of_alternating_operations():
    """No recursion anywhere: not in backward, not in the second one, not in freeing."""
    x = leaf(1.0)
    y = x
    for _ in range(3000):
        y = (y * 1.0001).sin() + y * 1e-4
    (g,) = ng.autograd.grad(y, x, create_graph=True)
    (h,) = ng.autograd.grad(g, x)
    assert np.isfinite(g.item())
    assert np.isfinite(h.item())


def test_threads_with_their_own_graphs_and_modes():
    results, errors = {}, []
    barrier = threading.Barrier(4)

    def work(k):
        try:
            barrier.wait()
            for _ in range(50):
                x = leaf(float(k), 2.0)
                if k % 2:
                    with ng.no_grad():
                        assert not (x * 2).requires_grad
                y = (x * x).sin() * k
                y.sum().backward()
                results[k] = x.grad.numpy().copy()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    for k, grad in results.items():
        a = np.array([float(k), 2.0])
        np.testing.assert_allclose(grad, np.cos(a * a) * 2 * a * k)


@pytest.mark.parametrize("write", ["setitem", "copy_", "add_", "other wrapper"])
def test_a_write_reads_what_was_there_before(write):
    """Source and target share memory at an offset: as if the source had been copied first."""
    array = np.arange(200.0)
    x = ng.from_numpy(array)
    source = ng.from_numpy(array)[:-1] if write == "other wrapper" else x[:-1]
    if write == "setitem":
        x[1:] = source
    elif write == "add_":
        x[1:].add_(source)
    else:
        x[1:].copy_(source)
    before = np.arange(199.0)
    assert x[1:].tolist() == (before + before + 1 if write == "add_" else before).tolist()


def test_a_gradient_that_is_the_kept_one_turned_is_read_before_it_is_written():
    n = np.random.default_rng(0).standard_normal((200, 200)).astype(np.float32)
    p = ng.zeros(200, 200, requires_grad=True)
    p.grad = ng.tensor(n.copy())
    p.T.backward(p.grad)
    assert np.array_equal(p.grad.numpy(), n + n.T)


def test_a_view_in_place_gives_other_sizes_and_keeps_the_history():
    x = ng.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    y = x * 2
    row = y[0]
    assert y.unsqueeze_(0).transpose_(0, 2) is y and y.shape == (3, 2, 1)
    assert not y.is_leaf and row.tolist() == [2.0, 4.0, 6.0]
    with ng.no_grad():
        y.squeeze_()
    (y * ng.tensor([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])).sum().backward()
    np.testing.assert_array_equal(x.grad, [[2, 4, 6], [20, 40, 60]])


def test_a_view_in_place_of_a_view():
    x = ng.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    base = x * 1
    view = base[1:3]
    view.unsqueeze_(1)
    view.mul_(10)
    assert view.shape == (2, 1) and base.tolist() == [1, 20, 30, 4]
    (base * base).sum().backward()
    np.testing.assert_array_equal(x.grad, [2, 400, 600, 8])


def test_a_view_in_place_is_refused_where_the_tape_could_not_follow():
    x = ng.ones(2, 3, requires_grad=True)
    with pytest.raises(GradError, match=r"t_: a leaf Variable"):
        x.t_()
    with ng.no_grad():
        assert x.t_().shape == (3, 2)
    y = ng.ones(2, 3, requires_grad=True) * 2
    z = y * y
    y.t_()
    with pytest.raises(GradError, match="modified by an inplace operation"):
        z.sum().backward()
    with pytest.raises(IndexError, match="out of range"):
        y.unsqueeze_(4)
    assert y.shape == (3, 2)
    gaps = ng.from_numpy(np.ones((3, 4))[:, ::2])
    row, w = gaps[0], ng.ones(3, 2, dtype=ng.float64, requires_grad=True)
    changes = [lambda: gaps.mul_(w), lambda: gaps.copy_(w), functools.partial(row.add_, w[0])]
    for change in changes:
        with pytest.raises(GradError, match=r"cannot be followed by the tape\. Clone it first"):
            change()
        assert gaps.tolist() == [[1.0, 1.0]] * 3
    del row, change, changes
    gaps.mul_(w).sum().backward()  # without views there is nothing to follow
    assert w.grad.tolist() == [[1.0, 1.0]] * 3


@pytest.mark.parametrize("kind", range(4))
def test_a_base_that_was_transposed_is_followed(kind):
    def change(y, x):
        row = y[0]
        if kind == 0:
            y.mul_(2)
        elif kind == 1:
            y.copy_(y * 3)
        elif kind == 2:
            y.add_((x * x).t())
        else:
            row.zero_()
        return (y * y * ng.arange(6.0).reshape(3, 2)).sum() + (row * row).sum()

    grads = []
    for turn in (lambda y: y.t_(), lambda y: y.t().clone(), lambda y: y.t().contiguous()):
        x = ng.arange(6.0).reshape(2, 3).requires_grad_()
        change(turn(x * 2), x).backward()
        grads.append(x.grad.tolist())
    assert grads[0] == grads[1] == grads[2]


def test_a_view_in_place_in_a_compiled_step():
    held = ng.ones(3, 2)

    def step(x):
        y = (x * 2).unsqueeze_(0)
        return y.squeeze_(0).t_() + held, held.view(6).unsqueeze_(1)

    run = ng.compile(step)
    for _ in range(2):
        for mine, eager in zip(run(ng.ones(2, 3)), step(ng.ones(2, 3)), strict=True):
            assert mine.tolist() == eager.tolist()
    for outside in (lambda x: held.t_(), lambda x: x.t_()):
        x = ng.ones(2, 3)
        with pytest.raises(RecordingError, match=r"t_: not possible .*test_tape\.py.*Use t, which"):
            ng.compile(outside)(x)
        assert held.shape == (3, 2) and x.shape == (2, 3)


def test_the_data_of_an_argument_is_not_set_in_a_compiled_step():
    def step(x):
        x.data = x * 2
        return x + 1

    x = ng.ones(2)
    with pytest.raises(RecordingError, match=r"data: not possible for an argument.*x\.copy_\(y\)"):
        ng.compile(step)(x)
    assert x.tolist() == [1, 1]


class Doubled(ng.autograd.Function):
    """Twice x, by a backward that looks at its gradient."""

    strides = ()

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        Doubled.strides = g.stride()
        return g * 2


@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_a_long_gradient_of_a_reduction_is_a_view_that_nobody_can_tell(reduce):
    n = 1 << 17
    x = ng.linspace(-1, 1, n, requires_grad=True)
    part = 1.0 if reduce == "sum" else 1.0 / n
    getattr(x * x, reduce)().backward()
    np.testing.assert_allclose(x.grad, 2 * part * x.detach(), rtol=1e-6)
    x.grad = None
    getattr(x, reduce)().backward()
    assert x.grad.stride() == (1,)
    x.grad.mul_(2)  # of its own memory
    np.testing.assert_allclose(x.grad, np.full(n, 2 * part), rtol=1e-6)
    (g,) = ng.autograd.grad(getattr(x, reduce)(), x)
    assert g.stride() == (1,) and g.add_(1)[0] == part + 1
    y = x * 1
    y.retain_grad()
    getattr(Doubled.apply(y), reduce)().backward()
    assert Doubled.strides == (1,) and y.grad.stride() == (1,)
    np.testing.assert_allclose(y.grad, np.full(n, 2 * part), rtol=1e-6)
    getattr(Doubled.apply(x), reduce)().backward(create_graph=True)
    assert Doubled.strides == (1,)
    matrix = ng.ones(400, 300, requires_grad=True)
    seen = []
    rows = matrix * 1
    rows.register_hook(lambda g: seen.append(g.stride()))
    rows.grad_fn.register_prehook(lambda grads: seen.append(grads[0].stride()))
    (rows.sum(1) * ng.arange(400.0)).sum().backward()
    assert seen == [(300, 1)] * 2
    np.testing.assert_array_equal(matrix.grad, np.repeat(np.arange(400.0), 300).reshape(400, 300))


def test_a_gradient_of_another_size_than_its_leaf_is_refused():
    x = ng.arange(6.0).view(2, 3).clone().requires_grad_()
    (x * x).sum().backward()
    before = x.grad.tolist()
    late = (x * 2).sum()
    with ng.no_grad():
        x.t_()
    for loss in (late, (x * x).sum()):
        with pytest.raises(GradError, match=r"AccumulateGrad: .* set \.grad to None"):
            loss.backward()
        assert x.grad.tolist() == before
    with pytest.raises(RuntimeError, match=r"SGD: a parameter of size \[3, 2\] has a gradient"):
        ng.optim.SGD([x], lr=1.0).step()
    x.grad = None
    (x * x).sum().backward()
    np.testing.assert_array_equal(x.grad, 2 * x.detach())


def test_a_leaf_whose_gradient_was_off_for_a_while_is_the_same_leaf():
    w = ng.ones(2, requires_grad=True)
    w.register_hook(lambda g: g * 10.0)
    before = w * 2.0
    node = before.grad_fn.next_functions[0][0]
    w.requires_grad_(False)
    before.sum().backward()  # arrives at a leaf that wants none
    assert w.grad is None
    w.requires_grad_(True)
    after = w * 2.0
    assert after.grad_fn.next_functions[0][0] is node
    after.sum().backward()
    assert w.grad.tolist() == [20.0, 20.0]


@pytest.mark.parametrize("changed", ["whole", "part"])
def test_a_gradient_that_is_kept_is_that_of_the_value_after_a_change(changed):
    x = ng.arange(1.0, 5.0).requires_grad_()
    whole = x * 2
    part = whole[1:3]
    whole.retain_grad()
    part.retain_grad()
    {"whole": whole, "part": part}[changed].mul_(3)
    assert whole.retains_grad and part.retains_grad
    ((whole * whole).sum() + (part * part * part).sum()).backward()
    through = 3 * part.detach() ** 2
    assert part.grad.tolist() == through.tolist()
    expected = 2 * whole.detach()
    expected[1:3] += through
    assert whole.grad.tolist() == expected.tolist()
    with ng.no_grad():
        assert x.grad.tolist() == (expected * whole / x).tolist()


def test_switches_hold_in_the_steps_of_generators():
    x = ng.ones(1, requires_grad=True)

    @ng.no_grad()
    def squares(x):
        seen = [ng.is_grad_enabled()]
        try:
            seen.append((yield (x * x).requires_grad))
        except KeyError:
            seen.append("thrown")
        yield ng.is_grad_enabled()
        seen.append(ng.is_grad_enabled())
        return seen

    def rest(generator):
        with pytest.raises(StopIteration) as end:
            next(generator)
        return end.value.value

    generator = squares(x)
    assert next(generator) is False and ng.is_grad_enabled()
    assert generator.send(5) is False and ng.is_grad_enabled()
    assert rest(generator) == [False, 5, False]
    generator = squares(x)
    next(generator)
    assert generator.throw(KeyError()) is False
    assert rest(generator) == [False, "thrown", False]
    with ng.no_grad():
        modes = ng.enable_grad()(lambda: (yield ng.is_grad_enabled()))
        assert list(modes()) == [True]
    closed = squares(x)
    next(closed)
    closed.close()
    assert ng.is_grad_enabled()
