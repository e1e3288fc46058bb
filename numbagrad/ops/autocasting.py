"""What ``amp.autocast`` does to the tensors that an operation is given.

An operation that takes part begins with ``if machine.autocasting``, then casts its arguments: by
``lowered`` where matrices are multiplied, by ``raised`` where halves are too coarse or too narrow,
by ``widest`` where all must have one dtype. The casts are operations: gradients come back in the
dtype of what was cast. Tensors of float64 and of integers stay as they are, and those on a device
that no autocast is for. As in PyTorch fewer operations are raised on a CPU than on a GPU: losses
and a few more; norms, softmax and sums of halves compute in float32 there too, but give halves.
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

GPU, BOTH = ("cuda",), ("cuda", "cpu")

CPU = ("cpu",)

RAISED = frozenset(
    "acos asin cosh exp expm1 log log10 log1p log2 pow reciprocal rsqrt sinh softplus tan "
    "mse_loss smooth_l1_loss huber_loss binary_cross_entropy_with_logits kl_div".split()
)
"""Formulas that compute in float32 on a GPU."""

_NARROW = (dtypes.float32, *dtypes.HALVES)


@dataclass(eq=False)
class Autocast:
    """What holds inside of an ``autocast``.

    kinds: by type of device, the dtype in which matrices are multiplied. cache: weights that were
    cast, while the outermost ``autocast`` lasts; None without a cache.
    """

    kinds: dict[str, DType]
    cache: dict[Any, tuple[Tensor, Tensor]] | None = field(default=None, repr=False)

    def apart(self) -> Autocast:
        """The same, with weights of its own."""
        return Autocast(self.kinds, None if self.cache is None else {})

    @property
    def key(self) -> tuple[Any, ...]:
        """By what recordings tell it from others."""
        return tuple(sorted([(device, kind.name) for device, kind in self.kinds.items()]))


@contextmanager
def within(state: Autocast | None) -> Iterator[None]:
    """Let ``state`` hold in this thread instead of what does."""
    if state is None and grad_mode.autocast is None:
        yield
        return
    held, grad_mode.autocast = grad_mode.autocast, state
    machine.autocast_by(1)
    try:
        yield
    finally:
        grad_mode.autocast = held
        machine.autocast_by(-1)


def without_cache(state: Autocast | None) -> Autocast | None:
    """What to keep of ``state`` for backward: no weights."""
    return None if state is None else Autocast(state.kinds)


def _kind(x: Any, on: tuple[str, ...] = BOTH) -> DType | None:
    """The dtype of products where ``x`` lies, if that is ``on`` and x takes part; else None."""
    if not isinstance(x, Tensor) or x._dtype not in _NARROW:
        return None
    device = x._device.type
    return grad_mode.autocast.kinds.get(device) if device in on else None


def takes_part(*values: Any) -> bool:
    """Whether the autocast that this thread is in has products of any of ``values`` in halves."""
    return grad_mode.autocast is not None and any([_kind(v) is not None for v in values])


def lowered(*values: Any, on: tuple[str, ...] = BOTH) -> tuple[Any, ...]:
    """``values``, their tensors in the dtype of the autocast that this thread is in."""
    state = grad_mode.autocast
    if state is None:
        return values
    kinds = [_kind(v, on) for v in values]
    return tuple(
        [v if k is None else _low(v, k, state) for v, k in zip(values, kinds, strict=True)]
    )


def _low(x: Tensor, kind: DType, state: Autocast) -> Tensor:
    if x._dtype is kind:
        return x
    weight = type(x._edge) is AccumulateGrad and x._base is None and x._dtype is dtypes.float32
    if not weight or state.cache is None:
        return x.to(kind)
    key = id(x), kind, x._version, grad_mode.enabled, id(machine.recorder.current)
    found = state.cache.get(key)
    if found is None:
        found = state.cache[key] = x, x.to(kind)  # x lives on, so that its id stays its own
    return found[1]


def raised(*values: Any, on: tuple[str, ...] = GPU) -> tuple[Any, ...]:
    """``values``, their halves in float32, inside of an autocast."""
    if grad_mode.autocast is None:
        return values
    halves = dtypes.HALVES
    return tuple(
        [v.float() if _kind(v, on) is not None and v._dtype in halves else v for v in values]
    )


def raised_args(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """``args`` of the formula ``name``, ``raised`` if it is one of those."""
    if name == "binary_cross_entropy" and grad_mode.autocast is not None:
        if any([_kind(a, GPU) is not None for a in args]):
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
    taking = [_kind(v) for v in values]
    met = {v._dtype for v, kind in zip(values, taking, strict=True) if kind is not None}
    if len(met) < 2:
        return values
    wide = dtypes.float32 if dtypes.float32 in met else next(k for k in taking if k is not None)
    return tuple([v if k is None else v.to(wide) for v, k in zip(values, taking, strict=True)])
