"""What PyTorch's package has of nn.functional, called as there and compared with it."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.short_names import CALLED, NAMES, ORDERS

NUMBERS = np.linspace(-1.5, 2.0, 48)

LINES = """
    L.selu(x)
    L.celu(x, alpha=0.5)
    L.selu_(x.clone())
    L.celu_(x.clone())
    L.rrelu_(x.clone())
    L.threshold_(x.clone(), 0.5, 3.0)
    L.threshold(x, 0.5, 3.0)
    L.hardshrink(x, lambd=1.0)
    L.prelu(x, w)
    x.prelu(weight=w)
    L.rrelu(x)
    L.conv1d(a[0], k[0], None, 1, 1)
    L.conv2d(a, k, padding=1)
    L.conv3d(a[None], k[None])
    L.conv_transpose1d(a[0], k[0].transpose(0, 1))
    L.conv_transpose2d(a, k.transpose(0, 1))
    L.conv_transpose3d(a[None], k[:, None])
    L.batch_norm(a, w3, w3, w3, w3 + 2, False, 0.1, 1e-5, True)
    L.batch_norm(a, None, None, None, None, True, 0.1, 1e-5, False)
    L.instance_norm(a, w3, w3, None, None, True, 0.1, 1e-5, False)
    L.group_norm(a, 3, w3, w3)
    L.embedding(x, i)
    L.embedding(weight=x, indices=i, padding_idx=0)
    L.max_pool1d(a[0], 2)
    L.max_pool1d_with_indices(a[0], 2)
    L.max_pool2d(a, 2)
    L.max_pool3d(a, 2)
    L.avg_pool1d(a[0], 2)
    L.adaptive_avg_pool1d(a[0], 3)
    L.adaptive_max_pool1d(a[0], 3)
    L.bilinear(x, x, b)
    L.binary_cross_entropy_with_logits(x, y, x, None, 2)
    L.binary_cross_entropy_with_logits(x, y, pos_weight=y, reduction=1)
    L.channel_shuffle(a.transpose(0, 1), 1)
    L.cosine_embedding_loss(x, y, s, reduction=1)
    L.cosine_embedding_loss(x, y, s, 0.5, 0)
    L.cosine_similarity(x, y)
    L.ctc_loss(l, L.tensor([[1, 2]]), L.tensor([4]), L.tensor([2]), 0, 2)
    L.hinge_embedding_loss(x, y.sign(), 1.0, 0)
    L.kl_div(x, y, 2)
    L.kl_div(x, y, 1, log_target=True)
    L.margin_ranking_loss(x, y, y.sign(), 0.5, 1)
    L.pairwise_distance(x, y, 1.0)
    L.pdist(x)
    L.pixel_shuffle(p, 2)
    L.pixel_unshuffle(a[:, :, :, :2], 2)
    L.poisson_nll_loss(x, y, True, False, 1e-8, 1)
    L.triplet_margin_loss(x, y, x + 1, 1.0, 2.0, 1e-6, True, 0)
    L.alpha_dropout(x, 0.5, False)
    L.feature_alpha_dropout(x, p=0.5, train=False)
    L.dropout_(x.clone(), 0.5, False)
    L.dropout_(x.clone(), p=1.0, train=True)
    L.alpha_dropout_(x.clone(), 0.5, train=False)
    L.feature_alpha_dropout_(x.clone(), 0.5, False)
    L.feature_dropout(a, 1.0, True)
    L.feature_dropout_(x.clone(), 0.5, False)
    L.constant_pad_nd(x, (1, 2), value=3)
    L.affine_grid_generator(a[:, 0, :, :3], [2, 1, 2, 3], False)
    L.grid_sampler(a, a[:, :2, :, :2], 0, 2, True)
    L.grid_sampler(a, a[:, :2, :, :2], 2, 1, False)
    L.embedding_bag(x, i, i[1:])[0]
    L.embedding_bag(a.reshape(12, 4), j, o, False, 1)
    L.embedding_bag(a.reshape(12, 4), j, o, False, 1, False, None, True, 3)
    L.embedding_bag(a.reshape(12, 4), j, o, False, 2)
    L.embedding_bag(a.reshape(12, 4), j, o, False, 2, False, None, False, 3)
    L.embedding_bag(a.reshape(12, 4), j, o, per_sample_weights=a.reshape(-1)[:5])[0]
""".strip().split("\n")


@pytest.mark.parametrize("line", [line.strip() for line in LINES])
def test_a_line_gives_what_pytorch_gives(line):
    torch = pytest.importorskip("torch")
    found = []
    for lib in (ng, torch):
        a = lib.tensor(NUMBERS).reshape(2, 3, 2, 4)
        names = {
            "L": lib,
            "a": a,
            "x": lib.tensor(NUMBERS[::6].copy()).reshape(2, 4),
            "y": lib.tensor(NUMBERS[24:32].copy()).reshape(2, 4),
            "w": lib.tensor([0.1, 0.2, 0.3, 0.4], dtype=lib.float64),
            "w3": lib.tensor([0.1, 0.2, 0.3], dtype=lib.float64),
            "k": a[:, :, :, :2],
            "b": lib.tensor(NUMBERS[:32].copy()).reshape(2, 4, 4),
            "p": a.reshape(1, 4, 4, 3),
            "l": lib.tensor(NUMBERS[:12].copy()).reshape(4, 1, 3).log_softmax(-1),
            "i": lib.tensor([1, 0]),
            "j": lib.tensor([7, 3, 0, 3, 11]),
            "o": lib.tensor([0, 2, 2]),
            "s": lib.tensor([1, -1]),
        }
        out = eval(line, names)
        found.append([t.tolist() for t in (out if isinstance(out, tuple) else (out,))])
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)


def test_every_short_name_is_tried():
    text = " ".join(LINES)
    assert [name for name in sorted(NAMES) if f"L.{name}(" not in text] == []


@pytest.mark.parametrize("name", ORDERS)
def test_an_order_names_arguments_of_the_function(name):
    known = {*inspect.signature(getattr(ng.nn.functional, name)).parameters, "cudnn_enabled"}
    assert {CALLED.get(a, a) for a in ORDERS[name].split()} <= known


def test_mistakes_are_named():
    x = ng.ones(2, 2)
    with pytest.raises(TypeError, match=r"embedding\(\) got an unexpected keyword argument 'z'"):
        ng.embedding(x, ng.tensor([0]), z=1)
    with pytest.raises(TypeError, match=r"embedding\(\) got multiple values for argument 'weight'"):
        ng.embedding(x, weight=x)
    with pytest.raises(TypeError, match=r"kl_div\(\) takes 4 arguments"):
        ng.kl_div(x, x, 1, True, 2)


def test_features_are_dropped_whole():
    x = ng.ones(8, 4, 5)
    for out in (ng.feature_dropout(x, 0.5, True), ng.feature_dropout_(x.clone(), 0.5, True)):
        kept = out[:, :, 0]
        assert set(kept.flatten().tolist()) == {0.0, 2.0}
        assert ng.equal(out, kept.unsqueeze(-1).expand(8, 4, 5))
    with pytest.raises(ValueError, match="feature_dropout: Feature dropout requires at least 2"):
        ng.feature_dropout(ng.ones(3), 0.5, True)
    with pytest.raises(ValueError, match="feature_dropout_: dropout probability"):
        ng.feature_dropout_(x, 2.0, True)
    with pytest.raises(ValueError, match="grid_sampler: padding_mode must be 0, 1 or 2, got 3"):
        ng.grid_sampler(x, x, 0, 3, False)


def test_they_compile():
    table, index = ng.randn(4, 3), ng.tensor([1, 3])
    compiled = ng.compile(lambda t, i: ng.selu(ng.embedding(t, i)))
    assert ng.equal(compiled(table, index), ng.selu(ng.embedding(table, index)))


def test_a_negative_padding_index_is_none():
    weight = ng.ones(3, 2, requires_grad=True)
    ng.embedding(weight, ng.tensor([0, 1, 2]), -2).sum().backward()
    assert weight.grad.tolist() == [[1.0, 1.0]] * 3
