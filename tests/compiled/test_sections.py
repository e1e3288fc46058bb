"""Long programs are several functions; what a program repeats is compiled once."""

import re

import numpy as np
import pytest

import numbagrad as ng
import numbagrad.nn.functional as F
from numbagrad.compiled import emit_cpu, emit_long


@pytest.fixture
def all_long(monkeypatch):
    """Every program is a long one, whatever is there twice is a function."""
    monkeypatch.setattr(emit_cpu, "MIDDLE", -1)
    monkeypatch.setattr(emit_cpu, "LONG", -1)
    monkeypatch.setattr(emit_long, "SECTION", 12)
    monkeypatch.setattr(emit_long, "WORTH", 0)


def functions(compiled):
    """How many functions a program is."""
    return len(re.findall(r"^def ", compiled.source, re.MULTILINE))


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


def test_a_program_in_sections_does_the_same(all_long):
    x, y = ng.randn(7, 6), ng.tensor([0, 1, 2, 0, 1, 2, 0])
    (mine, step), (theirs, plain) = training_step(), training_step()
    compiled = ng.compile(step)
    for factor in (1.0, 0.5, 0.25):
        assert compiled(x, y, factor).item() == pytest.approx(plain(x, y, factor).item(), 1e-6)
    for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(a.detach(), b.detach(), atol=1e-6)
    assert functions(compiled) > 3
    before = [p.detach().clone() for p in mine.parameters()]
    with pytest.raises(IndexError, match="out of bounds for 3 classes"):
        compiled(x, ng.tensor([0, 1, 2, 0, 1, 2, 9]), 1.0)
    assert all(ng.equal(a, b) for a, b in zip(before, mine.parameters(), strict=True))


def unrolled(steps):
    """A loop over time in Python, as a user writes it, and its step."""
    ng.manual_seed(0)
    cell = ng.nn.LSTMCell(3, 4)
    embedding = ng.nn.Embedding(7, 3)
    out = ng.nn.Linear(4, 7)
    parameters = [*cell.parameters(), *embedding.parameters(), *out.parameters()]
    optimizer = ng.optim.SGD(parameters, lr=0.1, momentum=0.9)

    def step(x, y, scale):
        optimizer.zero_grad()
        h = c = ng.zeros(len(x), 4)
        loss = 0.0
        for t in range(steps):
            h, c = cell(embedding(x[:, t]) * scale, (h, c))
            loss = loss + F.cross_entropy(out(h), y[:, t])
        loss.backward()
        optimizer.step()
        return loss

    return parameters, step


@pytest.mark.parametrize("steps", [2, 7, 15])
def test_a_loop_in_python_does_the_same(steps):
    x, y = ng.randint(0, 7, (5, steps)), ng.randint(0, 7, (5, steps))
    (mine, step), (theirs, plain) = unrolled(steps), unrolled(steps)
    compiled = ng.compile(step)
    for scale in (1.0, 0.5, 2.0):
        assert compiled(x, y, scale).item() == pytest.approx(plain(x, y, scale).item(), 1e-5)
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a.detach(), b.detach(), atol=1e-5)
    x[3, steps - 1] = 9
    before = [p.detach().clone() for p in mine]
    with pytest.raises(IndexError, match="embedding: index at position 3 is out of bounds"):
        compiled(x, y, 1.0)
    assert all(ng.equal(a, b) for a, b in zip(before, mine, strict=True))


def test_twice_as_many_steps_are_no_more_functions():
    made = []
    for steps in (10, 20):
        _, step = unrolled(steps)
        compiled = ng.compile(step)
        compiled(ng.randint(0, 7, (5, steps)), ng.randint(0, 7, (5, steps)), 1.0)
        made.append(compiled)
    assert functions(made[1]) <= functions(made[0]) + 2
    assert "# This runs " in made[0].source
    names = [set(re.findall(r"^def (\w+)\(", each.source, re.MULTILINE)) for each in made]
    assert len(names[0] & names[1]) > len(names[0]) // 2  # found on disk, whatever the steps


def test_layers_are_compiled_once():
    made = []
    for layers in (6, 12):
        ng.manual_seed(0)
        parts = [m for _ in range(layers) for m in (ng.nn.Linear(8, 8), ng.nn.Tanh())]
        model = ng.nn.Sequential(*parts)
        x = ng.randn(5, 8)

        def step(x, model=model):
            model.zero_grad()
            loss = (model(x) ** 2).sum()
            loss.backward()
            return loss

        compiled = ng.compile(step)
        loss = compiled(x).item()
        grads = [p.grad.clone() for p in model.parameters()]
        assert loss == pytest.approx(step(x).item(), rel=1e-5)
        for p, grad in zip(model.parameters(), grads, strict=True):
            np.testing.assert_allclose(grad, p.grad, rtol=1e-4, atol=1e-6)
        made.append(functions(compiled))
    assert made[0] == made[1]


@pytest.mark.parametrize("sizes", [3, 8])
def test_repeated_work_of_other_sizes(all_long, sizes):
    def triangle(x, y):
        rows = [(x[: n + 1] @ y[: n + 1].t()).exp().mean(1).sum() * x[n, 0] for n in range(sizes)]
        return ng.stack(rows)

    compiled = ng.compile(triangle)
    for rows in (sizes, sizes + 3):
        x, y = ng.randn(2, rows, 5, dtype=ng.float64)
        np.testing.assert_allclose(compiled(x, y), triangle(x, y), rtol=1e-12)


def test_a_loop_over_growing_parts_is_compiled_once():
    made = []
    for steps in (12, 24):
        weight = ng.randn(6, 6, dtype=ng.float64, requires_grad=True)

        def step(x, weight=weight, steps=steps):
            weight.grad = None
            total = 0.0
            for t in range(2, steps):
                seen = x[:t] @ weight
                total = total + (ng.softmax(seen[-1:] @ seen.t(), 1) @ seen).pow(2).mean()
            total.backward()
            return total

        x = ng.randn(steps, 6, dtype=ng.float64)
        compiled = ng.compile(step)
        found, grad = compiled(x).item(), weight.grad.clone()
        assert found == pytest.approx(step(x).item(), rel=1e-12)
        np.testing.assert_allclose(grad, weight.grad, rtol=1e-9)
        made.append(functions(compiled))
    assert made[1] <= made[0] + 3


def test_repeated_loops_with_threads(all_long, monkeypatch):
    if ng.get_num_threads() < 2:
        pytest.skip("one thread")
    monkeypatch.setattr(emit_cpu, "WORTH_THREADS", 1)

    def layers(x, a):
        for k in range(5):
            x = (x * a + k).tanh() - x.mean(1, keepdim=True)
            x = x + x.sum(0)
        return x

    x = ng.randn(70, 9, dtype=ng.float64)
    compiled = ng.compile(layers)
    for a in (0.5, 0.25):
        np.testing.assert_allclose(compiled(x, a), layers(x, a), rtol=1e-12)
    assert "prange" in compiled.source
    shared = re.findall(r"^def \w+\(table, at", compiled.source, re.MULTILINE)
    assert len(shared) < 5 * 3


def test_loops_with_threads_give_the_same(monkeypatch):
    if ng.get_num_threads() < 2:
        pytest.skip("one thread")
    monkeypatch.setattr(emit_cpu, "WORTH_THREADS", 1)

    def sums(x, y, a):
        z = (x * y + a).exp()
        return z.sum(), z.sum(0), z.sum(1), z.t() * 2

    x, y = ng.randn(70, 9, dtype=ng.float64), ng.randn(70, 9, dtype=ng.float64)
    compiled = ng.compile(sums)
    for mine, plain in zip(compiled(x, y, 0.5), sums(x, y, 0.5), strict=True):
        np.testing.assert_allclose(mine, plain, rtol=1e-13)
    assert "prange" in compiled.source


def test_buffers_on_one_place_have_one_pointer(monkeypatch):
    """Of two LLVM asks whether they overlap, and goes number by number where they do."""
    if ng.get_num_threads() < 2:
        pytest.skip("one thread")
    monkeypatch.setattr(emit_cpu, "WORTH_THREADS", 1)
    first, second = ng.nn.Linear(4, 16), ng.nn.Linear(16, 4)

    def step(x):
        loss = (second(F.gelu(first(x))) ** 2).sum()
        return ng.autograd.grad(loss, [*first.parameters(), *second.parameters()])

    x = ng.randn(32, 4)
    compiled = ng.compile(step)
    for mine, plain in zip(compiled(x), step(x), strict=True):
        np.testing.assert_allclose(mine, plain, rtol=1e-4, atol=1e-5)
    assert "prange" in compiled.source
    for function in re.split(r"^def ", compiled.source, flags=re.MULTILINE):
        if "prange(" not in function:
            continue
        places = re.findall(r"= pointer\(work \+ (\d+, \w+)\)", function)
        assert len(places) == len(set(places))


def test_a_profile_tells_of_each_time(all_long):
    def layers(x):
        for _ in range(4):
            x = (x @ x).exp()
        return x

    compiled = ng.compile(layers)
    x = ng.zeros(4, 4)
    compiled(x)
    with ng.profiler.profile() as p:
        compiled(x)
    assert sum("exp" in event.name for event in p.events) == 4


def test_any_name_will_do(all_long):
    t0 = t1_0 = p0 = x1_5 = at = words = offsets = None

    def layers(x):
        for _ in range(4):
            x = ((x @ t0 + p0) @ t1_0 * at).tanh() @ words + x1_5 @ offsets
        return x

    drawn = ng.randn(7, 4, 4, dtype=ng.float64)
    t0, t1_0, p0, x1_5, at, words, offsets = (drawn[k].clone() for k in range(7))
    x = ng.randn(4, 4, dtype=ng.float64)
    compiled = ng.compile(layers)
    np.testing.assert_allclose(compiled(x), layers(x), rtol=1e-12)
