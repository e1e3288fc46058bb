"""Hooks on what operations save, hooks on nodes, and checkpoints, which stand on the former."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.autograd import Function
from numbagrad.autograd.graph import disable_saved_tensors_hooks, save_on_cpu, saved_tensors_hooks
from numbagrad.utils.checkpoint import checkpoint, checkpoint_sequential


def copied(log):
    """Hooks that pack a copy as NumPy arrays, and note what they packed."""

    def pack(t):
        log.append((tuple(t.shape), t.dtype))
        return t.detach().numpy().copy()

    return saved_tensors_hooks(pack, ng.from_numpy)


class Square(Function):
    """Saves an input, a result and an intermediate."""

    @staticmethod
    def forward(ctx, x):
        out, half = x * x, x * 0.5
        ctx.save_for_backward(x, out, half, None)
        return out

    @staticmethod
    def backward(ctx, g):
        x, out, half, nothing = ctx.saved_tensors
        assert nothing is None
        if ng.is_grad_enabled():
            assert out.grad_fn is ctx
        return g * (x + 2 * half)


def net(dropout=0.5):
    ng.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.GELU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Dropout(dropout), nn.Linear(8, 4), nn.LayerNorm(4), nn.Softmax(-1),
    ).double()  # fmt: skip


def step(model, x, run):
    """Loss and gradients of one step with the same random numbers each time."""
    ng.manual_seed(7)
    model.zero_grad()
    x.grad = None
    out = run(model, x)
    loss = nn.functional.cross_entropy(out, ng.tensor([0, 3, 1]))
    loss.backward()
    grads = [p.grad for p in model.parameters()]
    return [v.tolist() for v in (loss, ng.rand(2), x.grad, *grads)]


def image():
    ng.manual_seed(3)
    return ng.randn(3, 1, 6, 6, dtype=ng.double, requires_grad=True)


def test_every_saved_tensor_passes_through_the_hooks():
    model, x, log = net(), image(), []
    plain = step(model, x, lambda m, x: m(x))
    with copied(log):
        again = step(model, x, lambda m, x: m(x))
    assert again == plain
    assert ((3, 1, 6, 6), ng.double) in log and len(log) > 10
    assert not any(d is ng.int64 and len(s) == 0 for s, d in log)
    count = len(log)
    step(model, x, lambda m, x: m(x))
    assert len(log) == count


def test_a_function_and_higher_orders_go_through_hooks():
    x, log = ng.tensor([1.0, 2.0], dtype=ng.double, requires_grad=True), []
    with copied(log):
        y = Square.apply(x)
    assert [s for s, _ in log] == [(2,)] * 3
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]
    with copied(log):
        y = (x.exp() * x * x.sigmoid()).sum()
        (g,) = ng.autograd.grad(y, x, create_graph=True)
        (gg,) = ng.autograd.grad(g.sum(), x)
    y = (x.exp() * x * x.sigmoid()).sum()
    (h,) = ng.autograd.grad(y, x, create_graph=True)
    (hh,) = ng.autograd.grad(h.sum(), x)
    assert g.tolist() == h.tolist() and gg.tolist() == hh.tolist()
    with copied(log), pytest.raises(RuntimeError, match="second derivative reached"):
        (g,) = ng.autograd.grad(Square.apply(x).sum(), x, create_graph=True)
        ng.autograd.grad(g.sum(), x)


def test_hooks_get_the_very_input_and_the_innermost_count():
    x, seen = nn.Parameter(ng.ones(2)), []
    with saved_tensors_hooks(lambda t: seen.append("outer") or t, lambda t: t):
        with saved_tensors_hooks(lambda t: seen.append(t) or t, lambda t: t):
            y = x * x
        z = y.exp()
    assert seen[0] is x and seen[1] is x and seen[2:] == ["outer"]
    z.sum().backward()
    assert x.grad.tolist() == pytest.approx([2 * np.e] * 2)


def test_a_packed_tensor_may_be_changed_in_place():
    x, log = ng.tensor([1.0, 2.0], requires_grad=True), []
    with copied(log):
        y = x * 1.0
        z = y * y
        y.mul_(z)
    (z.sum() + y.sum()).backward()
    assert x.grad.tolist() == [2.0 + 3.0, 4.0 + 12.0]


def test_what_hooks_do_wrong_is_told():
    x = ng.ones(2, requires_grad=True)
    same = lambda t: t  # noqa: E731
    with pytest.raises(RuntimeError, match="modifying its input in place"):
        with saved_tensors_hooks(lambda t: t.add_(1.0), same):
            x.exp()
    for unpack, error, words in [
        (lambda t: 3, TypeError, "expected to be a Tensor but got result of type int"),
        (lambda t: ng.ones(3), ValueError, r"shape \[3\] for \[2\]"),
        (lambda t: t.double(), TypeError, "float64 for"),
    ]:
        with saved_tensors_hooks(same, unpack):
            y = x.exp().sum()
        with pytest.raises(error, match=words):
            y.backward()
    with disable_saved_tensors_hooks("not here"), pytest.raises(RuntimeError, match="not here"):
        saved_tensors_hooks(same, same).__enter__()
    with saved_tensors_hooks(same, same), pytest.raises(RuntimeError, match="nor here"):
        disable_saved_tensors_hooks("nor here").__enter__()
    with save_on_cpu():
        y = x.exp()
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()


def test_hooks_leave_no_cycle():
    gc.collect()
    gc.disable()
    try:
        x = ng.ones(3, requires_grad=True)
        with saved_tensors_hooks(lambda t: t, lambda t: t):
            y = x.exp()
        gone = weakref.ref(y.grad_fn)
        del y
        assert gone() is None
    finally:
        gc.enable()


def test_hooks_and_compiled_functions():
    x, log = ng.tensor([1.0, 2.0], requires_grad=True), []

    @ng.compile
    def inside(x):
        with saved_tensors_hooks(lambda t: t * 2.0, lambda t: t * 0.5):
            y = (x.exp() * x).sum()
        return ng.autograd.grad(y, x)[0]

    expected = x.detach().exp() * (1.0 + x.detach())
    assert ng.allclose(inside(x), expected)
    around = ng.compile(lambda x: (x.exp() * x).sum())
    with copied(log):
        y = around(x)
    assert log
    y.backward()
    assert ng.allclose(x.grad, expected)

    @ng.compile
    def on_disk(x):
        with saved_tensors_hooks(lambda t: t.detach().numpy(), ng.from_numpy):
            return x.exp().sum()

    with pytest.raises(ng.errors.RecordingError, match=r"test_graph_hooks\.py"):
        on_disk(x)


def test_hooks_of_nodes_see_what_those_of_pytorch_see():
    torch = pytest.importorskip("torch")
    logs = []
    for lib in (ng, torch):
        log = []

        def note(name, log=log):
            def hook(*given):
                each = [x for g in given for x in (g if isinstance(g, tuple) else (g,))]
                flat = [None if x is None else x.tolist() for x in each]
                log.append((name, flat))

            return hook

        x = lib.tensor([1.0, 2.0], requires_grad=True)
        y = x * 3.0
        node, leaf = y.grad_fn, y.grad_fn.next_functions[0][0]
        assert leaf.name().endswith("AccumulateGrad") and leaf.variable is x
        node.register_hook(note("node"))
        node.register_prehook(note("before node"))
        leaf.register_hook(note("leaf"))
        leaf.register_prehook(note("before leaf"))
        y.register_hook(note("y"))
        x.register_hook(note("x"))
        x.register_post_accumulate_grad_hook(note("accumulated"))
        y.sum().backward()
        logs.append(log)
    ours, theirs = ([(n, [v for v in f if v]) for n, f in log] for log in logs)
    for name in ("node", "leaf", "x", "y", "accumulated", "before leaf", "before node"):
        assert dict(ours)[name] == dict(theirs)[name], name
    assert [n for n, _ in ours] == [n for n, _ in theirs]


def nested(model, x):
    def tail(h):
        return checkpoint(model[6:], checkpoint(model[3:6], h))

    return checkpoint(lambda x: checkpoint(tail, model[:3](x)), x)


@pytest.mark.parametrize(
    "run",
    [
        lambda m, x: checkpoint(m, x),
        lambda m, x: checkpoint(lambda given: m(given["x"]), {"x": x}),
        lambda m, x: checkpoint(m, x, use_reentrant=True),
        lambda m, x: checkpoint(m, x, early_stop=False, determinism_check="none"),
        lambda m, x: checkpoint_sequential(m, 3, x),
        nested,
    ],
    ids="plain container reentrant late sequential nested".split(),
)
def test_a_checkpoint_changes_no_number(run):
    model, x = net(), image()
    model[1].eval()  # running statistics would move twice
    assert step(model, x, run) == step(model, x, lambda m, x: m(x))


def test_a_checkpoint_forgets_and_computes_again_once():
    calls, kept = [], []

    def function(x, *, scale):
        calls.append(1)
        y = x * scale
        kept.append(weakref.ref(y))
        return (y.exp() * y).sin()

    x = ng.tensor([0.5, 1.0], dtype=ng.double, requires_grad=True)
    scale = ng.tensor(2.0, dtype=ng.double, requires_grad=True)
    out = checkpoint(function, x, scale=scale)
    assert kept[0]() is None and len(calls) == 1
    gx, gs = ng.autograd.grad(out.sum(), (x, scale), create_graph=True)
    assert len(calls) == 2
    plain = function(x, scale=scale)
    hx, hs = ng.autograd.grad(plain.sum(), (x, scale), create_graph=True)
    assert ng.equal(gx, hx) and ng.equal(gs, hs)
    (ggx,), (hhx,) = (ng.autograd.grad(v.square().sum(), x) for v in (gx, hx))
    assert ng.allclose(ggx, hhx)
    assert ng.autograd.gradcheck(lambda x: checkpoint(function, x, scale=2.0), (x,))


def test_a_function_that_changes_is_noticed():
    x, size = ng.ones(3, requires_grad=True), [3]

    def function(x):
        return (x[: size[0]] * 2.0).exp().sin()

    out = checkpoint(function, x)
    size[0] = 2
    with pytest.raises(RuntimeError, match="different metadata"):
        out.sum().backward()
    deep = [True]

    def uneven(x):
        y = x.exp()
        return y.exp().sin() if deep[0] else y * 1.0

    out = checkpoint(uneven, x)
    deep[0] = False
    with pytest.raises(RuntimeError, match="different number of tensors"):
        out.sum().backward()

    def spoiled(x):
        y = x.exp()
        z = y.sin()
        y.add_(1.0)
        return z + y

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        checkpoint(spoiled, x, early_stop=False).sum().backward()
    with pytest.raises(ValueError, match="segments must be between"):
        checkpoint_sequential([ng.exp], 2, x)


def joint_hooks(library):
    """Which gradients hooks on several tensors are given in several walks."""
    register = library.autograd.graph.register_multi_grad_hook
    a, b = (library.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    c, d = a * b, a * b
    half, other = (2 * a).chunk(2)
    seen = []
    all_of = register(
        (a, b, c, d), lambda grads: seen.append([None if g is None else g.tolist() for g in grads])
    )
    register((half, other), lambda grads: seen.append([g is None for g in grads]))
    with register((b, c), lambda grad: seen.append(grad.tolist()), mode="any"):
        c.sum().backward(retain_graph=True)
        c.sum().backward(inputs=(a,), retain_graph=True)
        (c + d).sum().backward(retain_graph=True)
    all_of.remove()
    c.sum().backward()
    half.sum().backward()
    return seen


def test_a_hook_waits_for_several_gradients():
    torch = pytest.importorskip("torch")
    assert joint_hooks(ng) == joint_hooks(torch)


def test_a_hook_on_several_gradients_is_recorded():
    def gradient(x):
        x = x.detach().requires_grad_()
        y, found = x * 3, []
        ng.autograd.graph.register_multi_grad_hook((x, y), found.extend)
        (y * y).sum().backward()
        return found[0] * found[1]

    x = ng.tensor([1.0, 2.0])
    assert ng.compile(gradient)(x).tolist() == gradient(x).tolist() == [108.0, 432.0]


def test_mistakes_with_hooks_on_several_gradients():
    register = ng.autograd.graph.register_multi_grad_hook
    x = ng.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"tensors\[1\], which doesn't require gradient"):
        register((x, ng.ones(2)), print)
    with pytest.raises(TypeError, match=r"tensors\[0\] is a int"):
        register((3,), print)
    with pytest.raises(TypeError, match="fn must be a function"):
        register((x,), None)
    with pytest.raises(ValueError, match="Expects mode to be one of"):
        register((x,), print, mode="some")
    assert x._edge._hooks is None


def in_backward(lib):
    """A step that a hook of each parameter takes: events in order, gradients held at a time."""
    draw = np.random.default_rng(0)
    layers = [lib.nn.Linear(3, 3).double() for _ in range(4)]
    shared = layers[1] = layers[2]
    log, held = [], []
    parameters = {id(p): (k, p) for k, layer in enumerate(layers) for p in layer.parameters()}
    with lib.no_grad():
        for _, p in parameters.values():
            p.copy_(lib.tensor(draw.normal(size=tuple(p.shape))))

    def take_step(p):
        held.append(sum(q.grad is not None for _, q in parameters.values()))
        log.append(parameters[id(p)][0])
        with lib.no_grad():
            p -= 0.1 * p.grad
        p.grad = None

    for _, p in parameters.values():
        p.register_post_accumulate_grad_hook(take_step)
    x = lib.tensor(draw.normal(size=(2, 3)), requires_grad=True)
    for layer in layers:
        x = lib.tanh(layer(x))
        if layer is shared:
            x.register_hook(lambda g: log.append("shared") or None)
    x.pow(2).sum().backward()
    return log, held, [p.detach().numpy() for _, p in parameters.values()]


def test_a_leaf_with_a_hook_is_ready_before_the_rest_of_the_graph():
    log, held, _ = in_backward(ng)
    assert log == [3, 3, "shared", "shared", 2, 2, 0, 0]
    assert held == [1] * 6  # one gradient at a time


@pytest.mark.peer
def test_an_optimiser_in_backward_is_pytorchs():
    torch = pytest.importorskip("torch")
    (mine, _, values), (theirs, _, expected) = in_backward(ng), in_backward(torch)
    assert mine == theirs
    for a, b in zip(values, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_hooks_of_nodes_get_a_gradient_for_each_next_function():
    def halved(given, _):
        return tuple([None if g is None else g * 0.5 for g in given])

    x = ng.tensor([[1.0, 2.0], [0.5, -1.0]], requires_grad=True)
    w = ng.ones(2, 2, requires_grad=True)
    for make in (
        lambda: x.tanh(),
        lambda: x.exp(),
        lambda: x * 2,
        lambda: x**2,
        lambda: x * w,
        lambda: x.clamp(0, 1),
        lambda: ng.nn.functional.linear(x, w),
        lambda: ng.where(x > 0, x, w),
        lambda: ng.cat([x, w]),
        lambda: x[0],
    ):
        (whole,) = ng.autograd.grad(make().sum(), x)
        y, seen = make(), []
        y.grad_fn.register_hook(lambda given, _: seen.append(len(given)))  # noqa: B023
        y.grad_fn.register_hook(halved)
        (half,) = ng.autograd.grad(y.sum(), x)
        assert seen == [len(y.grad_fn.next_functions)]
        assert ng.equal(half, whole * 0.5)
