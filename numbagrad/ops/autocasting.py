"""What ``amp.autocast`` does to the tensors that an operation is given.

An operation that takes part begins with ``if machine.autocasting``, then casts its arguments: by
``lowered`` where tensor cores multiply, by ``raised`` where halves are too coarse or too narrow, by
``widest`` where all must have one dtype. The casts are operations: gradients come back in the
dtype of what was cast. Tensors of the CPU, of float64 and of integers stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from .. import dtypes
from ..dtypes import DType
from ..kernels import machine
from ..tape import AccumulateGrad, grad_mode
from ..tensor import Tensor

__all__: list[str] = []  # what operations call, none themselves

RAISED = frozenset(
    "acos asin cosh exp expm1 log log10 log1p log2 pow reciprocal rsqrt sinh softplus tan "
    "mse_loss smooth_l1_loss huber_loss binary_cross_entropy_with_logits kl_div".split()
)
"""Elementwise operations that compute in float32."""

_NARROW = (dtypes.float32, *dtypes.HALVES)


@dataclass(eq=False)
class Autocast:
    """What holds inside of an ``autocast``.

    cache: weights that were cast, while the outermost ``autocast`` lasts; None without a cache.
    """

    dtype: DType
    cache: dict[Any, tuple[Tensor, Tensor]] | None = field(default=None, repr=False)


@contextmanager
def within(state: Autocast | None) -> Iterator[None]:
    """Let ``state`` hold in this thread instead of what does."""
    held, grad_mode.autocast = grad_mode.autocast, state
    machine.autocast_by(1)
    try:
        yield
    finally:
        grad_mode.autocast = held
        machine.autocast_by(-1)


def without_cache(state: Autocast | None) -> Autocast | None:
    """What to keep of ``state`` for backward: no weights."""
    return None if state is None else Autocast(state.dtype)


def _takes_part(x: Any) -> bool:
    return isinstance(x, Tensor) and x._dtype in _NARROW and x._device.type == "cuda"


def lowered(*values: Any) -> tuple[Any, ...]:
    """``values``, their tensors in the dtype of the autocast that this thread is in."""
    state = grad_mode.autocast
    if state is None:
        return values
    return tuple([_low(v, state) if _takes_part(v) else v for v in values])


def _low(x: Tensor, state: Autocast) -> Tensor:
    if x._dtype is state.dtype:
        return x
    weight = type(x._edge) is AccumulateGrad and x._base is None and x._dtype is dtypes.float32
    if not weight or state.cache is None:
        return x.to(state.dtype)
    key = id(x), state.dtype, x._version, grad_mode.enabled, id(machine.recorder.current)
    found = state.cache.get(key)
    if found is None:
        found = state.cache[key] = x, x.to(state.dtype)  # x lives on, so that its id stays its own
    return found[1]


def raised(*values: Any) -> tuple[Any, ...]:
    """``values``, their halves in float32, inside of an autocast."""
    if grad_mode.autocast is None:
        return values
    halves = dtypes.HALVES
    return tuple([v.float() if _takes_part(v) and v._dtype in halves else v for v in values])


def raised_args(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """``args`` of the elementwise operation ``name``, ``raised`` if it is one of those."""
    if name == "binary_cross_entropy" and grad_mode.autocast is not None:
        if any(map(_takes_part, args)):
            raise RuntimeError(
                "binary_cross_entropy: unsafe to autocast, its gradient leaves the range of "
                "float16. Use binary_cross_entropy_with_logits without the sigmoid before it, or "
                "disable autocast around it."
            )
    return raised(*args) if name in RAISED else args


def widest(*values: Any) -> tuple[Any, ...]:
    """``values``, their tensors in the widest dtype among them, inside of an autocast."""
    if grad_mode.autocast is None:
        return values
    kinds = {v._dtype for v in values if _takes_part(v)}
    if len(kinds) < 2:
        return values
    wide = grad_mode.autocast.dtype if dtypes.float32 not in kinds else dtypes.float32
    return tuple([v.to(wide) if _takes_part(v) else v for v in values])
