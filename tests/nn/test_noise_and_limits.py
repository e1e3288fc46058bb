"""Dropout for SELU, LocalResponseNorm, and tables whose rows are limited in length."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.nn import functional as F

LOWEST = 1.7580993408473766


@pytest.mark.parametrize("p", [0.1, 0.5, 1.0])
def test_alpha_dropout(p):
    x = ng.randn(200, 300, dtype=ng.float64).requires_grad_()
    layer = nn.AlphaDropout(p)
    out = layer(x)
    scale = 0.0 if p == 1 else ((LOWEST**2 * p + 1) * (1 - p)) ** -0.5
    dropped = (out - (LOWEST * scale * p - LOWEST * scale)).abs() < 1e-12
    assert abs(float(dropped.double().mean()) - p) < 0.01
    if p < 1:
        assert abs(float(out.mean())) < 0.02 and abs(float(out.std()) - 1) < 0.02
        assert ng.allclose(out[~dropped], x[~dropped] * scale + LOWEST * scale * p)
    out.sum().backward()
    assert ng.allclose(x.grad, (~dropped).double() * scale)
    assert layer.eval()(x) is x
    assert F.alpha_dropout(x, p) is x  # as in PyTorch it is off unless told


def test_feature_alpha_dropout_takes_whole_channels():
    x = ng.ones(30, 20, 4)
    out = nn.FeatureAlphaDropout(0.3)(x)
    assert (out == out[:, :, :1]).all() and 2 == len(np.unique(out.numpy()))
    target = ng.ones(3, 4)
    assert F.feature_alpha_dropout(target, 0.5, True, inplace=True) is target
    assert not (target == 1).all()
    with pytest.raises(ValueError, match="at least 2 dimensions"):
        F.feature_alpha_dropout(ng.ones(3), 0.5, True)
    with pytest.raises(ValueError, match="between 0 and 1"):
        nn.AlphaDropout(-0.1)
    with pytest.raises(ValueError, match="alpha_dropout: dropout probability"):
        F.alpha_dropout(x, 1.5, True)


def test_alpha_dropout_draws_anew_in_compiled_calls():
    step = ng.compile(lambda x: F.alpha_dropout(x, 0.5, True))
    x = ng.ones(64)
    ng.manual_seed(5)
    compiled = [step(x).tolist() for _ in range(2)]
    ng.manual_seed(5)
    eager = [F.alpha_dropout(x, 0.5, True).tolist() for _ in range(2)]
    np.testing.assert_allclose(compiled, eager, rtol=1e-6)
    assert compiled[0] != compiled[1]


def test_local_response_norm_is_its_function():
    x = ng.randn(2, 5, 3)
    layer = nn.LocalResponseNorm(3, alpha=0.5, beta=0.6, k=2.0)
    assert repr(layer) == "LocalResponseNorm(3, alpha=0.5, beta=0.6, k=2.0)"
    assert (layer(x) == F.local_response_norm(x, 3, 0.5, 0.6, 2.0)).all()


@pytest.mark.peer
@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3.0])
def test_embedding_limits_the_rows_it_reads_as_torch(norm_type):
    torch = pytest.importorskip("torch")
    weight = np.random.default_rng(0).standard_normal((6, 4)).astype("float32")
    index = np.array([[1, 3], [3, 0]])
    results = []
    for lib, layers in ((torch, torch.nn), (ng, nn)):
        table = layers.Embedding(6, 4, padding_idx=0, max_norm=1.0, norm_type=norm_type)
        with lib.no_grad():
            table.weight.copy_(lib.tensor(weight))
        out = table(lib.tensor(index))
        (out * out).sum().backward()
        found = out, table.weight, table.weight.grad
        results.append([t.detach().numpy() for t in found])
    for theirs, ours in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    assert (results[1][1][[2, 4, 5]] == weight[[2, 4, 5]]).all()


@pytest.mark.peer
@pytest.mark.parametrize("padding_idx", [None, 3])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_limit_and_scale_as_torch(mode, padding_idx):
    torch = pytest.importorskip("torch")
    weight = np.random.default_rng(0).standard_normal((6, 4)).astype("float32")
    # Each twice: PyTorch 2.13 takes the frequency of another index for the gradient of a bag.
    index, starts = np.array([1, 3, 3, 5, 1, 5]), np.array([0, 2, 2, 5])
    results = []
    for lib, layers in ((torch, torch.nn), (ng, nn)):
        table = layers.EmbeddingBag(*(6, 4, 1.0, 2.0, mode != "max", mode), padding_idx=padding_idx)
        with lib.no_grad():
            table.weight.copy_(lib.tensor(weight))
        out = table(lib.tensor(index), lib.tensor(starts))
        (out * out).sum().backward()
        found = out, table.weight, table.weight.grad
        results.append([t.detach().numpy() for t in found])
    for theirs, ours in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_scaled_by_frequency():
    index = ng.tensor([[1, 1], [2, 1]])
    weight = ng.randn(4, 3, requires_grad=True)
    F.embedding(index, weight, scale_grad_by_freq=True).sum().backward()
    assert weight.grad.tolist() == [[0.0] * 3, [1.0] * 3, [1.0] * 3, [0.0] * 3]
    table = nn.EmbeddingBag.from_pretrained(weight.detach(), scale_grad_by_freq=True, mode="sum")
    assert not table.weight.requires_grad
    assert repr(table) == "EmbeddingBag(4, 3, scale_grad_by_freq=True, mode='sum')"
    with pytest.raises(ValueError, match="max mode does not support scaling"):
        F.embedding_bag(index, weight, scale_grad_by_freq=True, mode="max")
    for of in (nn.Embedding, nn.EmbeddingBag):
        with pytest.raises(ValueError, match=f"{of.__name__}: gradients are dense"):
            of(3, 2, sparse=True)
    for op in (F.embedding, F.embedding_bag):
        with pytest.raises(ValueError, match=f"{op.__name__}: gradients are dense"):
            op(index, weight, sparse=True)
        before = weight.detach().clone()
        with pytest.raises(TypeError, match=f"{op.__name__}: max_norm must be a number"):
            op(index, weight, max_norm="1")
        with pytest.raises(IndexError, match=f"{op.__name__}: .*index 4 is out of bounds"):
            op(index + 2, weight, max_norm=0.1)
        assert (weight == before).all()


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_limited_bags_in_a_compiled_function(mode):
    index, starts = ng.tensor([1, 3, 3, 5, 1, 5]), ng.tensor([0, 2, 2, 5])
    results = []
    for compiled in (False, True):
        weight = ng.arange(24.0).reshape(6, 4).sin().requires_grad_()

        def bags(index, starts, weight=weight):
            out = F.embedding_bag(
                *(index, weight, starts, 1.0, 2.0, mode != "max", mode), padding_idx=3
            )
            (out * out).sum().backward()
            return out

        out = (ng.compile(bags) if compiled else bags)(index, starts)
        results.append((out.tolist(), weight.grad.tolist(), weight.tolist()))
    assert results[0] == results[1]


def test_limited_tables_in_a_compiled_step():
    index, results = ng.tensor([1, 3, 3]), []
    for compiled in (False, True):
        ng.manual_seed(1)
        table = nn.Embedding(5, 3, max_norm=0.5)
        optimizer = ng.optim.SGD(table.parameters(), lr=0.5)

        def step(index, table=table, optimizer=optimizer):
            optimizer.zero_grad()
            loss = table(index).sum()
            loss.backward()
            optimizer.step()
            return loss

        run = ng.compile(step) if compiled else step
        losses = [float(run(index)) for _ in range(3)]
        results.append([losses, table.weight.tolist()])
    for eager, other in zip(*results, strict=True):
        np.testing.assert_allclose(other, eager, rtol=1e-5)


def test_embedding_prints_its_limit_and_passes_it_on():
    table = nn.Embedding(5, 3, max_norm=2.0, norm_type=1.0)
    assert repr(table) == "Embedding(5, 3, max_norm=2.0, norm_type=1.0)"
    made = nn.Embedding.from_pretrained(ng.ones(2, 3), max_norm=1.5)
    assert made.max_norm == 1.5 and abs(float(made(ng.tensor([1])).norm()) - 1.5) < 1e-5
    assert made.weight[0].tolist() == [1, 1, 1]
    with pytest.raises(IndexError, match="out of range"):
        made(ng.tensor([2]))
