"""Functions made from functions, beside torch.func and beside their formulas."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import func, nn
from numbagrad.errors import GradError, ShapeError

X = np.array([0.5, -1.0, 2.0])
W = np.array([[1.0, 2.0, -1.0], [0.5, 0.0, 3.0]])


def same(found, expected):
    """Assert equal forms, shapes and values of nested tensors of two libraries."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            same(found[key], expected[key])
    elif isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for f, e in zip(found, expected, strict=True):
            same(f, e)
    else:
        assert tuple(found.shape) == tuple(expected.shape)
        assert found.requires_grad == expected.requires_grad
        np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-10)


def net(p, x):
    return ((p["w"] @ x + p["b"]).tanh() ** 2).sum()


def pair(x, w):
    return w @ x.sin(), (x * x).sum()


# Each with F for the library's func and T for its tensor.
LINES = """
    F.grad(lambda x: (x**3).sum())(T(X))
    F.grad(lambda x, y: (x * y).sum(), argnums=1)(T(X), T(X) + 1)
    F.grad(lambda x, y: (x * y**2).sum(), argnums=(0, 1))(T(X), T(X) + 1)
    F.grad(lambda x, y: (x * y**2).sum(), argnums=(-1,))(T(X), T(X) + 1)
    F.grad(lambda x, k=1.0: (x.exp() * k).sum())(T(X), k=2.0)
    F.grad(net)({"w": T(W), "b": T([0.1, 0.2])}, T(X))
    F.grad(net, argnums=(1, 0))({"w": T(W), "b": T([0.1, 0.2])}, T(X))
    F.grad(lambda ps: (ps[0] * ps[1][0]).sum())([T(X), (T(X),)])
    F.grad(lambda x: T(3.0))(T(X))
    F.grad(lambda x: (x.sum(), (x * 2, {"n": x.sum()})), has_aux=True)(T(X))
    F.grad_and_value(lambda x: x.prod())(T(X))
    F.grad_and_value(lambda x: (x.prod(), x + 1), has_aux=True)(T(X))
    F.grad(F.grad(F.grad(lambda x: x**5)))(T(2.0))
    F.grad(lambda x: F.grad(lambda y: (x * y**3).sum())(x).sum())(T(X))
    F.grad(lambda x: (x * leaf).sum())(T(X))
    F.grad(lambda x: (x * x).sum())(leaf)
    F.vjp(pair, T(X), T(W))[0]
    F.vjp(pair, T(X), T(W))[1]((T([1.0, 2.0]), T(3.0)))
    F.vjp(lambda x: x * 2, T(X))[1](T(X))
    F.vjp(lambda x: (x * 2, x + 1), T(X), has_aux=True)[2]
    F.jvp(lambda x, w: w @ x.sin(), (T(X), T(W)), (T(X) + 1, T(W) * 2))
    F.jvp(lambda x: leaf * x.sin(), (T(X),), (T(X) + 1,))
    F.jvp(lambda p: (p["a"] * 2, p["a"] + 1), ({"a": T(X)},), ({"a": T(X)},), has_aux=True)
    F.jacrev(lambda x: x**2)(T(X))
    F.jacrev(pair)(T(X), T(W))
    F.jacrev(pair, argnums=(0, 1))(T(X), T(W))
    F.jacrev(lambda p: p["w"] @ p["b"])({"w": T(W), "b": T(X)})
    F.jacrev(lambda x: (x**2, x + 1), has_aux=True)(T(X))
    F.jacrev(lambda x: x[:0] * 2)(T(X))
    F.jacfwd(lambda x: x**2)(T(X))
    F.hessian(lambda x: (x**3).sum() + x[0] * x[1])(T(X))
    F.hessian(lambda w: (w.sin() ** 2).sum())(T(W))
    F.grad(lambda x: F.jacrev(lambda y: y**3)(x).sum())(T(X))
    F.jacrev(F.grad(lambda x: x.exp().prod()))(T(X))
    F.jacrev(F.grad(lambda x, y: (x * x * y).sum()), argnums=1)(T(X), T(X) + 1)
    F.jacrev(F.grad(lambda x, y: (x * leaf * y).sum()), argnums=1)(T(X), T(X) + 1)
    F.jacrev(F.jacrev(lambda x, y: x * x * y, argnums=1))(T(X), T(X) + 1)
"""


@pytest.mark.parametrize("line", [line.strip() for line in LINES.strip().splitlines()])
def test_a_line_gives_what_pytorch_gives(line):
    torch = pytest.importorskip("torch")
    found = []
    for lib in (ng, torch):
        leaf = lib.tensor(X, requires_grad=True)
        names = {"F": lib.func, "T": lib.tensor, "X": X, "W": W, "leaf": leaf}
        found.append(eval(line, names | {"net": net, "pair": pair}))
    same(*found)


# Of a function of x that knows a leaf, with operations that save what they return.
DERIVATIVES = {
    "jacrev": lambda f, x, v: func.jacrev(f)(x),
    "jacfwd": lambda f, x, v: func.jacfwd(f)(x),
    "hessian": lambda f, x, v: func.hessian(f)(x),
    "jvp": lambda f, x, v: func.jvp(f, (x,), (v,))[1],
    "linearize": lambda f, x, v: func.linearize(f, x)[1](v),
    "vjp": lambda f, x, v: func.vjp(f, x)[1](v[:2])[0],
    "by vmap": lambda f, x, v: func.vmap(func.vjp(f, x)[1])(ng.stack([v[:2], v[1:]]))[0],
    "in vmap": lambda f, x, v: func.vmap(func.jacrev(f))(ng.stack([x, v])),
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_what_is_derived_is_differentiated_by_what_the_function_knows(name):
    """Once by a way through the leaf's other uses: each way counts once."""
    x, v = ng.tensor(X), ng.tensor(X) * 2 - 1

    def of(leaf):
        return DERIVATIVES[name](lambda x: ng.tanh(leaf @ x).exp() * leaf[:, 0], x, v).sin()

    assert ng.autograd.gradcheck(of, (ng.tensor(W, requires_grad=True),))
    with ng.no_grad():
        assert not of(ng.tensor(W, requires_grad=True)).requires_grad


def test_training_as_in_meta_learning_differentiates_the_steps():
    """The loss after a step, differentiated by the parameters before it, against differences."""
    ng.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    x = ng.linspace(-1, 1, 5, dtype=ng.float64)[:, None]
    y = x.sin()

    def loss(p):
        return ((func.functional_call(model, p, (x,)) - y) ** 2).mean()

    def after(p):
        g = func.grad(loss)(p)
        return loss({k: v - 0.1 * g[k] for k, v in p.items()})

    start = {k: v.detach() for k, v in model.named_parameters()}
    found = func.grad(after)(start)
    for name, value in start.items():
        near = []
        for sign in (1, -1):
            moved = value.clone()
            moved.reshape(-1)[0] += sign * 1e-6
            near.append(after({**start, name: moved}).item())
        slope = (near[0] - near[1]) / 2e-6
        np.testing.assert_allclose(found[name].reshape(-1)[0].item(), slope, rtol=1e-6)
    assert all(p.grad is None for p in model.parameters())


def test_it_compiles_and_keeps_no_history():
    def f(p, x):
        return func.grad_and_value(net)(p, x)

    p = {"w": ng.tensor(W), "b": ng.tensor([0.1, 0.2])}
    compiled = ng.compile(f)
    for _ in range(2):
        same(compiled(p, ng.tensor(X)), f(p, ng.tensor(X)))
    with ng.no_grad():
        same(func.grad(net)(p, ng.tensor(X)), f(p, ng.tensor(X))[0])


def test_stacked_modules():
    models = [nn.BatchNorm1d(3) for _ in range(2)]
    parameters, buffers = func.stack_module_state(models)
    assert {k: tuple(v.shape) for k, v in parameters.items()} == {"weight": (2, 3), "bias": (2, 3)}
    assert parameters["weight"].is_leaf and parameters["weight"].requires_grad
    assert tuple(buffers["running_var"].shape) == (2, 3)
    one = func.functional_call(models[0], {k: v[1] for k, v in parameters.items()}, ng.ones(4, 3))
    assert tuple(one.shape) == (4, 3)
    for wrong in ([], [nn.Linear(1, 1), nn.Tanh()], [nn.Linear(1, 1), nn.Linear(1, 1).eval()]):
        with pytest.raises(ValueError, match="stack_module_state"):
            func.stack_module_state(wrong)


MISTAKES = {
    "not a scalar": (lambda x: func.grad(lambda x: x)(x), GradError, r"\[\[3\]\].*jacrev"),
    "two": (lambda x: func.grad(lambda x: (x.sum(), x.sum()))(x), GradError, "single element"),
    "ints": (lambda x: func.grad(lambda x: x.sum())(x.long()), TypeError, "argument 0.*int64"),
    "a number": (lambda x: func.grad(lambda x: x)(3.0), TypeError, "argument 0.*float"),
    "argnums": (lambda x: func.grad(lambda x: x.sum(), 1)(x), IndexError, "argnums 1.*1 pos"),
    "aux": (lambda x: func.grad(lambda x: x.sum(), has_aux=True)(x), TypeError, "has_aux"),
    "a string": (lambda x: func.jacrev(lambda x: "a")(x), TypeError, "str.*has_aux"),
    "cotangent": (lambda x: func.vjp(lambda x: x, x)[1](x[:2]), ShapeError, r"cotangent.*\[2\]"),
    "tangents": (lambda x: func.jvp(lambda x: x, (x,), x), TypeError, "tangents must be a tuple"),
}


@pytest.mark.parametrize("row", MISTAKES)
def test_mistakes_are_named(row):
    call, error, words = MISTAKES[row]
    x = ng.tensor(X)
    with pytest.raises(error, match=words):
        call(x)
    assert x.tolist() == X.tolist() and not x.requires_grad and func._level.depth == 0


@pytest.mark.parametrize("size", [None, 1, 2, 3, 100])
def test_jacobians_in_chunks(size):
    x = ng.arange(6.0).view(3, 2)
    whole = func.jacrev(lambda x: (x**2).sum(0))(x)
    assert ng.equal(func.jacrev(lambda x: (x**2).sum(0), chunk_size=size)(x), whole)
    one, two = func.jacrev(lambda a, b: (a * b, b), (0, 1), chunk_size=size)(x[0], x[1])
    assert [each.tolist() for each in one] == [[[2.0, 0.0], [0.0, 3.0]], [[0.0, 0.0], [0.0, 1.0]]]
    assert [each.tolist() for each in two] == [[[0.0, 0.0], [0.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]]
    with pytest.raises(ValueError, match="chunk_size"):
        func.jacrev(lambda x: x, chunk_size=0)
    assert ng.equal(func.jacfwd(lambda x: (x**2).sum(0), randomness="same")(x), whole)


def test_a_strict_jvp_refuses_what_does_not_depend():
    x = ng.ones(2)
    _, tangent = func.jvp(lambda x: (x * 2, ng.ones(2)), (x,), (x,), strict=False)
    assert tangent[0].tolist() == [2.0, 2.0] and tangent[1].tolist() == [0.0, 0.0]
    assert func.jvp(lambda x: x * 2, (x,), (x,), strict=True)[1].tolist() == [2.0, 2.0]
    for function in (lambda x: ng.ones(2), lambda x: (x * 2, ng.ones(2)), lambda x: x.detach()):
        with pytest.raises(GradError, match="independent"):
            func.jvp(function, (x,), (x,), strict=True)


def test_jvp_where_parts_do_not_depend_on_the_inputs():
    """Derivatives that are constant, 0 or slopes, have no history to go along."""
    x, t = ng.tensor([1.5, -2.5]), ng.tensor([1.0, 3.0])
    for function in (ng.round, ng.sign, ng.floor):
        value, along = ng.func.jvp(function, (x,), (t,))
        assert ng.equal(value, function(x)) and along.tolist() == [0.0, 0.0]
    for function in (
        lambda x: x.abs().sum(),
        lambda x: (x.clamp(min=0) * 3).sum(),
        lambda x: ng.nn.functional.hardtanh(x).sum(),
    ):
        _, along = ng.func.jvp(ng.func.grad(function), (x,), (t,))
        assert along.tolist() == [0.0, 0.0]
    _, along = ng.func.jvp(lambda a, b: a.round() + b * 2, (x, x), (t, t))
    assert along.tolist() == [2.0, 6.0]
    _, along = ng.func.jvp(lambda a, b: a.round() * b, (x, x), (t, t))
    assert along.tolist() == [2.0, -6.0]
    value, along = ng.func.linearize(lambda x: (x.round(), x * 2), x)
    assert [a.tolist() for a in along(t)] == [[0.0, 0.0], [2.0, 6.0]]


def test_the_function_of_cotangents_has_gradients():
    y = ng.tensor([1.0, 2.0], dtype=ng.float64)
    back = func.vjp(lambda x: x**3, y)[1]
    assert func.grad(lambda c: back(c)[0].sum())(y).tolist() == [3, 12]
    assert func.jacrev(lambda c: back(c)[0])(y).tolist() == [[3, 0], [0, 12]]
    assert func.jvp(lambda c: back(c)[0], (y,), (y,))[1].tolist() == [3, 24]
    assert func.vjp(back, y)[1]((y,))[0].tolist() == [3, 24]
    c = y.clone().requires_grad_()
    assert ng.autograd.grad(back(c)[0].sum(), c)[0].tolist() == [3, 12]
    assert not back(y)[0].requires_grad
    with ng.no_grad():
        assert not back(c)[0].requires_grad
    matrix = ng.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    turned = func.vjp(lambda x: matrix @ x, ng.zeros(2))[1]
    assert func.jacrev(lambda c: turned(c)[0])(ng.zeros(3)).tolist() == matrix.T.tolist()
