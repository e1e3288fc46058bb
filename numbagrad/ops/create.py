"""New tensors: filled with a number, or counted. Start at ``full`` and ``arange``."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import devices, dtypes, memory_formats
from ..devices import place_of
from ..dtypes import DType
from ..errors import ShapeError
from ..kernels import machine
from ..kernels.cpu import create as kernels
from ..kernels.strides import order_of, ordered
from ..tape import NUMBERS
from ..tensor import Tensor, wrap
from . import base
from .argument_names import made_by_names, made_plainly
from .base import as_operand, constant, fill_kernel, launch, new_empty
from .base import full as filled
from .elementwise import cast, clone
from .operand import number_of
from .part import _diagonal_view
from .remembered import remembered
from .transfer import transfer
from .view import sizes_of

# -- filled ----------------------------------------------------------------------------------------


def _finish(out: Tensor, requires_grad: bool, device: Any = None) -> Tensor:
    """``out``, moved to ``device`` if that is given."""
    if device is not None:
        out = transfer(out, devices.to_device(device))
    return out.requires_grad_() if requires_grad else out


def shape_of(name: str, size: tuple) -> tuple[int, ...]:
    """The sizes given to a creating function, checked."""
    shape = sizes_of(name, size)
    for n in shape:
        if n < 0:
            raise ShapeError(
                f"{name}: Trying to create tensor with negative dimension {n}: {list(shape)}."
            )
    return shape


def _settled(dtype: Any) -> DType:
    return dtypes.get_default_dtype() if dtype is None else dtypes.to_dtype(dtype)


def _filled(shape: tuple[int, ...], value: Any, dtype: DType, device: Any = devices.cpu) -> Tensor:
    return filled(shape, bool(value) if dtype is dtypes.bool_ else value, dtype, device)


def _creator(name: str, value: Any) -> Callable[..., Tensor]:
    def function(
        *size: Any,
        dtype: Any = None,
        device: Any = None,
        requires_grad: bool = False,
        **names: Any,
    ) -> Tensor:
        if names:
            given = {"dtype": dtype, "device": device, "requires_grad": requires_grad}
            return made_by_names(function, names, size, **given)
        shape = shape_of(name, size)
        return _finish(_filled(shape, value, _settled(dtype), place_of(device)), requires_grad)

    function.__name__ = name
    function.__doc__ = f"""A tensor of {name}; sizes one by one or as one tuple.

    >>> {name}(2).tolist()
    {[float(value)] * 2}
    """
    return function


zeros = _creator("zeros", 0)
ones = _creator("ones", 1)


def empty(
    *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, **names: Any
) -> Tensor:
    """A tensor whose elements are whatever was in memory."""
    if names:
        given = {"dtype": dtype, "device": device, "requires_grad": requires_grad}
        return made_by_names(empty, names, size, **given)
    shape = shape_of("empty", size)
    return _finish(new_empty(shape, _settled(dtype), place_of(device)), requires_grad)


def _number(name: str, value: Any) -> Any:
    """``value`` as a Python number."""
    if isinstance(value, (Tensor, np.generic)):
        value = value.item()
    if not isinstance(value, (int, float)):
        raise TypeError(f"{name}: fill value must be a number, not {type(value).__name__}.")
    return value if type(value) in NUMBERS else dtypes.plain_number(value)


def full(
    size: Any,
    fill_value: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **names: Any,
) -> Tensor:
    """A tensor of ``size`` filled with a number, whose kind decides the dtype.

    >>> full((2,), 3).tolist()
    [3, 3]
    """
    if names:
        return made_plainly(full, names, (size, fill_value), dtype, device, requires_grad)
    value = _number("full", fill_value)
    wanted = _settled(dtypes.of_number(value) if dtype is None else dtype)
    value = number_of("full", value, wanted)
    return _finish(
        _filled(shape_of("full", (size,)), value, wanted, place_of(device)), requires_grad
    )


def _like(dtype: Any, x: Tensor) -> DType:
    return x._dtype if dtype is None else dtypes.to_dtype(dtype)


def _lying(x: Tensor, make: Callable[..., Tensor], memory_format: Any, *values: Any) -> Tensor:
    """``make(shape, *values)`` of the shape of ``x``, its dims in memory as those of
    ``x`` unless ``memory_format`` says that they be contiguous."""
    shape, order = x._array.shape, None
    if not x._flat and memory_format is not memory_formats.contiguous_format:
        order = order_of(shape, [x._array])
    if order is None:
        return make(shape, *values)
    sizes, strides = ordered(shape, order)
    made = make(sizes, *values)
    out = wrap(machine.view(made._array, shape, strides, 0), made._dtype)
    out._flat = False
    return out


def zeros_like(
    input: Tensor,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: Any = None,
    **names: Any,
) -> Tensor:
    """Zeros of the shape and dtype of ``input``."""
    if names:
        return made_plainly(zeros_like, names, (input,), dtype, device, requires_grad)
    if dtype is device is memory_format is None and not requires_grad:
        if isinstance(input, Tensor) and input._flat:
            return base.zeros_like(input)
    memory_formats.check("zeros_like", memory_format)
    dtype = _like(dtype, as_operand("zeros_like", input))
    made = _lying(input, _filled, memory_format, 0, dtype, place_of(device, input))
    return _finish(made, requires_grad)


def ones_like(
    input: Tensor,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: Any = None,
    **names: Any,
) -> Tensor:
    """Ones of the shape and dtype of ``input``."""
    if names:
        return made_plainly(ones_like, names, (input,), dtype, device, requires_grad)
    if dtype is device is memory_format is None and not requires_grad:
        if isinstance(input, Tensor) and input._flat:
            return base.ones_like(input)
    memory_formats.check("ones_like", memory_format)
    dtype = _like(dtype, as_operand("ones_like", input))
    made = _lying(input, _filled, memory_format, 1, dtype, place_of(device, input))
    return _finish(made, requires_grad)


def empty_like(
    input: Tensor,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: Any = None,
    **names: Any,
) -> Tensor:
    """An uninitialised tensor of the shape and dtype of ``input``."""
    if names:
        return made_plainly(empty_like, names, (input,), dtype, device, requires_grad)
    memory_formats.check("empty_like", memory_format)
    dtype = _like(dtype, as_operand("empty_like", input))
    made = _lying(input, new_empty, memory_format, dtype, place_of(device, input))
    return _finish(made, requires_grad)


def full_like(
    input: Tensor,
    fill_value: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: Any = None,
    **names: Any,
) -> Tensor:
    """``fill_value`` in the shape and dtype of ``input``."""
    if names:
        return made_plainly(full_like, names, (input, fill_value), dtype, device, requires_grad)
    memory_formats.check("full_like", memory_format)
    dtype = _like(dtype, as_operand("full_like", input))
    value = number_of("full_like", _number("full_like", fill_value), dtype)
    made = _lying(input, _filled, memory_format, value, dtype, place_of(device, input))
    return _finish(made, requires_grad)


def _new(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def method(x: Tensor, *size: Any, dtype: Any = None, **options: Any) -> Tensor:
        options.setdefault("device", x._device)
        return function(*size, dtype=x._dtype if dtype is None else dtype, **options)

    method.__doc__ = f"``{function.__name__}`` with the dtype of this tensor."
    return method


# -- counted ---------------------------------------------------------------------------------------


@remembered
def arange(
    start: Any = None,
    end: Any = None,
    step: Any = 1,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **names: Any,
) -> Tensor:
    """Numbers from ``start`` towards ``end``, which is left out; one alone is the end.

    dtype: int64 if all are ints, else the default floating dtype. Of ints ``start`` and ``step``
    lose what stands behind the point, int64 ``end`` too.

    >>> arange(1, 6, 2).tolist()
    [1, 3, 5]
    """
    if names:
        return made_plainly(arange, names, (start, end, step), dtype, device, requires_grad)
    if end is None:
        start, end = None, start
    if end is None:
        raise TypeError("arange() missing 1 required positional argument: 'end'")
    start = 0 if start is None else start
    start, end, step = [_number("arange", v) for v in (start, end, step)]
    if step == 0:
        raise ShapeError("arange: step must be nonzero.")
    whole = all([isinstance(v, int) for v in (start, end, step)])
    if not all(map(math.isfinite, (start, end, step))):
        raise ShapeError(f"arange: unsupported range: {start} -> {end}.")
    if (end - start) * step < 0:
        raise ShapeError(
            f"arange: upper bound and lower bound inconsistent with step sign: from {start} to "
            f"{end} by {step}."
        )
    wanted = _settled(dtypes.int64 if dtype is None and whole else dtype)
    if wanted is dtypes.int64:
        start, end, step = int(start), int(end), int(step)
        whole = True
        if step == 0:
            raise ShapeError(
                "arange: step must be nonzero, also as an int64. Choose a float dtype."
            )
    n = -((start - end) // step) if whole else math.ceil((end - start) / step)
    if not wanted.is_floating_point:
        start, step = int(start), int(step)
        whole = True
    if not whole or (wanted.is_floating_point and max(abs(start), abs(end)) >= 2**63):
        start, step = float(start), float(step)
    out = new_empty((n,), wanted, place_of(device))
    if n:
        launch(kernels.arange, out, start, step)
    return _finish(out, requires_grad)


@remembered
def linspace(
    start: Any,
    end: Any,
    steps: int,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **names: Any,
) -> Tensor:
    """``steps`` evenly spaced numbers from ``start`` to ``end``, both included.

    dtype: the default floating dtype if not given; of ints the ends lose what stands behind the
    point, then the numbers do.

    >>> linspace(0, 1, 3).tolist()
    [0.0, 0.5, 1.0]
    """
    if names:
        return made_plainly(linspace, names, (start, end, steps), dtype, device, requires_grad)
    steps = operator.index(steps)
    if steps < 0:
        raise ShapeError(f"linspace: number of steps must be non-negative, got {steps}.")
    out = new_empty((steps,), _settled(dtype), place_of(device))
    if steps:
        ends = [float(_number("linspace", v)) for v in (start, end)]
        if not out._dtype.is_floating_point:
            ends = [float(int(v)) for v in ends]
        launch(kernels.linspace, out, *ends)
    return _finish(out, requires_grad)


@remembered
def logspace(
    start: Any,
    end: Any,
    steps: int,
    base: float = 10.0,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **names: Any,
) -> Tensor:
    """``base`` to the powers ``linspace(start, end, steps)``; of ints the ends are ints."""
    if names:
        return made_plainly(
            logspace, names, (start, end, steps, base), dtype, device, requires_grad
        )
    from .elementwise import pow as power

    wanted = _settled(dtype)
    low, high = [_number("logspace", v) for v in (start, end)]
    if not wanted.is_floating_point:
        low, high = int(low), int(high)
    exponents = linspace(low, high, steps, dtype=dtypes.float64, device=device)
    out = cast(power(base + zeros_like(exponents), exponents), wanted)
    return _finish(out, requires_grad)


@remembered
def eye(
    n: int,
    m: int | None = None,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **names: Any,
) -> Tensor:
    """The matrix (n, m), m = n by default, with ones on its diagonal."""
    if names:
        return made_plainly(eye, names, (n, m), dtype, device, requires_grad)
    shape = shape_of("eye", (n, n if m is None else m))
    out = _filled(shape, 0, _settled(dtype))
    if out._array.size:
        machine.launch(fill_kernel, _diagonal_view(out._array, 0, 0, 1), 1)
    return _finish(out, requires_grad, place_of(device))


@remembered
def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None
) -> Tensor:
    """(2, n) rows and columns of the lower triangle of a (row, col) matrix."""
    found = clone(constant(np.stack(np.tril_indices(row, offset, col)), dtypes.int64))
    wanted = dtypes.int64 if dtype is None else dtypes.to_dtype(dtype)
    return _finish(cast(found, wanted), False, place_of(device))


@remembered
def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None
) -> Tensor:
    """(2, n) rows and columns of the upper triangle of a (row, col) matrix."""
    found = clone(constant(np.stack(np.triu_indices(row, offset, col)), dtypes.int64))
    wanted = dtypes.int64 if dtype is None else dtypes.to_dtype(dtype)
    return _finish(cast(found, wanted), False, place_of(device))


__all__ = [
    "arange",
    "empty",
    "empty_like",
    "eye",
    "full",
    "full_like",
    "linspace",
    "logspace",
    "ones",
    "ones_like",
    "tril_indices",
    "triu_indices",
    "zeros",
    "zeros_like",
]

METHODS: dict[str, Any] = {
    "new_empty": _new(empty),
    "new_full": _new(full),
    "new_ones": _new(ones),
    "new_zeros": _new(zeros),
}
