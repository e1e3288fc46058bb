"""What a recorded function keeps outside of itself: nobody finds tensors without values there."""

from __future__ import annotations

import functools
import math
import types
from contextvars import ContextVar
from dataclasses import dataclass

import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.errors import RecordingError


@dataclass
class Pair:
    """Two tensors."""

    mask: ng.Tensor
    ramp: ng.Tensor


@pytest.mark.parametrize("size", [None, 4])
@pytest.mark.parametrize("kind", ["tensor", "tuple", "object"])
def test_what_a_cache_keeps_is_made_once_for_real(kind, size):
    """As of masks and tables of positions: the first call runs as it is."""

    @functools.lru_cache(size)
    def table(n):
        ramp = ng.arange(float(n)) + 1
        return {"tensor": ramp, "tuple": (ramp, [ramp]), "object": Pair(ramp > 1, ramp)}[kind]

    def function(x):
        found = table(len(x))
        ramp = {"tensor": lambda: found, "tuple": lambda: found[1][0], "object": lambda: found.ramp}
        return x * ramp[kind]()

    compiled = ng.compile(function)
    for _ in range(3):
        assert compiled(ng.ones(3)).tolist() == [1.0, 2.0, 3.0]
    assert compiled.cache_info().recordings == 1 and table.cache_info().misses <= 2
    assert function(ng.ones(3)).tolist() == [1.0, 2.0, 3.0]
    assert compiled(ng.ones(2)).tolist() == [1.0, 2.0]


def test_a_cache_beside_state_that_is_made():
    @functools.lru_cache
    def ramp(n):
        return ng.arange(float(n)) + 1

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = None

        def forward(self, x):
            if self.scale is None:
                self.scale = ng.ones(3)
            return x * ramp(3) * self.scale

    compiled = ng.compile(Layer())
    assert [compiled(ng.ones(3)).tolist() for _ in range(3)] == [[1.0, 2.0, 3.0]] * 3


def test_a_cache_that_keeps_other_tensors_in_each_call_is_refused():
    kept = functools.lru_cache(lambda x: x * 2.0)
    compiled = ng.compile(lambda x: kept(x) + 1.0)
    x = ng.ones(2)
    assert compiled(x).tolist() == [3.0, 3.0]  # as it is
    with pytest.raises(RecordingError, match="lru_cache keeps tensors"):
        compiled(x)
    assert kept(x).tolist() == [2.0, 2.0]


def test_a_cache_for_each_of_several_sizes():
    @functools.lru_cache(None)
    def mask(size):
        return ng.ones(size, size, dtype=ng.bool).tril()

    compiled = ng.compile(lambda x: x.masked_fill(~mask(len(x)), 0.0))
    for size in (3, 2, 4, 3, 5, 5):
        assert compiled(ng.ones(size, size)).sum().item() == size * (size + 1) / 2
    assert compiled.cache_info().recordings == 4
    alternating = ng.compile(lambda x: x * mask(len(x)).sum())
    for k in range(6):
        alternating(ng.ones(6 + k % 2))
    assert alternating.cache_info().recordings == 2


class Holder:
    """Where somebody puts something."""


def in_class(n):
    if not hasattr(Holder, "table"):
        Holder.table = ng.arange(n) + 1
    return Holder.table


def in_default(n, cache={}):  # noqa: B006
    if "table" not in cache:
        cache["table"] = ng.arange(n) + 1
    return cache["table"]


def test_a_cache_in_a_default_is_filled():
    compiled = ng.compile(lambda x: x * in_default(3.0))
    for _ in range(3):
        assert compiled(ng.ones(3)).tolist() == [1.0, 2.0, 3.0]
    assert in_default.__defaults__[0]["table"].tolist() == [1.0, 2.0, 3.0]


def test_a_class_keeps_what_the_first_call_makes():
    compiled = ng.compile(lambda x: x * in_class(3.0))
    for _ in range(3):
        assert compiled(ng.ones(3)).tolist() == Holder.table.tolist() == [1.0, 2.0, 3.0]
    Holder.table = ng.full((3,), 5.0)
    assert compiled(ng.ones(3)).tolist() == [5.0] * 3
    del Holder.table
    assert compiled(ng.ones(3)).tolist() == in_class(3.0).tolist() == [1.0, 2.0, 3.0]
    del Holder.table


def test_elsewhere_it_raises_whenever_it_is_used():
    def function(x):
        if not hasattr(Holder, "other"):
            setattr(Holder, "".join(["ot", "her"]), ng.arange(3.0) + 1)
        return x * Holder.other

    compiled = ng.compile(function)
    with pytest.raises(RecordingError, match="kept outside"):
        compiled(ng.ones(3))
    for call in (compiled, function):
        with pytest.raises(RecordingError, match="has no values"):
            call(ng.ones(3))
    kept = Holder.other
    for use in (kept.zero_, kept.tolist, lambda: kept + 1, lambda: ng.zeros_like(kept)):
        with pytest.raises(RecordingError, match="has no values"):
            use()
    del Holder.other
    assert function(ng.ones(3)).tolist() == compiled(ng.ones(3)).tolist() == [1.0, 2.0, 3.0]


def test_a_context_variable_is_as_it_was():
    variable = ContextVar("variable", default=None)

    def function(x):
        if variable.get() is None:
            variable.set(ng.arange(3.0) + 1)
        return x * variable.get()

    compiled = ng.compile(function)
    with pytest.raises(RecordingError, match="kept outside"):
        compiled(ng.ones(3))
    assert variable.get() is None and function(ng.ones(3)).tolist() == [1.0, 2.0, 3.0]
    assert compiled(ng.ones(3)).tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("rows", [0, 2])
def test_nothing_may_be_written_in_place(rows):
    """A batch of none: its strides are 0, and no element is another."""

    def function(x):
        y = x * 1.0
        y[:, 0] += 1.0
        y[y > 5] = 0.5
        return y.index_add(0, ng.zeros(rows, dtype=ng.int64), x)

    x = ng.ones(rows, 2)
    assert ng.equal(ng.compile(function)(x), function(x))


def test_a_module_may_be_made_inside():
    functions = [
        lambda x: nn.LayerNorm(2)(x), lambda x: nn.PReLU()(x), lambda x: nn.BatchNorm1d(2)(x),
        lambda x: nn.Sequential(nn.Embedding.from_pretrained(x), nn.Flatten())(ng.tensor([[0, 1]])),
    ]  # fmt: skip
    x = ng.tensor([[1.0, 2.0], [3.0, 5.0]])
    for function in functions:
        compiled = ng.compile(function)
        for _ in range(2):
            assert ng.allclose(compiled(x), function(x))


def test_a_mixture_of_tensors_and_numbers_that_is_set_anew_is_named():
    keeper = types.SimpleNamespace(state=(ng.zeros(3), 1.0))

    def step(x):
        keeper.state = keeper.state[0] + x, keeper.state[1] + 1.0
        return x

    with pytest.raises(RecordingError, match=r"in 'state', beside .* keep those apart"):
        ng.compile(step)(ng.ones(3))
    assert keeper.state[0].tolist() == [0.0] * 3 and keeper.state[1] == 1.0


def test_what_returns_before_it_has_run_is_no_function():
    def generator(x):
        yield x * 2

    async def later(x):
        return x * 2

    async def several(x):
        yield x * 2

    class Lazy(ng.nn.Module):
        def forward(self, x):
            yield x * 2

    for function in (generator, later, several, functools.partial(generator, 1), Lazy()):
        with pytest.raises(TypeError, match="returns before it has run"):
            ng.compile(function)


def test_a_cache_by_a_number_of_the_call_holds_numbers():
    @functools.lru_cache
    def rate(v):
        return math.cos(v) * 2

    @functools.lru_cache
    def product(v, times=1):
        return v * times

    def function(x, v):
        return x * rate(v) + product(v, times=v)

    compiled = ng.compile(function)
    for v in (0.1, 0.2, 0.1, 0.3, 0.1, 4, 5, 6, 7):
        expected = math.cos(v) * 2 + v * v
        assert compiled(ng.ones(1), v).item() == pytest.approx(expected)
        assert function(ng.ones(1), v).item() == pytest.approx(expected)
        assert type(product(v, times=v)) in (int, float) and type(rate(v)) is float
