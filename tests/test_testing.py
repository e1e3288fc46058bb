"""``testing.assert_close``: what passes, what it says, beside PyTorch's."""

from __future__ import annotations

import math
from collections import OrderedDict

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.testing import assert_close

NAN, INF = math.nan, math.inf


def both_say(actual, expected, **options):
    """Whether the pair is close here, and in PyTorch where that is installed."""

    def verdict(assertion, *pair):
        try:
            assertion(*pair, **options)
        except AssertionError:
            return False
        return True

    ours = verdict(assert_close, actual, expected)
    torch = pytest.importorskip("torch")

    def theirs(value):
        if isinstance(value, ng.Tensor):
            return torch.from_numpy(value.detach().numpy().copy())
        if isinstance(value, dict):
            return {k: theirs(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(map(theirs, value))
        return value

    assert ours == verdict(torch.testing.assert_close, theirs(actual), theirs(expected))
    return ours


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_tolerances_of_each_dtype(name, factor):
    dtype = getattr(ng, name)
    rtol, atol = {"float16": (1e-3, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}[name]
    expected = ng.tensor([1.0, 100.0, -3.0], dtype=dtype)
    apart = factor * (atol + rtol * 100.0)
    actual = expected + ng.tensor([0.0, apart, 0.0], dtype=dtype)
    assert both_say(actual, expected) == (abs(actual[1] - 100.0).item() <= atol + rtol * 100.0)


@pytest.mark.parametrize(
    ("actual", "expected", "options", "close"),
    [
        ([1.0, INF, -INF], [1.0, INF, -INF], {}, True),
        ([INF], [-INF], {}, False),
        ([INF], [1e30], {"rtol": 1.0, "atol": 1.0}, False),
        ([1e30], [INF], {"rtol": 1.0, "atol": 1.0}, False),
        ([NAN], [NAN], {}, False),
        ([NAN, 1.0], [NAN, 1.0], {"equal_nan": True}, True),
        ([NAN], [1.0], {"equal_nan": True}, False),
        ([1, 2], [1, 3], {}, False),
        ([1, 2], [1, 3], {"rtol": 0.0, "atol": 1.0}, True),
        ([True, False], [True, True], {}, False),
        ([2**62, -(2**62)], [2**62, -(2**62)], {}, True),
        ([], [], {}, True),
        ([[1.0, 2.0]], [[1.0], [2.0]], {}, False),
        ([1], [1.0], {}, False),
        ([1], [1.0], {"check_dtype": False}, True),
        (1.0, 1.0 + 1e-12, {}, True),
        (1.0, 1.1, {"rtol": 0.0, "atol": 0.2}, True),
    ],
)
def test_tensors(actual, expected, options, close):
    assert both_say(ng.tensor(actual), ng.tensor(expected), **options) is close


@pytest.mark.parametrize(
    ("actual", "expected", "options", "close"),
    [
        (1.0, 1.0 + 1e-9, {}, True),
        (1.0, 1.1, {}, False),
        (1, 1.0, {}, False),
        (1, 1.0, {"check_dtype": False}, True),
        (3, 3, {}, True),
        (3, 4, {}, False),
        (True, True, {}, True),
        (None, None, {}, True),
        (NAN, NAN, {"equal_nan": True}, True),
    ],
)
def test_numbers(actual, expected, options, close):
    assert both_say(actual, expected, **options) is close


def test_whole_numbers_beyond_53_bits():
    assert_close(10**400, 10**400)
    with pytest.raises(AssertionError):
        assert_close(ng.tensor([2**60 + 1]), ng.tensor([2**60]))
    assert_close(ng.tensor([-(2**63)]), ng.tensor([2**63 - 1]), rtol=0, atol=2.0**64)


def test_containers():
    ones = ng.ones(2)
    assert both_say([ones, {"a": (1.0, ones)}], [ones, {"a": (1.0, ones)}])
    assert not both_say({"a": ones}, {"a": ones, "b": ones})
    assert not both_say([ones], [ones, ones])
    assert_close(OrderedDict(a=1.0), {"a": 1.0})
    net = nn.Linear(2, 3)
    assert_close(net.state_dict(), {k: v.clone() for k, v in net.state_dict().items()})
    with pytest.raises(AssertionError, match=r"It is item \['b'\]\[1\]\."):
        assert_close({"b": [ones, ones]}, {"b": [ones, 2 * ones]})


def test_what_it_says():
    actual, expected = ng.tensor([[1.0, 2.0], [3.0, 4.5]]), ng.tensor([[1.0, 2.5], [3.0, 4.0]])
    with pytest.raises(AssertionError) as caught:
        assert_close(actual, expected)
    assert str(caught.value).splitlines() == [
        "Tensor-likes are not close!",
        "",
        "Mismatched elements: 2 / 4 (50.0%)",
        "Greatest absolute difference: 0.5 at index (0, 1): 2.0 for 2.5 (up to 1e-05 allowed)",
        "Greatest relative difference: 0.2 at index (0, 1): 2.0 for 2.5 (up to 1.3e-06 allowed)",
    ]
    with pytest.raises(AssertionError, match=r"Expected 2\.0 but got 1\.0"):
        assert_close(ng.tensor(1.0), ng.tensor(2.0))
    with pytest.raises(AssertionError, match="not equal!"):
        assert_close(ng.tensor([1]), ng.tensor([2]))
    with pytest.raises(AssertionError, match=r"difference: nan at index \(1,\)"):
        assert_close(ng.tensor([1.0, NAN]), ng.tensor([1.0, NAN]))
    with pytest.raises(AssertionError, match=r"attribute 'dtype' do not match: ng.float32 != "):
        assert_close(ng.ones(2), ng.ones(2, dtype=ng.double))


def test_msg():
    with pytest.raises(AssertionError, match=r"^no$"):
        assert_close(1.0, 2.0, msg="no")
    with pytest.raises(AssertionError, match=r"^layer 3: Scalars are not close!"):
        assert_close(1.0, 2.0, msg=lambda said: f"layer 3: {said}")


def test_strides_devices_subclasses():
    x = ng.arange(6.0).reshape(2, 3)
    turned = x.t().contiguous().t()
    assert_close(x, turned)
    with pytest.raises(AssertionError, match="'stride'"):
        assert_close(x, turned, check_stride=True)
    parameter = nn.Parameter(ng.ones(2))
    assert_close(parameter, ng.ones(2))
    with pytest.raises(TypeError, match="Parameter with Tensor"):
        assert_close(parameter, ng.ones(2), allow_subclasses=False)


def test_arrays():
    assert_close(np.arange(3.0), np.arange(3.0))
    with pytest.raises(AssertionError, match="Mismatched elements: 1 / 3"):
        assert_close(np.array([1, 2, 3]), np.array([1, 2, 4]))
    with pytest.raises(TypeError, match="Tensor with ndarray"):
        assert_close(ng.ones(2), np.ones(2, np.float32))


@pytest.mark.parametrize(
    ("actual", "expected", "options", "error"),
    [
        ("a", "a", {}, TypeError),
        (ng.ones(2), [1.0, 1.0], {}, TypeError),
        (ng.ones(2), None, {}, TypeError),
        (1.0, 1.0, {"rtol": 1e-3}, ValueError),
        (1.0, 1.0, {"atol": 1e-3}, ValueError),
        (1.0, 1.0, {"rtol": -1.0, "atol": 0.0}, ValueError),
        (1.0, 1.0, {"rtol": NAN, "atol": 0.0}, ValueError),
    ],
)
def test_bad_input(actual, expected, options, error):
    with pytest.raises(error, match="assert_close: "):
        assert_close(actual, expected, **options)
