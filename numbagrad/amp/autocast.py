"""``autocast``: operations choose their dtypes; and what a ``Function`` does inside."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from .. import dtypes
from ..dtypes import DType
from ..kernels import machine
from ..ops.autocasting import Autocast, within, without_cache
from ..tape import grad_mode
from ..tensor import Tensor

__all__ = ["autocast", "custom_bwd", "custom_fwd", "get_autocast_dtype", "is_autocast_enabled"]


class _Held(threading.local):
    """What held before each entry of one ``autocast``, in this thread."""

    def __init__(self) -> None:
        self.states: list[Any] = []


class autocast:
    """In the block, or the decorated function, operations choose the dtype they run in.

    Products (linear, matmul, bmm, convolutions and their kin) run in ``dtype``, on a GPU's tensor
    cores or the instructions that a CPU has for it; losses in float32, on a GPU also softmax,
    norms, exp, log, pow, sum and their kin; the rest as promotion says. The tensors themselves,
    parameters above all, keep their dtype, and so do their gradients.

    device_type: "cuda" or "cpu", where the operations are that choose. dtype: float16, which needs
    a ``GradScaler`` and is the default on a GPU, or bfloat16, the default on a CPU. enabled: False
    is a region in which nothing is cast, also inside of another. cache_enabled: keep each weight
    that is cast until the outermost block ends. Run ``backward`` outside of the block, it needs
    none: gradients have the dtypes of what they belong to.

    >>> with autocast("cpu"):
    ...     (tensor([[1.0]]) @ tensor([[2.0]])).dtype
    ng.bfloat16
    """

    def __init__(
        self,
        device_type: str = "cuda",
        dtype: Any = None,
        enabled: bool = True,
        cache_enabled: bool = True,
    ):
        _check_device("autocast", device_type)
        dtype = _USUAL[device_type] if dtype is None else dtypes.to_dtype(dtype)
        self.enabled = enabled = bool(enabled)
        if enabled and dtype not in dtypes.HALVES:
            raise ValueError(
                f"autocast: dtype must be ng.float16 or ng.bfloat16, got {dtype}. Use "
                f"enabled=False for a region without casts."
            )
        self.device, self.fast_dtype, self.cache_enabled = device_type, dtype, cache_enabled
        self._held = _Held()

    def __enter__(self) -> autocast:
        held = grad_mode.autocast
        self._held.states.append(held)
        cache: Any = None
        if self.cache_enabled:
            cache = {} if held is None or held.cache is None else held.cache
        kinds = {} if held is None else {d: k for d, k in held.kinds.items() if d != self.device}
        if self.enabled:
            kinds[self.device] = self.fast_dtype
        grad_mode.autocast = Autocast(kinds, cache) if kinds else None
        machine.autocast_by(1)
        return self

    def __exit__(self, *exception: Any) -> None:
        grad_mode.autocast = self._held.states.pop()
        machine.autocast_by(-1)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with autocast(self.device, self.fast_dtype, self.enabled, self.cache_enabled):
                return function(*args, **kwargs)

        return wrapper


_USUAL = {"cuda": dtypes.float16, "cpu": dtypes.bfloat16}


def _check_device(name: str, device_type: Any) -> None:
    if device_type not in ("cuda", "cpu"):
        raise ValueError(f"{name}: device_type must be 'cuda' or 'cpu', got {device_type!r}.")


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether operations on ``device_type`` choose their dtypes in this thread now."""
    _check_device("is_autocast_enabled", device_type)
    return grad_mode.autocast is not None and device_type in grad_mode.autocast.kinds


def get_autocast_dtype(device_type: str = "cuda") -> DType:
    """The dtype of products inside of the present autocast; outside of any the usual one, float16
    on a GPU and bfloat16 on a CPU."""
    _check_device("get_autocast_dtype", device_type)
    kinds = {} if grad_mode.autocast is None else grad_mode.autocast.kinds
    return kinds.get(device_type, _USUAL[device_type])


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, device_type: str = "cuda", cast_inputs: Any = None
) -> Any:
    """Decorator of the ``forward`` of a ``Function`` that may be called inside of an autocast.

    cast_inputs: a dtype; inside of an autocast, floating tensors on such a device among the
    arguments are cast to it, and nothing is cast in the body. Without it the body runs under the
    autocast. Use ``custom_bwd`` on ``backward`` too.
    """
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)
    _check_device("custom_fwd", device_type)
    target = None if cast_inputs is None else dtypes.to_dtype(cast_inputs)

    @functools.wraps(fwd)
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        state = grad_mode.autocast if is_autocast_enabled(device_type) else None
        ctx._autocast = without_cache(state if target is None else None)
        if state is None or target is None:
            return fwd(ctx, *args, **kwargs)
        args = tuple([_cast(a, target, device_type) for a in args])
        kwargs = {name: _cast(a, target, device_type) for name, a in kwargs.items()}
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


def _cast(value: Any, dtype: DType, device: str) -> Any:
    """``value`` in ``dtype`` if it is a floating tensor on ``device``; containers are searched."""
    if isinstance(value, Tensor):
        eligible = value._dtype.is_floating_point and value._dtype is not dtypes.float64
        return value.to(dtype) if eligible and value._device.type == device else value
    if isinstance(value, dict):
        return {key: _cast(v, dtype, device) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_cast(v, dtype, device) for v in value)
    return value
