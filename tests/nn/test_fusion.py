"""Norms folded into weights, clipping by a known norm, sparse and skipped initialisation."""

from __future__ import annotations

import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.nn import utils


def moved(bn):
    """``bn`` with statistics and weights that are not those of a new one."""
    for _ in range(3):
        bn(ng.randn(8, bn.num_features, *[4] * (0 if type(bn) is nn.BatchNorm1d else 2)))
    if bn.affine:
        bn.weight.data.uniform_(0.5, 2.0)
        bn.bias.data.uniform_(-1.0, 1.0)
    return bn.eval()


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_a_fused_convolution_is_both(affine, bias):
    ng.manual_seed(0)
    bn = moved(nn.BatchNorm2d(4, affine=affine))
    for conv, transpose in (
        (nn.Conv2d(2, 4, 3, groups=2, bias=bias), False),
        (nn.ConvTranspose2d(2, 4, 3, bias=bias), True),
    ):
        conv.eval()
        fused = utils.fuse_conv_bn_eval(conv, bn, transpose)
        x = ng.randn(2, 2, 5, 5)
        assert ng.allclose(fused(x), bn(conv(x)), rtol=1e-4, atol=1e-5)
        assert fused is not conv and fused.weight.requires_grad and not fused.training


def test_a_fused_linear_layer_is_both():
    ng.manual_seed(0)
    bn, linear = moved(nn.BatchNorm1d(3)), nn.Linear(2, 3).eval()
    fused = utils.fuse_linear_bn_eval(linear, bn)
    x = ng.randn(4, 2)
    assert ng.allclose(fused(x), bn(linear(x)), rtol=1e-4, atol=1e-5)
    weight, bias = utils.fuse_linear_bn_weights(
        linear.weight, linear.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    assert ng.equal(weight, fused.weight) and ng.equal(bias, fused.bias)


def test_fusion_refuses_what_it_cannot_fold():
    linear = nn.Linear(2, 3)
    with pytest.raises(ValueError, match="fuse_linear_bn_eval: Fusion only for eval"):
        utils.fuse_linear_bn_eval(linear, nn.BatchNorm1d(3))
    with pytest.raises(ValueError, match="3 outputs, the batch norm 2 features"):
        utils.fuse_linear_bn_eval(linear.eval(), nn.BatchNorm1d(2).eval())
    bare = nn.BatchNorm1d(3, track_running_stats=False).eval()
    with pytest.raises(ValueError, match="no running mean"):
        utils.fuse_linear_bn_eval(linear, bare)


def test_fusion_as_pytorch():
    torch = pytest.importorskip("torch")
    ng.manual_seed(1)
    weight, *rest = [ng.rand(3, 2, 1), *[ng.rand(3) for _ in range(5)]]
    found = []
    for lib in (ng, torch):
        conv_b, mean, var, bn_w, bn_b = (lib.tensor(x.tolist()) for x in rest)
        numbers = lib.tensor(weight.tolist()), conv_b, mean, var, 1e-3, bn_w, bn_b
        fused = lib.nn.utils.fuse_conv_bn_weights(*numbers)
        found.append([x.reshape(-1).tolist() for x in fused])
    for mine, theirs in zip(*found, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-5)


def test_clipping_in_two_halves_is_clipping():
    grads = [ng.tensor([3.0, -4.0]), ng.tensor([[12.0]])]
    halves = []
    for two in (False, True):
        parameters = [ng.zeros_like(g).requires_grad_() for g in grads]
        for p, g in zip(parameters, grads, strict=True):
            p.grad = g.clone()
        if two:
            norm = utils.get_total_norm([p.grad for p in parameters])
            utils.clip_grads_with_norm_(parameters, 6.5, norm)
        else:
            utils.clip_grad_norm_(parameters, 6.5)
        halves.append([p.grad.tolist() for p in parameters])
    assert halves[0] == halves[1]
    with pytest.raises(TypeError, match="clip_grads_with_norm_: total_norm must be a Tensor"):
        utils.clip_grads_with_norm_(parameters, 1.0, 2.0)
    utils.clip_grads_with_norm_([], 1.0, ng.tensor(0.0))


def test_sparse_columns():
    ng.manual_seed(0)
    x = ng.empty(10, 3)
    assert nn.init.sparse_(x, 0.25, 2.0) is x
    assert (x == 0).sum(0).tolist() == [3, 3, 3]
    with pytest.raises(ValueError, match="sparse_: Only tensors with 2 dimensions"):
        nn.init.sparse_(ng.empty(3), 0.5)


def test_skip_init_draws_nothing_that_is_seen():
    ng.manual_seed(0)
    expected = ng.rand(3).tolist()
    ng.manual_seed(0)
    layer = utils.skip_init(nn.Linear, 3, 2, bias=False)
    assert repr(layer) == "Linear(in_features=3, out_features=2, bias=False)"
    assert ng.rand(3).tolist() == expected
    with pytest.raises(ValueError, match="must support a 'device' arg"):
        utils.skip_init(nn.ReLU)


def test_a_cell_of_ones_own():
    class Scaled(nn.RNNCellBase):
        def __init__(self):
            super().__init__(2, 3, bias=True, num_chunks=2)

    cell = Scaled()
    assert list(cell.weight_ih.shape) == [6, 2] and list(cell.bias_hh.shape) == [6]
    assert isinstance(nn.LSTMCell(1, 1), nn.RNNCellBase)
