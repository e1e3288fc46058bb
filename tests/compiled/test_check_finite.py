"""``check_finite``: a compiled function stops at the first bad value and says where it was made."""

from __future__ import annotations

import inspect

import numba
import numpy as np
import pytest

import numbagrad as ng
from numbagrad.errors import NonFiniteError


def line_of(function, text):
    """``file:line`` of the line of a compiled function that contains ``text``."""
    lines, first = inspect.getsourcelines(function._function)
    (k,) = (k for k, line in enumerate(lines) if text in line and "def " not in line)
    return f"{inspect.getsourcefile(function._function)}:{first + k}"


def caught(function, *args):
    with pytest.raises(NonFiniteError) as error:
        function(*args)
    return str(error.value)


@ng.compile(check_finite=True)
def chain(x, y):
    a = x * 2.0
    b = a - y
    c = b.log()
    return (c + 1.0).exp().sum()


def test_a_forward_operation_inside_what_would_be_fused_is_named():
    x = ng.full((3, 4), 4.0)
    y = ng.ones(4)
    expected = ng.exp((x * 2.0 - y).log() + 1.0).sum()
    assert ng.allclose(chain(x, y), expected)
    x[1, 2] = 0.0
    assert caught(chain, x, y) == (
        f"forward: log at {line_of(chain, 'b.log')} returned nan at index [1, 2] of its result, "
        f"of shape [3, 4]; nothing that it was given was nan."
    )
    x[1, 2] = 0.5
    text = caught(chain, x, y)
    assert "log at" in text and "returned -inf at index [1, 2]" in text


def test_bad_arguments_are_named_as_such():
    x = ng.full((3, 4), 4.0)
    y = ng.ones(4)
    y[3] = float("inf")
    text = caught(chain, x, y)
    assert text.startswith(f"forward: sub at {line_of(chain, 'a - y')} met inf at index [3] of")
    assert "argument 1 (shape [4])" in text
    strided = ng.full((4, 3), 4.0).t()
    strided[2, 1] = float("nan")
    text = caught(chain, strided, ng.ones(4))
    assert "mul at" in text and "met nan" in text and "argument 0" in text


def make_step(options, rate=0.1):
    ng.manual_seed(0)
    model = ng.nn.Sequential(ng.nn.Linear(3, 4), ng.nn.Tanh(), ng.nn.Linear(4, 2))
    optimizer = ng.optim.SGD(model.parameters(), lr=rate, momentum=0.9)

    @ng.compile(**options)
    def step(x, target):
        optimizer.zero_grad()
        loss = ((model(x) - target).abs() ** 1.5).mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def test_a_training_step_computes_what_it_does_without():
    x, target = ng.randn(5, 3), ng.randn(5, 2)
    found = []
    for options in ({}, {"check_finite": True}):
        model, step = make_step(options)
        losses = [step(x, target).item() for _ in range(4)]
        found.append((losses, [p.detach().numpy() for p in model.parameters()]))
    (losses, weights), (checked_losses, checked_weights) = found
    assert losses == pytest.approx(checked_losses, rel=1e-6)
    for a, b in zip(weights, checked_weights, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_nothing_is_updated_after_a_bad_value():
    model, step = make_step({"check_finite": True})
    x, target = ng.randn(5, 3), ng.randn(5, 2)
    step(x, target)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    bad = x.clone()
    bad[4, 1] = float("nan")
    assert "argument 0 (shape [5, 3])" in caught(step, bad, target)
    for k, v in model.state_dict().items():
        assert ng.equal(v, before[k])
    assert np.isfinite(step(x, target).item())


def test_a_bad_parameter_is_named():
    model, step = make_step({"check_finite": True})
    x, target = ng.randn(5, 3), ng.randn(5, 2)
    step(x, target)
    model[0].weight.data[3, 1] = float("inf")
    text = caught(step, x, target)
    assert "met inf at index [3, 1] of weight (shape [4, 3])" in text


def test_a_backward_operation_is_named_with_the_line_of_its_forward():
    weight = ng.tensor([1.0, 0.0, 4.0], requires_grad=True)

    @ng.compile(check_finite=True)
    def step(x):
        weight.grad = None
        root = weight.sqrt()
        loss = (root * x).sum()
        loss.backward()
        return loss

    text = caught(step, ng.ones(3))
    assert text.startswith("backward: SqrtBackward")
    assert line_of(step, "weight.sqrt") in text
    assert "returned inf at index [1]" in text
    assert weight.grad is None


def test_the_gradient_of_a_compiled_function_is_looked_at():
    @ng.compile(check_finite=True)
    def root(x):
        return x.sqrt()

    x = ng.tensor([4.0, 0.0], requires_grad=True)
    y = root(x)
    with pytest.raises(NonFiniteError, match=r"backward: Sqrt.* returned inf at index \[1\]"):
        y.sum().backward()
    with pytest.raises(NonFiniteError, match=r"index \[0\] of the gradient it was given"):
        root(ng.ones(2, requires_grad=True)).backward(ng.tensor([float("nan"), 1.0]))


def test_nan_only():
    @ng.compile(check_finite="nan")
    def masked(x, mask):
        return ng.softmax(x.masked_fill(mask, float("-inf")), 1).log()

    mask = ng.tensor([[False, True], [False, False]])
    assert masked(ng.zeros(2, 2), mask).tolist()[0] == [0.0, -np.inf]
    text = caught(masked, ng.zeros(2, 2), ng.tensor([[True, True], [False, False]]))
    assert "softmax_rows at" in text and "returned nan at index [0, 0]" in text


def test_values_that_a_where_drops_are_nobody_s_fault():
    @ng.compile(check_finite=True)
    def cleaned(x):
        return ng.where(x.isnan(), ng.zeros_like(x), x) * 2.0

    assert cleaned(ng.tensor([1.0, float("nan")])).tolist() == [2.0, 0.0]


@numba.njit
def first_half(out, x):
    for i in range(x.size // 2):
        out[i] = x[i]


def test_memory_that_is_never_written_is_not_reported():
    @ng.compile(check_finite=True)
    def half(x):
        out = ng.empty_like(x)
        ng.launch(first_half, out, x)
        return out[:4] + 1.0

    for _ in range(5):
        assert half(ng.ones(8)).tolist() == [2.0] * 4
    text = caught(half, ng.tensor([1.0, 1.0, np.nan, *[1.0] * 5]))
    assert "first_half at" in text and "met nan at index [2] of argument 0" in text


def test_inside_detect_anomaly_a_compiled_function_is_checked():
    @ng.compile
    def log(x):
        return (x * 2.0).log()

    x = ng.tensor([1.0, -1.0])
    assert np.isnan(log(x).tolist()[1])
    with ng.autograd.detect_anomaly():
        assert "log at" in caught(log, x)
        assert log(ng.zeros(2)).tolist() == [-np.inf] * 2
    with ng.autograd.detect_anomaly(check_inf=True):
        assert "returned -inf at index [0]" in caught(log, ng.zeros(2))
    assert np.isnan(log(x).tolist()[1])


def test_detect_anomaly_inside_a_compiled_function_is_refused():
    @ng.compile
    def log(x):
        with ng.autograd.detect_anomaly():
            return x.log()

    with pytest.raises(ng.errors.RecordingError, match="check_finite=True"):
        log(ng.ones(2))


def test_an_unknown_option_is_refused():
    with pytest.raises(ValueError, match="check_finite is True, False"):
        ng.compile(check_finite="inf")
