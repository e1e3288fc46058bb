"""Reading and writing at computed indices; brackets are in ``brackets.py``. Start at ``Take``."""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import DimError, DTypeError, ShapeError
from ..kernels import machine
from ..kernels.cpu import index as kernels
from ..tensor import Tensor, wrap
from .autocasting import widest
from .base import (
    Op,
    as_operand,
    broadcast_shape,
    contiguous,
    copy_kernel,
    full,
    new_empty,
    normalize_dim,
)
from .elementwise import cast, clone, eq, masked_fill, mul
from .part import narrow
from .view import expand, reshape

_INT64 = np.dtype(np.int64)


def launch_checked(name: str, kernel: Any, out: Any, *args: Any, where: tuple = ()) -> None:
    """Launch a kernel that reports bad indices; raise for the first of them.

    where: the index array, the dimension it indexes, and the size of that dimension. While a step
    is recorded nothing is known yet, and nothing raised: the kernel then leaves ``out`` as it is.
    """
    bad = machine.flag(out)
    machine.launch(kernel, out, bad, *args)

    def fail(position: int) -> None:
        index, dim, size = where
        known = not machine.is_traced(index)
        value = index.reshape(-1)[position] if known else f"number {position}"
        raise DimError(
            f"{name}: index {value} is out of bounds for dimension {dim} with size {size}."
        )

    machine.check(bad, fail)


def index_tensor(name: str, index: Any, dtypes_allowed: tuple = (dtypes.int64,)) -> Tensor:
    """``index`` as a contiguous int64 tensor."""
    as_operand(name, index, 1)
    if index._dtype not in dtypes_allowed:
        raise DTypeError(
            f"{name}: Expected dtype int64 for index, got {index._dtype}. Convert it with .long()."
        )
    return contiguous(cast(index, dtypes.int64).detach())


_INTS = (dtypes.int64, dtypes.int32)


# -- whole slices at the entries of a dimension ----------------------------------------------------


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


class Take(Op):
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


class TakeGrad(Op):
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
        _write(name, kernels.add_at, out, g, index, dim, span, True, skip)
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


class Put(Op):
    """A copy of ``x`` with slices replaced by those of ``value``, or with them added."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, value: Tensor, index: Tensor, dim: int, span: int, add: bool, name: str
    ) -> Tensor:
        ctx.save(index)
        ctx.how = (dim, span, add, name)
        ctx.shape = value._array.shape
        out = clone(x)
        if add:
            _write(name, kernels.add_at, out, value, index, dim, span, True, -1)
        else:
            _write(name, kernels.put_at, out, value, index, dim, span, True)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        (index,) = ctx.saved_tensors
        dim, span, add, name = ctx.how
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
    index = index_tensor(name, index, _INTS)
    if index._array.ndim > 1:
        raise DimError(f"{name}: Index is supposed to be a vector, got {index._array.ndim} dims.")
    return index if index._array.ndim else wrap(index._array.reshape(1), dtypes.int64)


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
    wanted = (*shape[:dim], index._array.size, *shape[dim + 1 :])
    if source._array.shape != wanted:
        raise ShapeError(
            f"{name}: source of shape {list(source._array.shape)} does not match self in shape "
            f"{list(shape)} with {index._array.size} indices at dimension {dim}; expected "
            f"{list(wanted)}."
        )
    return source


def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    """``x`` with ``alpha * source`` added at the slices ``index`` of ``dim``; repeats add up."""
    dim = normalize_dim("index_add", dim, x._array.ndim)
    index = _flat_index("index_add", index)
    source = _slices("index_add", x, dim, index, source)
    source = source if alpha == 1 else mul(source, alpha)
    return Put.apply(x, source, index, dim, 1, True, "index_add")


def index_copy(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """``x`` with the slices ``index`` of ``dim`` replaced by those of ``source``."""
    dim = normalize_dim("index_copy", dim, x._array.ndim)
    index = _flat_index("index_copy", index)
    source = _slices("index_copy", x, dim, index, source)
    return Put.apply(x, source, index, dim, 1, False, "index_copy")


def index_fill(x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """``x`` with the slices ``index`` of ``dim`` filled with a number or a 0-d tensor."""
    dim = normalize_dim("index_fill", dim, x._array.ndim)
    index = _flat_index("index_fill", index)
    shape = x._array.shape
    value = scalar_tensor(value, x)
    source = expand(value, (*shape[:dim], index._array.size, *shape[dim + 1 :]))
    return Put.apply(x, source, index, dim, 1, False, "index_fill")


def scalar_tensor(value: Any, x: Tensor) -> Tensor:
    """A number or tensor in the dtype of ``x``."""
    if isinstance(value, Tensor):
        return cast(value, x._dtype)
    if x._dtype is dtypes.bool_:
        value = bool(value)
    elif not x._dtype.is_floating_point:
        value = int(value)
    return full((), value, x._dtype, x._device)


# -- one index for each element --------------------------------------------------------------------


def _planes(x: Any, dim: int) -> Any:
    """An array as (before, dim, after)."""
    shape = x.shape
    return x.reshape(math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :]))


class Gather(Op):
    """One element for each index, along ``dim``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, index: Tensor, name: str) -> Tensor:
        ctx.save(index)
        ctx.how = (dim, x._array.shape, name)
        at = index._array
        out = new_empty(at.shape, x._dtype, x._device)
        source = contiguous(x)._array
        launch_checked(
            name,
            kernels.gather,
            _planes(out._array, dim),
            _planes(source, dim),
            _planes(at, dim),
            where=(at, dim, source.shape[dim]),
        )
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (index,) = ctx.saved_tensors
        dim, shape, name = ctx.how
        zeros = full(shape, 0, g._dtype, g._device)
        return Scatter.apply(zeros, dim, index, g, True, name)


def write_elements(
    name: str, kernel: Any, out: Tensor, value: Tensor, dim: int, index: Tensor, *how: Any
) -> None:
    """Launch a kernel that writes an element of ``value`` into ``out`` for each of ``index``.

    index may be smaller than the contiguous ``out`` in other dimensions than ``dim``.
    """
    at = index._array
    sizes = list(at.shape)
    sizes[dim] = out._array.shape[dim]
    part = tuple([builtins.slice(0, n) for n in sizes])
    whole = tuple(sizes) == out._array.shape
    target = out._array
    if not whole:
        target = new_empty(sizes, out._dtype, out._device)._array
        machine.launch(copy_kernel, target, out._array[part])
    launch_checked(
        name,
        kernel,
        _planes(target, dim),
        _planes(contiguous(value)._array, dim),
        _planes(at, dim),
        *how,
        where=(at, dim, sizes[dim]),
    )
    if not whole:
        machine.launch(copy_kernel, out._array[part], target)


class Scatter(Op):
    """A copy of ``x`` with one element replaced, or added to, for each index along ``dim``.

    index may be smaller than ``x`` in the other dimensions.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, dim: int, index: Tensor, value: Tensor, add: bool, name: str
    ) -> Tensor:
        ctx.save(index)
        ctx.how = (dim, add, name)
        out = clone(x)
        kernel = kernels.scatter_add if add else kernels.scatter
        write_elements(name, kernel, out, value, dim, index)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        (index,) = ctx.saved_tensors
        dim, add, name = ctx.how
        gx = gv = None
        if ctx.needs_input_grad[0]:
            hole = full(index._array.shape, 0, g._dtype, g._device)
            gx = g if add else Scatter.apply(g, dim, index, hole, False, name)
        if ctx.needs_input_grad[3]:
            part = _front(g, index, dim)
            gv = Gather.apply(part, dim, index, name)
            if not add:
                order = reshape(_counting(index._array.size, index._device), index._array.shape)
                last = new_empty(part._array.shape, dtypes.int64, part._device)
                last = Scatter.apply(last, dim, index, order, False, name)
                standing = eq(Gather.apply(last, dim, index, name), order)
                gv = mul(gv, cast(standing, g._dtype))
        return gx, None, None, gv


def _front(x: Tensor, index: Tensor, dim: int) -> Tensor:
    """``x`` cut to the sizes of ``index`` in all dimensions but ``dim``."""
    for d, n in enumerate(index._array.shape):
        if d != dim and n != x._array.shape[d]:
            x = narrow(x, d, 0, n)
    return x


def _indexed(name: str, x: Tensor, dim: int, index: Tensor) -> tuple[int, Tensor]:
    """dim and index of a gather or scatter, checked against ``x``."""
    dim = normalize_dim(name, dim, as_operand(name, x)._array.ndim)
    index = index_tensor(name, index, _INTS)
    shape, sizes = x._array.shape, index._array.shape
    if len(shape) != len(sizes):
        raise ShapeError(
            f"{name}: Index tensor must have the same number of dimensions as input tensor, got "
            f"{len(sizes)} and {len(shape)}."
        )
    for d, (n, i) in enumerate(zip(shape, sizes, strict=True)):
        if d != dim and i > n and index._array.size:
            raise ShapeError(
                f"{name}: Size does not match at dimension {d} expected index {list(sizes)} to be "
                f"no larger than self {list(shape)} apart from dimension {dim}."
            )
    return dim, index


def gather(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """``out[i][j] = x[index[i][j]][j]`` for ``dim`` 0, and so on: one element for each index.

    index: int64, as many dimensions as ``x``. Gradient: g added at the indices.

    >>> gather(tensor([[1, 2], [3, 4]]), 1, tensor([[0], [1]])).tolist()
    [[1], [4]]
    """
    return gathered("gather", x, dim, index)


def gathered(name: str, x: Tensor, dim: int, index: Tensor) -> Tensor:
    """``gather`` whose errors say ``name``."""
    dim, index = _indexed(name, x, dim, index)
    if not x._array.ndim:
        flat = reshape(x, (1,))
        return reshape(Gather.apply(flat, 0, _vector(index), name), ())
    return Gather.apply(_front(x, index, dim), dim, index, name)


def _vector(index: Tensor) -> Tensor:
    return wrap(index._array.reshape(-1), dtypes.int64)


def take_along_dim(x: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """``gather`` whose other dimensions broadcast; over the flattened ``x`` for dim None."""
    index = index_tensor("take_along_dim", indices, _INTS)
    if dim is None:
        return gathered("take_along_dim", reshape(x, (x._array.size,)), 0, _vector(index))
    dim = normalize_dim("take_along_dim", dim, x._array.ndim)
    if index._array.ndim != x._array.ndim:
        raise ShapeError(
            f"take_along_dim: input and indices should have the same number of dimensions, but "
            f"got {x._array.ndim} and {index._array.ndim}."
        )
    ours, theirs = list(x._array.shape), list(index._array.shape)
    n, i = ours[dim], theirs[dim]
    ours[dim] = theirs[dim] = 1
    common = list(broadcast_shape("take_along_dim", tuple(ours), tuple(theirs)))
    common[dim] = n
    x = expand(x, tuple(common))
    common[dim] = i
    return gathered("take_along_dim", x, dim, expand(index, tuple(common)))


def take(x: Tensor, index: Tensor) -> Tensor:
    """The elements of the flattened ``x`` at ``index``, in the shape of ``index``."""
    index = index_tensor("take", index, _INTS)
    return Take.apply(reshape(x, (x._array.size,)), index, 0, 1, True, -1, "take")


def _source(name: str, x: Tensor, index: Tensor, src: Any) -> Tensor:
    """The values of a scatter in the shape of ``index``."""
    if not isinstance(src, Tensor):
        return expand(scalar_tensor(src, x), index._array.shape)
    if src._dtype is not x._dtype:
        raise DTypeError(
            f"{name}: Expected self.dtype to be equal to src.dtype, got {x._dtype} and "
            f"{src._dtype}."
        )
    if not src._array.ndim and index._array.ndim:
        return expand(src, index._array.shape)
    if src._array.ndim != index._array.ndim:
        raise ShapeError(
            f"{name}: Index tensor must have the same number of dimensions as src tensor, got "
            f"{index._array.ndim} and {src._array.ndim}."
        )
    for d, (i, n) in enumerate(zip(index._array.shape, src._array.shape, strict=True)):
        if i > n:
            raise ShapeError(
                f"{name}: Expected index {list(index._array.shape)} to be no larger than src "
                f"{list(src._array.shape)}."
            )
        if i < n:
            src = narrow(src, d, 0, i)
    return src


def _scattered(name: str, x: Tensor, dim: int, index: Tensor, src: Any, add: bool) -> Tensor:
    dim, index = _indexed(name, x, dim, index)
    src = _source(name, x, index, src)
    if not x._array.ndim:
        out = Scatter.apply(reshape(x, (1,)), 0, _vector(index), reshape(src, (1,)), add, name)
        return reshape(out, ())
    if not index._array.size:
        return clone(x)
    return Scatter.apply(x, dim, index, src, add, name)


def scatter(
    x: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: Any = None
) -> Tensor:
    """``x`` with ``out[index[i][j]][j] = src[i][j]`` for ``dim`` 0; src may be a number.

    Where indices repeat, the last entry stands, and only it gets a gradient.
    """
    src = value if src is None else src
    if reduce not in (None, "add"):
        raise ValueError(f"scatter: reduce must be None or 'add', got {reduce!r}.")
    return _scattered("scatter", x, dim, index, src, reduce == "add")


def scatter_add(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """``x`` with ``out[index[i][j]][j] += src[i][j]`` for ``dim`` 0; repeats add up in order."""
    if machine.autocasting:
        x, src = widest(x, src)
    return _scattered("scatter_add", x, dim, index, src, True)


# -- masks -----------------------------------------------------------------------------------------


def positions(mask: Tensor) -> Tensor:
    """int64 positions, in row-major order, of the entries that are not 0."""
    flat = contiguous(mask)._array.reshape(-1)
    count = new_empty((1,), dtypes.int64, mask._device)
    machine.launch(kernels.count_nonzero, count._array, flat)
    out = new_empty((int(count.item()),), dtypes.int64, mask._device)
    if out._array.size:
        machine.launch(kernels.nonzero, out._array, flat)
    return out


def nonzero(x: Tensor, *, as_tuple: bool = False) -> Any:
    """(n, x.dim()) int64: the coordinates of the entries that are not 0, in order.

    as_tuple: one vector for each dimension, ready for brackets.

    >>> nonzero(tensor([0, 3, 4])).tolist()
    [[1], [2]]
    """
    as_operand("nonzero", x)
    if as_tuple and not x._array.ndim:
        x = reshape(x, (1,))
    flat = positions(x)
    shape = x._array.shape
    out = new_empty((flat._array.size, len(shape)), dtypes.int64, x._device)
    if out._array.size:
        sizes = machine.table(np.array(shape, np.int64), flat._array)
        machine.launch(kernels.unravel, out._array, flat._array, sizes)
    if as_tuple:
        return tuple([contiguous(narrow(out, 1, d, 1)).reshape(-1) for d in range(len(shape))])
    return out


def argwhere(x: Tensor) -> Tensor:
    """The coordinates of the entries that are not 0."""
    return nonzero(x)


def masked_select(x: Tensor, mask: Tensor) -> Tensor:
    """The elements of ``x`` where ``mask`` holds, in order, as a vector; they broadcast."""
    if as_operand("masked_select", mask, 1)._dtype is not dtypes.bool_:
        raise DTypeError(
            f"masked_select: expected BoolTensor for mask, got {mask._dtype}. Compare it, "
            f"mask != 0 say."
        )
    shape = broadcast_shape("masked_select", x._array.shape, mask._array.shape)
    flat = positions(expand(mask, shape))
    return Take.apply(expand(x, shape), flat, 0, len(shape), True, -1, "masked_select")


class MaskedScatter(Op):
    """A copy of ``x`` with the elements of ``source`` in turn where ``mask`` holds."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
        ctx.save(mask)
        ctx.shape = source._array.shape
        out = clone(x)
        bad = machine.flag(out._array)
        machine.launch(
            kernels.masked_scatter,
            out._array.reshape(-1),
            bad,
            contiguous(mask)._array.reshape(-1),
            contiguous(source)._array.reshape(-1),
        )

        size = source._array.size

        def fail(ones: int) -> None:
            raise ShapeError(
                f"masked_scatter: Number of elements of source ({size}) < number of "
                f"ones in mask ({ones})."
            )

        machine.check(bad, fail)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        (mask,) = ctx.saved_tensors
        gx = masked_fill(g, mask, 0) if ctx.needs_input_grad[0] else None
        if not ctx.needs_input_grad[2]:
            return (gx,)
        taken = masked_select(g, mask)
        zeros = full((math.prod(ctx.shape),), 0, g._dtype, g._device)
        first = _counting(taken._array.size, taken._device)
        return gx, None, reshape(Put.apply(zeros, taken, first, 0, 1, False, "put"), ctx.shape)


def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """``x`` with the elements of ``source`` in turn where ``mask`` holds."""
    if as_operand("masked_scatter", mask, 1)._dtype is not dtypes.bool_:
        raise DTypeError(f"masked_scatter: only supports boolean masks, got {mask._dtype}.")
    shape = broadcast_shape("masked_scatter", x._array.shape, mask._array.shape)
    return MaskedScatter.apply(expand(x, shape), expand(mask, shape), source)


_PUBLIC = """
    argwhere gather index_add index_copy index_fill index_select masked_scatter masked_select
    nonzero scatter scatter_add take take_along_dim
""".split()
__all__ = [*_PUBLIC]

METHODS: dict[str, Any] = {name: globals()[name] for name in _PUBLIC}
INPLACE: dict[str, Any] = {
    f"{name}_": globals()[name]
    for name in "index_add index_copy index_fill masked_scatter scatter scatter_add".split()
}
