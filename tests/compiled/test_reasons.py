"""A compiled function says why it was recorded again."""

from __future__ import annotations

import warnings

import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.compiled.step import ENTRIES, REASONS


class Scaled:
    """An object of the user with a Python number and tensors."""

    def __init__(self):
        self.scale = 2.0
        self.weight = ng.ones(3, requires_grad=True)
        self.count = ng.tensor([1, 2])
        self.net = nn.Dropout(0.5)

    def __call__(self, x, power=2):
        y = (x**power * self.weight).sum() * self.scale * self.count.tolist()[0]
        return self.net(y)


def rebound(s):
    s.weight.data = ng.ones(3)


# name: (what is done between two calls, sizes and so on of the second's, what is said)
REASONS_OF = {
    "number": (
        lambda s: setattr(s, "scale", 3.0),
        (3,),
        "value 'scale' is 3.0, was 2.0",
    ),
    "decides": (
        lambda s: s.count.add_(1),
        (3,),
        "a captured tensor or array that decides is",
    ),
    "memory": (rebound, (3,), r"memory of a captured tensor of shape \[3\].*\.data was set"),
    "frozen": (lambda s: s.weight.requires_grad_(False), (3,), r"shape \[3\] requires grad, or"),
    "mode": (lambda s: s.net.eval(), (3,), "a mode, a hook"),
    "dtype": (
        lambda s: None,
        (3, ng.float64),
        "argument 0: Tensor of ng.float64 on the CPU, w",
    ),
    "size": (lambda s: None, (3, 3), r"shape of argument 0: \(3, 3\), was \(3,\)"),
    "value": (lambda s: None, (3, None, 3), "argument 1 is another: 3, was 2"),
    "more": (lambda s: None, (3, None, None), "the number or nesting of the arguments is another"),
}


@pytest.mark.parametrize("row", REASONS_OF)
def test_the_reason_is_said(row):
    change, second, words = REASONS_OF[row]
    scaled = Scaled()
    step = ng.compile(scaled)
    assert step.recordings == ()
    step(ng.ones(3), *([2] if "val" in row else []))
    step(ng.ones(3), *([2] if "val" in row else []))
    assert step.recordings == ("the first call",)
    change(scaled)
    shape = [n for n in second if isinstance(n, int)][:2] if row == "size" else [3]
    x = ng.ones(*shape, dtype=ng.float64 if row == "dtype" else None)
    step(x, *([3] if row in ("value", "more") else []))
    assert len(step.recordings) == 2
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(step.recordings[1])


def test_the_mode_of_gradients_and_shared_memory():
    weight = ng.ones(3, requires_grad=True)
    step = ng.compile(lambda x, y: (x.mul_(2.0) + y) * weight)
    with ng.no_grad():
        step(ng.ones(3), ng.ones(3))
    step(ng.ones(3), ng.ones(3))
    x = ng.ones(3)
    step(x, x)
    assert step.recordings[1] == "whether gradients are recorded: True, was False"
    assert step.recordings[-1] == (
        "argument 1 is the same object as argument 0, was a tensor of its own"
    )
    step(x, x.view(3))
    assert "share memory" in step.recordings[-1]


def test_recordings_that_displace_each_other_are_warned_of_once():
    scaled = Scaled()
    scaled.name = ""
    step = ng.compile(lambda x: x * len(scaled.name))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for k in range(ENTRIES + 3):
            scaled.name = f"{k:02}"
            step(ng.ones(3))
    assert step.cache_info().recordings == ENTRIES + 3 == len(step.recordings) < REASONS
    (warning,) = [w for w in caught if "recorded" in str(w.message)]
    assert f"'name' is '{ENTRIES}', was '{ENTRIES - 1}'" in str(warning.message)
    assert warning.filename == __file__


def test_an_error_that_is_kept_in_the_first_call_does_not_keep_a_recording():
    """A call that makes state runs as it is; what it looks for may fail, and the error be kept."""
    kept = []
    weight = ng.ones(3, requires_grad=True)
    optimizer = ng.optim.SGD([weight], lr=0.1)

    def look():
        try:
            raise KeyError("looked for")
        except KeyError as error:
            kept.append(error)

    @ng.compile
    def step(x):
        if not ng.compiler.is_compiling():
            look()
        optimizer.param_groups[0].setdefault("mine", 1.0)
        optimizer.zero_grad()
        loss = (weight * x).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = [step(ng.ones(3)).item() for _ in range(3)]
    assert step.cache_info().recordings == 1 and losses[-1] < losses[0]
    assert [error.__context__ for error in kept] == [None]
