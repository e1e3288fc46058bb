"""Schedulers told which epoch it is: ``scheduler.step(epoch)``, which PyTorch deprecates."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import optim

KINDS = {
    "StepLR": {"step_size": 2},
    "MultiStepLR": {"milestones": [2, 2, 5]},
    "ExponentialLR": {"gamma": 0.9},
    "ConstantLR": {"factor": 0.5, "total_iters": 3},
    "LinearLR": {"start_factor": 0.2, "total_iters": 4},
    "PolynomialLR": {"total_iters": 6, "power": 2.0},
    "CosineAnnealingLR": {"T_max": 5, "eta_min": 0.01},
    "CosineAnnealingWarmRestarts": {"T_0": 3},
    "LambdaLR": {"lr_lambda": lambda epoch: 0.9**epoch},
    "MultiplicativeLR": {"lr_lambda": lambda epoch: 0.9},
    "OneCycleLR": {"max_lr": 1.0, "total_steps": 20},
    "CyclicLR": {"base_lr": 0.1, "max_lr": 1.0, "step_size_up": 3, "cycle_momentum": False},
    "ReduceLROnPlateau": {"patience": 1},
}


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore:The epoch parameter")
@pytest.mark.parametrize("epochs", [(0, 1, 2, 3, 4), (None, None, 5, None, 1, None), (3, 7, 2)])
@pytest.mark.parametrize("kind", KINDS)
def test_rates_are_torchs(kind, epochs):
    torch = pytest.importorskip("torch")
    found = []
    for library in (ng, torch):
        tensors = [library.zeros(1, requires_grad=True) for _ in range(2)]
        groups = [{"params": tensors[:1], "lr": 0.5}, {"params": tensors[1:]}]
        optimizer = library.optim.SGD(groups, lr=0.1)
        scheduler = getattr(library.optim.lr_scheduler, kind)(optimizer, **KINDS[kind])
        seen = []
        for epoch in epochs:
            optimizer.step()
            metric = (1.0,) if kind == "ReduceLROnPlateau" else ()
            scheduler.step(*metric, *(() if epoch is None else (epoch,)))
            seen.append([*scheduler.get_last_lr(), scheduler.last_epoch])
        found.append(seen)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)


def test_a_warning_says_that_it_is_deprecated():
    scheduler = optim.lr_scheduler.StepLR(optim.SGD([ng.zeros(1, requires_grad=True)]), 2)
    scheduler.optimizer.step()
    with pytest.warns(UserWarning, match="epoch parameter"):
        scheduler.step(4)


@pytest.mark.filterwarnings("ignore:The epoch parameter")
def test_in_a_compiled_step():
    x = ng.ones(2, requires_grad=True)
    optimizer = optim.SGD([x], lr=1.0)
    scheduler = optim.lr_scheduler.StepLR(optimizer, 2)

    @ng.compile
    def step(epoch):
        optimizer.zero_grad()
        x.sum().backward()
        optimizer.step()
        scheduler.step(epoch)

    for epoch, rate in ((1, 1.0), (2, 0.1), (3, 0.1), (5, 0.01), (4, 0.01), (0, 1.0)):
        step(epoch)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(rate)
        assert scheduler.last_epoch == epoch
