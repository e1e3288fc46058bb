"""Gradients of parts go straight into that of the whole: the same numbers, nobody else's changed.

The way with ``create_graph`` puts zeros around each part and adds them; it is what others are
compared with.
"""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.errors import GraphFreedError
from numbagrad.nn import functional as F
from numbagrad.profiler import profile


def given(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


INDEX = np.random.default_rng(1).integers(0, 4, (6, 4))


def steps(h, i):
    return sum((h[:, t] ** 2).sum() * (t + 1) for t in range(4))


def ranges(h, i):
    return (h[1:] * h[:-1]).sum() + h[::2, 1:3].exp().sum() + h[2:2].sum() + h[-1, None].sin().sum()


def beside_all(h, i):
    return h.sin().sum() + h[0].cos().sum() + (h * 2).sum() + h[0, 0] ** 3 + h[..., -1].prod()


def rows(h, i):
    return sum((h[i[t]] ** 2).sum() * (t + 1) for t in range(3)) + h[i[0], i[1]].exp().sum()


def embeddings(h, i):
    plain = sum((F.embedding(i[t], h, padding_idx=1) ** 2).sum() for t in range(3))
    return plain + F.embedding(i[3], h, scale_grad_by_freq=True).sin().sum() + h.sum()


def gathers(h, i):
    first = h.gather(0, i[:2]).sin().sum() + h.gather(1, i % 3).exp().sum()
    return first + h.index_select(1, i[0]).cos().sum() + h.take(i).prod() + h.t()[i[0]].sum()


WAYS = [steps, ranges, beside_all, rows, embeddings, gathers]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_numbers_are_those_of_zeros_around_each_part(way, compiled):
    x = ng.tensor(given(6, 4), requires_grad=True)
    i = ng.tensor(INDEX)

    def step(x, i):
        x.grad = None
        way(x * 1.5, i).backward()
        return x.grad

    call = ng.compile(step) if compiled else step
    (expected,) = ng.autograd.grad(way(x * 1.5, i), x, create_graph=True)
    for _ in range(3):
        np.testing.assert_allclose(
            call(x, i).numpy(), expected.detach().numpy(), rtol=1e-12, atol=1e-14
        )


@pytest.mark.parametrize("way", WAYS)
def test_of_leaves_too(way):
    x = ng.tensor(given(6, 4), requires_grad=True)
    (expected,) = ng.autograd.grad(way(x, ng.tensor(INDEX)), x, create_graph=True)
    for times in (1, 2):
        way(x, ng.tensor(INDEX)).backward()
        np.testing.assert_allclose(
            x.grad.numpy(), times * expected.detach().numpy(), rtol=1e-12, atol=1e-14
        )


@pytest.mark.parametrize("dtype", [ng.float32, ng.bfloat16, ng.float16])
@pytest.mark.parametrize("way", WAYS[:4])
def test_of_every_float(way, dtype):
    x = ng.tensor(given(6, 4) / 2, dtype=dtype, requires_grad=True)
    i = ng.tensor(INDEX)
    (expected,) = ng.autograd.grad(way(x * 1, i), x, create_graph=True)
    way(x * 1, i).backward()
    assert x.grad.dtype is dtype
    near = 1e-6 if dtype is ng.float32 else 0.05
    np.testing.assert_allclose(
        x.grad.double().numpy(), expected.detach().double().numpy(), rtol=near, atol=near
    )


def written(x):
    """What loops write into one array, step by step, read and written again."""
    out, h = ng.zeros(6, 4, dtype=ng.float64), ng.zeros(6, dtype=ng.float64)
    for t in range(4):
        h = (x[:, t] * 2 + h).tanh()
        out[:, t] = h
        if t == 2:
            out[:, 0] += out[:, 1].clone() * out[:, 2].clone()
            out[0, 1] = x[1, 1] * 3
            early = out[:, :2] * 1.5
    out[1:3] *= 2
    y = x * 1
    y[0] = 0
    y[:, 1:3] = y[:, 2:4].clone() * x[:, :2]
    y.t()[1] = x[:, 2]
    return (out**2).sum() + out[:, 3].exp().sum() + early.sum() + (y**3).sum() + (y[1] * x[0]).sum()


@pytest.mark.parametrize("compiled", [False, True])
def test_holes_are_made_in_the_gradient_there_is(compiled):
    x = ng.tensor(given(6, 4), requires_grad=True)
    (expected,) = ng.autograd.grad(written(x), x, create_graph=True)

    def step(x):
        x.grad = None
        written(x).backward()
        return x.grad

    call = ng.compile(step) if compiled else step
    for _ in range(3):
        np.testing.assert_allclose(call(x).numpy(), expected.detach().numpy(), rtol=1e-12)


def test_a_gradient_that_was_given_has_no_hole_made_in_it():
    x = ng.tensor(given(3, 4), requires_grad=True)
    h = x * 1
    h[0] = 0
    g = ng.ones(3, 4, dtype=ng.float64)
    h.backward(g)
    assert g.sum().item() == 12.0
    assert x.grad.tolist() == [[0.0] * 4, [1.0] * 4, [1.0] * 4]


def test_a_gradient_that_another_has_has_no_hole_made_in_it():
    x, y = (ng.tensor(given(3, 4, seed=k), requires_grad=True) for k in range(2))
    h = x * 1
    h[0] = 0
    (h + y).sum().backward()
    assert y.grad.sum().item() == 12.0
    assert x.grad.sum().item() == 8.0


def test_a_gradient_that_others_have_is_not_changed():
    a, b = (ng.tensor(given(3, 4, seed=k), requires_grad=True) for k in range(2))
    h, k = a * 1, b * 1
    total = h + k  # gives one gradient to both
    g = ng.tensor(given(3, 4, seed=2))
    before = g.clone()
    ng.autograd.backward([total, h[1].sum(), h[:, 2].sum(), k[0].sum()], [g, None, None, None])
    expected = before.clone()
    expected[1] += 1
    expected[:, 2] += 1
    assert g.equal(before)
    assert a.grad.allclose(expected)
    before[0] += 1
    assert b.grad.allclose(before)


def test_hooks_and_kept_gradients_see_the_sum():
    x = ng.tensor(given(3, 4), requires_grad=True)
    h = x * 2
    seen = []
    h.register_hook(seen.append)
    h.retain_grad()
    part = h[0]
    part.register_hook(lambda g: g * 10)
    (part.sum() + h[1].sum() + h[1].sum()).backward()
    expected = ng.tensor([[10.0] * 4, [2.0] * 4, [0.0] * 4], dtype=ng.float64)
    assert seen[0].equal(expected)
    assert h.grad.equal(expected)
    assert x.grad.equal(2 * expected)


def test_graphs_are_freed_and_kept_as_ever():
    w = ng.tensor(given(5, 3), requires_grad=True)
    i = ng.tensor([0, 2, 2])
    loss = F.embedding(i, w).sum() + F.embedding(i[:1], w).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    assert w.grad.tolist() == [[4.0] * 3, [0.0] * 3, [4.0] * 3, [0.0] * 3, [0.0] * 3]
    with pytest.raises(GraphFreedError):
        loss.backward()


def test_gradients_of_several_tensors_share_nothing():
    x = ng.tensor(given(4, 3), requires_grad=True)
    h = x * 1
    of_h, of_x = ng.autograd.grad(h[0].sum() + h[1].sum(), [h, x])
    of_h.zero_()
    assert of_x.sum().item() == 6.0


@pytest.mark.parametrize("compiled", [False, True])
def test_a_loop_over_steps_fills_one_gradient_with_zeros(compiled):
    x = ng.tensor(given(8, 40, 16), requires_grad=True)

    def step(x):
        x.grad = None
        h, loss = x * 2, 0
        for t in range(40):
            loss = loss + (h[:, t] ** 2).sum()
        loss.backward()

    call = ng.compile(step) if compiled else step
    for _ in range(2):
        call(x)
    with profile() as p:
        call(x)
    assert sum("SliceBackward.fill" in e.name for e in p.events) <= 1
    assert any("SliceBackward.add" in e.name for e in p.events)
