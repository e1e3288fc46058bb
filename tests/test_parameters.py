"""The parameters that may be given by place are PyTorch's, in its order."""

from __future__ import annotations

import inspect

import pytest

import numbagrad as ng

PLACES = """
    nn nn.functional nn.init nn.utils nn.utils.rnn nn.utils.parametrizations nn.utils.prune optim
    optim.lr_scheduler optim.swa_utils utils.data utils.checkpoint distributions cuda amp linalg
    profiler
""".split()

OTHERWISE = {
    # Results go into ``out`` elsewhere, and no GPU here emulates bfloat16.
    "normalize", "is_bf16_supported", "Event",
    # Ours take by place what PyTorch's take by name alone.
    "GaussianNLLLoss", "TripletMarginWithDistanceLoss",
    # Classes that are made otherwise, or not by users.
    "RNNBase", "UninitializedBuffer", "Module", "tensorboard_trace_handler",
}  # fmt: skip


def by_place(function):
    """Names of the parameters that may be given by place; None where nobody can tell."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        return None
    return [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]


@pytest.mark.peer
@pytest.mark.parametrize("place", PLACES)
def test_names_and_order_are_pytorchs(place):
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch.nn.utils.prune")
    ours, theirs = ng, torch
    for part in place.split("."):
        ours, theirs = getattr(ours, part), getattr(theirs, part)
    wrong = []
    for name in sorted({*dir(ours)} & {*dir(theirs)} - OTHERWISE):
        if name.startswith("_") or not callable(getattr(theirs, name)):
            continue
        mine, his = by_place(getattr(ours, name)), by_place(getattr(theirs, name))
        if mine is not None and his is not None and mine != his:
            wrong.append(f"{place}.{name}{mine} is {his}")
    assert not wrong, "\n".join(wrong)
