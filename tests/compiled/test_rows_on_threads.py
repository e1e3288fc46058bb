"""Loops that run row by row together, on one thread and on several, and rows nobody else sees."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng


def softmax(x):
    e = (x - x.amax(1, keepdim=True)).exp()
    return e / e.sum(1, keepdim=True)


def normalised(x):
    centred = x - x.mean(1, keepdim=True)
    return centred / ((centred * centred).mean(1, keepdim=True) + 1e-5).sqrt()


def ties(x):
    (y,) = ng.autograd.grad(x.amax(1).sum(), x)
    return y


def used_again(x):
    e = x.exp()
    return e / e.sum(1, keepdim=True) + (e @ e.T).mean()


def of_blocks(x):
    e = x.reshape(x.shape[0], 4, -1).tanh()
    return e * e.sum(2, keepdim=True) - e.sum((1, 2), keepdim=True)


def in_place(x):
    y = x * 2
    y -= y.mean(1, keepdim=True) * 0.5
    y *= y.sum(1, keepdim=True)
    return y


def repeated_first(x):
    e = x.reshape(x.shape[0], 4, -1).exp()
    w = ng.arange(e.shape[2]) * 0.5
    return (w * e.sum(-1, keepdim=True) * e).sum(-1)


def turned_rows(x):
    t = x.reshape(x.shape[0], 4, -1).transpose(1, 2)
    return t / (t * 1.5).abs().sum(-1, keepdim=True)


def sums_of_both(x):
    e = x.reshape(x.shape[0], -1, 2).exp()
    return e / e.sum(1, keepdim=True) * e.sum(2, keepdim=True)


def backwards(x):
    e = x.exp().flip(1)
    return e / e.sum(1, keepdim=True)


@pytest.mark.parametrize("shape", [(3, 8), (17, 40), (700, 512)])
@pytest.mark.parametrize(
    "function",
    [
        *(softmax, normalised, ties, used_again, of_blocks, in_place),
        *(repeated_first, turned_rows, sums_of_both, backwards),
    ],
)
def test_the_same_as_eager_and_the_same_bits_for_any_threads(function, shape):
    x = ng.tensor(np.random.default_rng(0).standard_normal(shape).astype("f4"))
    if function is ties:
        x = x.round().requires_grad_()
    expected = function(x).detach().numpy()
    before, found = ng.get_num_threads(), []
    try:
        for threads in range(1, before + 1):
            ng.set_num_threads(threads)
            compiled = ng.compile(function)
            found += [compiled(x).detach().numpy() for _ in range(2)]
    finally:
        ng.set_num_threads(before)
    for each in found:
        np.testing.assert_allclose(each, expected, rtol=1e-4, atol=1e-6 * np.abs(expected).max())
        assert (each == found[0]).all()


def test_what_lives_in_a_row_only_takes_a_row():
    """The exponentials of a softmax are never written to memory as a whole."""
    x = ng.rand(2000, 1000)

    def function(x):
        e = x.exp()
        return e / e.sum(1, keepdim=True)

    compiled = ng.compile(function)
    compiled(x)
    told = compiled.explain().summary()[1]
    words = told.split(",")[0].split()
    size = float(words[2]) * {"kB": 1e3, "MB": 1e6, "B": 1}[words[3]]
    assert size < 1e6, told  # they are 8 MB


SUMS = {
    "columns": lambda x: (x * x).sum(0),
    "all": lambda x: (x * 1.5).exp().sum(),
    "rows": lambda x: (x * x).sum(1),
    "two at once": lambda x: ((x * x).sum(0), (x * 2).mean()),
    "inner columns": lambda x: (x.reshape(-1, 2, x.shape[1] // 2) * 2).sum((0, 2)),
    "variance": lambda x: x.var(0),
}


@pytest.mark.parametrize(
    "shape", [(1400, 64), (300, 300), (64, 2048), (70000, 2), (4, 40000)], ids=str
)
@pytest.mark.parametrize("name", SUMS)
def test_sums_have_the_same_bits_for_any_threads(name, shape):
    x = ng.tensor(np.random.default_rng(0).standard_normal(shape))
    compiled = ng.compile(SUMS[name])
    before, found = ng.get_num_threads(), []
    if before == 1:
        pytest.skip("one thread cannot differ from another")
    try:
        for threads in range(1, before + 1):
            ng.set_num_threads(threads)
            out = compiled(x)
            found.append([t.tolist() for t in (out if isinstance(out, tuple) else (out,))])
    finally:
        ng.set_num_threads(before)
    assert all(f == found[0] for f in found)
    expected = SUMS[name](x)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for one, other in zip(found[0], expected, strict=True):
        np.testing.assert_allclose(one, other.numpy(), 1e-10, 1e-10)
