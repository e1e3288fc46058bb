"""When a compiled function records, when it compiles, and that each call runs the right code."""

from __future__ import annotations

import functools
import warnings
from importlib import import_module

import numba
import numpy as np
import pytest
from numba.core.event import install_recorder

import numbagrad as ng
from numbagrad import nn
from numbagrad.errors import RecordingError

from .following import World, assert_same, batches, snapshot


def counts(function):
    info = function.cache_info()
    return info.recordings, info.compilations


def data(n, m=3, dtype=ng.float32):
    return ng.tensor(np.sin(np.arange(n * m) + n).reshape(n, m), dtype=dtype)


def chain(x):
    return (x * 2.0 + 1.0).tanh().sum(1)


def test_a_last_batch_compiles_once_more_and_serves_every_size():
    ng.manual_seed(0)
    world = World("Adam", lr=0.01)
    ng.manual_seed(0)
    other = World("Adam", lr=0.01)
    step = ng.compile(world.train)
    for size in (8, 8, 3, 8, 3, 1, 16, 7, 2, 1, 0 + 8):
        ((x, y),) = batches(1, size)
        assert_same(snapshot(step(x, y).detach()), snapshot(other.train(x, y).detach()))
        assert_same(
            snapshot([p.data for p in world.net.parameters()]),
            snapshot([p.data for p in other.net.parameters()]),
            tolerance=1e-5,
        )
    recordings, compilations = counts(step)
    assert compilations <= 3  # a batch of 1 takes another path through mm
    assert recordings <= 7  # one for each size


def test_any_dimension_may_change():
    f = ng.compile(chain)
    for n, m in [(4, 3), (6, 3), (2, 3), (6, 5), (6, 7), (1, 1), (3, 8), (0, 3), (2, 40)]:
        np.testing.assert_allclose(f(data(n, m)).numpy(), chain(data(n, m)).numpy(), 1e-6)
    assert counts(f)[1] <= 5


def test_dtype_rank_layout_and_modes():
    def f(x):
        return (x * 2.0 + 1.0).sum(-1)

    compiled = ng.compile(f)
    given = [
        data(4),
        data(4, dtype=ng.float64),
        data(4).view(2, 2, 3),
        data(4)[:, 1],
        data(4).t(),
        data(4)[::2],
        ng.arange(6).view(2, 3),
        data(4).requires_grad_(),
    ]
    for x in [*given, *given]:
        found, expected = compiled(x), f(x)
        assert found.dtype is expected.dtype and found.requires_grad == expected.requires_grad
        np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), 1e-6)
    recordings = counts(compiled)[0]
    assert recordings == len(given)
    x = given[-1]
    with ng.no_grad():
        assert not compiled(x).requires_grad
    with ng.inference_mode():
        assert not compiled(x).requires_grad
    assert compiled(x).requires_grad


def test_default_dtype():
    f = ng.compile(lambda: ng.ones(2) * 0.5)
    assert f().dtype is ng.float32
    ng.set_default_dtype(ng.float64)
    try:
        assert f().dtype is ng.float64
    finally:
        ng.set_default_dtype(ng.float32)
    assert f().dtype is ng.float32


def test_floats_are_inputs():
    @ng.compile
    def f(x, rate, offset=0.5):
        return x * (rate * 2.0 - 1.0) + offset / rate, rate + 1

    for rate in (0.5, 0.25, 3.0, -1.0, float("inf"), 1e-30):
        found, shifted = f(data(2), rate)
        expected = data(2) * (rate * 2.0 - 1.0) + 0.5 / rate
        np.testing.assert_allclose(found.numpy(), expected.numpy(), 1e-6)
        assert type(shifted) is float and shifted == rate + 1
    assert counts(f) == (1, 1)


def test_floats_as_learning_rate():
    weight, other = ng.ones(3, requires_grad=True), ng.ones(3, requires_grad=True)

    def descend(w, x, rate, power):
        w.grad = None
        ((w * x) ** power).sum().backward()
        with ng.no_grad():
            w -= rate * w.grad

    f = ng.compile(lambda x, rate, power: descend(weight, x, rate, power))
    for k in range(5):
        f(data(1)[0], 0.1 / (k + 1), 2.0 + k)
        descend(other, data(1)[0], 0.1 / (k + 1), 2.0 + k)
        np.testing.assert_allclose(weight.detach().numpy(), other.detach().numpy(), 1e-6)


def test_floats_that_decide():
    @ng.compile
    def f(x, limit):
        if limit > 1.0:
            return x * limit
        return x - limit

    for limit in (0.5, 2.0, 0.5, 3.0, 0.25):
        expected = data(2) * limit if limit > 1.0 else data(2) - limit
        assert f(data(2), limit).tolist() == expected.tolist()


FLOATS = {
    "int": lambda x, f: x * int(f),
    "round": lambda x, f: x * round(f),
    "math": lambda x, f: x * np.sqrt(f),
    "shape": lambda x, f: x.view(int(f), -1),
    "tensor": lambda x, f: x + ng.tensor(f),
    "full": lambda x, f: x + ng.full((2, 3), f),
    "fill": lambda x, f: ng.zeros(2, 3).fill_(f) + x,
    "clamp": lambda x, f: x.clamp(-f, f / 4),
    "power": lambda x, f: x.abs() ** f + f**x,
    "where": lambda x, f: ng.where(x > f / 10, x, f),
    "max": lambda x, f: x * max(f, 1.5),
    "list": lambda x, f: x * ng.tensor([f, 1.0, 2 * f]),
    "dropout": lambda x, f: nn.functional.dropout(x, f / 10, training=False) * f,
    "leaky": lambda x, f: nn.functional.leaky_relu(x, f),
    "format": lambda x, f: x * float(f"{f:.1f}"),
    "index": lambda x, f: x[:, : int(f)],
    "method": lambda x, f: x * 2 if f.is_integer() else x,
    "modulo": lambda x, f: x * (f % 1.5) + f // 2,
    "returned": lambda x, f: (x, f, -f, abs(-f), f**2),
    "alpha": lambda x, f: x.add(x, alpha=f),
    "mean": lambda x, f: (x / f).mean() * f,
}


@pytest.mark.parametrize("name", FLOATS)
def test_floats(name):
    f = ng.compile(FLOATS[name])
    for value in (2.0, 1.0, 3.0, 2.0):
        expected = FLOATS[name](data(2), value)
        assert_same(snapshot([f(data(2), value)]), snapshot([expected]))


def test_other_values_belong_to_the_signature():
    @ng.compile
    def f(x, n, flag, name, options=()):
        y = x.repeat(n, 1) if flag else x
        return y.sum() if name == "sum" else y.mean() + len(options)

    x = data(2)
    for _ in range(2):
        assert f(x, 2, True, "sum").item() == pytest.approx(2 * x.sum().item())
        assert f(x, 3, True, "sum").item() == pytest.approx(3 * x.sum().item())
        assert f(x, 3, False, "sum").item() == pytest.approx(x.sum().item())
        assert f(x, 3, False, "mean").item() == pytest.approx(x.mean().item())
        assert f(x, 3, False, "mean", (1, 2)).item() == pytest.approx(x.mean().item() + 2)
        assert f(x, True, False, "mean", [1]).item() == pytest.approx(x.mean().item() + 1)
    assert counts(f)[0] == 6


def test_an_int_is_not_a_float_or_a_bool():
    f = ng.compile(lambda x, n: x * n)
    x = ng.tensor([1, 2])
    assert f(x, 1).dtype is ng.int64
    assert f(x, 1.0).dtype is ng.float32
    assert f(x, True).dtype is ng.int64
    assert f(x, 1).dtype is ng.int64
    assert f(x, np.float32(0.5)).tolist() == [0.5, 1.0]


# -- values in closures, globals and attributes ----------------------------------------------------

SCALE = 2.0
TABLE = ng.tensor([1.0, 2.0, 3.0])


def helper(x):
    return x * SCALE


def test_globals(monkeypatch):
    f = ng.compile(lambda x: x * SCALE + TABLE)
    g = ng.compile(lambda x: helper(x) + 1.0)
    for scale in (2.0, 3.0, 2.0):
        monkeypatch.setitem(globals(), "SCALE", scale)
        assert ng.allclose(f(data(1)), data(1) * scale + TABLE)
        assert ng.allclose(g(data(1)), data(1) * scale + 1.0)
    monkeypatch.setitem(globals(), "TABLE", ng.tensor([5.0, 5.0, 5.0]))
    assert ng.allclose(f(data(1)), data(1) * SCALE + 5.0)
    TABLE.fill_(7.0)
    assert ng.allclose(f(data(1)), data(1) * SCALE + 7.0)


def test_closures():
    scale, flag, table = 2.0, True, ng.ones(3)

    def inner(x):
        return x * scale if flag else x

    f = ng.compile(lambda x: inner(x) + table)
    assert ng.allclose(f(data(1)), data(1) * 2.0 + 1.0)
    scale = 3.0
    assert ng.allclose(f(data(1)), data(1) * 3.0 + 1.0)
    flag = False
    assert ng.allclose(f(data(1)), data(1) + 1.0)
    table = ng.zeros(3)
    assert f(data(1)).tolist() == data(1).tolist()
    table.add_(4.0)
    assert ng.allclose(f(data(1)), data(1) + 4.0)


class Settings:
    scale = 2.0

    def __init__(self):
        self.shift = 1.0
        self.nested = None


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.settings = Settings()
        self.factor = 2.0
        self.calls = 0

    def forward(self, x):
        if self.settings.nested is not None:
            x = x + self.settings.nested.shift
        return x * self.factor * self.settings.scale + self.settings.shift


def test_attributes():
    model = Model()
    f = ng.compile(model)

    def check():
        assert ng.allclose(f(data(1)), model(data(1)))

    check()
    model.factor = 5.0
    check()
    model.settings.shift = 3.0
    check()
    model.settings.nested = Settings()
    check()
    model.settings.nested.shift = 7.0
    check()
    Settings.scale = 9.0
    try:
        check()
    finally:
        Settings.scale = 2.0
    check()


class Holder:
    """A number, and many ways to read it."""

    def __init__(self):
        self.scale = 2.0
        self.settings = {"scale": 2.0, "name": "a"}

    def __call__(self, x):
        return x * self.scale

    def __getitem__(self, key):
        return self.scale

    def __add__(self, x):
        return x + self.scale

    @property
    def twice(self):
        return 2 * self.scale

    @functools.cached_property
    def nothing(self):
        return 0.0

    def run(self, x):
        return x * self.scale + self.nothing

    def by_property(self, x):
        return x * self.twice

    def by_word(self, x):
        return x * getattr(self, "scale")  # noqa: B009

    def from_settings(self, x):
        return x * self.settings["scale"]


class Heir(Holder):
    """Inherits all of it."""


WAYS = {
    "call": lambda h: h,
    "call inside": lambda h: lambda x: h(x),
    "method": lambda h: h.run,
    "inherited": lambda h: lambda x: h.run(x),
    "partial": lambda h: functools.partial(Holder.run, h),
    "partial keyword": lambda h: functools.partial(lambda x, holder: holder(x), holder=h),
    "default": lambda h: lambda x, holder=h: holder.run(x),
    "keyword default": lambda h: _with_keyword_default(h),
    "brackets": lambda h: lambda x: x * h[0],
    "operator": lambda h: lambda x: h + x,
    "property": lambda h: h.by_property,
    "getattr": lambda h: h.by_word,
    "settings": lambda h: h.from_settings,
    "settings of a closure": lambda h: _of_settings(h.settings),
}


def _with_keyword_default(h):
    def function(x, *, holder=h):
        return holder.run(x)

    return function


def _of_settings(settings):
    return lambda x: x * settings["scale"]


@pytest.mark.parametrize("kind", [Holder, Heir])
@pytest.mark.parametrize("way", WAYS)
def test_a_number_is_noticed_however_it_is_read(way, kind):
    holder = kind()
    function = WAYS[way](holder)
    compiled = ng.compile(function)
    for scale in (2.0, 3.0, 3.0, 3):
        holder.scale = holder.settings["scale"] = scale
        x = ng.tensor([1, 2])
        expected = function(x)
        found = compiled(x)
        assert found.tolist() == expected.tolist() and found.dtype is expected.dtype
    holder.settings = {"scale": 5.0}
    assert compiled(x).tolist() == WAYS[way](holder)(x).tolist() or "closure" in way
    assert len(compiled.recordings) == (4 if way == "settings" else 3)


def test_settings_that_the_function_changes_are_refused_and_put_back():
    settings = {"scale": 2.0, "name": "a"}

    def f(x):
        settings["scale"] += 1.0
        settings["name"] += "b"
        return x * settings["scale"]

    with pytest.raises(RecordingError, match="'settings'"):
        ng.compile(f)(data(1))
    assert settings == {"scale": 2.0, "name": "a"}


def test_settings_that_the_first_call_makes():
    settings = {"scale": 2.0}

    def f(x):
        settings["scale"] += 1.0
        settings["more"] = 1
        return x * settings["scale"]

    compiled = ng.compile(f)
    for k in range(1, 4):
        assert ng.equal(compiled(data(1)), data(1) * (2.0 + k))
        assert settings == {"scale": 2.0 + k, "more": 1}


class Counting:
    def __init__(self):
        self.calls = 0

    def step(self, x):
        self.calls += 1
        return x * 2.0


def test_a_counter_inside_counts():
    counting = Counting()
    step = ng.compile(counting.step)
    for calls in range(1, 4):
        step(data(1))
        assert counting.calls == calls and step.cache_info().recordings == 1


# -- warmup and looking ----------------------------------------------------------------------------


def test_warmup_runs_nothing():
    ng.manual_seed(0)
    world = World("Adam")
    x, y = next(batches(1))
    step = ng.compile(world.train)
    expected = snapshot([list(world.net.parameters()), ng.get_rng_state()])
    step.warmup(x, y)
    found = snapshot([list(world.net.parameters()), ng.get_rng_state()])
    assert_same(found, expected, tolerance=0)
    before = counts(step)
    assert before == (1, 1)
    first = step(x, y)
    assert counts(step) == before
    ng.manual_seed(0)
    other = World("Adam")
    assert first.item() == pytest.approx(other.train(x, y).item())
    assert_same(snapshot(world.net), snapshot(other.net))


def test_nothing_recorded_yet():
    f = ng.compile(chain)
    with pytest.raises(RecordingError, match="nothing has been recorded"):
        f.program
    f.warmup(data(2))
    assert "tanh" in str(f.program)
    f.cache_clear()
    with pytest.raises(RecordingError):
        f.source
    f(data(2))
    assert "tanh" in f.source


def test_keywords_of_torch_compile():
    double = ng.compile(lambda x: x * 2.0, mode="max-autotune", fullgraph=True, dynamic=False)
    triple = ng.compile(backend="inductor", options={"trace": True})(lambda x: x * 3.0)
    assert double(ng.ones(2)).tolist() == [2.0, 2.0] and triple(ng.ones(2)).tolist() == [3.0, 3.0]
    model = ng.nn.Linear(2, 2)
    assert ng.compile(model, disable=True) is model
    assert ng.compile(disable=True)(model) is model
    with pytest.raises(TypeError, match="unexpected keyword argument 'jit'"):
        ng.compile(model, jit=True)


def test_not_callable():
    with pytest.raises(TypeError, match="callable"):
        ng.compile(3)


def test_many_signatures_are_bounded():
    f = ng.compile(lambda x, table: x * table["scale"])
    for k in range(40):
        assert f(data(1), {"scale": float(k)}).tolist() == (data(1) * float(k)).tolist()
    assert counts(f) == (1, 1)


def test_a_count_among_the_arguments_is_told_of():
    f = ng.compile(lambda x, step: x * len(range(step)))
    with pytest.warns(UserWarning, match=r"other Python values.*argument 1 is another: 16, was 15"):
        for step in range(18):
            assert f(data(1), step).tolist() == (data(1) * step).tolist()
    shapes = ng.compile(lambda x: x * 2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in range(1, 20):  # each of which is a recording too, but of one program
            shapes(ng.ones(size, size + 1))


def test_old_signatures_are_forgotten(monkeypatch):
    monkeypatch.setattr(import_module("numbagrad.compiled.step"), "SIGNATURES", 4)
    f = ng.compile(lambda x, name: x * len(name))
    for size in (*range(1, 8), 1):
        assert f(data(1), "n" * size).tolist() == (data(1) * size).tolist()
    assert len(f._entries) == 4 and f.cache_info().recordings == 8


def test_large_results_reuse_memory_that_nobody_holds():
    double = ng.compile(lambda x: x * 2.0)
    x = ng.ones(100_000)
    first = double(x)
    kept, where = first[10:12], first.data_ptr()
    del first
    second = double(x * 3.0)
    assert second.data_ptr() != where and kept.tolist() == [2.0, 2.0]
    array, where = second.numpy(), second.data_ptr()
    del second
    third = double(x)
    assert third.data_ptr() != where and array[0] == 6.0
    where = third.data_ptr()
    del third, array
    assert double(x).data_ptr() in (where, double(x).data_ptr())
    addresses = {double(x).data_ptr() for _ in range(6)}
    assert len(addresses) <= 2


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
def test_guards_are_no_functions_of_their_own(monkeypatch, tmp_path):
    """Numba would take 60 ms for each."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))  # nothing comes from the disk
    weight = ng.ones(1)

    def step(x):
        weight.add_(x.sum())
        return x * weight

    run = ng.compile(step)
    with install_recorder("numba:compile") as seen:
        run(ng.ones(7))
    assert "overlaps(" in run.source and "move_counts(" in run.source
    assert {e.data["dispatcher"].py_func.__name__[:14] for _, e in seen.buffer} == {
        "compiled_step_"
    }
