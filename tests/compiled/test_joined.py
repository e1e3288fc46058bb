"""What is stacked or concatenated is made where it goes."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng


def rows(x, w):
    return ng.stack([ng.tanh(row * w[0]) for row in x])


def steps(x, w):
    states, h = [], x[0]
    for row in x:
        h = ng.tanh(h @ w + row)
        states.append(h)
    return ng.stack(states)


def products(x, w):
    return ng.stack([x @ w, x @ w.tanh(), (x * 2) @ w])


def powers(x, w):
    found = [x @ w]
    for _ in range(3):
        found.append(found[-1] @ w)
    return ng.cat(found)


def turned(x, w):
    return ng.stack([(x @ w).t().contiguous(), (x @ w.exp()).t().contiguous()])


def with_argument(x, w):
    return ng.cat([x, x * 2, w, w.exp()])


def twice(x, w):
    y = x.exp()
    return ng.stack([y, y, y * w[0]])


def changed_after(x, w):
    y = x * 2
    z = ng.stack([y, x.tanh()])
    y.mul_(3)
    return z + y


def changed_before(x, w):
    y = x * 2
    y.mul_(3)
    y[0] = w[1]
    return ng.stack([y, x.tanh()]) * 2


def nested(x, w):
    inner = ng.stack([x.exp(), x.tanh()])
    return ng.cat([inner, ng.stack([x * 2, x.sin()])]).sum(1)


def used_later(x, w):
    y = x.exp()
    z = ng.stack([y, x.tanh()])
    return z.sum(0) * y + y @ w


def whole_changed(x, w):
    y, t = x.exp(), x.tanh()
    z = ng.stack([y, t])
    z[0] += y
    return z * ng.stack([t, y])


def side_by_side(x, w):
    return ng.cat([x.exp(), x.tanh() @ w], 1)


def of_dtypes(x, w):
    return ng.cat([x.exp(), x.double().tanh()])


def sums(x, w):
    return ng.stack([x.sum(0), (x * w).mean(0), x.exp().amax(0), (x @ w).sum(1)])


def kernels(x, w):
    parts = [x.softmax(1), ng.nn.functional.layer_norm(x * 2, x.shape[1:]), x.cumsum(0), x.flip(1)]
    return ng.cat([*parts, ng.where(x > 0, x, w).sort(1).values])


def of_truths(x, w):
    found = ng.stack([x > w, (x * 2 < w) | (x > 0)])
    return ng.where(found, x, w)


def accumulated(x, w):
    y = x @ w
    y = y + w @ x
    return ng.stack([y, y.tanh() @ w + y])


def returned_too(x, w):
    y = x.exp() * w[0]
    return y, ng.stack([y, x.tanh()])


def sliced(x, w):
    y = x.exp()
    return ng.stack([y[1:3], y[2:4], (y @ w)[:2]])


def in_columns(x, w):
    x, w = x.repeat(8, 8), w.repeat(8, 8)
    return ng.cat([x.exp(), x @ w, (x - w).tanh().T], 1)


def in_columns_of_three_dims(x, w):
    x = x.repeat(8, 8).reshape(2, -1, 4 * len(x)) * 2
    y = ng.cat([x.exp(), x.sin() * w[0, 0]], 2)
    return ng.cat([y, x + 1], -1)


def in_columns_with_gaps(x, w):
    y = x.repeat(8, 8).exp()
    return ng.cat([y[:, ::2], (y * 2)[:, : len(y) // 2], y.T + 1], 1)


def in_columns_of_kernels(x, w):
    x = x.repeat(8, 8)
    return ng.cat([x.softmax(1), x.cumsum(1), x.tanh().sum(1, keepdim=True).expand(-1, 16)], 1)


def columns_of_what_was_stacked(x, w):
    x, w = x.repeat(8, 8), w.repeat(8, 8)
    y = ng.cat([x, w], 0)
    y.mul_(2)
    z = ng.stack([x, w]).reshape(-1, x.shape[1])
    z.add_(1.0)
    z[0] = w[1]
    return ng.cat([y, z, ng.cat([w.exp(), x], 0)], 1)


def attended(x, w):
    x = x.repeat(8, 16 // len(x) + 1)[:, :16] * w[0, 0]
    q, k, v = (part.reshape(2, -1, 4, 4).transpose(1, 2) for part in (x, x.sin(), x.tanh()))
    out = ng.nn.functional.scaled_dot_product_attention(q, k, v)
    return ng.cat([out.transpose(1, 2).reshape(-1, 16), x.exp()], 1)


def split(x, w):
    parts = (x.repeat(8, 12) * w[0, 0]).chunk(3, 1)
    return (parts[0].exp() * parts[1].sin()).sum() + (parts[2] @ parts[0].T).mean()


FUNCTIONS = {
    f.__name__: f
    for f in (
        rows, steps, products, powers, turned, with_argument, twice, changed_after,
        changed_before, nested, sums, kernels, of_truths, accumulated, used_later, whole_changed,
        side_by_side, of_dtypes, returned_too, sliced, in_columns, in_columns_of_three_dims,
        in_columns_with_gaps, in_columns_of_kernels, attended, split,
        columns_of_what_was_stacked,
    )
}  # fmt: skip
STILL_PLACED = frozenset(
    "powers with_argument twice changed_after nested accumulated whole_changed side_by_side "
    "returned_too sliced in_columns in_columns_of_three_dims "
    "in_columns_of_kernels columns_of_what_was_stacked".split()
)
"""Functions of which some part is read, changed or returned elsewhere, is no whole, or has rows."""


def arguments(size):
    rng = np.random.default_rng(size)
    return [ng.tensor(rng.standard_normal((size, size)).astype(np.float32)) for _ in range(2)]


def with_gradient(function):
    def step(x, w):
        out = function(x, w)
        whole = out[-1] if isinstance(out, tuple) else out
        return out, ng.autograd.grad((whole * whole).sum(), [x, w], allow_unused=True)

    return step


def flat(results):
    if isinstance(results, (tuple, list)):
        return [each for part in results for each in flat(part)]
    return [] if results is None else [results.detach().numpy()]


# What is joined is decided before anything is compiled: small ones run as Python.
@pytest.mark.parametrize("size", [pytest.param(5, marks=pytest.mark.interpreted), 48])
@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled_as_eager(name, gradient, size):
    function = FUNCTIONS[name]
    args = arguments(size)
    if gradient:
        function = with_gradient(function)
        args = [x.requires_grad_() for x in args]
    compiled = ng.compile(function)
    expected = flat(function(*args))
    for _ in range(2):
        for x, y in zip(flat(compiled(*args)), expected, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5 * max(abs(y).max(), 1))


@pytest.mark.interpreted
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_copied_to_its_place(name):
    compiled = ng.compile(FUNCTIONS[name])
    compiled(*arguments(5))
    assert ("place at" in str(compiled.explain())) is (name in STILL_PLACED)


def test_gradients_of_samples_are_made_in_their_stack():
    def loss(w, x):
        return (ng.tanh(x @ w.T) ** 2).sum()

    compiled = ng.compile(ng.vmap(ng.func.grad(loss), (None, 0)))
    w, x = ng.randn(4, 3), ng.randn(20, 3)
    found = compiled(w, x)
    np.testing.assert_allclose(
        found.numpy(), ng.vmap(ng.func.grad(loss), (None, 0))(w, x).numpy(), rtol=1e-4, atol=1e-6
    )
    assert "place at" not in str(compiled.explain())
