"""CTC beyond its row: long sequences against torch, targets without an alignment, errors."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.errors import GradError
from numbagrad.kernels.cpu import ctc
from numbagrad.nn import functional as F


def batch(steps=30, n=4, classes=8, longest=9, dtype=np.float64):
    """Numbers, padded targets of few classes (so that labels repeat), and both lengths."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((steps, n, classes)).astype(dtype)
    targets = rng.integers(1, min(classes, 4), (n, longest))
    return x, targets, rng.integers(20, steps + 1, n), rng.integers(0, longest + 1, n)


@pytest.mark.peer
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("padded", [True, False])
def test_loss_and_gradient_behind_log_softmax_as_torch(reduction, padded):
    torch = pytest.importorskip("torch")
    x, targets, steps, sizes = batch()
    if not padded:
        targets = np.concatenate([t[:k] for t, k in zip(targets, sizes, strict=True)])
    results = []
    for library, function in ((ng, F.ctc_loss), (torch, torch.nn.functional.ctc_loss)):
        leaf = library.tensor(x).requires_grad_()
        given = [library.tensor(a) for a in (targets, steps, sizes)]
        loss = function(leaf.log_softmax(2), *given, reduction=reduction)
        loss.sum().backward()
        results.append((loss.detach().numpy(), leaf.grad.numpy()))
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("dtype", [ng.float32, ng.float64])
def test_a_target_without_an_alignment(dtype):
    x = ng.zeros(3, 2, 4, dtype=dtype).log_softmax(2).requires_grad_()
    targets = ng.tensor([[1, 1, 0], [1, 2, 3]])  # two equal labels need a blank between them
    steps, sizes = ng.tensor([2, 3]), ng.tensor([2, 3])
    loss = F.ctc_loss(x, targets, steps, sizes, reduction="none")
    loss.sum().backward()
    assert loss[0].item() == float("inf") and loss[1].isfinite().item()
    assert x.grad[:2, 0].isnan().all() and (x.grad[2, 0] == 0).all()
    assert x.grad[:, 1].isfinite().all()
    x.grad = None
    loss = F.ctc_loss(x, targets, steps, sizes, reduction="none", zero_infinity=True)
    loss.sum().backward()
    assert loss[0].item() == 0 and (x.grad[:, 0] == 0).all() and (x.grad[:, 1] != 0).any()


def test_its_gradient_has_no_derivative():
    x = ng.randn(3, 1, 4).log_softmax(2).detach().requires_grad_()
    loss = F.ctc_loss(x, ng.tensor([[1, 2]]), (3,), (2,))
    (gx,) = ng.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(GradError, match="ctc_loss: its gradient has no derivative"):
        gx.sum().backward()


def test_labels_and_lengths_that_cannot_be():
    x = ng.randn(3, 2, 4).log_softmax(2)
    targets = ng.tensor([[1, 2], [3, 9]])
    with pytest.raises(IndexError, match="from 0 to 3, but got 9 at position 3"):
        F.ctc_loss(x, targets, (3, 3), (2, 2))
    F.ctc_loss(x, targets, (3, 3), (2, 1))  # the rest of a row is anything
    with pytest.raises(
        ValueError, match=r"target_lengths .* at most 2, but got value 3 for sample"
    ):
        F.ctc_loss(x, targets, (3, 3), (2, 3))
    with pytest.raises(ValueError, match="at least 0 and at most 3, but got value -1 for sample 0"):
        F.ctc_loss(x, targets, (-1, 3), (2, 1))
    with pytest.raises(TypeError, match="must be a Tensor or a tuple of ints, not int"):
        F.ctc_loss(x, targets, 3, (2, 1))
    with pytest.raises(TypeError, match="float32 or float64 log_probs, got"):
        F.ctc_loss(x.half(), targets, (3, 3), (2, 1))


def test_a_wrong_length_spoils_nothing():
    """A step that is told of it only afterwards runs the gradient too."""
    x, targets, steps, sizes = batch(steps=24)
    steps[1] = 99
    n = len(steps)
    rows = 2 * targets.size + n
    losses, chance, alpha = np.empty(n), np.empty(n), np.empty(24 * rows)
    starts, bad = np.empty(n, np.int64), np.empty(1, np.int64)
    rest = x, targets.reshape(-1), steps, sizes, targets.shape[1], 0, 0
    ctc.ctc(losses, chance, alpha, starts, bad, *rest)
    assert divmod(bad[0], 4) == (1, ctc.STEPS) and np.isnan(losses).all()
    gx = np.ones_like(x)
    ctc.ctc_grad(gx, np.empty(2 * rows), np.ones(n), chance, alpha, starts, bad, *rest)
    assert not gx.any()


def test_threads_change_no_bit():
    x, targets, steps, sizes = batch(dtype=np.float32)
    n, rows = len(steps), 2 * targets.size + len(steps)
    results = []
    for which in ("serial", "parallel"):
        losses, chance = np.empty(n, np.float32), np.empty(n, np.float32)
        alpha, beta = np.zeros(30 * rows, np.float32), np.empty(2 * rows, np.float32)
        starts, bad, gx = np.empty(n, np.int64), np.empty(1, np.int64), np.empty_like(x)
        rest = x, targets.reshape(-1), steps, sizes, targets.shape[1], 0, 0
        getattr(ctc.ctc, which)(losses, chance, alpha, starts, bad, *rest)
        found = np.ones(n, np.float32), chance, alpha, starts, bad
        getattr(ctc.ctc_grad, which)(gx, beta, *found, *rest)
        results.append((losses, gx))
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_module_in_a_compiled_step():
    x, targets, steps, sizes = batch(dtype=np.float32)
    loss_of = nn.CTCLoss(blank=7, reduction="sum", zero_infinity=True)
    assert (loss_of.blank, loss_of.reduction, loss_of.zero_infinity) == (7, "sum", True)
    given = [ng.tensor(a) for a in (targets, steps, sizes)]

    def step(x, targets, steps, sizes):
        x = x.detach().requires_grad_()
        loss = loss_of(x.log_softmax(2), targets, steps, sizes)
        return loss, *ng.autograd.grad(loss, x)

    compiled = ng.compile(step)
    for scale in (1.0, 0.5):
        x = ng.tensor(x) * scale
        for a, b in zip(compiled(x, *given), step(x, *given), strict=True):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-5, atol=1e-6)
        x = x.numpy()
    with pytest.raises(ValueError, match="input_lengths to have value at least 0 and at most 30"):
        compiled(ng.tensor(x), given[0], given[1] + 20, given[2])
