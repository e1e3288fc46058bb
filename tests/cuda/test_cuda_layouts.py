"""Elementwise results lie on the device as they do on the CPU: as their operands."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng

pytestmark = pytest.mark.cuda


def same(f, *tensors):
    """``f`` on both devices, twice: values and strides."""
    for _ in range(2):
        here, there = f(*tensors), f(*[t.cuda() for t in tensors])
        assert there.stride() == here.stride()
        np.testing.assert_allclose(there.detach().cpu().numpy(), here.detach().numpy(), rtol=1e-6)


def test_elementwise_results():
    x = ng.randn(2, 3, 4, 5)
    bias = ng.randn(3)
    same(lambda x: ng.tanh(x.permute(0, 2, 3, 1)), x)
    same(lambda x: x.permute(3, 2, 1, 0) * 2, x)
    same(lambda x, b: x.permute(0, 2, 3, 1) + b, x, bias)
    same(lambda x: x.permute(1, 0, 2, 3) + x.transpose(0, 1), x)
    same(lambda x: x + x.permute(0, 1, 2, 3)[..., ::1], x)
    same(lambda x: x.permute(0, 2, 3, 1)[:, ::2] * 3, x)
    same(lambda x: ng.where(x.mT > 0, x.mT, 0.0), x)
    same(lambda x: x.mT.to(ng.float64), x)
    same(lambda x: x.mT.clone(), x)
    same(lambda x: ng.ones_like(x.mT), x)
    same(lambda x: (x.mT * 1).add_(x.mT).mul_(2), x)


def test_larger_matrices_that_go_by_vectors():
    x = ng.randn(64, 96)
    same(lambda x: x.t() * 2 + 1, x)
    same(lambda x: x.t() + ng.ones_like(x.t()) * x.t(), x)


def test_changes_in_place_and_gradients():
    def f(x):
        y = x.t() * 2
        y[1].mul_(3)
        y[:, 0] = 5.0
        return y

    x = ng.randn(4, 5)
    same(f, x)
    here, there = x.clone().requires_grad_(), x.cuda().requires_grad_()
    for leaf in (here, there):
        (f(leaf) ** 2).sum().backward()
        assert leaf.grad.is_contiguous()
    np.testing.assert_allclose(there.grad.cpu().numpy(), here.grad.numpy(), rtol=1e-6)


def test_compiled():
    def f(x):
        y = ng.relu(x.permute(0, 2, 3, 1) * 2 + 1)
        return y, y.sum(-1)

    x = ng.randn(2, 3, 4, 5)
    compiled = ng.compile(f)
    for mine, other in zip(compiled(x.cuda()), f(x), strict=True):
        assert mine.stride() == other.stride()
        np.testing.assert_allclose(mine.cpu().numpy(), other.numpy(), rtol=1e-5)
