"""The margin loss of several classes, distances of all pairs, softmax of images, old names."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn

F = nn.functional

SCORES = [[0.1, 0.2, 0.4, 0.8], [1.0, 2.0, 3.0, 0.5], [0.3, 0.1, 0.9, 0.2], [0.5, 0.5, -2.0, 3.0]]
CLASSES = [[3, 0, -1, 1], [-1, 0, 0, 0], [0, 2, 1, 3], [2, 2, 1, -1]]


def by_hand(scores, classes):
    """The loss of one row, one pair after the other."""
    true = []
    for c in classes:
        if c == -1:
            break
        true.append(c)
    others = [k for k in range(len(scores)) if k not in true]
    return sum(max(0, 1 - scores[j] + scores[k]) for j in true for k in others) / len(scores)


def test_multilabel_margin_loss():
    x, y = ng.tensor(SCORES, dtype=ng.float64), ng.tensor(CLASSES)
    expected = np.array([by_hand(*row) for row in zip(SCORES, CLASSES, strict=True)])
    for function in (F.multilabel_margin_loss, ng.compile(F.multilabel_margin_loss)):
        np.testing.assert_allclose(function(x, y, reduction="none"), expected, rtol=1e-14)
        np.testing.assert_allclose(function(x, y), expected.mean(), rtol=1e-14)
        np.testing.assert_allclose(function(x, y, reduction="sum"), expected.sum(), rtol=1e-14)
    single = nn.MultiLabelMarginLoss("none")(x[0], y[0])
    assert single.shape == () and single.item() == pytest.approx(expected[0])
    assert F.multilabel_margin_loss(ng.tensor(1.0), ng.tensor(0)).item() == 0
    assert F.multilabel_margin_loss(x[:0], y[:0], reduction="none").shape == (0,)
    assert F.multilabel_margin_loss(x[:0], y[:0], reduction="sum").item() == 0
    assert repr(nn.MultiLabelMarginLoss()) == "MultiLabelMarginLoss()"


def test_multilabel_soft_margin_loss_wants_as_many_classes():
    loss = F.multilabel_soft_margin_loss
    assert loss(ng.zeros(2, 3), ng.ones(1, 3)).item() == pytest.approx(0.6931, abs=1e-4)
    with pytest.raises(ng.errors.ShapeError, match="as many classes"):
        loss(ng.zeros(2, 1), ng.ones(2, 3))


def test_multilabel_margin_loss_has_gradients_of_any_order():
    x, y = ng.tensor(SCORES, dtype=ng.float64, requires_grad=True), ng.tensor(CLASSES)
    assert ng.autograd.gradcheck(lambda x: F.multilabel_margin_loss(x, y, reduction="none"), x)
    assert ng.autograd.gradgradcheck(lambda x: F.multilabel_margin_loss(x, y) ** 2, x)
    edge = ng.tensor([[1.0, 0.0, 2.0, 2.0]], requires_grad=True)  # class 1 is exactly 1 below
    F.multilabel_margin_loss(edge, ng.tensor([[0, -1, -1, -1]])).backward()
    assert edge.grad.tolist() == [[-0.5, 0.0, 0.25, 0.25]]


@pytest.mark.peer
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_multilabel_margin_loss_is_torchs(reduction):
    torch = pytest.importorskip("torch")
    draw, found = np.random.default_rng(0), []
    scores, classes = draw.standard_normal((5, 6)), draw.integers(-1, 6, (5, 6))
    for library in (torch, ng):
        x = library.tensor(scores).requires_grad_()
        loss = library.nn.MultiLabelMarginLoss(reduction=reduction)(x, library.tensor(classes))
        (loss * loss).sum().backward()
        found.append((loss.detach().numpy(), x.grad.numpy()))
    for theirs, ours in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14)


def test_multilabel_margin_loss_says_what_is_wrong():
    x, y = ng.tensor(SCORES), ng.tensor(CLASSES)
    for bad, error, words in (
        (y + 1, IndexError, "index 4 is out of bounds for dimension 1 with size 4"),
        (y - 1, IndexError, "index -2 is out of bounds"),
        (y.float(), TypeError, "expected scalar type Long but found float32. Convert target"),
        (y.int(), TypeError, "expected scalar type Long but found Int"),
        (y[0], ValueError, r"inconsistent target size: \[4\] for input of size: \[4, 4\]"),
    ):
        with pytest.raises(error, match=f"multilabel_margin_loss: {words}"):
            F.multilabel_margin_loss(x, bad)
    with pytest.raises(ValueError, match=r"non-empty vector or matrix .* got: \[2, 0\]"):
        F.multilabel_margin_loss(ng.ones(2, 0), ng.ones(2, 0).long())
    with pytest.raises(TypeError, match="not implemented for 'Long'"):
        F.multilabel_margin_loss(y, y)
    with pytest.raises(ValueError, match="max is not a valid value for reduction"):
        F.multilabel_margin_loss(x, y, reduction="max")
    with pytest.raises(IndexError, match="multilabel_margin_loss: index at position 0 is out of"):
        ng.compile(F.multilabel_margin_loss)(x, y + 1)


def test_pdist_of_special_matrices():
    assert F.pdist(ng.ones(3, 0), float("inf")).tolist() == [0, 0, 0]
    assert F.pdist(ng.ones(0, 2)).shape == F.pdist(ng.ones(1, 2), 3).shape == (0,)
    assert F.pdist(ng.tensor([[1.0, 2.0], [1.0, 0.0], [3.0, 5.0]]), 0).tolist() == [1, 2, 2]
    x = ng.ones(3, 2, requires_grad=True)
    F.pdist(x).sum().backward()
    assert x.grad.tolist() == [[0, 0]] * 3
    x = ng.tensor(np.random.default_rng(0).standard_normal((4, 3)), requires_grad=True)
    for p in (1.5, 2, 3):
        assert ng.autograd.gradgradcheck(lambda x, p=p: F.pdist(x, p), x)
    assert ng.allclose(ng.compile(F.pdist)(x.detach()), F.pdist(x.detach()))


def test_softmax_of_images_is_over_channels():
    x = ng.tensor(np.random.default_rng(0).standard_normal((2, 3, 2, 4)), requires_grad=True)
    module = nn.Softmax2d()
    weights = np.exp(x.detach().numpy())
    np.testing.assert_allclose(module(x).detach(), weights / weights.sum(1, keepdims=True))
    assert ng.allclose(ng.compile(lambda x: module(x))(x.detach()), module(x).detach())
    assert ng.autograd.gradgradcheck(module, x)
    assert repr(module) == "Softmax2d()"
    with pytest.raises(ValueError, match="Softmax2d: expected input to be 3D or 4D, got 2D"):
        module(ng.ones(2, 2))


def test_upsample_is_interpolate_with_a_warning():
    x = ng.tensor(np.random.default_rng(0).standard_normal((1, 2, 3, 4)))
    for function, options, same in (
        (F.upsample, {"size": 5}, {"size": 5}),
        (
            *(F.upsample, {"scale_factor": 2, "mode": "bilinear", "align_corners": True}),
            {"scale_factor": 2, "mode": "bilinear", "align_corners": True},
        ),
        (F.upsample_nearest, {"scale_factor": 2}, {"scale_factor": 2}),
        (F.upsample_bilinear, {"size": (5, 7)}, {"size": (5, 7), "mode": "bilinear"}),
    ):
        if function is F.upsample_bilinear:
            same = {**same, "align_corners": True}
        with pytest.warns(
            UserWarning, match=f"`nn.functional.{function.__name__}` is depr"
        ) as seen:
            out = function(x, **options)
        assert ng.equal(out, F.interpolate(x, **same))
        assert seen[0].filename == __file__
    with pytest.warns(UserWarning, match="deprecated"):
        assert ng.compile(lambda x: F.upsample_bilinear(x, scale_factor=2))(x).shape[2:] == (6, 8)
