"""Launches of ``vmap`` that have come before are run again on other arguments."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.batched import again, pointwise
from numbagrad.func import grad, hessian, jacrev, vmap
from numbagrad.kernels.machine import kernel

F = ng.nn.functional


def shared_memory(x, y, w):
    """Operands that are one array, or views of one, before and after others of their layouts."""
    one = [x * x, x @ x, x[:3] * x[1:], (x + y) * (x + y)]
    two = [x * y, x @ y, x[:3] * y[1:], (x + y) * (x - y)]
    return [a.sum() for a in one + two + one]


def in_place(x, y, w):
    z = x.clone()
    z.mul_(z).add_(y)
    z[1:] += y[:-1]
    return z, (x * 1.0).sub_(x)


def layouts(x, y, w):
    return (w * x).t() * 2, w.t() @ (w @ x), w @ (x[::2].repeat(2)), (w * w.sum(0)).softmax(0)


def numbers(x, y, w):
    return x / 0.0, x / -0.0, x * 2, x * 2.0, x > True, x.sum() + 1, ng.zeros(4) - w[0] * 0.0


def what_all_share(x, y, w):
    shared = w.exp() @ w.t()
    return shared.sum() + x.sum(), F.log_softmax(w @ x, 0), ng.zeros(2, 4).add_(x)


def shapes_of_one(x, y, w):
    return ng.cat([x, y]), ng.stack([x, y]).sum(0), x[None] + y[:, None], x.cumsum(0), x.sort()[0]


def turned(x, y, w):
    """Results that lie as their operands, which are not row-major."""
    z = w.t() * x
    z = (z + w.t()).tanh()
    return z, z.stride(0) * x, (z * y).sum(0), z + 1.0, w.exp().t() * y, (w.t() * 2).clone()


FUNCTIONS = [turned, shared_memory, in_place, layouts, numbers, what_all_share, shapes_of_one]


def arguments(seed, size, dtype=ng.float32):
    ng.manual_seed(seed)
    return [
        ng.randn(size, 4, dtype=dtype),
        ng.randn(4, size, dtype=dtype),
        ng.randn(4, 4).to(dtype),
    ]


@pytest.mark.parametrize("dtype", [ng.float32, ng.double, ng.bfloat16], ids=str)
@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_other_arguments_of_the_same_layouts(f, dtype):
    dims = (0, 1, None)
    mapped, each = vmap(f, dims), vmap(f, dims, chunk_size=1)
    for seed, size in [(0, 3), (1, 3), (2, 5), (3, 3), (4, 1)]:
        given = arguments(seed, size, dtype)
        for got, expected in zip(mapped(*given), each(*given), strict=True):
            assert got.dtype is expected.dtype
            got, expected = got.double().numpy(), expected.double().numpy()
            exact = 0.05 if dtype is ng.bfloat16 else 1e-5
            np.testing.assert_allclose(got, expected, exact, exact)
            zero = expected == 0
            assert (np.signbit(got) == np.signbit(expected))[zero].all()


def loss(w, x, y):
    return (F.log_softmax((x @ w).tanh() @ w.t() + y, -1) * y).sum()


DERIVATIVES = {
    "grad": lambda: grad(loss),
    "of two": lambda: grad(loss, (0, 2)),
    "grad of grad": lambda: grad(lambda w, x, y: grad(loss, 1)(w, x, y).square().sum()),
    "jacrev": lambda: jacrev(lambda w, x, y: (x @ w).sin() + y, (0, 1)),
    "hessian": lambda: hessian(loss, 1),
    "nested": lambda: vmap(grad(lambda w, x, y: loss(w, x, x * y)), (None, None, 0)),
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives(name):
    f = DERIVATIVES[name]()
    mapped, each = vmap(f, (None, 0, 1)), vmap(f, (None, 0, 1), chunk_size=1)
    for seed, size in [(0, 3), (1, 3), (2, 3)]:
        x, y, w = arguments(seed, size, ng.double)
        both = mapped(w, x, y), each(w, x, y)
        both = [r if isinstance(r, tuple) else (r,) for r in both]
        for got, expected in zip(*both, strict=True):
            got, expected = got.detach().numpy(), expected.detach().numpy()
            np.testing.assert_allclose(got, expected, 1e-9, 1e-12)


def test_turned_results_are_remembered(monkeypatch):
    monkeypatch.setattr(pointwise, "known", {})

    def f(w):
        return (w.t() * 2).tanh() + w.t()

    w = ng.randn(3, 4, 5)
    first = vmap(f)(w)
    assert len(pointwise.known) == 3
    second = vmap(f)(w + 1)
    assert len(pointwise.known) == 3
    assert first.stride() == second.stride() == (20, 1, 5)
    assert ng.equal(second, (2 * (w + 1)).tanh().mT + (w + 1).mT)
    for seed in range(3):
        ng.manual_seed(seed)
        x = ng.randn(2, 3, 4, 5)
        both = vmap(vmap(f))(x)
        assert ng.equal(both, (2 * x.mT).tanh() + x.mT)


def test_what_is_known_does_not_grow():
    x = ng.randn(7, 5)
    f = vmap(lambda x: (x.tanh() * x + 1).sum() * x)
    f(x)
    before = len(again.known), len(pointwise.known)
    assert min(before) > 0
    for _ in range(3):
        f(ng.randn(7, 5))
    assert (len(again.known), len(pointwise.known)) == before
    f(ng.randn(7, 6))
    assert len(pointwise.known) > before[1]


def test_it_is_bounded(monkeypatch):
    for module in (again, pointwise):
        monkeypatch.setattr(module, "MOST", 4)
    for n in range(1, 9):
        x = ng.randn(3, n)
        got = vmap(lambda x: x.sum() * x)(x)
        np.testing.assert_allclose(got.numpy(), (x.sum(1, True) * x).numpy(), 1e-5, 1e-6)
    assert len(again.known) <= 4 and len(pointwise.known) <= 4


def test_the_default_dtype_decides_each_time():
    x = ng.arange(6).reshape(2, 3)
    f = vmap(lambda x: (x / 2, x.sin()))
    for dtype in (ng.float32, ng.float64, ng.float32):
        ng.set_default_dtype(dtype)
        try:
            assert [r.dtype for r in f(x)] == [dtype, dtype]
        finally:
            ng.set_default_dtype(ng.float32)


def test_a_kernel_of_ones_own_runs_again():
    @kernel
    def scaled(out, x, by, sign):
        for i in range(x.shape[0]):
            out[i] = x[i] * by * (1 if sign else -1)

    def f(x, by, sign):
        out = ng.empty_like(x)
        ng.launch(scaled, out, x, by, sign)
        return out

    for size in (3, 20, 3, 20):
        for by, sign in [(2.0, True), (3.0, True), (3.0, False)]:
            x = ng.randn(size, 4)
            got = vmap(f, (0, None, None))(x, by, sign).numpy()
            np.testing.assert_allclose(got, x.numpy() * by * (1 if sign else -1), 1e-6)


def test_numbers_that_were_one_object_are_told_apart():
    x = ng.tensor([[0.0, 1.0, 2.0], [4.0, 5.0, 6.0]])

    def chosen(a, b):
        return vmap(lambda v: ng.where(v > 1.5, a, b))(x).tolist()

    assert chosen(1.0, 1.0) == [[1.0] * 3] * 2
    assert chosen(0.5, 6.0) == [[6.0, 6.0, 0.5], [0.5, 0.5, 0.5]]

    def between(a, b):
        return vmap(lambda v: v.sum() + ng.linspace(a, b, 2))(x).tolist()

    assert between(2.0, 2.0) == [[5.0, 5.0], [17.0, 17.0]]
    assert between(0.0, 1.0) == [[3.0, 4.0], [15.0, 16.0]]
