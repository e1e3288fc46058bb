"""``autocast``: operations on a GPU choose their dtypes; and what a ``Function`` does inside."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .. import dtypes
from ..dtypes import DType
from ..kernels import machine
from ..ops.autocasting import Autocast, within, without_cache
from ..tape import grad_mode
from ..tensor import Tensor

__all__ = ["autocast", "custom_bwd", "custom_fwd", "get_autocast_dtype", "is_autocast_enabled"]


class autocast:
    """In the block, or the decorated function, operations on a GPU choose the dtype they run in.

    Products (linear, matmul, bmm, convolutions and their kin) run in ``dtype``, on tensor cores;
    softmax, losses, norms, exp, log, pow, sum and their kin in float32; the rest as promotion says.
    The tensors themselves, parameters above all, keep their dtype, and so do their gradients.

    device_type: "cuda"; the CPU has no products of halves, "cpu" raises unless it is disabled.
    dtype: float16, which needs a ``GradScaler``, or bfloat16. enabled: False is a region in which
    nothing is cast, also inside of another. cache_enabled: keep each weight that is cast until the
    outermost block ends. Run ``backward`` outside of the block, it needs none: gradients have the
    dtypes of what they belong to.

    >>> with autocast("cuda", dtype=dtypes.bfloat16):
    ...     is_autocast_enabled("cuda")
    True
    """

    def __init__(
        self,
        device_type: str = "cuda",
        dtype: Any = None,
        enabled: bool = True,
        cache_enabled: bool = True,
    ):
        _check_device("autocast", device_type)
        dtype = dtypes.float16 if dtype is None else dtypes.to_dtype(dtype)
        self.enabled = enabled = bool(enabled)
        if enabled and device_type == "cpu":
            raise ValueError(
                "autocast: the CPU has no products of halves, so there is nothing to cast to. "
                "Use device_type='cuda', or enabled=False."
            )
        if enabled and dtype not in dtypes.HALVES:
            raise ValueError(
                f"autocast: dtype must be ng.float16 or ng.bfloat16, got {dtype}. Use "
                f"enabled=False for a region without casts."
            )
        self.device, self.fast_dtype, self.cache_enabled = device_type, dtype, cache_enabled
        self._held: list[Any] = []

    def __enter__(self) -> autocast:
        held = grad_mode.autocast
        self._held.append(held)
        if self.device == "cuda":
            cache: Any = None
            if self.cache_enabled:
                cache = {} if held is None or held.cache is None else held.cache
            grad_mode.autocast = Autocast(self.fast_dtype, cache) if self.enabled else None
            machine.autocast_by(1)
        return self

    def __exit__(self, *exception: Any) -> None:
        held = self._held.pop()
        if self.device == "cuda":
            grad_mode.autocast = held
            machine.autocast_by(-1)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with autocast(self.device, self.fast_dtype, self.enabled, self.cache_enabled):
                return function(*args, **kwargs)

        return wrapper


def _check_device(name: str, device_type: Any) -> None:
    if device_type not in ("cuda", "cpu"):
        raise ValueError(f"{name}: device_type must be 'cuda' or 'cpu', got {device_type!r}.")


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether operations on ``device_type`` choose their dtypes in this thread now."""
    _check_device("is_autocast_enabled", device_type)
    return device_type == "cuda" and grad_mode.autocast is not None


def get_autocast_dtype(device_type: str = "cuda") -> DType:
    """The dtype of products inside of the present autocast; float16 outside of any."""
    _check_device("get_autocast_dtype", device_type)
    state = grad_mode.autocast
    return dtypes.float16 if state is None else state.dtype


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, device_type: str = "cuda", cast_inputs: Any = None
) -> Any:
    """Decorator of the ``forward`` of a ``Function`` that may be called inside of an autocast.

    cast_inputs: a dtype; inside of an autocast, floating tensors on the GPU among the arguments
    are cast to it, and nothing is cast in the body. Without it the body runs under the autocast.
    Use ``custom_bwd`` on ``backward`` too.
    """
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)
    _check_device("custom_fwd", device_type)
    target = None if cast_inputs is None else dtypes.to_dtype(cast_inputs)

    @functools.wraps(fwd)
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        state = grad_mode.autocast if device_type == "cuda" else None
        ctx._autocast = without_cache(state if target is None else None)
        if state is None or target is None:
            return fwd(ctx, *args, **kwargs)
        args = tuple([_cast(a, target) for a in args])
        kwargs = {name: _cast(a, target) for name, a in kwargs.items()}
        with within(None):
            return fwd(ctx, *args, **kwargs)

    return forward


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str = "cuda") -> Any:
    """Decorator of ``backward``: it runs under the autocast that ``custom_fwd`` found."""
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)
    _check_device("custom_bwd", device_type)

    @functools.wraps(bwd)
    def backward(ctx: Any, *grads: Any) -> Any:
        with within(ctx._autocast):
            return bwd(ctx, *grads)

    return backward


def _cast(value: Any, dtype: DType) -> Any:
    """``value`` in ``dtype`` if it is a floating tensor on the GPU; containers are searched."""
    if isinstance(value, Tensor):
        eligible = value._dtype.is_floating_point and value._dtype is not dtypes.float64
        return value.to(dtype) if eligible and value._device.type == "cuda" else value
    if isinstance(value, dict):
        return {key: _cast(v, dtype) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_cast(v, dtype) for v in value)
    return value
