"""Activations as ``nn.functional`` has them: with ``inplace``, and with a twin ``relu_``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ..ops import activation as further
from ..ops import elementwise
from ..ops.inplace import in_place
from ..tensor import Tensor

__all__: list[str] = []


def _relu6(input: Tensor) -> Tensor:
    """``input`` limited to [0, 6]; gradient 0 at the limits."""
    return further.hardtanh(input, 0, 6)


OPTIONS: dict[str, dict[str, Any]] = {
    "celu": {"alpha": 1.0},
    "elu": {"alpha": 1.0},
    "hardsigmoid": {},
    "hardswish": {},
    "hardtanh": {"min_val": -1.0, "max_val": 1.0},
    "leaky_relu": {"negative_slope": 0.01},
    "mish": {},
    "relu": {},
    "relu6": {},
    "selu": {},
    "silu": {},
    "threshold": {"threshold": inspect.Parameter.empty, "value": inspect.Parameter.empty},
}
"""Activations and what they take beside ``input`` and ``inplace``, with defaults."""


def with_inplace(name: str) -> Callable[..., Tensor]:
    """The activation ``name`` with a last argument ``inplace``: write the result into input."""
    function: Any = _relu6 if name == "relu6" else getattr(elementwise, name, None)
    function = function or getattr(further, name)
    change = in_place(f"{name}_", function)
    count = len(OPTIONS[name])

    def activation(input: Tensor, *options: Any, inplace: bool = False, **kwargs: Any) -> Tensor:
        if len(options) > count:
            *options, inplace = options  # type: ignore[assignment]
        if kwargs or inplace:
            return (change if inplace else function)(input, *options, **kwargs)
        return function(input, *options)

    activation.__name__ = activation.__qualname__ = name
    activation.__doc__ = function.__doc__
    activation.op = getattr(function, "op", None)  # type: ignore[attr-defined]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    listed = {"input": inspect.Parameter.empty, **OPTIONS[name], "inplace": False}
    activation.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(n, kind, default=d) for n, d in listed.items()]
    )
    return activation


FUNCTIONS = {name: with_inplace(name) for name in OPTIONS}


def twins() -> dict[str, Callable[..., Tensor]]:
    """``relu_`` and its kin: the activations, writing into their input."""
    named = "celu elu hardtanh leaky_relu relu selu threshold".split()
    return {f"{name}_": in_place(f"{name}_", FUNCTIONS[name]) for name in named}
