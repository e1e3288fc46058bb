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
