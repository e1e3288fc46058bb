"""Compiled functions on the tape: one node, whose backward is the recorded gradient program."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn, optim
from numbagrad.errors import GradError, GraphFreedError, RecordingError, VersionError

from .following import assert_same, batches, snapshot


def leaf(*shape, seed=0):
    rng = np.random.default_rng(seed + len(shape))
    return ng.tensor(rng.uniform(0.5, 1.5, shape), dtype=ng.float64).requires_grad_()


WEIGHT = leaf(3, 2, seed=5)
TABLE = leaf(4, 3, seed=6)

# name: (function, shapes of its arguments)
FUNCTIONS = {
    "chain": (lambda x: (x * x).tanh().exp().sum(), [(3,)]),
    "two inputs": (lambda x, y: (x * y + x).sin(), [(2, 3), (3,)]),
    "parameter": (lambda x: (x @ WEIGHT).relu(), [(4, 3)]),
    "parameter only": (lambda x: x.detach() @ WEIGHT, [(4, 3)]),
    "outputs": (lambda x, y: (x * y, x + 1.0, y.exp()), [(3,), (3,)]),
    "not differentiable": (lambda x: (x * 2.0, x.argmax(), x.detach() * 2.0), [(3,)]),
    "dict": (lambda x: {"a": x * x, "b": [x.sum(), None]}, [(3,)]),
    "same twice": (lambda x: [y := x * x, y], [(3,)]),
    "input returned": (lambda x: (x, x * 2.0), [(3,)]),
    "view of an input": (lambda x: (x.view(3, 2), x[0] * 2.0), [(2, 3)]),
    "view of a result": (lambda x: ((y := x * x), y[1:], y.view(-1)), [(2, 3)]),
    "expanded": (lambda x: x.expand(4, 3), [(3,)]),
    "index": (lambda x: TABLE[ng.tensor([0, 2, 0])] * x, [(3,)]),
    "matmul": (lambda x, y: (x @ y).softmax(-1), [(2, 3), (3, 4)]),
    "reductions": (lambda x: x.max() + x.std() + x.logsumexp(0).sum(), [(3, 4)]),
    "in place": (lambda x: (x * 2.0).exp_().mul_(x), [(3,)]),
    "gradient inside": (
        lambda x: ng.autograd.grad((x * x * x).sum(), x, create_graph=True)[0] * x,
        [(3,)],
    ),
    "float": (lambda x, s: (x * s) ** 2, [(3,), None]),
    "concatenated": (lambda x, y: ng.cat([x, y, x]), [(3,), (2,)]),
}


def arguments(shapes):
    return [0.7 if s is None else leaf(*s, seed=k) for k, s in enumerate(shapes)]


def tensors(result):
    """The differentiable tensors in a result."""
    if isinstance(result, ng.Tensor):
        return [result] if result.requires_grad else []
    values = result.values() if isinstance(result, dict) else result
    return [t for v in values if v is not None for t in tensors(v)]


def gradients(function, args, pick=slice(None), retain=False):
    """Gradients of arguments and parameters for the outputs in ``pick``."""
    inputs = [a for a in args if isinstance(a, ng.Tensor)] + [WEIGHT, TABLE]
    outputs = tensors(function(*args))[pick]
    seeds = [ng.full(y.shape, 0.5 + k, dtype=y.dtype) for k, y in enumerate(outputs)]
    found = ng.autograd.grad(outputs, inputs, seeds, allow_unused=True, retain_graph=retain or None)
    return [g if g is None else g.numpy() for g in found]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name):
    function, shapes = FUNCTIONS[name]
    compiled = ng.compile(function)
    for k in range(3):
        args = arguments(shapes)
        if k == 2 and type(args[-1]) is float:
            args[-1] = 0.3
        found, expected = compiled(*args), function(*args)
        assert_same(snapshot([found]), snapshot([expected]), tolerance=1e-12)
        assert_same(gradients(compiled, args), gradients(function, args), tolerance=1e-12)
        count = len(tensors(expected))
        for j in range(count if count > 1 else 0):  # the others are not used
            pick = slice(j, j + 1)
            a, b = gradients(compiled, args, pick), gradients(function, args, pick)
            for x, y in zip(a, b, strict=True):
                assert (x is None) <= (y is None)
                np.testing.assert_allclose(0 if x is None else x, 0 if y is None else y, 1e-12)
    assert compiled.cache_info().recordings == 1


def test_one_node():
    f = ng.compile(lambda x: (x * x).tanh() + x)
    x = leaf(3)
    y = f(x)
    assert y.grad_fn.name() == "CompiledBackward"
    assert y.grad_fn.next_functions == ((x.grad_fn or x._edge, 0),)
    two = ng.compile(lambda x: (x * 2.0, x * 3.0))
    a, b = two(x)
    assert a.grad_fn is b.grad_fn and (a.output_nr, b.output_nr) == (0, 1)


def test_inputs_with_history():
    f = ng.compile(lambda x, y: (x * y).tanh())
    for _ in range(2):
        grads = []
        for function in (f, lambda x, y: (x * y).tanh()):
            x = leaf(3)
            hidden = x.exp()
            out = function(hidden, hidden * 2.0).sum() + hidden.sum()
            out.backward()
            grads.append(x.grad.numpy())
        np.testing.assert_allclose(*grads, 1e-12)
    assert f.cache_info().recordings == 1


def test_gradients_add_up_and_mix_with_eager():
    f = ng.compile(lambda x: (x @ WEIGHT).tanh())
    WEIGHT.grad = None
    x = leaf(4, 3)
    f(x).sum().backward()
    f(x * 2.0).sum().backward()
    (x @ WEIGHT).tanh().sum().backward()
    found = x.grad.numpy().copy(), WEIGHT.grad.numpy().copy()
    x.grad = WEIGHT.grad = None
    for y in (x, x * 2.0, x):
        (y @ WEIGHT).tanh().sum().backward()
    np.testing.assert_allclose(found[0], x.grad.numpy(), 1e-12)
    np.testing.assert_allclose(found[1], WEIGHT.grad.numpy(), 1e-12)
    WEIGHT.grad = None


def test_two_forwards_before_the_backwards():
    f = ng.compile(lambda x: (x * x).tanh().sum())
    x, y = leaf(3), leaf(3, seed=9)
    first, second = f(x), f(y)
    first.backward()
    second.backward()
    for t in (x, y):
        grad = t.grad.numpy().copy()
        t.grad = None
        (t * t).tanh().sum().backward()
        np.testing.assert_allclose(grad, t.grad.numpy(), 1e-12)


def test_retained_graph_and_freed_graph():
    f = ng.compile(lambda x: (x * x).tanh().sum())
    x = leaf(3)
    y = f(x)
    y.backward(retain_graph=True)
    once = x.grad.numpy().copy()
    y.backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * once, 1e-12)
    with pytest.raises(GraphFreedError, match="second time"):
        y.backward()


def test_saved_tensor_changed_in_place():
    f = ng.compile(lambda x: (x * x).sum())
    for change in (lambda x: x.mul_(2.0), lambda x: x[0].zero_()):
        x = leaf(3)
        y = f(x)
        with ng.no_grad():
            change(x)
        with pytest.raises(VersionError, match=r"test_outside\.py"):
            y.backward()
    x = leaf(3)
    weighted = ng.compile(lambda x: (x * WEIGHT[:, 0]).sum())
    y = weighted(x)
    with ng.no_grad():
        WEIGHT.mul_(1.0)
    with pytest.raises(VersionError):
        y.backward()
    for part in (slice(None), slice(0, 1)):
        y = ng.compile(lambda x: x.exp())(leaf(3))
        y.sum().backward(retain_graph=True)
        with ng.no_grad():
            y[part].mul_(2.0)
        with pytest.raises(VersionError):
            y.sum().backward()


def test_in_place_functions_keep_their_own():
    grads = []
    for function in (lambda x: (x * 2.0).exp_(), ng.compile(lambda x: (x * 2.0).exp_())):
        x = leaf(3)
        y = function(x)
        with ng.no_grad():
            y.mul_(2.0)
        y.sum().backward()
        grads.append(x.grad.numpy())
    np.testing.assert_allclose(*grads, 1e-12)


def test_higher_order_raises_or_is_recorded():
    f = ng.compile(lambda x: (x * x * x).sum())
    x = leaf(3)
    (first,) = ng.autograd.grad(f(x), x, create_graph=True)
    with pytest.raises(GradError, match="once"):
        ng.autograd.grad(first.sum(), x)
    g = ng.compile(lambda x: ng.autograd.grad((x * x * x).sum(), x, create_graph=True)[0])
    (second,) = ng.autograd.grad(g(x).sum(), x)
    np.testing.assert_allclose(second.numpy(), 6 * x.detach().numpy(), 1e-12)


def test_no_grad_makes_no_node():
    f = ng.compile(lambda x: x * x)
    x = leaf(3)
    assert f(x).requires_grad
    with ng.no_grad():
        assert f(x).grad_fn is None
    assert f(x.detach()).grad_fn is None
    assert f(x).requires_grad


def test_hooks_on_results_and_arguments():
    f = ng.compile(lambda x: x * x)
    seen = []
    x = leaf(3)
    hidden = x * 1.0
    hidden.register_hook(lambda g: seen.append(g.tolist()))
    y = f(hidden)
    y.register_hook(lambda g: g * 2.0)
    y.retain_grad()
    y.sum().backward()
    assert seen == [(4 * x.detach()).tolist()]
    assert y.grad is not None


def hooked_view(x):
    y = x * 2.0
    view = y.view_as(y)
    view.register_hook(lambda g: g * 0.5)
    return y, view


def hooked_argument(x):
    view = x[1:]
    view.register_hook(lambda g: g * 0.5)
    return view, x


@pytest.mark.parametrize("function", [hooked_view, hooked_argument])
def test_hooks_on_views_that_are_returned(function):
    compiled = ng.compile(function)
    for _ in range(2):
        x = leaf(3)
        grads = []
        for call in (function, compiled):
            one, other = call(x)
            grads.append(ng.autograd.grad((one * one).sum() + (other * 3.0).sum(), x)[0].tolist())
        assert grads[0] == grads[1]
        for write in (0, 1):  # what is written in one is written in the other
            if function is hooked_argument:
                break
            grads = []
            for call in (function, compiled):
                x, more = leaf(3), leaf(3)
                pair = call(x)
                pair[write].add_(more * 2.0)
                assert pair[0].tolist() == pair[1].tolist()
                (pair[0] * pair[1]).sum().backward()
                grads.append([x.grad.tolist(), more.grad.tolist()])
            assert grads[0] == grads[1]


# name: (function, bytes that its node must keep beside its arguments and parameters)
KEPT = {
    "relu": (lambda x: x.relu(), 0),
    "sum": (lambda x: x.sum(), 0),
    "scaled": (lambda x: x * 2.0 + 1.0, 0),
    "square": (lambda x: x * x, 0),
    "linear": (lambda x: x @ WEIGHT, 0),
    "tanh": (lambda x: x.tanh(), 0),
    "tanh chain": (lambda x: (x * 2.0).tanh().tanh().sum(), 2 * 12 * 8),
    "mlp": (lambda x: (x @ WEIGHT).tanh().sum(), 8 * 8),
}


@pytest.mark.parametrize("name", KEPT)
def test_saves_only_what_is_needed(name):
    function, most = KEPT[name]
    x = leaf(4, 3)
    y = ng.compile(function)(x)
    saved = [t for t in y.grad_fn._saved if isinstance(t, ng.Tensor)]
    free = [id(t._array) for t in (x, y, WEIGHT)]
    assert sum(t._array.nbytes for t in saved if id(t._array) not in free) <= most


def test_memory_dies_with_the_graph():
    import weakref

    f = ng.compile(lambda x: (x.tanh() * 2.0).exp())
    y = f(leaf(3))
    node = y.grad_fn
    kept = weakref.ref(next(t for t in node._saved if isinstance(t, ng.Tensor)))
    y.sum().backward()
    assert node._saved is None
    del node, y
    assert kept() is None


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)
        self.register_buffer("calls", ng.zeros(()))

    def forward(self, x, scale=1.0):
        with ng.no_grad():
            self.calls += 1
        return self.second((self.first(x) * scale).tanh())


def test_training_loop_around_a_compiled_model():
    ng.manual_seed(0)
    eager = Net()
    model = copy.deepcopy(eager)
    compiled = ng.compile(model)
    optimizers = [optim.Adam(m.parameters(), lr=0.01) for m in (eager, model)]
    for k, (x, y) in enumerate(batches(6)):
        losses = []
        for net, optimizer in zip((eager, compiled), optimizers, strict=True):
            optimizer.zero_grad()
            out = net(x, 1.0 + k)
            loss = ((out - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)
        found = [[p.data, p.grad] for p in model.parameters()]
        expected = [[p.data, p.grad] for p in eager.parameters()]
        assert_same(snapshot(found), snapshot(expected), tolerance=1e-5)
        assert model.calls.item() == k + 1
    info = compiled.cache_info()
    assert (info.recordings, info.compilations) == (1, 2)


def test_frozen_parameters_in_the_middle():
    ng.manual_seed(0)
    eager = Net()
    model = copy.deepcopy(eager)
    compiled = ng.compile(model)
    for k, (x, _) in enumerate(batches(5)):
        for net in (eager, model):
            net.first.requires_grad_(k not in (2, 3))
        for net, f in ((eager, eager), (model, compiled)):
            net.zero_grad()
            f(x).sum().backward()
        found, expected = ([p.grad for p in m.parameters()] for m in (model, eager))
        assert_same(snapshot(found), snapshot(expected), tolerance=1e-5)


def test_batch_sizes_share_the_backward():
    f = ng.compile(lambda x: (x @ WEIGHT).tanh().mean())
    for n in (4, 6, 2, 7, 4):
        x = leaf(n, 3)
        f(x).backward()
        found = x.grad.numpy().copy()
        x.grad = None
        (x @ WEIGHT).tanh().mean().backward()
        np.testing.assert_allclose(found, x.grad.numpy(), 1e-12)
    assert f.cache_info().compilations <= 4
    WEIGHT.grad = None


def test_a_backward_pass_for_many_gradients_is_run_for_each():
    cube = ng.compile(lambda x: x**3)
    x = ng.tensor([1.0, 2.0, 3.0])
    expected = (3 * x**2).diag()
    assert ng.func.jacrev(cube)(x).equal(expected)
    assert ng.func.jacfwd(cube)(x).equal(expected)
    assert ng.func.jacrev(lambda x: cube(x) * 2)(x).equal(expected * 2)
    _, pull = ng.func.vjp(cube, x)
    assert ng.vmap(pull)(ng.eye(3))[0].equal(expected)
    y = x.clone().requires_grad_()
    z = cube(y)
    one = ng.vmap(lambda v: ng.autograd.grad(z, y, v, retain_graph=True)[0])
    assert one(ng.eye(3) * 2).equal(expected * 2)
    with pytest.raises(RecordingError, match="the backward pass of a compiled function"):
        ng.compile(lambda v: ng.autograd.grad(z, y, v, retain_graph=True)[0])(x)


def test_the_first_gradient_may_be_asked_for_with_a_graph():
    layer = ng.nn.Linear(3, 2)
    x = ng.tensor([1.0, 2.0, 3.0], requires_grad=True)
    compiled = ng.compile(layer)
    assert ng.func.jacrev(compiled)(x).equal(layer.weight)
    (g,) = ng.autograd.grad(compiled(x).square().sum(), x, create_graph=True)
    (expected,) = ng.autograd.grad(layer(x).square().sum(), x)
    assert g.allclose(expected) and g.requires_grad
    with pytest.raises(GradError, match="differentiable once"):
        g.sum().backward()


def test_a_graph_from_outside_is_there_after_a_recording_that_fails():
    """One that sets state is recorded twice; one that raises has changed nothing."""
    state = {"mean": ng.zeros(3)}

    def function(x, weight, bad):
        loss = (x * weight).sum()
        state["mean"] = state["mean"] * 0.9 + x.detach()
        loss.backward()
        if bad and x.sum() > 0:
            return loss
        return loss.detach()

    leaf_of = ng.ones(3, requires_grad=True)
    weight = leaf_of * 2.0
    compiled = ng.compile(function)
    with pytest.raises(ng.errors.RecordingError, match="bool"):
        compiled(ng.ones(3), weight, True)
    assert leaf_of.grad is None
    assert compiled(ng.ones(3), weight, False).item() == 6.0
    assert leaf_of.grad.tolist() == [2.0, 2.0, 2.0]
