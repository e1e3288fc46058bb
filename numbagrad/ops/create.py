"""New tensors: from data, filled, counted; and overwriting old ones. Start at ``tensor``."""

from __future__ import annotations

import math
import numbers
import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import devices, dlpack, dtypes, memory_formats
from ..autograd.function import check_in_place
from ..devices import place_of
from ..dtypes import DType
from ..errors import DTypeError, ShapeError
from ..kernels import machine
from ..kernels.cpu import create as kernels
from ..kernels.cuda.runtime import foreign
from ..kernels.halves import encoded
from ..kernels.traced_float import TracedFloat
from ..tape import grad_mode
from ..tensor import Tensor, wrap, wrap_any
from .argument_names import sizes_by_name
from .base import Op, as_operand, contiguous, copy_kernel, fill_kernel, launch, meets, new_empty
from .base import full as filled
from .elementwise import cast
from .inplace import _rebase, assign, check_followed
from .part import _diagonal_view
from .transfer import transfer
from .view import expand, sizes_of

# -- from data -------------------------------------------------------------------------------------


def _finish(out: Tensor, requires_grad: bool, device: Any = None) -> Tensor:
    """``out``, moved to ``device`` if that is given."""
    if device is not None:
        out = transfer(out, devices.to_device(device))
    return out.requires_grad_() if requires_grad else out


def _ragged(data: Any, shape: tuple[int, ...], dim: int = 0) -> None:
    """Raise where nested lists first differ from ``shape``, that of their first entries."""
    sequence = isinstance(data, (list, tuple))
    if dim == len(shape):
        if sequence:
            raise ShapeError(f"tensor: expected a number at dim {dim}, got a list.")
        return
    if not sequence:
        raise TypeError(f"tensor: expected a sequence at dim {dim}, got {data!r}.")
    if len(data) != shape[dim]:
        raise ShapeError(
            f"tensor: expected sequence of length {shape[dim]} at dim {dim} (got {len(data)}). All "
            f"lists of a dimension need one length."
        )
    for entry in data:
        _ragged(entry, shape, dim + 1)


def _first_shape(data: Any) -> tuple[int, ...]:
    shape = []
    while isinstance(data, (list, tuple)):
        shape.append(len(data))
        if not data:
            break
        data = data[0]
    return tuple(shape)


def _leaf(data: Any) -> Any:
    """The first entry of nested lists, or of other sequences."""
    while _is_sequence(data) and data:
        data = data[0]
    return data


def _plain(data: Any) -> Any:
    """Nested lists with their Tensors as NumPy arrays."""
    if isinstance(data, Tensor):
        return data._numbers()
    if _is_sequence(data):
        return [_plain(entry) for entry in data]
    return data


def _is_sequence(data: Any) -> bool:
    """Whether ``data`` is a list, a tuple, or another sequence, such as a deque; no string."""
    return isinstance(data, (list, tuple)) or (
        isinstance(data, Sequence) and not isinstance(data, (str, bytes, bytearray, memoryview))
    )


def _array_of(data: Any, dtype: DType | None) -> np.ndarray:
    """A fresh C-contiguous array of numbers, nested lists, arrays or tensors."""
    if isinstance(data, Tensor):
        machine.reading("tensor", data._array)
        dtype = data._dtype if dtype is None else dtype
        data = data._numbers()
    if dtype is dtypes.bfloat16:
        return encoded(_array_of(data, dtypes.float32), dtype.numpy)
    if isinstance(data, (np.ndarray, np.generic)):
        target = dtypes.from_numpy(data.dtype) if dtype is None else dtype
        return np.array(data, target.numpy, order="C")
    if hasattr(data, "__array__") and not isinstance(data, (list, tuple)):
        return _array_of(np.asarray(data), dtype)
    leaf = _leaf(data)
    if isinstance(leaf, Tensor):
        data = _plain(data)
    elif not (isinstance(leaf, (numbers.Real, np.ndarray, np.generic)) or _is_sequence(leaf)):
        raise TypeError(
            f"tensor: new(): invalid data type '{type(leaf).__name__}'. Pass numbers, nested lists "
            f"of numbers, or an array."
        )
    try:
        array = np.array(data, order="C")
    except OverflowError as error:
        raise ShapeError(f"tensor: Overflow when unpacking long: {error}.") from None
    except ValueError:
        _ragged(data, _first_shape(data))
        raise
    if array.dtype.kind not in "fiub":
        _ragged(data, _first_shape(data))
        kind = array.dtype
        if kind.kind == "O":
            try:
                # Ints beyond int64, or arguments of a compiled function, which are floats.
                floating = any([isinstance(v, float) for v in array.flat])
                plain = np.float64 if floating else np.int64
                array = array.astype(plain if dtype is None else dtype.numpy)
            except OverflowError as error:
                raise ShapeError(f"tensor: Overflow when unpacking long: {error}.") from None
        else:
            raise TypeError(f"tensor: too many dimensions or invalid data type '{kind}'.")
    if dtype is not None:
        return array.astype(dtype.numpy, copy=False)
    if isinstance(leaf, (Tensor, np.generic, np.ndarray)):
        return array.astype(dtypes.from_numpy(array.dtype).numpy, copy=False)
    if array.dtype.kind == "f":
        return array.astype(dtypes.get_default_dtype().numpy, copy=False)
    if array.dtype == np.uint64:
        raise ShapeError("tensor: Overflow when unpacking long: an int needs over 63 bits.")
    return array


def tensor(
    data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A new tensor with a copy of ``data``: a number, nested lists, an array or a tensor.

    dtype: by default int64, bool or the default floating dtype, as the numbers are; arrays keep
    theirs. The result is a leaf. Raises ShapeError for lists of unequal length.

    >>> tensor([[1.0, 2.0], [3.0, 4.0]]).shape
    ng.Size([2, 2])
    """
    if dtype is not None:
        dtype = dtypes.to_dtype(dtype)
    if isinstance(data, Tensor):
        if device is None:
            device = data._device
        warnings.warn(
            "tensor: To copy construct from a tensor, it is recommended to use x.detach().clone() "
            "rather than ng.tensor(x).",
            stacklevel=2,
        )
    device = place_of(device)
    if type(data) is TracedFloat:
        return full((), data, dtype=dtype, device=device, requires_grad=requires_grad)
    if machine.recording and isinstance(data, np.ndarray) and data.nbytes <= machine.MOST_COMPARED:
        machine.depends(data.tobytes)
    array = _array_of(data, dtype)
    return _finish(wrap(array, dtypes.from_numpy(array.dtype)), requires_grad, device)


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """``data`` as a tensor: itself, or on the memory of an array, or a copy where needed."""
    dtype = None if dtype is None else dtypes.to_dtype(dtype)
    if isinstance(data, Tensor):
        return _finish(data if dtype is None else cast(data, dtype), False, device)
    if hasattr(data, "__cuda_array_interface__"):
        machine.open_cuda()
        found = wrap_any(machine.bind(foreign.borrow(data)))
        return _finish(found if dtype is None else cast(found, dtype), False, device)
    if isinstance(data, np.ndarray):
        found = from_numpy(data)
        found = found if dtype is None else cast(found, dtype)
    elif type(data) is TracedFloat:
        found = full((), data, dtype=dtype)
    else:
        array = _array_of(data, dtype)
        found = wrap(array, dtypes.from_numpy(array.dtype))
    return _finish(found, False, place_of(device))


def from_numpy(array: np.ndarray) -> Tensor:
    """A tensor on the memory of a NumPy array: a change of one shows in the other.

    An array that is read-only, or that repeats elements by a stride of 0, is copied.
    Raises ValueError for negative strides.

    >>> a = np.zeros(2, np.float32); x = from_numpy(a); a[0] = 1; x.tolist()
    [1.0, 0.0]
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(f"from_numpy: expected np.ndarray (got {type(array).__name__}).")
    dtypes.from_numpy(array.dtype)
    if any([s < 0 for s in array.strides]):
        raise ShapeError(
            "from_numpy: At least one stride in the given numpy array is negative, and tensors "
            "with negative strides are not supported. Make a copy with array.copy()."
        )
    odd = any(
        [
            s % array.itemsize or (s == 0 and n > 1)
            for n, s in zip(array.shape, array.strides, strict=True)
        ]
    )
    if odd or not (array.flags.writeable and array.flags.aligned):
        array = array.copy()
    return wrap_any(machine.bind(np.asarray(array)))


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor on the memory of another library's array, through DLPack.

    ext_tensor: an object with ``__dlpack__`` (PyTorch, NumPy, CuPy, JAX), or an unused capsule. Its
    memory lives as long as the tensor. Memory that is read-only, or that repeats elements by a
    stride of 0, is copied. device: move it there. copy: True always copies, False never does.

    Raises BufferError where sharing is not possible, or would need a copy that ``copy`` forbids;
    ShapeError or DeviceError for negative strides.

    >>> a = np.zeros(2, np.float32); x = from_dlpack(a); a[0] = 1; x.tolist()
    [1.0, 0.0]
    """
    place = None if device is None else devices.to_device(device)
    array, shared = dlpack.taken(ext_tensor, place is devices.cpu and copy is not False)
    if isinstance(array, np.ndarray):
        found = from_numpy(array)
        shared = found._array.size == 0 or found._array.ctypes.data == array.ctypes.data
    else:
        found = wrap_any(machine.bind(array))
    moved = found if place is None else transfer(found, place)
    if copy is False and (moved is not found or not shared):
        raise BufferError("from_dlpack: this needs a copy, and copy=False forbids one.")
    if moved is not found:
        return moved
    return found.clone() if copy and shared else found


# -- filled ----------------------------------------------------------------------------------------


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
            size = sizes_by_name(name, names, "size", size)
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


def empty(*size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor whose elements are whatever was in memory."""
    shape = shape_of("empty", size)
    return _finish(new_empty(shape, _settled(dtype), place_of(device)), requires_grad)


def _number(name: str, value: Any) -> Any:
    """``value`` as a Python number."""
    if isinstance(value, (Tensor, np.generic)):
        value = value.item()
    if not isinstance(value, (int, float)):
        raise TypeError(f"{name}: fill value must be a number, not {type(value).__name__}.")
    return value


def full(
    size: Any,
    fill_value: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of ``size`` filled with a number, whose kind decides the dtype.

    >>> full((2,), 3).tolist()
    [3, 3]
    """
    value = _number("full", fill_value)
    wanted = _settled(dtypes.of_number(value) if dtype is None else dtype)
    return _finish(
        _filled(shape_of("full", (size,)), value, wanted, place_of(device)), requires_grad
    )


def _like(dtype: Any, x: Tensor) -> DType:
    return x._dtype if dtype is None else dtypes.to_dtype(dtype)


def zeros_like(
    input: Tensor,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """Zeros of the shape and dtype of ``input``."""
    memory_formats.check("zeros_like", memory_format)
    dtype = _like(dtype, as_operand("zeros_like", input))
    return _finish(_filled(input._array.shape, 0, dtype, place_of(device, input)), requires_grad)


def ones_like(
    input: Tensor,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """Ones of the shape and dtype of ``input``."""
    memory_formats.check("ones_like", memory_format)
    dtype = _like(dtype, as_operand("ones_like", input))
    return _finish(_filled(input._array.shape, 1, dtype, place_of(device, input)), requires_grad)


def empty_like(
    input: Tensor,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """An uninitialised tensor of the shape and dtype of ``input``."""
    memory_formats.check("empty_like", memory_format)
    dtype = _like(dtype, as_operand("empty_like", input))
    return _finish(new_empty(input._array.shape, dtype, place_of(device, input)), requires_grad)


def full_like(
    input: Tensor,
    fill_value: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """``fill_value`` in the shape and dtype of ``input``."""
    memory_formats.check("full_like", memory_format)
    dtype = _like(dtype, as_operand("full_like", input))
    value = _number("full_like", fill_value)
    return _finish(
        _filled(input._array.shape, value, dtype, place_of(device, input)), requires_grad
    )


def _new(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def method(x: Tensor, *size: Any, dtype: Any = None, **options: Any) -> Tensor:
        options.setdefault("device", x._device)
        return function(*size, dtype=x._dtype if dtype is None else dtype, **options)

    method.__doc__ = f"``{function.__name__}`` with the dtype of this tensor."
    return method


# -- counted ---------------------------------------------------------------------------------------


def arange(
    start: Any,
    end: Any = None,
    step: Any = 1,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Numbers from ``start`` (0 if only one is given) towards ``end``, which is left out.

    dtype: int64 if all are ints, else the default floating dtype. Of ints ``start`` and ``step``
    lose what stands behind the point, int64 ``end`` too.

    >>> arange(1, 6, 2).tolist()
    [1, 3, 5]
    """
    if end is None:
        start, end = 0, start
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


def linspace(
    start: Any,
    end: Any,
    steps: int,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """``steps`` evenly spaced numbers from ``start`` to ``end``, both included.

    dtype: the default floating dtype if not given; of ints the ends lose what stands behind the
    point, then the numbers do.

    >>> linspace(0, 1, 3).tolist()
    [0.0, 0.5, 1.0]
    """
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


def logspace(
    start: Any,
    end: Any,
    steps: int,
    base: float = 10.0,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """``base`` to the powers ``linspace(start, end, steps)``; of ints the ends are ints."""
    from .elementwise import pow as power

    wanted = _settled(dtype)
    low, high = [_number("logspace", v) for v in (start, end)]
    if not wanted.is_floating_point:
        low, high = int(low), int(high)
    exponents = linspace(low, high, steps, dtype=dtypes.float64, device=device)
    out = cast(power(base + zeros_like(exponents), exponents), wanted)
    return _finish(out, requires_grad)


def eye(
    n: int,
    m: int | None = None,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """The matrix (n, m), m = n by default, with ones on its diagonal."""
    shape = shape_of("eye", (n, n if m is None else m))
    out = _filled(shape, 0, _settled(dtype))
    if out._array.size:
        machine.launch(fill_kernel, _diagonal_view(out._array, 0, 0, 1), 1)
    return _finish(out, requires_grad, place_of(device))


def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None
) -> Tensor:
    """(2, n) rows and columns of the lower triangle of a (row, col) matrix."""
    found = np.stack(np.tril_indices(row, offset, col))
    wanted = dtypes.int64 if dtype is None else dtypes.to_dtype(dtype)
    return _finish(cast(wrap_any(found), wanted), False, place_of(device))


def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None
) -> Tensor:
    """(2, n) rows and columns of the upper triangle of a (row, col) matrix."""
    found = np.stack(np.triu_indices(row, offset, col))
    wanted = dtypes.int64 if dtype is None else dtypes.to_dtype(dtype)
    return _finish(cast(wrap_any(found), wanted), False, place_of(device))


# -- overwriting -----------------------------------------------------------------------------------


class Overwrite(Op):
    """Stands for ``x`` after all its elements were replaced: its old history gets zeros."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Tensor | None) -> Tensor:
        return wrap(x._array, x._dtype)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        zeros = _filled(g._array.shape, 0, g._dtype, g._device)
        return zeros, g if ctx.needs_input_grad[1] else None


def overwrite(x: Tensor, name: str, write: Callable[[Tensor], Any]) -> Tensor:
    """Let ``write`` fill the elements of ``x``, in place and by the tape's rules; returns x.

    The new elements have no history: gradients that arrive at them go nowhere.
    """
    check_in_place(x, name)
    if not x._flat:
        fresh = new_empty(x._array.shape, x._dtype, x._device)
        write(fresh)
        return assign(x, fresh, name)
    base = x if x._base is None else x._base
    if grad_mode.enabled and base._edge is not None:
        check_followed(x, name)
    write(x)
    x._bump_version()
    if grad_mode.enabled:
        if x._base is not None and base._edge is not None:
            _rebase(x, wrap(x._array, x._dtype))
        elif x._edge is not None:
            _rebase(x, Overwrite.apply(x, None))
    return x


def fill_(x: Tensor, value: Any) -> Tensor:
    """Every element set to ``value``, in place."""
    if isinstance(value, Tensor):
        if value._array.ndim:
            raise ShapeError(
                f"fill_: only supports 0-dimension value tensor but got tensor with "
                f"{value._array.ndim} dimensions."
            )
        return copy_(x, value)
    value = _number("fill_", value)
    if x._dtype is dtypes.bool_:
        value = bool(value)
    elif isinstance(value, float) and not x._dtype.is_floating_point:
        if not math.isfinite(value):
            raise DTypeError(f"fill_: value {value} cannot be converted to {x._dtype}.")
        value = int(value)
    return overwrite(x, "fill_", lambda out: machine.launch(fill_kernel, out._array, value))


def zero_(x: Tensor) -> Tensor:
    """Every element set to zero, in place."""
    return fill_(x, 0)


def copy_(x: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    """The elements of ``src``, broadcast and converted, written into ``x`` in place.

    Gradient: to ``src``; none to the old ``x``.
    """
    if as_operand("copy_", src, 1)._array.shape != x._array.shape:
        try:
            src = expand(src, x._array.shape)
        except ShapeError:
            raise ShapeError(
                f"copy_: output with shape {list(x._array.shape)} doesn't match the broadcast "
                f"shape of source {list(src._array.shape)}; each size must match or be 1."
            ) from None
    src = transfer(src, x._device)
    if meets(x, src):
        src = src.clone()
    if src._edge is None and x._edge is None and x._base is None:
        machine.launch(copy_kernel, x._array, src._array)
        x._bump_version()
        return x
    src = cast(src, x._dtype)
    if grad_mode.enabled and x._base is None:  # a node of its own, also where src is a leaf
        check_in_place(x, "copy_")
        check_followed(x, "copy_")
        machine.launch(copy_kernel, x._array, src._array)
        x._bump_version()
        _rebase(x, Overwrite.apply(x, src))
        return x
    return assign(x, src, "copy_")


def new_tensor(x: Tensor, data: Any, *, dtype: Any = None, **options: Any) -> Tensor:
    """``tensor(data)`` with the dtype of this tensor."""
    options.setdefault("device", x._device)
    return tensor(data, dtype=x._dtype if dtype is None else dtype, **options)


def asarray(data: Any, *, dtype: Any = None, device: Any = None, copy: bool = False) -> Tensor:
    """``as_tensor``, or a copy."""
    found = as_tensor(data, dtype, device)
    return contiguous(found).clone() if copy else found


__all__ = [
    "arange",
    "as_tensor",
    "asarray",
    "empty",
    "empty_like",
    "eye",
    "from_dlpack",
    "from_numpy",
    "full",
    "full_like",
    "linspace",
    "logspace",
    "ones",
    "ones_like",
    "tensor",
    "tril_indices",
    "triu_indices",
    "zeros",
    "zeros_like",
]

METHODS: dict[str, Any] = {
    "copy_": copy_,
    "fill_": fill_,
    "new_empty": _new(empty),
    "new_full": _new(full),
    "new_ones": _new(ones),
    "new_tensor": new_tensor,
    "new_zeros": _new(zeros),
    "zero_": zero_,
}
