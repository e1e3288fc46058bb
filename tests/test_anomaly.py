"""``detect_anomaly`` names the operation, the user's line and the place of the first bad value."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import numba
import numpy as np
import pytest

import numbagrad as ng
from numbagrad.autograd.anomaly import Watcher
from numbagrad.errors import GradError, NonFiniteError
from numbagrad.kernels import machine


def line():
    """The caller's line, as errors show it."""
    frame = inspect.currentframe().f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def test_a_forward_operation_is_named_with_line_and_index():
    x = ng.tensor([[1.0, 2.0], [3.0, -4.0]])
    with ng.autograd.detect_anomaly():
        y = x * 2.0
        with pytest.raises(NonFiniteError) as caught:
            _ = (here := line()), y.log()
    assert str(caught.value) == (
        f"forward: log at {here} returned nan at index [1, 1] of its result, of shape [2, 2]; "
        f"nothing that it was given was nan."
    )
    assert isinstance(caught.value, GradError) and isinstance(caught.value, FloatingPointError)


def test_a_backward_operation_is_named_with_the_line_of_its_forward():
    x = ng.tensor([4.0, 0.0], requires_grad=True)
    with ng.autograd.detect_anomaly():
        here, y = line(), x.sqrt()
        loss = (y * ng.tensor([1.0, 0.0])).sum()
        with pytest.raises(NonFiniteError, match=r"at index \[1\]") as caught:
            loss.backward()
    assert str(caught.value).startswith("backward: SqrtBackward")
    assert here in str(caught.value)
    assert x.grad is None


def test_what_an_operation_was_given_is_not_its_fault():
    x = ng.tensor([1.0, float("nan")])
    with ng.autograd.detect_anomaly():
        assert ng.where(x.isnan(), ng.zeros(2), x).tolist() == [1.0, 0.0]
        with pytest.raises(
            NonFiniteError, match=r"met nan at index \[1\] of a tensor it was given"
        ):
            x + 1.0


def test_infinities_are_found_on_request_only():
    x = ng.tensor([0.0, 1.0])
    with ng.autograd.detect_anomaly():
        assert x.log().tolist() == [-np.inf, 0.0]
    with ng.autograd.detect_anomaly(check_inf=True):
        with pytest.raises(NonFiniteError, match=r"log at .* returned -inf at index \[0\]"):
            x.log()
    with ng.autograd.detect_anomaly(False):
        assert np.isnan((x - 2.0).log().tolist()[0])


def test_a_gradient_written_in_python_is_looked_at():
    class Bad(ng.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return ng.tensor([1.0, float("nan")])

    x = ng.tensor([1.0, 2.0], requires_grad=True)
    with (
        ng.autograd.detect_anomaly(),
        pytest.raises(NonFiniteError, match=r"backward: BadBack") as e,
    ):
        Bad.apply(x).sum().backward()
    assert "returned nan at index [1] of gradient 0" in str(e.value)


@numba.njit(error_model="numpy")
def reciprocal(out, x):
    for i in range(x.size):
        out[i] = np.float32(1.0) / x[i]


def test_a_kernel_of_ones_own_is_looked_at():
    out = ng.zeros(2)
    with ng.autograd.detect_anomaly(check_inf=True):
        with pytest.raises(NonFiniteError, match=r"reciprocal at .* returned inf at index \[1\]"):
            ng.launch(reciprocal, out, ng.tensor([2.0, 0.0]))


def test_it_decorates_nests_and_leaves_no_trace():
    @ng.autograd.detect_anomaly
    def bare(x):
        return x.log()

    @ng.autograd.detect_anomaly(check_inf=True)
    def called(x):
        return x.log()

    bare(ng.zeros(1))
    with pytest.raises(NonFiniteError):
        bare(-ng.ones(1))
    with pytest.raises(NonFiniteError):
        called(ng.zeros(1))
    block = ng.autograd.detect_anomaly()
    with block, block:
        pass
    assert machine.recorder.current is None and not machine.recording
    assert np.isnan((-ng.ones(1)).log().item())


def test_uninitialised_memory_is_not_reported():
    with ng.autograd.detect_anomaly(check_inf=True):
        for _ in range(50):
            x = ng.empty(64)
            x[::2] = ng.ones(32)
            assert x.shape == (64,)


def test_a_training_step_runs_unharmed():
    def trained(steps):
        ng.manual_seed(0)
        model = ng.nn.Sequential(ng.nn.Linear(3, 8), ng.nn.Dropout(0.5), ng.nn.Linear(8, 2))
        optimizer = ng.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, dampening=0.5)
        for _ in range(steps):
            optimizer.zero_grad()
            ng.nn.functional.cross_entropy(model(ng.randn(4, 3)), ng.randint(0, 2, (4,))).backward()
            optimizer.step()
        return [p.detach().numpy() for p in model.parameters()]

    plain = trained(3)
    with ng.autograd.detect_anomaly(check_inf=True):
        watched = trained(3)
    for a, b in zip(plain, watched, strict=True):
        assert np.array_equal(a, b)


def test_a_watcher_understands_all_that_recorders_are_told():
    told = set()
    for path in Path(ng.__file__).parent.rglob("*.py"):
        if path.parent.name != "compiled":
            told |= set(re.findall(r"\brecorder(?:\.current)?\.(\w+)", path.read_text()))
    assert {"launch", "check"} <= told
    assert told - {"current"} <= set(dir(Watcher(True)))


def test_an_index_names_the_element():
    x = np.ones((3, 4, 5), np.float32)
    x[2, 1, 3] = np.nan
    with ng.autograd.detect_anomaly(), pytest.raises(NonFiniteError) as caught:
        ng.from_numpy(x).exp()
    assert re.search(
        r"\[2, 1, 3\] of a tensor it was given \(shape \[3, 4, 5\]\)", str(caught.value)
    )


def test_it_is_turned_on_and_off():
    x = ng.tensor([-1.0])
    try:
        ng.autograd.set_detect_anomaly(True)
        ng.autograd.set_detect_anomaly(True)  # a second time changes nothing
        with pytest.raises(NonFiniteError, match="forward: log at"):
            x.log()
        with ng.autograd.set_detect_anomaly(False):
            assert x.log().isnan().all()
        with pytest.raises(NonFiniteError):
            x.log()
    finally:
        ng.autograd.set_detect_anomaly(False)
    assert x.log().isnan().all()
    with ng.autograd.set_detect_anomaly(True, check_inf=True), pytest.raises(NonFiniteError):
        ng.zeros(1).log()
    assert ng.zeros(1).log().isinf().all() and not machine.recording

    @ng.compile
    def inside(x):
        ng.autograd.set_detect_anomaly(True)
        return x * 2.0

    with pytest.raises(RuntimeError, match="not possible inside a compiled function"):
        inside(x)
    assert x.log().isnan().all() and not machine.recording
