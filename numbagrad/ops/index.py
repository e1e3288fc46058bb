"""Slices at computed indices of a dimension; brackets are in ``brackets.py``. Start at ``Take``.

One index for each element: ``gather.py``; masks: ``masks.py``.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import DimError, DTypeError, ShapeError
from ..kernels import machine
from ..kernels.cpu import half_rows
from ..kernels.cpu import index as kernels
from ..kernels.cuda.runtime.array import DeviceArray
from ..kernels.machine import address_of
from ..tensor import Tensor, wrap
from .base import Op, as_operand, contiguous, full, meets, new_empty, normalize_dim
from .comparison import eq
from .elementwise import cast, contiguous_copy, mul
from .operand import number_of
from .remembered import remembered
from .view import expand, reshape

_INT64 = np.dtype(np.int64)


class _Overwriting(threading.local):
    target: Any = None
    done = False


overwriting = _Overwriting()
"""Per thread: the tensor whose elements an op may write itself, instead of those of a copy, and
whether it has. Kernels here look at all indices before they write: after an error it is as it was.
"""


def to_write(x: Tensor, *read: Tensor) -> Tensor:
    """A copy of ``x`` that an op may write into while it reads ``read``; ``x`` itself where its
    in-place form has asked for that."""
    target = overwriting.target
    if target is None or not x._flat:
        return contiguous_copy(x)
    array, whole = x._array, target._array
    if array is not whole:
        if machine.recording or array.size != whole.size:
            return contiguous_copy(x)
        if address_of(array) != address_of(whole):
            return contiguous_copy(x)
    for each in read:
        if each._array is array or meets(x, each):
            return contiguous_copy(x)
    overwriting.done = True
    return x


def launch_checked(
    name: str,
    kernel: Any,
    out: Any,
    *args: Any,
    where: tuple = (),
    other: Callable[[int], Exception | None] | None = None,
) -> None:
    """Launch a kernel that reports bad indices; raise for the first of them.

    where: the index array, the dimension it indexes, and the size of that dimension. other: gives
    what else a number means that the kernel reports, or None. While a step is recorded nothing is
    known yet, and nothing raised: the kernel then leaves ``out`` as it is.
    """
    if machine.recording and (machine.closed or DeviceArray in map(type, (out, *args))):
        bad = machine.flag(out)
        machine.launch(kernel, out, bad, *args)
    else:
        bad = np.empty(1, _INT64)
        kernel(out, bad, *args)
        if bad.item() < 0:
            return

    def fail(position: int) -> None:
        wrong = other(position) if other else None
        if wrong is not None:
            raise wrong
        index, dim, size = where
        known = not machine.is_traced(index)
        value = index.reshape(-1)[position] if known else f"at position {position}"
        raise DimError(
            f"{name}: index {value} is out of bounds for dimension {dim} with size {size}."
        )

    machine.check(bad, fail)


def index_tensor(name: str, index: Any, dtypes_allowed: tuple = (dtypes.int64,)) -> Tensor:
    """``index`` as a contiguous int64 tensor."""
    as_operand(name, index, 1)
    if index._dtype is dtypes.int64 and index._flat:
        if not (machine.recording and machine.is_recording()):
            return index
    if index._dtype not in dtypes_allowed:
        raise DTypeError(
            f"{name}: Expected dtype int64 for index, got {index._dtype}. Convert it with .long()."
        )
    return contiguous(cast(index, dtypes.int64).detach())


INTS = (dtypes.int64, dtypes.int32)


def _read(
    name: str, x: Tensor, index: Tensor, dim: int, span: int, from_end: bool, skip: int
) -> Tensor:
    """Slices of ``x`` at ``index`` along dims ``dim`` to ``dim + span``, counted as one."""
    shape = x._array.shape
    before, after = shape[:dim], shape[dim + span :]
    n, m, k = math.prod(before), math.prod(shape[dim : dim + span]), math.prod(after)
    out = new_empty((*before, *index._array.shape, *after), x._dtype, x._device)
    at = index._array.reshape(-1)
    launch_checked(
        name,
        kernels.take,
        out._array.reshape(n, at.size, k),
        contiguous(x)._array.reshape(n, m, k),
        at,
        from_end,
        skip,
        where=(at, dim, m),
    )
    return out


class Take(Op, remembers=True):
    """Slices at computed places of one dimension, or of several counted as one."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        index: Tensor,
        dim: int,
        span: int,
        from_end: bool,
        skip: int,
        name: str,
    ) -> Tensor:
        ctx.save(index)
        ctx.how = (x._array.shape, dim, span, skip, name)
        return _read(name, x, index, dim, span, from_end, skip)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return TakeGrad.apply(g, *ctx.saved_tensors, *ctx.how)

    @staticmethod
    def may_add(ctx: Any, whole: Tensor, g: Tensor) -> bool:
        """Whether ``add_into`` may be called: not for halves, whose sums would be rounded oftener,
        to what the whole is rounded to."""
        return may_hold(whole, g, ctx.how[0])

    @staticmethod
    def add_into(ctx: Any, whole: Tensor, g: Tensor) -> None:
        """Add the gradient to that of all, in place."""
        _, dim, span, skip, name = ctx.how
        _write(name, kernels.add_at, whole, g, *ctx.saved_tensors, dim, span, True, skip)


def may_hold(whole: Tensor, g: Tensor, shape: tuple) -> bool:
    """Whether kernels may add elements of ``g`` to ``whole``, which should have that shape."""
    plain = type(whole) is type(g) is Tensor and whole._dtype is g._dtype and whole._flat
    return plain and whole._dtype.itemsize >= 4 and whole._array.shape == shape


class TakeGrad(Op, remembers=True):
    """Zeros with the slices of ``g`` added where ``Take`` read them."""

    @staticmethod
    def forward(
        ctx: Any,
        g: Tensor,
        index: Tensor,
        shape: tuple,
        dim: int,
        span: int,
        skip: int,
        name: str,
    ) -> Tensor:
        ctx.save(index)
        ctx.how = (dim, span, True, skip, name)
        out = full(shape, 0, g._dtype, g._device)
        _write(name, _adding(out), out, g, index, dim, span, True, skip)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return Take.apply(g, *ctx.saved_tensors, *ctx.how)


def _write(
    name: str,
    kernel: Any,
    out: Tensor,
    value: Tensor,
    index: Tensor,
    dim: int,
    span: int,
    *how: Any,
) -> None:
    """Launch a kernel that writes slices of ``value`` into the contiguous ``out``."""
    shape = out._array.shape
    n, k = math.prod(shape[:dim]), math.prod(shape[dim + span :])
    m = math.prod(shape[dim : dim + span])
    at = index._array.reshape(-1)
    launch_checked(
        name,
        kernel,
        out._array.reshape(n, m, k),
        contiguous(value)._array.reshape(n, at.size, k),
        at,
        *how,
        where=(at, dim, m),
    )


def _adding(out: Tensor) -> Any:
    """The kernel that adds slices to ``out``: to halves on the CPU one of their own, but in a
    compiled step, whose loops fuse with what makes float32 of them."""
    if out._dtype in dtypes.HALVES and machine.on_host(out):
        return half_rows.add_at_of_halves
    return kernels.add_at


class Put(Op, remembers=True):
    """A copy of ``x`` with slices replaced by those of ``value``, or with them added; from_end:
    whether negative indices count from the end."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, value: Tensor, index: Tensor, dim: int, span: int, add: bool,
        name: str, from_end: bool,
    ) -> Tensor:  # fmt: skip
        ctx.save(index)
        ctx.how = (dim, span, add, name, from_end)
        ctx.shape = value._array.shape
        out = to_write(x, value, index)
        if add:
            _write(name, _adding(out), out, value, index, dim, span, from_end, -1)
        else:
            _write(name, kernels.put_at, out, value, index, dim, span, from_end)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        (index,) = ctx.saved_tensors
        dim, span, add, name, _ = ctx.how
        gx = gv = None
        if ctx.needs_input_grad[0]:
            hole = full(ctx.shape, 0, g._dtype, g._device)
            gx = g if add else Put.apply(g, hole, index, *ctx.how)
        if ctx.needs_input_grad[1]:
            gv = Take.apply(g, index, dim, span, True, -1, name)
            if not add:
                m = math.prod(g._array.shape[dim : dim + span])
                gv = mul(gv, _standing(index, m, len(ctx.shape) - dim, g._dtype))
        return gx, gv


class PutHere(Put):
    """``Put`` that may write into ``x`` itself, which is not remembered."""

    forward = staticmethod(Put.forward)


def put_slices(
    x: Tensor, value: Tensor, index: Tensor, dim: int, span: int, add: bool, name: str,
    from_end: bool = True,
) -> Tensor:  # fmt: skip
    """``Put``; ``x`` itself where its in-place form has asked for that."""
    op = Put if overwriting.target is None else PutHere
    return op.apply(x, value, index, dim, span, add, name, from_end)


@remembered
def _standing(index: Tensor, m: int, rank: int, dtype: Any) -> Tensor:
    """1 for each index whose slice no later one overwrites, else 0; seen with ``rank`` dims."""
    at = index._array.reshape(-1)
    order = _counting(at.size, index._device)
    last = wrap(machine.empty((1, m, 1), _INT64, index._device), dtypes.int64)
    _write("put", kernels.put_at, last, order, wrap(at, dtypes.int64), 1, 1, True)
    found = Take.apply(last, wrap(at, dtypes.int64), 1, 1, True, -1, "put")
    kept = cast(eq(reshape(found, (at.size,)), order), dtype)
    shape = index._array.shape
    return reshape(kept, (*shape, *([1] * (rank - len(shape)))))


def _counting(n: int, device: Any) -> Tensor:
    from .create import arange

    return arange(n, device=device)


def _flat_index(name: str, index: Any) -> Tensor:
    """A vector of indices; a single one stands for a vector of one."""
    index = index_tensor(name, index, INTS)
    if index._array.ndim > 1:
        raise DimError(f"{name}: Index is supposed to be a vector, got {index._array.ndim} dims.")
    return index if index._array.ndim else wrap(index._array.reshape(1), dtypes.int64)


@remembered
def index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices of ``x`` at ``index``, a vector, along ``dim``.

    Gradient: the slices of g added at their indices, in order. Raises IndexError if an index is
    out of range.

    >>> index_select(tensor([[1, 2], [3, 4]]), 1, tensor([1])).tolist()
    [[2], [4]]
    """
    dim = normalize_dim("index_select", dim, as_operand("index_select", x)._array.ndim)
    index = _flat_index("index_select", index)
    if not x._array.ndim:
        if index._array.size != 1:
            raise ShapeError(
                f"index_select: Index to scalar can have only 1 value, got {index._array.size}. "
                f"Use x.reshape(1)."
            )
        return reshape(Take.apply(reshape(x, (1,)), index, 0, 1, False, -1, "index_select"), ())
    return Take.apply(x, index, dim, 1, False, -1, "index_select")


def _slices(name: str, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """``source`` in the dtype of ``x``, after checking that it fits ``index``."""
    if as_operand(name, source, 3)._dtype is not x._dtype:
        raise DTypeError(
            f"{name}: self ({x._dtype}) and source ({source._dtype}) must have the same dtype. "
            f"Convert source with .to(x.dtype)."
        )
    shape = x._array.shape
    if not shape and not source._array.shape and index._array.size == 1:
        return reshape(source, (1,))
    wanted = (*shape[:dim], index._array.size, *shape[dim + 1 :])
    if source._array.shape != wanted:
        raise ShapeError(
            f"{name}: source of shape {list(source._array.shape)} does not match self in shape "
            f"{list(shape)} with {index._array.size} indices at dimension {dim}; expected "
            f"{list(wanted)}."
        )
    return source


@remembered
def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    """``x`` with ``alpha * source`` added at the slices ``index`` of ``dim``; repeats add up."""
    dim = normalize_dim("index_add", dim, x._array.ndim)
    index = _flat_index("index_add", index)
    source = _slices("index_add", x, dim, index, source)
    source = source if alpha == 1 else mul(source, alpha)
    return put_slices(x, source, index, dim, 1, True, "index_add", False)


@remembered
def index_copy(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """``x`` with the slices ``index`` of ``dim`` replaced by those of ``source``."""
    dim = normalize_dim("index_copy", dim, x._array.ndim)
    index = _flat_index("index_copy", index)
    source = _slices("index_copy", x, dim, index, source)
    return put_slices(x, source, index, dim, 1, False, "index_copy", False)


@remembered
def index_fill(x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """``x`` with the slices ``index`` of ``dim`` filled with a number or a 0-d tensor."""
    dim = normalize_dim("index_fill", dim, x._array.ndim)
    index = _flat_index("index_fill", index)
    shape = x._array.shape
    value = scalar_tensor(value, x, "index_fill")
    source = expand(value, (*shape[:dim], index._array.size, *shape[dim + 1 :]))
    return put_slices(x, source, index, dim, 1, False, "index_fill")


def scalar_tensor(value: Any, x: Tensor, name: str) -> Tensor:
    """A number or tensor that came to the function ``name``, in the dtype of ``x``."""
    if isinstance(value, Tensor):
        return cast(value, x._dtype)
    value = number_of(name, value, x._dtype)
    return full((), value, x._dtype, x._device)


_PUBLIC = "index_add index_copy index_fill index_select".split()
__all__ = [*_PUBLIC]

METHODS: dict[str, Any] = {name: globals()[name] for name in _PUBLIC}
INPLACE: dict[str, Any] = {
    f"{name}_": globals()[name] for name in "index_add index_copy index_fill".split()
}
