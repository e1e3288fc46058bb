"""Order statistics and functions of samples of what a mask selects in a compiled function."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.errors import RecordingError
from numbagrad.nn import functional as F

from .selecting import MASKS, agree, taught


def parts(*found):
    """The numbers of results of any shape, one after another."""
    return ng.cat([f.reshape(-1).double() for f in found])


# name: function of x (5, 3), ints (5), a mask (5)
RANKS = {
    "median": lambda x, k, m: parts(x[m].median(), x[m].nanmedian(), x[m][:, 0].median()),
    "medians": lambda x, k, m: parts(
        *x[m].median(0), *x[m].nanmedian(0, keepdim=True), *x[m].unsqueeze(1).median(0)
    ),
    "median of ints": lambda x, k, m: parts(k[m].median(), *k[m].median(0)) * x.sum(),
    "quantiles": lambda x, k, m: parts(
        x[m].quantile(0.25, dim=0), x[m].quantile(0.3), x[m].nanquantile(0.6, 0, keepdim=True)
    ),
    "several quantiles": lambda x, k, m: parts(
        x[m].quantile(ng.tensor([0.1, 0.5, 0.9]).to(x.dtype), dim=0),
        x[m].quantile(ng.tensor([0.2, 1.0]).to(x.dtype), interpolation="lower"),
        x[m][:, 1].quantile(0.5, interpolation="midpoint"),
    ),
    "quantile of each row": lambda x, k, m: x[m].quantile(0.5, dim=1).exp().sum(),
    "the k-th": lambda x, k, m: parts(*x[m].kthvalue(1, 0), *x[m][:, 2].kthvalue(1)),
    "mean without NaN": lambda x, k, m: parts(x[m].nanmean(), x[m].nanmean(0, keepdim=True)),
    "unit columns": lambda x, k, m: (
        F.normalize(x[m], dim=0).cumsum(0).sum(0) + F.normalize(x[m], p=1, dim=0).exp().sum()
    ),
    "robust scores": lambda x, k, m: (
        (z := x[m] - x[m].median(0).values) / (z.abs().median(0).values + 1)
    ).exp().sum(0),
}  # fmt: skip
OF_NONE = {"median", "mean without NaN", "unit columns"}
"""Those that do not raise where nothing is selected."""


def operands(mask, dtype=ng.float64):
    ng.manual_seed(3)
    x = ng.randn(5, 3, dtype=dtype).requires_grad_()
    return x, ng.tensor([7, 2, 4, 1, 0]), ng.tensor(MASKS[mask])


@pytest.mark.parametrize("name", RANKS)
def test_ranks_as_eagerly_with_each_mask(name):
    compiled = ng.compile(lambda *given: taught(RANKS[name], given))
    for mask in MASKS:
        if mask == "none" and name not in OF_NONE:
            with pytest.raises((RuntimeError, IndexError)):
                taught(RANKS[name], operands(mask))
            with pytest.raises((RuntimeError, IndexError)):
                compiled(*operands(mask))
            continue
        agree(compiled(*operands(mask)), taught(RANKS[name], operands(mask)), 1e-12, mask)
    assert compiled.cache_info().recordings == 1


def test_ranks_of_what_is_not_a_number():
    x = ng.tensor([[np.nan, 1.0], [-np.inf, np.inf], [3.0, -np.inf], [2.0, 5.0]])

    def function(x, m):
        z = x[m]
        return parts(
            z.median(), z.nanmedian(), z.median(0)[0], z.nanmedian(0)[0], z.nanmean(0),
            z.quantile(0.5, 0), z.nanquantile(0.5, 0), z.kthvalue(1, 0)[0], z.quantile(0.5),
        )  # fmt: skip

    compiled = ng.compile(function)
    for mask in ([True, True, True, False], [True, False, False, False], [False, True, True, True]):
        m = ng.tensor(mask)
        np.testing.assert_array_equal(compiled(x, m).numpy(), function(x, m).numpy())


# -- samples ---------------------------------------------------------------------------------------

# name: function of images (5, 2, 6, 6), weights, a mask (5)
SAMPLES = {
    "convolution": lambda x, w, m: F.conv2d(x[m], w, padding=1).exp().sum((0, 2)),
    "along one": lambda x, w, m: F.conv1d(x[m].flatten(2), w[..., 0], padding=1).tanh().sum(0),
    "transposed": lambda x, w, m: F.conv_transpose2d(x[m], w.transpose(0, 1)).sin().sum(0),
    "pools": lambda x, w, m: parts(
        F.max_pool2d(x[m], 2).exp().sum(0), F.avg_pool2d(x[m], 3).sum(0) * w.sum(),
        F.adaptive_avg_pool2d(x[m], 1).flatten(1).exp().mean(0),
        F.max_pool2d(x[m], 2, return_indices=True)[1].sum(),
    ),
    "other sizes": lambda x, w, m: (
        F.interpolate(x[m], scale_factor=2, mode="bilinear").square().sum()
        + F.pad(x[m], (1, 0, 2, 1), mode="reflect").square().mean() * w.sum()
    ),
    "groups": lambda x, w, m: F.group_norm(x[m], 2).exp().mean((0, 2, 3)) * w.sum(),
    "attention": lambda x, w, m: (
        F.scaled_dot_product_attention(x[m], x[m] * w.sum(), x[m] + 1, is_causal=True).sum((0, 2))
    ),
    "normalised": lambda x, w, m: (
        F.batch_norm(x[m], None, None, training=True).exp().sum((0, 2)) * w.sum()
    ),
    "by channels": lambda x, w, m: (
        F.batch_norm(
            x[m], ng.zeros(2).double(), ng.ones(2).double(), w[0, :, 0, 0], w[1, :, 1, 1]
        ).exp().sum((0, 2))
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_as_eagerly_with_each_mask(name):
    compiled = ng.compile(lambda *given: taught(SAMPLES[name], given))
    ng.manual_seed(0)
    given = [ng.randn(*shape).double().requires_grad_() for shape in ((5, 2, 6, 6), (4, 2, 3, 3))]
    for mask in MASKS:
        m = ng.tensor(MASKS[mask])
        if mask == "none":  # of which a mean or a norm is NaN, and some libraries raise
            continue
        agree(compiled(*given, m), taught(SAMPLES[name], (*given, m)), 1e-10, mask)
    assert compiled.cache_info().recordings == 1


@pytest.mark.parametrize("kind", [ng.float32, ng.bfloat16], ids=str)
def test_a_network_trains_on_some_images(kind):
    """Statistics of the selected images alone, which move as eagerly."""

    def made():
        ng.manual_seed(1)
        net = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(36, 8), nn.BatchNorm1d(8), nn.Linear(8, 3),
        ).to(kind)  # fmt: skip
        return net, ng.optim.SGD(net.parameters(), 0.1)

    def step(net, optimiser, x, y, m):
        optimiser.zero_grad()
        loss = F.cross_entropy(net(x[m]), y[m])
        loss.backward()
        optimiser.step()
        return loss

    (eager, by_eager), (net, optimiser) = made(), made()
    compiled = ng.compile(lambda x, y, m: step(net, optimiser, x, y, m))
    rng = np.random.default_rng(0)
    near = 1e-4 if kind is ng.float32 else 0.1
    for turn in range(4):
        x = ng.tensor(rng.standard_normal((9, 1, 8, 8))).to(kind)
        y, m = ng.tensor(rng.integers(0, 3, 9)), ng.tensor(rng.random(9) < 0.6)
        expected = step(eager, by_eager, x, y, m)
        assert abs(compiled(x, y, m).item() - expected.item()) < near, turn
    for one, other in zip(net.state_dict().values(), eager.state_dict().values(), strict=True):
        np.testing.assert_allclose(one.double().numpy(), other.double().numpy(), near, near)
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        net.train()
        compiled(x, y, ng.tensor([True] + [False] * 8))


REFUSED = {
    "several of each": (lambda x, m: x[m].quantile(ng.tensor([0.1, 0.2]), 1), "several q"),
    "the k-th beyond": (lambda x, m: x[m].kthvalue(3, 0)[0], "k is|3 of 2"),
    "samples as channels": (lambda x, m: F.max_pool2d(x[m].unsqueeze(1), 2), "max_pool2d over all"),
    "pad of rows": (lambda x, m: F.pad(x[m], (0, 0, 1, 0)), "pad of all rows"),
    "one attention": (
        lambda x, m: F.scaled_dot_product_attention(x[m], x[m], x[m]), "of the same mask"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    function, words = REFUSED[name]
    x, m = ng.randn(4, 2), ng.tensor([True, False, True, False])
    with pytest.raises((RecordingError, ValueError, IndexError), match=words):
        ng.compile(function)(x, m)


def test_batch_norm_of_halves_far_from_zero():
    """In float32, rounded once; and its arguments are looked at."""
    ng.manual_seed(0)
    x, m = (ng.randn(64, 3) + 100).bfloat16(), ng.arange(64) % 3 > 0
    function = lambda x, m: F.batch_norm(x[m], None, None, training=True)  # noqa: E731
    assert ng.equal(ng.compile(function)(x, m), function(x, m))
    for options, error in (({"weight": ng.ones(1)}, ValueError), ({"eps": -1.0}, ValueError)):
        call = ng.compile(
            lambda x, m, options=options: F.batch_norm(x[m], None, None, training=True, **options)
        )
        with pytest.raises(error):
            call(x.float(), m)
    pairs = [(ng.zeros(3).bfloat16(), ng.ones(3).bfloat16()) for _ in range(2)]
    for (mean, variance), wrap in zip(pairs, (ng.compile, lambda f: f), strict=True):
        step = wrap(lambda x, m, a=mean, b=variance: F.batch_norm(x[m], a, b, training=True))
        for _ in range(5):
            step(x, m)
    assert all(ng.equal(one, other) for one, other in zip(*pairs, strict=True))  # rounded once
    mean, variance = ng.zeros(3), ng.ones(3)
    moved = ng.compile(lambda x, m: F.batch_norm(x[m], mean, variance, training=True))
    assert moved(x.float(), m & False).shape == (0, 3) and mean.tolist() == [0.0] * 3
