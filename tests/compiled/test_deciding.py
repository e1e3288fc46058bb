"""Captured tensors of ints and bools may decide what a compiled function runs."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.errors import RecordingError
from numbagrad.kernels.machine import MOST_COMPARED
from numbagrad.nn import functional as F

from .following import assert_same, snapshot

# name: (function of x and a captured tensor, its values, how they change)
DECIDING = {
    "mask": (lambda x, t: x[t] * 2, [True, False, True], lambda t: t.logical_not_()),
    "masks": (lambda x, t: x[None, t, None] + x[t].sum(), [True] * 3, lambda t: t.fill_(False)),
    "mask of a view": (lambda x, t: x[t[::2]], [True] * 5, lambda t: t[2:].fill_(False)),
    "masked_select": (
        lambda x, t: ng.masked_select(x, t),
        [False, True, True],
        lambda t: t.zero_(),
    ),
    "nonzero": (lambda x, t: x * t.nonzero().shape[0], [0, 3, 4], lambda t: t.zero_()),
    "tolist": (lambda x, t: x.split(t.tolist()), [1, 2], lambda t: t.copy_(ng.tensor([2, 1]))),
    "item": (lambda x, t: x ** t.item(), 2, lambda t: t.fill_(3)),
    "index": (lambda x, t: x[: int(t)], 2, lambda t: t.fill_(1)),
    "bincount": (lambda x, t: x * t.bincount(minlength=3), [0, 2, 2], lambda t: t.fill_(1)),
    "one_hot": (lambda x, t: x @ F.one_hot(t).double(), [0, 2, 1], lambda t: t.fill_(1)),
    "if": (lambda x, t: x.exp() if t else x.sum(), True, lambda t: t.fill_(False)),
}


@pytest.mark.parametrize("row", DECIDING)
def test_they_decide_and_are_compared(row):
    function, values, change = DECIDING[row]
    t = ng.tensor(values)
    compiled = ng.compile(lambda x: function(x, t))
    for k in range(4):
        x = ng.tensor([1.0, 2.0, 3.0], dtype=ng.float64, requires_grad=True)
        y = x.detach().requires_grad_()
        expected, got = function(x, t), compiled(y)
        assert_same(snapshot([got]), snapshot([expected]), f"call {k}: ")
        for out in (expected, got):
            sum(o.sum() for o in (out if isinstance(out, tuple) else (out,))).backward()
        assert_same(snapshot([y.grad]), snapshot([x.grad]), f"gradient {k}: ")
        assert compiled.cache_info().recordings == (1 if k < 2 else 2)
        if k == 1:
            change(t)


def test_a_graph_net_trains_on_some_of_its_nodes():
    """A whole step with a mask of the nodes to train on, as eagerly."""
    ng.manual_seed(0)
    x, edges = ng.randn(7, 5), ng.randint(0, 7, (2, 20))
    y, mask = ng.randint(0, 3, (7,)), ng.tensor([True] * 5 + [False] * 2)
    losses = []
    for wrap in (lambda f: f, ng.compile):
        ng.manual_seed(1)
        net = nn.Linear(5, 3)
        optimizer = ng.optim.Adam(net.parameters(), lr=0.05)

        @wrap
        def step(net=net, optimizer=optimizer):
            optimizer.zero_grad()
            h = net(x)
            out = ng.zeros_like(h).index_add_(0, edges[1], h[edges[0]])
            loss = F.cross_entropy(out[mask], y[mask])
            loss.backward()
            optimizer.step()
            return loss

        losses.append([step().item() for _ in range(5)])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-6)


def test_repeats_whose_sum_is_given_need_not_decide():
    repeated = ng.compile(lambda x, n: x.repeat_interleave(n, 0, output_size=4))
    x = ng.tensor([1.0, 2.0, 3.0])
    assert repeated(x, ng.tensor([1, 0, 3])).tolist() == [1.0, 3.0, 3.0, 3.0]
    assert repeated(x, ng.tensor([0, 3, 1])).tolist() == [2.0, 2.0, 2.0, 3.0]
    assert repeated.cache_info().recordings == 1
    with pytest.raises(IndexError):
        repeated(x, ng.tensor([0, 2, 1]))


def test_lengths_that_are_captured_pack():
    lengths, x = ng.tensor([3, 1]), ng.randn(3, 2, 4)
    layer = nn.GRU(4, 5)

    def last(x):
        return layer(nn.utils.rnn.pack_padded_sequence(x, lengths))[1]

    compiled = ng.compile(last)
    for k in (1, 2):
        lengths[1] = k
        np.testing.assert_allclose(compiled(x).detach(), last(x).detach(), rtol=1e-6)


COUNT = ng.tensor([4])
LARGE = ng.zeros(MOST_COMPARED + 1, dtype=ng.bool)
SCALE = ng.tensor(2.0)


def _counted(x):
    found = x * COUNT.item()
    COUNT.add_(1)
    return found


REFUSED = {
    "computed": (lambda x: x[x > 0].numel(), r"x\[mask\].*ng.where"),
    "an argument": (lambda x: x.long().tolist(), "tolist"),
    "an argument's bins": (lambda x: x.long().bincount(), "bincount"),
    "a float": (lambda x: x * SCALE.item(), "item"),
    "too long": (lambda x: len(LARGE.nonzero()), "what a mask selects"),
    "written first": (lambda x: x * COUNT.add_(1).item(), "item"),
    "written after": (_counted, r"item.*test_deciding.py:\d+.*also writes, at .*:\d+"),
}


@pytest.mark.parametrize("row", REFUSED)
def test_what_may_not_decide(row):
    function, words = REFUSED[row]
    with pytest.raises(RecordingError, match=words):
        ng.compile(function)(ng.ones(3))
    assert COUNT.item() == 4


@pytest.mark.parametrize("alias", [lambda t: t, lambda t: t[:1]], ids=["itself", "a view"])
@pytest.mark.parametrize("before", [0, 2], ids=["first", "after others"])
def test_an_argument_that_is_written_is_not_what_decides(alias, before):
    t = ng.tensor([2, 5])

    def grown(x):
        x.add_(1)
        return ng.ones(2) * t[0].item()

    compiled = ng.compile(grown)
    for _ in range(before):
        assert compiled(alias(t.clone())).tolist() == [2.0, 2.0]
    with pytest.raises(RecordingError, match="item"):
        compiled(alias(t))
    assert t.tolist() == [2, 5]


def test_what_a_later_backward_pass_looks_at_may_not_decide():
    count = ng.tensor([2])

    class Scaled(ng.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return g * count.item()

    x = ng.ones(1, requires_grad=True)
    with pytest.raises(RecordingError, match="item"):
        ng.compile(lambda x: Scaled.apply(x))(x)
    ng.compile(lambda: Scaled.apply(x).backward())()  # within the call it may
    assert x.grad.item() == 2.0


def test_a_mask_is_looked_at_by_a_kernel_while_somebody_watches():
    x = ng.tensor([1.0, 2.0, 3.0])
    with ng.profiler.profile() as p:
        assert x[x > 1].tolist() == [2.0, 3.0]
    assert "count_nonzero" in str(p)
