"""Kernels that load float16 and bfloat16 themselves: the bits of the float32 form, rounded once."""

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.kernels import launches, widened
from numbagrad.kernels.cpu import reduce

CALLS = {
    "sum": lambda x, d: x.sum(d),
    "mean": lambda x, d: x.mean(d),
    "prod": lambda x, d: x.prod(d) if isinstance(d, int) else x.prod(),
    "amax": lambda x, d: x.amax(d),
    "amin": lambda x, d: x.amin(d),
    "nansum": lambda x, d: x.nansum(d),
    "norm": lambda x, d: x.norm(dim=d),
    "norm1": lambda x, d: x.norm(1, dim=d),
    "norm3": lambda x, d: x.norm(3, dim=d),
    "largest": lambda x, d: ng.linalg.vector_norm(x, float("inf"), d),
    "least": lambda x, d: ng.linalg.vector_norm(x, -float("inf"), d),
    "var": lambda x, d: x.var(d),
    "cumsum": lambda x, d: x.cumsum(d if isinstance(d, int) else 0),
    "cumprod": lambda x, d: x.cumprod(d if isinstance(d, int) else 0),
    "cummax": lambda x, d: x.cummax(d if isinstance(d, int) else 0)[0],
    "logcumsumexp": lambda x, d: x.logcumsumexp(d if isinstance(d, int) else 0),
    "logsumexp": lambda x, d: x.logsumexp(d),
    "log_softmax": lambda x, d: x.log_softmax(d if isinstance(d, int) else 0),
}
SHAPES = [(3, 5), (2, 7, 33), (40, 300), (300, 40)]
LONG = [(600, 400)]
"""For which threads are compiled: of one half."""


@pytest.mark.parametrize("dtype", [ng.bfloat16, ng.float16], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_the_float32_form_rounded(name, dtype):
    call = CALLS[name]
    for shape in SHAPES + LONG * (dtype is ng.bfloat16):
        values = np.random.default_rng(0).standard_normal(shape)
        for special in (False, True):
            if special:
                values[0, 0], values[1, 2] = np.nan, np.inf
            x = ng.tensor(values).to(dtype)
            for given in (x, x.transpose(0, 1)):
                for dim in (0, 1, (0, 1)):
                    found, expected = call(given, dim), call(given.float(), dim).to(dtype)
                    assert found.dtype is dtype
                    np.testing.assert_array_equal(found.float().numpy(), expected.float().numpy())


def test_counts_and_truths():
    x = ng.tensor([[0.0, 2.0, float("nan")], [0.0, 0.0, 0.0]])
    for dtype in (ng.bfloat16, ng.float16):
        half = x.to(dtype)
        assert half.any(1).tolist() == [True, False] and half.all(1).tolist() == [False, False]
        assert half.count_nonzero().item() == 2


def test_nothing_is_copied(monkeypatch):
    x = ng.ones(37, 41).bfloat16()
    monkeypatch.setattr(widened, "launch_widened", lambda *_: pytest.fail("copied"))
    assert x.sum().item() == 37 * 41 or x.sum().item() == 1520  # rounded to 8 bits
    assert x.amax(0).tolist() == [1.0] * 41


@pytest.mark.parametrize("dtype", [ng.bfloat16, ng.float16, ng.int16], ids=str)
def test_remembered_calls_find_the_way_in(dtype):
    x, out = (ng.ones(*shape).to(dtype)._array for shape in ((2, 8, 1), (2, 1, 1)))
    reduce.sum(out, x)
    assert launches._compiled_kernel(reduce.sum, (out, x)) is not None


def test_a_compiled_step_gives_the_same():
    x = ng.randn(64, 300).bfloat16()

    def function(x):
        return x.sum(1), x.amax(0), x.log_softmax(0), x.cumsum(1)

    for one, other in zip(function(x), ng.compile(function)(x), strict=True):
        assert ng.equal(one, other)
