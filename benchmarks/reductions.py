"""Reductions with their gradients, over all elements, columns and rows."""

from __future__ import annotations

import importlib
from typing import Any

from .case import uniform
from .gradients import Gradient, suite_of

SUITE = "reductions"
SQUARE = (1024, 1024)


def _squares(_: Any, x: Any) -> Any:
    return (x * x).sum()


def _over(name: str, axis: int) -> Any:
    """``x.<name>`` over one dimension, whose keyword is torch's or NumPy's."""
    return lambda _, x: getattr(x, name)(axis)


def _amax_in_torch(_: Any, x: Any) -> Any:
    return x.amax(1)


def _variance_in_torch(_: Any, x: Any) -> Any:
    return x.var(1, correction=0)


def _variance(_: Any, x: Any) -> Any:
    centred = x - x.mean(1)[:, None]
    return (centred * centred).mean(1)


def _logsumexp_in_torch(lib: Any, x: Any) -> Any:
    return lib.logsumexp(x, 1)


def _logsumexp(xp: Any, x: Any) -> Any:
    if xp.__name__ == "jax.numpy":
        return importlib.import_module("jax.nn").logsumexp(x, axis=1)
    top = x.max(1)
    return top + xp.log(xp.exp(x - top[:, None]).sum(1))


def _matrix(*shape: int) -> Any:
    return lambda: [uniform(*shape)]


WORKLOADS = [
    Gradient("sum of squares of 1000", _matrix(1000), _squares, _squares),
    Gradient("sum of squares of 10^6", _matrix(1_000_000), _squares, _squares),
    Gradient("sum (1024, 1024) over 0", _matrix(*SQUARE), _over("sum", 0), _over("sum", 0)),
    Gradient("mean (1024, 1024) over 1", _matrix(*SQUARE), _over("mean", 1), _over("mean", 1)),
    Gradient("amax (1024, 1024) over 1", _matrix(*SQUARE), _amax_in_torch, _over("max", 1)),
    Gradient("var (1024, 1024) over 1", _matrix(*SQUARE), _variance_in_torch, _variance),
    Gradient("logsumexp (1024, 1024) over 1", _matrix(*SQUARE), _logsumexp_in_torch, _logsumexp),
]

build = suite_of(WORKLOADS)
