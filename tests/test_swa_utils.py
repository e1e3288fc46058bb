"""``optim.swa_utils`` against PyTorch's: averages, buffers, rates, batch norm's statistics."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.optim import swa_utils

torch = pytest.importorskip("torch")

DRAWS = np.random.default_rng(0).normal(size=(4, 8, 3))


def models():
    """A small net with batch norm in both libraries, of equal parameters."""
    found = []
    for lib in (ng, torch):
        net = lib.nn.Sequential(lib.nn.Linear(3, 2), lib.nn.BatchNorm1d(2)).double()
        for k, p in enumerate(net.parameters()):
            p.data.copy_(lib.ones_like(p) * (k + 1))
        found.append((lib, net))
    return found


AVERAGES = {
    "mean": lambda s: {},
    "moving": lambda s: {"avg_fn": s.get_ema_avg_fn(0.9)},
    "moving-all": lambda s: {"multi_avg_fn": s.get_ema_multi_avg_fn(0.9)},
    "mean-one": lambda s: {"avg_fn": s.get_swa_avg_fn()},
    "mean-all": lambda s: {"multi_avg_fn": s.get_swa_multi_avg_fn()},
}


@pytest.mark.peer
@pytest.mark.parametrize(
    ("name", "use_buffers"),
    [*[(name, False) for name in AVERAGES], ("mean", True), ("moving", True)],
)
def test_averages_are_torchs(name, use_buffers):
    found = []
    for lib, net in models():
        utils = lib.optim.swa_utils
        averaged = utils.AveragedModel(net, use_buffers=use_buffers, **AVERAGES[name](utils))
        optimizer = lib.optim.SGD(net.parameters(), lr=0.05)
        for batch in DRAWS:
            optimizer.zero_grad()
            x = lib.tensor(batch)
            (net(x) * x[:, :2]).sum().backward()
            optimizer.step()
            averaged.update_parameters(net)
        batches = [lib.tensor(DRAWS[0]), (lib.tensor(DRAWS[1]), None)]
        utils.update_bn(batches, averaged)
        assert net[1].momentum == averaged.module[1].momentum == 0.1 and averaged.training
        state = {k: v.detach().numpy() for k, v in averaged.state_dict().items()}
        out = averaged.eval()(lib.tensor(DRAWS[0])).detach().numpy()
        found.append((state, out))
    (ours, mine), (theirs, other) = found
    assert list(ours) == list(theirs) and ours["n_averaged"] == 4
    for key, value in theirs.items():
        np.testing.assert_allclose(ours[key], value, rtol=1e-5, atol=1e-6, err_msg=key)
    np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)


@pytest.mark.peer
def test_statistics_of_batch_norm_are_torchs():
    found = []
    for lib, net in models():
        net.eval()
        lib.optim.swa_utils.update_bn([(lib.tensor(b), 0) for b in DRAWS], net)
        assert not net.training and net[1].momentum == 0.1
        found.append([net[1].running_mean.numpy(), net[1].running_var.numpy()])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)


@pytest.mark.peer
@pytest.mark.parametrize("strategy", ["cos", "linear"])
@pytest.mark.parametrize("epochs", [0, 1, 4])
def test_rates_are_torchs(strategy, epochs):
    found = []
    for lib in (ng, torch):
        groups = [{"params": [lib.zeros(1, requires_grad=True)], "lr": lr} for lr in (1.0, 0.1)]
        optimizer = lib.optim.SGD(groups, lr=0.5)
        scheduler = lib.optim.swa_utils.SWALR(optimizer, [0.05, 0.5], epochs, strategy)
        rates = [scheduler.get_last_lr()]
        for _ in range(6):
            optimizer.step()
            scheduler.step()
            rates.append(scheduler.get_last_lr())
        found.append(rates)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)


@pytest.mark.parametrize("buffers", [False, True])
@pytest.mark.parametrize("name", AVERAGES)
def test_an_average_follows_inside_of_a_compiled_step(name, buffers):
    """From the first model on, of which it is a copy."""

    def run(compiled):
        ng.manual_seed(0)
        net = ng.nn.Sequential(ng.nn.Linear(3, 2), ng.nn.BatchNorm1d(2))
        averaged = swa_utils.AveragedModel(net, **AVERAGES[name](swa_utils), use_buffers=buffers)
        averaged.module.requires_grad_(False)
        for p in averaged.module.parameters():
            p.fill_(ng.nan)
        optimizer = ng.optim.SGD(net.parameters(), lr=0.1)

        def step(x):
            optimizer.zero_grad()
            (net(x) ** 3).mean().backward()
            optimizer.step()
            averaged.update_parameters(net)

        step = ng.compile(step) if compiled else step
        for k in range(4):
            step(ng.randn(5, 3) + k)
        return [value.numpy() for value in averaged.state_dict().values()], step

    found, step = run(True)
    for f, e in zip(found, run(False)[0], strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-5, atol=1e-6)
    assert step.cache_info().recordings == 1, step.recordings


def test_mistakes_are_named():
    net = ng.nn.Linear(1, 1)
    averaged, before = swa_utils.AveragedModel(net), net.weight.tolist()
    with pytest.raises(ValueError, match=r"sizes \[\[1, 1\], \[1\]\].*got \[\[2, 1\], \[2\]\]"):
        averaged.update_parameters(ng.nn.Linear(1, 2))
    assert averaged.module.weight.tolist() == before and averaged.n_averaged.item() == 0
    mean = swa_utils.get_swa_avg_fn()
    with pytest.raises(ValueError, match="Only one of avg_fn and multi_avg_fn"):
        swa_utils.AveragedModel(net, avg_fn=mean, multi_avg_fn=mean)
    with pytest.raises(ValueError, match=r"Invalid decay value 1\.5"):
        swa_utils.get_ema_avg_fn(1.5)
    optimizer = ng.optim.SGD(net.parameters(), lr=1.0)
    for wrong, words in (
        ({"anneal_strategy": "exp"}, "anneal_strategy must be one of"),
        ({"anneal_epochs": -1}, "anneal_epochs must be equal or greater than 0"),
        ({"swa_lr": [1.0, 2.0]}, "same length as optimizer.param_groups: swa_lr has 2"),
    ):
        with pytest.raises(ValueError, match=words):
            swa_utils.SWALR(optimizer, **{"swa_lr": 0.1, **wrong})
    assert "swa_lr" not in optimizer.param_groups[0]
