"""Long programs are cut into functions; loops with threads are functions too."""

import numpy as np
import pytest

import numbagrad as ng
import numbagrad.nn.functional as F
from numbagrad.compiled import emit_cpu


def training_step():
    ng.manual_seed(0)
    model = ng.nn.Sequential(ng.nn.Linear(6, 5), ng.nn.Tanh(), ng.nn.Linear(5, 3))
    optimizer = ng.optim.Adam(model.parameters(), lr=0.01)

    def step(x, y, factor):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x) * factor, y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def test_a_program_in_sections_does_the_same(monkeypatch):
    monkeypatch.setattr(emit_cpu, "LONG", 0)
    monkeypatch.setattr(emit_cpu, "SECTION", 12)
    x, y = ng.randn(7, 6), ng.tensor([0, 1, 2, 0, 1, 2, 0])
    (mine, step), (theirs, plain) = training_step(), training_step()
    compiled = ng.compile(step)
    for factor in (1.0, 0.5, 0.25):
        assert compiled(x, y, factor).item() == pytest.approx(plain(x, y, factor).item(), 1e-6)
    for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(a.detach(), b.detach(), atol=1e-6)
    assert compiled.source.count("call_for(") > 2
    before = [p.detach().clone() for p in mine.parameters()]
    with pytest.raises(IndexError, match="out of bounds for 3 classes"):
        compiled(x, ng.tensor([0, 1, 2, 0, 1, 2, 9]), 1.0)
    assert all(ng.equal(a, b) for a, b in zip(before, mine.parameters(), strict=True))


def test_loops_with_threads_give_the_same(monkeypatch):
    if ng.get_num_threads() < 2:
        pytest.skip("one thread")
    monkeypatch.setattr("numbagrad.compiled.emit_cpu.WORTH_THREADS", 1)

    def sums(x, y, a):
        z = (x * y + a).exp()
        return z.sum(), z.sum(0), z.sum(1), z.t() * 2

    x, y = ng.randn(70, 9, dtype=ng.float64), ng.randn(70, 9, dtype=ng.float64)
    compiled = ng.compile(sums)
    for mine, plain in zip(compiled(x, y, 0.5), sums(x, y, 0.5), strict=True):
        np.testing.assert_allclose(mine, plain, rtol=1e-13)
    assert "prange" in compiled.source
