"""``vmap``: the same as PyTorch's where that can do it, gradients, randomness, compiled, errors."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.errors import DimError, ShapeError
from numbagrad.func import functional_call, grad, hessian, jacrev, stack_module_state, vmap

X = np.arange(12.0).reshape(3, 4) / 7 - 0.5


def same(got, expected):
    """Nested results of ours against others'."""
    if isinstance(expected, dict):
        assert list(got) == list(expected)
        for key in expected:
            same(got[key], expected[key])
    elif isinstance(expected, (tuple, list)):
        assert type(got) is type(expected) and len(got) == len(expected)
        for a, b in zip(got, expected, strict=True):
            same(a, b)
    else:
        assert tuple(got.shape) == tuple(expected.shape)
        np.testing.assert_allclose(got.detach().numpy(), expected.detach().numpy(), rtol=1e-12)


CASES = {
    "rows": (lambda lib: lambda x: x.sum(), {}, lambda x: (x,)),
    "columns": (lambda lib: lambda x: x.sum(), {"in_dims": 1}, lambda x: (x,)),
    "from the end": (lambda lib: lambda x: x.cumsum(0), {"in_dims": -1}, lambda x: (x,)),
    "two": (lambda lib: lambda x, y: x * y, {}, lambda x: (x, x + 1)),
    "a number": (lambda lib: lambda x, a: x * a, {"in_dims": (0, None)}, lambda x: (x, 2.0)),
    "dims apart": (lambda lib: lambda x, y: x @ y, {"in_dims": (0, 1)}, lambda x: (x, x.T)),
    "one for all": (lambda lib: lambda x, w: x @ w, {"in_dims": (0, None)}, lambda x: (x, x.T)),
    "to the end": (lambda lib: lambda x: x.exp(), {"out_dims": -1}, lambda x: (x,)),
    "several": (lambda lib: lambda x: (x.sum(), x * 2), {"out_dims": (0, 1)}, lambda x: (x,)),
    "a dict": (lambda lib: lambda x: {"a": x.sum(), "b": [x * 2]}, {}, lambda x: (x,)),
    "of a dict": (
        lambda lib: lambda d: d["a"] * d["b"],
        {"in_dims": ({"a": 0, "b": None},)},
        lambda x: ({"a": x, "b": x[0]},),
    ),
    "not mapped": (
        lambda lib: lambda x: (x.sum(), lib.ones(2)),
        {"out_dims": (0, None)},
        lambda x: (x,),
    ),
    "a constant": (lambda lib: lambda x: lib.ones(2), {}, lambda x: (x,)),
    "nested": (lambda lib: lib.vmap(lambda x: x * x), {}, lambda x: (x,)),
    "pairs": (
        lambda lib: lambda x: lib.vmap(lambda y: (x[:2] * y).sum())(x.reshape(2, 2)),
        {"out_dims": 1},
        lambda x: (x,),
    ),
    "chunks": (lambda lib: lambda x: x.sin(), {"chunk_size": 2}, lambda x: (x,)),
    "empty": (lambda lib: lambda x: (x.sum(), x), {"out_dims": (0, 1)}, lambda x: (x[:0],)),
    "one": (lambda lib: lambda x: x.sum(), {}, lambda x: (x[:1],)),
}


@pytest.mark.parametrize("name", CASES)
def test_as_pytorch(name):
    torch = pytest.importorskip("torch")
    make, options, arguments = CASES[name]
    got = vmap(make(ng), **options)(*arguments(ng.tensor(X)))
    same(got, torch.vmap(make(torch), **options)(*arguments(torch.tensor(X))))
    compiled = ng.compile(lambda x: vmap(make(ng), **options)(*arguments(x)))
    for _ in range(2):
        same(compiled(ng.tensor(X)), got)


def test_keyword_arguments_are_handed_on():
    x = ng.tensor(X)
    same(vmap(lambda x, *, k: x * k)(x, k=x), ng.stack([row * x for row in x]))


def model_and_data(count=5):
    ng.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    parameters = {k: v.detach() for k, v in net.named_parameters()}
    x, labels = ng.randn(count, 4, dtype=ng.double), ng.randint(0, 3, (count,))

    def loss(parameters, x, label):
        out = functional_call(net, parameters, (x.unsqueeze(0),))
        return nn.functional.cross_entropy(out, label.unsqueeze(0))

    return loss, parameters, x, labels


def test_gradients_of_each_sample():
    loss, parameters, x, labels = model_and_data()
    each = vmap(grad(loss), in_dims=(None, 0, 0))
    found = each(parameters, x, labels)
    for k in range(len(x)):
        one = grad(loss)(parameters, x[k], labels[k])
        same({name: v[k] for name, v in found.items()}, one)
    compiled = ng.compile(each)
    for _ in range(2):
        same(compiled(parameters, x, labels), found)
    same(compiled(parameters, x.flip(0), labels.flip(0))["0.weight"], found["0.weight"].flip(0))


def test_an_ensemble():
    models = [nn.Linear(3, 2) for _ in range(4)]
    parameters, buffers = stack_module_state(models)
    x = ng.randn(5, 3)

    def call(parameters, buffers, x):
        return functional_call(models[0], parameters | buffers, (x,))

    got = vmap(call, in_dims=(0, 0, None))(parameters, buffers, x)
    assert got.shape == (4, 5, 2)
    for out, model in zip(got, models, strict=True):
        assert ng.allclose(out, model(x))
    got.sum().backward()
    assert parameters["weight"].grad.shape == (4, 2, 3)


def test_it_differentiates():
    x = ng.tensor(X, requires_grad=True)
    f = vmap(lambda x: (x * x.sum()).sin(), in_dims=1, out_dims=1)
    assert ng.autograd.gradcheck(f, (x,))
    assert ng.autograd.gradgradcheck(f, (x,))
    assert ng.autograd.gradcheck(ng.compile(f), (x,))


def test_of_derivatives():
    x = ng.tensor(X)
    found = vmap(hessian(lambda x: (x**3).sum()))(x)
    same(found, ng.stack([(6 * row).diag() for row in x]))
    same(vmap(jacrev(lambda x: x**2))(x), ng.stack([(2 * row).diag() for row in x]))
    rows = grad(lambda x: vmap(lambda x: x.prod())(x).sum())(x)
    same(rows, ng.stack([grad(lambda x: x.prod())(row) for row in x]))


def test_what_looks_at_values():
    """PyTorch refuses this."""
    x = ng.tensor([[1.0, -2.0], [3.0, 4.0]])
    got = vmap(lambda x: x * 2 if x.sum().item() > 0 else -x)(x)
    assert got.tolist() == [[-1.0, 2.0], [6.0, 8.0]]


def test_modules_and_in_place():
    module = nn.Linear(4, 2)
    x = ng.randn(3, 4)
    assert ng.allclose(vmap(module)(x), module(x), atol=1e-6)
    base = ng.zeros(3, 2)
    vmap(lambda x: x.add_(1))(base)
    assert base.tolist() == [[1.0, 1.0]] * 3


# ---------------------------------------------------------------- random numbers


def noise(x):
    return x + ng.rand(2) + ng.rand(2)


@pytest.mark.parametrize("compiled", [False, True])
def test_randomness(compiled):
    x = ng.zeros(3, 2)
    for randomness in ("same", "different"):
        f = vmap(noise, randomness=randomness)
        f = ng.compile(f) if compiled else f
        ng.manual_seed(3)
        first, second = f(x), f(x)
        ng.manual_seed(3)
        assert ng.equal(f(x), first)
        assert not ng.equal(first, second)
        alike = ng.equal(first[0], first[1]) and ng.equal(first[0], first[2])
        assert alike == (randomness == "same")
    with pytest.raises(RuntimeError, match=r"randomness='different' or 'same'"):
        f = vmap(noise)
        (ng.compile(f) if compiled else f)(x)


def test_same_numbers_are_those_of_the_first():
    x, g = ng.zeros(2, 2), ng.Generator(5)
    got = vmap(lambda x: ng.rand(2, generator=g) + ng.rand(2), randomness="same")(x)
    g = ng.Generator(5)
    ng.manual_seed(1)
    state = ng.get_rng_state()
    again = vmap(lambda x: ng.rand(2, generator=g), randomness="same")(x)
    assert ng.equal(again[0], ng.rand(2, generator=ng.Generator(5)))
    assert ng.equal(ng.get_rng_state(), state) and ng.equal(got[0], got[1])


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_numbers_do_not_depend_on_how_it_is_run(randomness):
    def draws(x):
        z = ng.randn(3) + ng.rand(3)
        return nn.functional.dropout(x, 0.5) * z, ng.randperm(5), ng.randint(9, (2,))

    found = []
    for options in ({}, {"chunk_size": 1}, {"chunk_size": 3}, {"compiled": True}):
        compiled = options.pop("compiled", False)
        f = vmap(draws, randomness=randomness, **options)
        f = ng.compile(f) if compiled else f
        ng.manual_seed(7)
        found.append([*f(ng.ones(20, 3)), ng.rand(2)])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert ng.allclose(a, b, rtol=1e-6)
    alike = [ng.equal(x[0], x[1]) for x in found[0][:3]]
    assert alike == [randomness == "same"] * 3


def test_elements_that_draw_more_than_the_first():
    f = vmap(lambda x: ng.rand(int(x.item())).sum() * 0 + x, randomness="different")
    assert f(ng.tensor([1.0, 40.0, 3.0])).tolist() == [1.0, 40.0, 3.0]


def test_refused_draws_leave_the_stream_alone():
    ng.manual_seed(0)
    expected = ng.rand(2)
    ng.manual_seed(0)
    with pytest.raises(RuntimeError):
        vmap(noise)(ng.zeros(3, 2))
    assert ng.equal(ng.rand(2), expected)


def test_nested_randomness():
    x = ng.zeros(2, 3, 1)
    inner = vmap(lambda x: x + ng.rand(1), randomness="different")
    got = vmap(inner, randomness="same")(x)
    assert ng.equal(got[0], got[1]) and len(set(got[0].flatten().tolist())) == 3


# ---------------------------------------------------------------- bad input


x = ng.ones(3, 2)
MISTAKES = {
    "a number": (lambda: vmap(lambda x, y: x)(x, 2.0), ValueError, "in_dim is 0 for a float"),
    "too few dims": (lambda: vmap(lambda x, y: x, (0,))(x, x), ValueError, r"\(0,\) is not comp"),
    "sizes": (
        lambda: vmap(lambda x, y: x)(x, ng.ones(4)),
        ShapeError,
        r"different sizes, \[3, 4\]",
    ),
    "dim": (lambda: vmap(lambda x: x, 2)(x), DimError, r"in_dim 2 is out of range .*\[3, 2\]"),
    "0-d": (lambda: vmap(lambda x: x)(ng.tensor(1.0)), DimError, r"in_dim 0 .*\[\]"),
    "no arguments": (lambda: vmap(lambda: x)(), ValueError, "no argument is mapped"),
    "none mapped": (lambda: vmap(lambda x: x, (None,))(x), ValueError, "no argument is mapped"),
    "in_dims": (lambda: vmap(lambda x: x, "a"), ValueError, "in_dims is an int or a tuple"),
    "no in_dims": (lambda: vmap(lambda x: x, None), ValueError, "in_dims is an int or a tuple"),
    "bool": (lambda: vmap(lambda x: x, (True,))(x), ValueError, "in_dims True is not comp"),
    "returns": (lambda: vmap(lambda x: 3.0)(x), ValueError, "there is a float; give out_dims=None"),
    "returns None": (lambda: vmap(lambda x: None)(x), ValueError, "there is a NoneType"),
    "out_dims": (lambda: vmap(lambda x: x, out_dims=(0, 1))(x), ValueError, r"results, \*"),
    "out dim": (lambda: vmap(lambda x: x, out_dims=3)(x), DimError, r"out_dim 3 .*\[2\]"),
    "differs": (
        lambda: vmap(lambda x: x, out_dims=None)(ng.eye(2)),
        ValueError,
        "differs from element",
    ),
    "forms": (
        lambda: vmap(lambda x: x if x[0].item() else (x, x))(ng.eye(2)),
        ValueError,
        r"returns \* for element 0 and \(\*, \*\) for element 1",
    ),
    "shapes": (
        lambda: vmap(lambda x: x[: int(x[0].item()) + 1])(ng.eye(2)),
        ShapeError,
        r"\[2\] for element 0 and \[1\] for element 1",
    ),
    "randomness": (lambda: vmap(lambda x: x, randomness="no"), ValueError, "randomness is one of"),
    "chunk_size": (lambda: vmap(lambda x: x, chunk_size=0), ValueError, "chunk_size .* got 0"),
    "no function": (lambda: vmap(3), TypeError, "expected a callable, got int"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name):
    call, error, words = MISTAKES[name]
    with pytest.raises(error, match=f"vmap: .*{words}"):
        call()


def test_an_error_inside_says_where():
    def fails(x):
        if x[0].item() == 0:
            raise KeyError("no")
        return x

    with pytest.raises(KeyError) as caught:
        vmap(fails)(ng.eye(2))
    assert caught.value.__notes__ == ["vmap: this came at element 1."]


def test_names():
    assert ng.vmap is vmap
    assert vmap(model_and_data).__name__ == "model_and_data"
