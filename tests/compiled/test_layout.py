"""Matrices stored by columns, and kernels for both layouts: the numbers of eager steps."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn, optim

BY_COLUMNS = "cross_entropy_with_grad_by_columns"


class Classifier:
    def __init__(self, classes, **options):
        ng.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, classes)).double()
        self.optimizer = optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)
        self.options = options

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.net(x), y, **self.options)
        loss.backward()
        self.optimizer.step()
        return loss

    def step_with_logits(self, x, y):
        self.optimizer.zero_grad()
        logits = self.net(x)
        nn.functional.cross_entropy(logits, y).backward()
        self.optimizer.step()
        return logits


def batch(n, classes, seed=0):
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((n, 5)), rng.integers(0, classes, n)
    y[0] = -100
    return ng.tensor(x), ng.tensor(y)


def agree(classes, sizes, step="step", **options):
    """The compiled step, after as many batches, each with the loss of the eager one."""
    eager, other = Classifier(classes, **options), Classifier(classes, **options)
    run = ng.compile(getattr(other, step))
    for k, n in enumerate(sizes):
        data = batch(n, classes, k)
        one, two = getattr(eager, step)(*data), run(*data)
        np.testing.assert_allclose(two.detach().numpy(), one.detach().numpy(), rtol=1e-12)
    for p, q in zip(eager.net.parameters(), other.net.parameters(), strict=True):
        np.testing.assert_allclose(q.detach().numpy(), p.detach().numpy(), rtol=1e-12, atol=1e-14)
    return run


@pytest.mark.parametrize("classes", [2, 10, 23])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_few_classes_are_stored_by_columns(classes, reduction):
    run = agree(classes, [64] * 5, reduction=reduction, ignore_index=-100)
    assert BY_COLUMNS in str(run.program)


@pytest.mark.parametrize("sizes", [[64, 64, 7, 64, 3], [7, 5, 1, 40, 64]])
def test_short_batches_use_the_same_kernel(sizes):
    assert BY_COLUMNS in str(agree(10, sizes).program)


def test_many_classes_stay_by_rows():
    assert BY_COLUMNS not in str(agree(24, [64] * 3).program)


def test_logits_that_are_returned_stay_by_rows():
    assert BY_COLUMNS not in str(agree(10, [64] * 3, "step_with_logits").program)


@pytest.mark.parametrize("wrong", [10, -1])
def test_a_target_that_is_no_class_raises(wrong):
    model = Classifier(10)
    run = ng.compile(model.step)
    run(*batch(40, 10))
    x, y = batch(40, 10)
    y[3] = wrong
    before = [p.detach().clone() for p in model.net.parameters()]
    with pytest.raises(IndexError, match=r"cross_entropy.*3"):
        run(x, y)
    assert all(map(ng.equal, before, model.net.parameters()))


def test_the_first_bad_logit_is_named_by_row_and_class():
    model = Classifier(10)
    run = ng.compile(model.step, check_finite=True)
    run(*batch(40, 10))
    x, y = batch(40, 10)
    x[2, 0] = float("inf")
    with pytest.raises(RuntimeError, match=r"\[2, "):
        run(x, y)


@pytest.mark.parametrize("kept", [(), (0,), (1,)])
def test_kernels_that_share_logits_are_stored_alike(kept):
    """Where the gradient of one of them is needed by rows, that of the other stays by rows too."""
    eager, run = [], []
    for found, wrap in ((eager, lambda f: f), (run, ng.compile)):
        model = Classifier(10)
        weights = list(model.net.parameters())

        @wrap
        def step(x, y, z, model=model, weights=weights):
            logits = model.net(x)
            losses = [nn.functional.cross_entropy(logits, t) for t in (y, z)]
            first = [ng.autograd.grad(loss, logits, retain_graph=True)[0] for loss in losses]
            grads = ng.autograd.grad(logits, weights, first[0] + first[1])
            return [*losses, *[first[k] for k in kept], *grads]

        x, y = batch(40, 10)
        found += [t.detach().numpy() for t in step(x, y, batch(40, 10, 1)[1])]
    for a, b in zip(eager, run, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-11, atol=1e-13)
