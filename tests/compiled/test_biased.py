"""A product and a bias that nothing else is fused with are one product."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng

F = ng.nn.functional


def layer(x, w, b):
    return F.linear(x, w, b)


def by_hand(x, w, b):
    return x @ w.T + b


def bias_first(x, w, b):
    return b + x @ w.T


def of_three_dims(x, w, b):
    return F.linear(x.reshape(2, -1, x.shape[1]), w, b)


def read_twice(x, w, b):
    y = x @ w.T
    return (y + b) @ y.T


def by_column(x, w, b):
    return (w @ x.T + b[:, None]).T.contiguous()


def changed_between(x, w, b):
    y = x @ w.T
    b.mul_(2)
    return y + b


def wide(x, w, b):
    return (x @ w.T).double() + b


BIASED = {layer, by_hand, bias_first, of_three_dims, changed_between}


@pytest.mark.parametrize("shape", [(4, 3, 5), (64, 10, 17), (128, 192, 64), (2, 1, 3)])
@pytest.mark.parametrize(
    "function",
    [layer, by_hand, bias_first, of_three_dims, read_twice, by_column, changed_between, wide],
)
def test_the_same_as_eager(function, shape):
    n, m, k = shape
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(s).astype("f4") for s in ((n, k), (m, k), (m,)))
    expected = function(*map(ng.tensor, (x, w, b))).numpy()
    compiled = ng.compile(function)
    for _ in range(2):
        got = compiled(*map(ng.tensor, (x, w, b))).numpy()
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
    loops = [r for r in compiled.explain().rows if r.kind == "loop" and r.shape != (m,)]
    assert m == 1 or bool(loops) == (function not in BIASED), compiled.explain()


def test_with_a_gradient_and_an_update():
    """The layer of a training step, whose weight's product is another kind."""
    rng = np.random.default_rng(1)
    x, y = (ng.tensor(rng.standard_normal(s).astype("f4")) for s in ((32, 20), (32, 7)))
    results = []
    for compiled in (False, True):
        ng.manual_seed(0)
        net = ng.nn.Linear(20, 7)
        optimizer = ng.optim.SGD(net.parameters(), lr=0.1)

        def step(x, y, net=net, optimizer=optimizer):
            optimizer.zero_grad()
            out = net(x)
            loss = (out @ y.T).sum() + (out * out).sum()
            loss.backward()
            optimizer.step()
            return loss

        run = ng.compile(step) if compiled else step
        losses = [run(x, y).item() for _ in range(3)]
        results.append([*losses, *(p.detach().numpy() for p in net.parameters())])
    for eager, fast in zip(*results, strict=True):
        np.testing.assert_allclose(fast, eager, rtol=1e-4, atol=1e-4)
