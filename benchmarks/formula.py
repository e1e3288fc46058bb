"""A user's own formula and a user's own ``Function``, against what users of the peers would write.

The formula is swish with a slope for each column, ``x / (1 + exp(-slope x))``: ``ng.elementwise``
derives its gradients. The peers compose it of their operations, or are told the gradient by hand.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .case import uniform
from .gradients import Gradient, suite_of

SUITE = "formula"


MADE: dict[tuple[Callable[..., Any], str], Any] = {}
"""What is made once for each library; torch.compile reads a dict, but no ``functools.cache``."""


def _once(make: Callable[[Any], Any], lib: Any) -> Any:
    key = make, lib.__name__
    if key not in MADE:
        MADE[key] = make(lib)
    return MADE[key]


def _swish_as_formula(lib: Any) -> Any:
    @lib.elementwise
    def swish(x, slope):
        return x / (1.0 + math.exp(-slope * x))

    return swish


def _swish_by_hand(lib: Any) -> Any:
    """A Function whose backward computes the sigmoid again: it saves its inputs alone."""

    class Swish(lib.autograd.Function):
        @staticmethod
        def forward(x: Any, slope: Any) -> Any:
            return x * lib.sigmoid(slope * x)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, slope = ctx.saved_tensors
            s = lib.sigmoid(slope * x)
            bend = g * s * (1 - s) * x
            return g * s + bend * slope, (bend * x).sum(0)

    return Swish.apply


def _swish_of_jax(jnp: Any) -> Any:
    jax = importlib.import_module("jax")

    @jax.custom_vjp
    def swish(x: Any, slope: Any) -> Any:
        return x * jax.nn.sigmoid(slope * x)

    def forward(x: Any, slope: Any) -> Any:
        return swish(x, slope), (x, slope)

    def backward(saved: Any, g: Any) -> Any:
        x, slope = saved
        s = jax.nn.sigmoid(slope * x)
        bend = g * s * (1 - s) * x
        return g * s + bend * slope, (bend * x).sum(0)

    swish.defvjp(forward, backward)
    return swish


def _composed(xp: Any, x: Any, slope: Any) -> Any:
    return x / (1.0 + xp.exp(-slope * x))


def _formula_in_torch(lib: Any, x: Any, slope: Any) -> Any:
    if lib.__name__ == "numbagrad":
        return _once(_swish_as_formula, lib)(x, slope)
    return _composed(lib, x, slope)


def _formula_or_by_hand(lib: Any, x: Any, slope: Any) -> Any:
    if lib.__name__ == "numbagrad":
        return _once(_swish_as_formula, lib)(x, slope)
    return _once(_swish_by_hand, lib)(x, slope)


def _by_hand_in_torch(lib: Any, x: Any, slope: Any) -> Any:
    return _once(_swish_by_hand, lib)(x, slope)


def _by_hand(xp: Any, x: Any, slope: Any) -> Any:
    """jax alone: the tapes over NumPy compose."""
    if xp.__name__ != "jax.numpy":
        raise NotImplementedError("written for jax only")
    return _once(_swish_of_jax, xp)(x, slope)


def _scaled(lib: Any) -> Any:
    class Scaled(lib.autograd.Function):
        @staticmethod
        def forward(x: Any, constant: float) -> Any:
            return x * constant

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            _, ctx.constant = inputs

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.constant, None

    return Scaled.apply


def _ten_in_torch(lib: Any, x: Any) -> Any:
    for _ in range(10):
        x = _once(_scaled, lib)(x, 1.125)
    return x


def _ten(_: Any, x: Any) -> Any:
    for _ in range(10):
        x = x * np.float32(1.125)
    return x


def _columns(n: int, m: int) -> Any:
    return lambda: [uniform(n, m) * 3, uniform(m) + np.float32(1.5)]


SMALL, LARGE = (16, 64), (1024, 1024)
WORKLOADS = [
    *[
        Gradient(f"{what} {shape}", _columns(*shape), in_torch, in_numpy, 1e-3)
        for shape in (SMALL, LARGE)
        for what, in_torch, in_numpy in (
            ("formula, peers composed", _formula_in_torch, _composed),
            ("formula, peers by hand", _formula_or_by_hand, _by_hand),
            ("Function by hand", _by_hand_in_torch, _by_hand),
        )
    ],
    Gradient("ten times a Function of one", lambda: [uniform(1)], _ten_in_torch, _ten),
]

build = suite_of(WORKLOADS)
