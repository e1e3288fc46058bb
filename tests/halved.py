"""Rows of the op table on inputs that are rounded to halves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from op_table import Case, Fixed, Sample, convert, leaves

import numbagrad as ng

Change = Callable[[Any], Any]


def as_it_is(x: Any) -> Any:
    return x


def rounded(value: Any, dtype: Any, leaf: bool, floats: Change, others: Change) -> Any:
    """``value`` with its floats rounded to ``dtype`` and given to ``floats``, its other tensors to
    ``others``. leaf: whether floats need gradients."""
    if isinstance(value, ng.Tensor):
        if not value.dtype.is_floating_point:
            return others(value)
        return floats(value.detach().to(dtype)).requires_grad_(leaf)
    if isinstance(value, (list, tuple)):
        return type(value)(rounded(v, dtype, leaf, floats, others) for v in value)
    if isinstance(value, dict):
        return {k: rounded(v, dtype, leaf, floats, others) for k, v in value.items()}
    return value


def run(
    case: Case, call: Sample, dtype: Any, floats: Change = as_it_is, others: Change = as_it_is
) -> tuple[list[Any], list[Any]]:
    """Results and gradients of the float inputs, see ``rounded``."""
    leaf = case.orders >= 1

    def given(value: Any) -> Any:
        needs = leaf and not isinstance(value, Fixed)
        return rounded(convert(value), dtype, needs, floats, others)

    args = [given(value) for value in call.args]
    kwargs = {name: given(value) for name, value in call.kwargs.items()}
    ng.manual_seed(0)
    results = [r for r in leaves(case.target()(*args, **kwargs)) if isinstance(r, ng.Tensor)]
    outs = [r for r in results if r.requires_grad]
    inputs = list(leaves([*leaves(args), *leaves(list(kwargs.values()))]))
    inputs = [t for t in inputs if isinstance(t, ng.Tensor) and t.requires_grad]
    if not (leaf and outs):
        return results, []
    seeds = [ng.ones_like(o) for o in outs]
    return results, list(ng.autograd.grad(outs, inputs, seeds, allow_unused=True))


def second(
    case: Case, call: Sample, dtype: Any, floats: Change = as_it_is
) -> tuple[list[Any], list[Any]]:
    """First and second gradients of the float inputs of a row: of results and of gradients that
    are multiplied by numbers that halves have."""

    def given(value: Any) -> Any:
        return rounded(convert(value), dtype, not isinstance(value, Fixed), floats, as_it_is)

    args = [given(value) for value in call.args]
    kwargs = {name: given(value) for name, value in call.kwargs.items()}
    ng.manual_seed(0)
    results = [r for r in leaves(case.target()(*args, **kwargs)) if isinstance(r, ng.Tensor)]
    inputs = list(leaves([*leaves(args), *leaves(list(kwargs.values()))]))
    inputs = [t for t in inputs if isinstance(t, ng.Tensor) and t.requires_grad]
    outs = [r for r in results if r.requires_grad]
    if not outs:
        return [], []
    first = ng.autograd.grad(outs, inputs, weights(outs), create_graph=True, allow_unused=True)
    again = [g for g in first if g is not None and g.requires_grad]
    if not again:
        return list(first), []
    return list(first), list(ng.autograd.grad(again, inputs, weights(again), allow_unused=True))


def weights(tensors: list[Any]) -> list[Any]:
    """Numbers from 0.5 to 1.5, in their shapes and dtypes."""
    counted = [ng.arange(t.numel()).reshape(t.shape) for t in tensors]
    return [(n % 5 * 0.25 + 0.5).to(t.dtype) for n, t in zip(counted, tensors, strict=True)]
