"""size_average, reduce and weight of the losses: places, meanings and warnings of PyTorch."""

from __future__ import annotations

import inspect
import re
import warnings

import numpy as np
import pytest

import numbagrad as ng

torch = pytest.importorskip("torch")

X, Y = np.random.default_rng(3).uniform(0.1, 0.9, (2, 4, 3))
SIGNS, ROW = np.sign(X - 0.5), np.sign(X[:, 0] - 0.5)

# The tensors; the modules take what follows them in the functions.
LOSSES = {
    "mse_loss": ("MSELoss", (X, Y)),
    "l1_loss": ("L1Loss", (X, Y)),
    "smooth_l1_loss": ("SmoothL1Loss", (X, Y)),
    "kl_div": ("KLDivLoss", (X, Y)),
    "soft_margin_loss": ("SoftMarginLoss", (X, SIGNS)),
    "cross_entropy": ("CrossEntropyLoss", (X, np.array([0, 2, 1, 1]))),
    "nll_loss": ("NLLLoss", (X, np.array([0, 2, 1, 1]))),
    "binary_cross_entropy": ("BCELoss", (X, Y)),
    "binary_cross_entropy_with_logits": ("BCEWithLogitsLoss", (X, Y)),
    "poisson_nll_loss": ("PoissonNLLLoss", (X, Y)),
    "hinge_embedding_loss": ("HingeEmbeddingLoss", (X, SIGNS)),
    "margin_ranking_loss": ("MarginRankingLoss", (X, Y, SIGNS)),
    "multi_margin_loss": ("MultiMarginLoss", (X, np.array([0, 2, 1, 1]))),
    "multilabel_margin_loss": ("MultiLabelMarginLoss", (X, np.array([[0, 2, -1]] * 4))),
    "multilabel_soft_margin_loss": ("MultiLabelSoftMarginLoss", (X, (X > 0.5) * 1.0)),
    "cosine_embedding_loss": ("CosineEmbeddingLoss", (X, Y, ROW)),
    "triplet_margin_loss": ("TripletMarginLoss", (X, Y, X[::-1].copy())),
}
FLAGS = [(None, False), (True, None), (False, None), (False, True), (True, False)]


def told(call):
    """What ``call`` gives, as a list, and what it warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        out = call().tolist()
    return out, [str(w.message) for w in caught if "size_average" in str(w.message)]


@pytest.mark.parametrize("name", LOSSES)
def test_the_arguments_stand_where_pytorch_has_them(name):
    for where in ("functional." + name, LOSSES[name][0]):
        ours, theirs = ng.nn, torch.nn
        for part in where.split("."):
            ours, theirs = getattr(ours, part), getattr(theirs, part)
        assert list(inspect.signature(ours).parameters) == list(
            inspect.signature(theirs).parameters
        )


@pytest.mark.parametrize("name", LOSSES)
def test_flags_say_the_reduction_and_warn(name):
    module, arrays = LOSSES[name]
    mine, his = [[lib.tensor(a) for a in arrays] for lib in (ng, torch)]
    for average, reduce in FLAGS:
        flags = {"size_average": average, "reduce": reduce, "reduction": "none"}
        expected, warned = told(lambda f=flags: getattr(torch.nn.functional, name)(*his, **f))
        found = told(lambda f=flags: getattr(ng.nn.functional, name)(*mine, **f))
        again = told(lambda f=flags: getattr(ng.nn, module)(**f)(*mine))
        np.testing.assert_allclose(found[0], expected, rtol=1e-12)
        np.testing.assert_allclose(again[0], expected, rtol=1e-12)
        assert found[1] == again[1] and len(found[1]) == len(warned) == 1
        (said,) = re.findall(r"reduction='\w+'", warned[0])
        assert said in found[1][0]


def test_the_warning_points_at_the_caller():
    x = ng.ones(2)
    for call in (lambda: ng.nn.functional.mse_loss(x, x, False), lambda: ng.nn.MSELoss(False)):
        with pytest.warns(UserWarning, match="say reduction='sum'") as caught:
            call()
        assert caught[0].filename == __file__


def test_a_module_keeps_the_reduction_alone():
    with pytest.warns(UserWarning, match="reduction='sum'"):
        loss = ng.nn.CrossEntropyLoss(None, False, 1)
    assert (loss.reduction, loss.ignore_index) == ("sum", 1) and not hasattr(loss, "reduce")


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "huber_loss"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_weights_of_each_number(name, reduction):
    weight = np.linspace(0.0, 2.0, X.size).reshape(X.shape)
    found = []
    for lib in (ng, torch):
        x, w = [lib.tensor(a, requires_grad=True) for a in (X, weight)]
        out = getattr(lib.nn.functional, name)(x, lib.tensor(Y), reduction=reduction, weight=w)
        grads = lib.autograd.grad(out.sum(), (x, w))
        found.append([t.tolist() for t in (out, *grads)])
    for mine, his in zip(*found, strict=True):
        np.testing.assert_allclose(mine, his, rtol=1e-12, atol=1e-15)


def test_weights_of_another_shape_are_refused():
    x = ng.ones(2, 3)
    with pytest.raises(ValueError, match="Weights and input must have the same size"):
        ng.nn.functional.mse_loss(x, x, weight=ng.ones(3))


def test_a_flag_inside_a_compiled_function():
    x, y = ng.tensor(X), ng.tensor(Y)
    step = ng.compile(lambda a, b: ng.nn.functional.mse_loss(a, b, None, False, weight=b))
    with pytest.warns(UserWarning, match="reduction='none'"):
        np.testing.assert_allclose(step(x, y).numpy(), (X - Y) ** 2 * Y)
