"""Going from ``train()`` to ``eval()`` and back finds the steps that were compiled before."""

from __future__ import annotations

import numbagrad as ng


def test_a_step_is_recorded_once_for_each_mode():
    model = ng.nn.Sequential(ng.nn.Linear(3, 3), ng.nn.Dropout(0.999))
    forward = ng.compile(lambda x: model(x))
    x = ng.ones(2, 3)
    with ng.no_grad():
        for _ in range(4):
            model.eval()
            assert ng.allclose(forward(x), model[0](x))
            model.train()
            assert (forward(x) == 0).float().mean().item() > 0.5
    assert forward.cache_info().recordings == 2


def test_two_switches_that_cancel_are_not_mistaken_for_none():
    a, b = ng.nn.Dropout(0.999), ng.nn.Dropout(0.999)
    b.eval()
    forward = ng.compile(lambda x: (a(x), b(x)))
    x = ng.ones(64)
    zeros, ones = forward(x)
    assert zeros.sum().item() != 64.0 and ones.sum().item() == 64.0
    a.eval()
    b.train()
    ones, zeros = forward(x)
    assert zeros.sum().item() != 64.0 and ones.sum().item() == 64.0
    assert forward.cache_info().recordings == 2
