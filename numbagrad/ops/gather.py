"""Reading and writing with an index for each element. Start reading at ``Gather``."""

from __future__ import annotations

import builtins
import math
from typing import Any

from .. import devices, dtypes
from ..errors import DTypeError, ShapeError
from ..kernels import machine
from ..kernels.cpu import index as kernels
from ..tape import grad_mode
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
from .comparison import eq, ge, logical_and, lt
from .elementwise import add, cast, clone, mul, where
from .index import (
    INTS,
    Take,
    _counting,
    index_tensor,
    launch_checked,
    may_hold,
    overwriting,
    put_slices,
    scalar_tensor,
    to_write,
)
from .part import narrow
from .remembered import remembered
from .view import expand, reshape


def _planes(x: Any, dim: int) -> Any:
    """An array as (before, dim, after)."""
    shape = x.shape
    if len(shape) == 2:  # the commonest
        return x.reshape(1, *shape) if dim == 0 else x.reshape(*shape, 1)
    return x.reshape(math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :]))


class Gather(Op, remembers=True):
    """One element for each index, along ``dim``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, index: Tensor, name: str) -> Tensor:
        ctx.save(index)
        ctx.how = (dim, x._array.shape, name)
        return _gathered(kernels.gather, x, dim, index, name)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return GatherGrad.apply(g, *ctx.saved_tensors, *ctx.how)

    @staticmethod
    def may_add(ctx: Any, whole: Tensor, g: Tensor) -> bool:
        """Whether ``add_into`` may be called."""
        return may_hold(whole, g, ctx.how[1])

    @staticmethod
    def add_into(ctx: Any, whole: Tensor, g: Tensor) -> None:
        """Add the gradient to that of all, in place."""
        dim, _, name = ctx.how
        write_elements(name, kernels.scatter_add, whole, g, dim, *ctx.saved_tensors)


def _gathered(
    kernel: Any, x: Tensor, dim: int, index: Tensor, name: str, notes: bool = False
) -> Tensor:
    """What ``kernel`` reads of x, one element for each index. notes: it needs a byte for each
    element of x."""
    at = index._array
    out = new_empty(at.shape, x._dtype, x._device)
    source = _front(x, at.shape, dim)
    planes = [_planes(a, dim) for a in (source, at)]
    if notes:
        planes = [new_empty(planes[0].shape, dtypes.uint8, x._device)._array, *planes]
    where = at, dim, source.shape[dim]
    launch_checked(name, kernel, _planes(out._array, dim), *planes, where=where)
    return out


class GatherGrad(Op, remembers=True):
    """Zeros with the elements of ``g`` added where ``Gather`` read them."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, index: Tensor, dim: int, shape: tuple, name: str) -> Tensor:
        ctx.save(index)
        ctx.how = (dim, name)
        out = full(shape, 0, g._dtype, g._device)
        write_elements(name, kernels.scatter_add, out, g, dim, index)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (index,) = ctx.saved_tensors
        dim, name = ctx.how
        return Gather.apply(g, dim, index, name)


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


class Scatter(Op, remembers=True):
    """A copy of ``x`` with one element replaced, or added to, for each index along ``dim``.

    index may be smaller than ``x`` in the other dimensions.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, dim: int, index: Tensor, value: Tensor, add: bool, name: str
    ) -> Tensor:
        ctx.save(index)
        ctx.how = (dim, add, name)
        out = to_write(x, index, value)
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
            gv = (Gather if add else Standing).apply(g, dim, index, name)
        return gx, None, None, gv


class Standing(Op, remembers=True):
    """``Gather`` of what ``Scatter`` wrote there: 0 for what was overwritten by a later index."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, dim: int, index: Tensor, name: str) -> Tensor:
        ctx.save(index)
        ctx.how = (dim, g._array.shape, name)
        at = index._array
        if g._device is not devices.cpu:
            order = reshape(_counting(at.size, index._device), at.shape)
            last = new_empty(g._array.shape, dtypes.int64, g._device)
            last = Scatter.apply(last, dim, index, order, False, name)
            standing = eq(Gather.apply(last, dim, index, name), order)
            return mul(Gather.apply(g, dim, index, name), cast(standing, g._dtype))
        return _gathered(kernels.gather_standing, g, dim, index, name, notes=True)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (index,) = ctx.saved_tensors
        dim, shape, name = ctx.how
        return Scatter.apply(full(shape, 0, g._dtype, g._device), dim, index, g, False, name)


class ScatterHere(Scatter):
    """``Scatter`` that may write into ``x`` itself, which is not remembered."""

    forward = staticmethod(Scatter.forward)


def _front(x: Tensor, sizes: tuple[int, ...], dim: int) -> Any:
    """The elements of ``x`` in a contiguous array, cut to ``sizes`` in all dimensions but one."""
    array = x._array
    part = [n if d == dim else i for d, (n, i) in enumerate(zip(array.shape, sizes, strict=True))]
    if tuple(part) == array.shape:
        return contiguous(x)._array
    out = new_empty(part, x._dtype, x._device)._array
    if out.size:
        machine.launch(copy_kernel, out, array[tuple([builtins.slice(0, n) for n in part])])
    return out


def _indexed(name: str, x: Tensor, dim: int, index: Tensor) -> tuple[int, Tensor, Tensor | None]:
    """dim and index of a gather or scatter, checked against ``x``, and what ``_of_slices`` is; 0-d
    ones count as vectors."""
    dim = normalize_dim(name, dim, as_operand(name, x)._array.ndim)
    if as_operand(name, index, 1)._array.size and not index._flat:
        slices = _of_slices(x, dim, index)
        if slices is not None:
            return dim, index, index_tensor(name, slices, INTS)
    index = index_tensor(name, index, INTS)
    index = index if index._array.ndim else _vector(index)
    shape, sizes = x._array.shape or (1,), index._array.shape
    if len(shape) != len(sizes) and index._array.size:
        raise ShapeError(
            f"{name}: Index tensor must have the same number of dimensions as input tensor, got "
            f"{len(sizes)} and {len(shape)}."
        )
    for d, (n, i) in enumerate(zip(shape, sizes, strict=False)):
        if d != dim and i > n and index._array.size:
            raise ShapeError(
                f"{name}: Size does not match at dimension {d} expected index {list(sizes)} to be "
                f"no larger than self {list(shape)} apart from dimension {dim}."
            )
    return dim, index, None


@remembered
def gather(x: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """``out[i][j] = x[index[i][j]][j]`` for ``dim`` 0, and so on: one element for each index.

    index: int64, as many dimensions as ``x``; 0-d ones count as vectors of one. The result has the
    shape of index. Gradient: g added at the indices. Raises NotImplementedError for sparse_grad.

    >>> gather(tensor([[1, 2], [3, 4]]), 1, tensor([[0], [1]])).tolist()
    [[1], [4]]
    """
    if sparse_grad:
        raise NotImplementedError("gather: gradients are dense here. Leave out sparse_grad=True.")
    return gathered("gather", x, dim, index)


def gathered(name: str, x: Tensor, dim: int, index: Tensor) -> Tensor:
    """``gather`` whose errors say ``name``."""
    dim, at, slices = _indexed(name, x, dim, index)
    if slices is not None:
        return Take.apply(x, slices, dim, 1, False, -1, name)
    if not at._array.size:
        return reshape(clone(narrow(reshape(x, (x._array.size,)), 0, 0, 0)), at._array.shape)
    out = Gather.apply(_leading(x), dim, at, name)
    return out if index._array.ndim else reshape(out, ())


def _of_slices(x: Tensor, dim: int, index: Tensor) -> Tensor | None:
    """The vector of which ``index`` repeats each number for a whole slice of ``x``, as
    ``index[:, None].expand_as(source)`` does; None where it is another."""
    array, shape = index._array, x._array.shape
    if array.ndim < 2 or array.ndim != len(shape):
        return None
    others = [d for d in range(array.ndim) if d != dim]
    for d in others:
        if shape[d] != array.shape[d] or (array.strides[d] and shape[d] > 1):
            return None
    for d in others:
        index = narrow(index, d, 0, 1)
    return reshape(index, (array.shape[dim],))


def _leading(x: Tensor) -> Tensor:
    """``x``, a 0-d one as a vector."""
    return x if x._array.ndim else reshape(x, (1,))


def _vector(index: Tensor) -> Tensor:
    return wrap(index._array.reshape(-1), dtypes.int64)


@remembered
def take_along_dim(x: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """``gather`` whose other dimensions broadcast; over the flattened ``x`` for dim None.

    Negative indices count from the end, unless dim is None. Raises IndexError for an index out of
    range, where PyTorch takes it modulo the size.

    >>> take_along_dim(tensor([[1, 2, 3]]), tensor([[-1, 0]]), 1).tolist()
    [[3, 1]]
    """
    index = index_tensor("take_along_dim", indices, INTS)
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
    from_end = logical_and(lt(index, 0), ge(index, -n))
    index = where(from_end, add(index, n), index)
    return gathered("take_along_dim", x, dim, expand(index, tuple(common)))


@remembered
def take(x: Tensor, index: Tensor) -> Tensor:
    """The elements of the flattened ``x`` at ``index``, in the shape of ``index``."""
    index = index_tensor("take", index, INTS)
    return Take.apply(reshape(x, (x._array.size,)), index, 0, 1, True, -1, "take")


def _source(name: str, x: Tensor, index: Tensor, src: Any) -> Tensor:
    """The values of a scatter in the shape of ``index``."""
    if not isinstance(src, Tensor):
        return expand(scalar_tensor(src, x, name), index._array.shape)
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


class Untouched(Op, remembers=True):
    """A copy of ``x``, into which nothing of ``src`` was written, for there is no index."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, src: Tensor) -> Tensor:
        ctx.how = (src._array.shape, src._dtype)
        out = new_empty(x._array.shape, x._dtype, x._device)
        machine.launch(copy_kernel, out._array, x._array)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        shape, dtype = ctx.how
        return g, full(shape, 0, dtype, g._device)


def untouched(x: Tensor, src: Any) -> Tensor:
    """A copy of ``x``, with ``src`` in its history where that has one."""
    if isinstance(src, Tensor) and src._edge is not None and grad_mode.enabled:
        out: Tensor = Untouched.apply(x, src)
        return out
    return clone(x)


def _scattered(name: str, x: Tensor, dim: int, index: Tensor, src: Any, adds: bool) -> Tensor:
    dim, index, slices = _indexed(name, x, dim, index)
    if not index._array.size:
        return untouched(x, src)
    src = _source(name, x, index, src)
    if slices is not None:
        return put_slices(x, src, slices, dim, 1, adds, name, False)
    op = Scatter if overwriting.target is None else ScatterHere
    out = op.apply(_leading(x), dim, index, src, adds, name)
    return out if x._array.ndim else reshape(out, ())


@remembered
def scatter(
    x: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: Any = None
) -> Tensor:
    """``x`` with ``out[index[i][j]][j] = src[i][j]`` for ``dim`` 0; src may be a number.

    Where indices repeat, the last entry stands, and only it gets a gradient. reduce: "add" or
    "multiply" what is there instead, each entry in turn.
    """
    src = value if src is None else src
    if reduce == "multiply":
        from .scatter_reduce import scatter_reduce

        if not isinstance(src, Tensor):
            src = full(as_operand("scatter", index, 2)._array.shape, src, x._dtype, x._device)
        return scatter_reduce(x, dim, index, src, "prod")
    if reduce not in (None, "add"):
        raise ValueError(f"scatter: reduce must be None, 'add' or 'multiply', got {reduce!r}.")
    return _scattered("scatter", x, dim, index, src, reduce == "add")


@remembered
def scatter_add(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """``x`` with ``out[index[i][j]][j] += src[i][j]`` for ``dim`` 0; repeats add up in order."""
    if machine.autocasting:
        x, src = widest(x, src)
    return _scattered("scatter_add", x, dim, index, src, True)


_PUBLIC = "gather scatter scatter_add take take_along_dim".split()
__all__ = [*_PUBLIC]

METHODS: dict[str, Any] = {name: globals()[name] for name in _PUBLIC}
INPLACE: dict[str, Any] = {f"{name}_": globals()[name] for name in "scatter scatter_add".split()}
