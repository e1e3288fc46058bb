"""``optim.swa_utils`` beside PyTorch's: averages, their state dicts, batch norm, the schedule."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.optim import swa_utils

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.peer

MAKE = {
    "mean": lambda utils, model: utils.AveragedModel(model),
    "mean of lists": lambda utils, model: utils.AveragedModel(
        model, multi_avg_fn=utils.get_swa_multi_avg_fn()
    ),
    "ema": lambda utils, model: utils.AveragedModel(model, avg_fn=utils.get_ema_avg_fn(0.5)),
    "ema of lists": lambda utils, model: utils.AveragedModel(
        model, multi_avg_fn=utils.get_ema_multi_avg_fn(0.9), use_buffers=True
    ),
}


def models():
    layers = [
        library.nn.Sequential(library.nn.Linear(3, 4), library.nn.BatchNorm1d(4)).double()
        for library in (torch, ng)
    ]
    layers[1].load_state_dict({k: ng.tensor(v.numpy()) for k, v in layers[0].state_dict().items()})
    return layers


def assert_same(theirs, ours):
    assert list(theirs) == list(ours)
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name].numpy(), value.numpy(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", MAKE)
def test_averages_are_pytorchs(name):
    x = np.random.default_rng(0).standard_normal((8, 3))
    states = []
    for library, model in zip((torch, ng), models(), strict=True):
        utils = torch.optim.swa_utils if library is torch else swa_utils
        averaged = MAKE[name](utils, model)
        optimizer = library.optim.SGD(model.parameters(), lr=0.5)
        batch = library.from_numpy(x)
        for _ in range(3):
            optimizer.zero_grad()
            model(batch).pow(3).mean().backward()
            optimizer.step()
            averaged.update_parameters(model)
        utils.update_bn([batch, (batch * 2, None)], averaged)
        assert model[1].momentum == averaged.module[1].momentum == 0.1 and averaged.training
        states.append({"out": averaged(batch).detach(), **averaged.state_dict()})
    assert_same(*states)


@pytest.mark.parametrize("options", [{}, {"anneal_strategy": "linear"}, {"anneal_epochs": 0}])
def test_the_schedule_is_pytorchs(options):
    rates = []
    for library in (torch, ng):
        utils = torch.optim.swa_utils if library is torch else swa_utils
        params = [library.ones(1, requires_grad=True) for _ in range(2)]
        groups = [{"params": [p], "lr": lr} for p, lr in zip(params, (0.1, 0.5), strict=True)]
        optimizer = library.optim.SGD(groups)
        schedule = utils.SWALR(optimizer, [0.05, 0.2], **{"anneal_epochs": 3, **options})
        rates.append([])
        for _ in range(5):
            rates[-1] += schedule.get_last_lr()
            optimizer.step()
            schedule.step()
    assert rates[1] == pytest.approx(rates[0])


def test_wrong_use_is_refused_and_changes_nothing():
    model = ng.nn.Linear(2, 2)
    averaged = swa_utils.AveragedModel(model)
    before = averaged.state_dict()["module.weight"].tolist()
    with pytest.raises(ValueError, match=r"sizes \[\[2, 2\], \[2\]\].*got \[\[3, 2\], \[3\]\]"):
        averaged.update_parameters(ng.nn.Linear(2, 3))
    assert averaged.module.weight.tolist() == before and averaged.n_averaged.item() == 0
    with pytest.raises(ValueError, match="Only one of"):
        swa_utils.AveragedModel(model, avg_fn=min, multi_avg_fn=min)
    with pytest.raises(ValueError, match=r"Invalid decay value 1\.5"):
        swa_utils.get_ema_avg_fn(1.5)
    optimizer = ng.optim.SGD(model.parameters(), lr=0.1)
    for options, told in (
        ({"anneal_strategy": "x"}, "one of 'cos' or 'linear'"),
        ({"anneal_epochs": -1}, "equal or greater than 0"),
        ({"swa_lr": [0.1, 0.2]}, "same length"),
    ):
        with pytest.raises(ValueError, match=told):
            swa_utils.SWALR(optimizer, **{"swa_lr": 0.1, **options})
    assert "swa_lr" not in optimizer.param_groups[0]
