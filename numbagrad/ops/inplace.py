"""In-place operations under the tape's rules: who may be changed, and whose history follows.

An in-place op computes its result out of place and writes it into the tensor. On the tape the
tensor then continues from the result: its edge is the result's. If the tensor is a view, its base
gets a node that replaces the viewed region, and every living view of the base is given a new
history, read from the base. Start reading at ``assign``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from ..autograd.changes import check_in_place
from ..autograd.modes import enable_grad
from ..errors import DTypeError, GradError, ShapeError
from ..kernels import machine
from ..kernels.strides import Order, is_dense, meet, order_of
from ..tape import grad_mode, next_sequence, split_edge
from ..tensor import Tensor
from .base import Op, as_operand, base_of, copy_kernel, fill_kernel, full, make_view, new_empty
from .index import overwriting
from .operand import check_operands
from .part import as_strided
from .pointwise import PointwiseOp
from .remembered import plainly
from .short_in_place import SCALED, all_written, has_history, scaled, written


class ViewRegion(Op):
    """The elements of ``x`` at ``offset + index . strides``, as a view.

    order: that of the dims of ``x`` in memory, which it fills without gaps; None for row-major.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, shape: tuple, strides: tuple, offset: int, order: Order | None
    ) -> Tensor:
        ctx.region = (shape, strides, offset, order)
        ctx.base_shape = x._array.shape
        return make_view(x, shape, strides, offset)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        zeros = full(ctx.base_shape, 0, g._dtype, g._device)
        return PlaceRegion.apply(zeros, g, *ctx.region)

    @staticmethod
    def may_add(ctx: Any, whole: Tensor, g: Tensor) -> bool:
        """Whether ``add_into`` may be called."""
        plain = type(whole) is type(g) is Tensor and whole._flat and ctx.region[-1] is None
        return plain and whole._array.shape == ctx.base_shape

    @staticmethod
    def add_into(ctx: Any, whole: Tensor, g: Tensor) -> None:
        """Add the gradient to that of the base, in place."""
        make_view(whole, *ctx.region[:3])._add_in_place(g)


class PlaceRegion(Op, remembers=True):
    """A copy of ``x``, its dims in memory in ``order``, with ``y`` written at a region."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, shape: tuple, strides: tuple, offset: int,
        order: Order | None,
    ) -> Tensor:  # fmt: skip
        ctx.region = (shape, strides, offset, order)
        out = new_empty(x._array.shape, x._dtype, x._device, order)
        machine.launch(copy_kernel, out._array, x._array)
        machine.launch(copy_kernel, machine.view(out._array, shape, strides, offset), y._array)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        g = _lying(g, ctx.region[-1])
        gx = gy = None
        if ctx.needs_input_grad[1]:
            gy = ViewRegion.apply(g, *ctx.region)
        if ctx.needs_input_grad[0]:
            hole = full(ctx.region[0], 0, g._dtype, g._device)
            gx = PlaceRegion.apply(g, hole, *ctx.region)
        return gx, gy

    @staticmethod
    def take(ctx: Any, g: Tensor) -> tuple:
        """``backward`` that makes the hole in ``g`` itself: of a loop that writes its steps into
        one array, each would copy the gradient of all."""
        shape, strides, offset, order = ctx.region
        if order is not None or not g._flat or type(g) is not Tensor:
            return PlaceRegion.backward(ctx, g)
        region, gx, gy = machine.view(g._array, shape, strides, offset), None, None
        if ctx.needs_input_grad[1]:
            gy = new_empty(shape, g._dtype, g._device)
            machine.launch(copy_kernel, gy._array, region)
        if ctx.needs_input_grad[0]:
            machine.launch(fill_kernel, region, 0)
            gx = g
        return gx, gy


def _lying(x: Tensor, order: Order | None) -> Tensor:
    """``x`` without gaps, its dims in memory in ``order``."""
    from .view import contiguous

    if order is None:
        return contiguous(x)
    inverse = [order.index(d) for d in range(len(order))]
    return contiguous(x.permute(order)).permute(inverse)


def region_of(view: Tensor) -> tuple[tuple, tuple, int]:
    """Shape, strides and offset of ``view`` in the memory of its base."""
    return tuple(view._array.shape), view.stride(), view.storage_offset()


def check_distinct(x: Tensor, name: str) -> None:
    """Raise if several elements of ``x`` are one number in memory, as after ``expand``."""
    if x._flat:
        return
    if x._array.size and 0 in [s for s, n in zip(x.stride(), x._array.shape, strict=True) if n > 1]:
        raise several_in_one(name)


def several_in_one(name: str) -> GradError:
    """The error of a write where several elements are one number."""
    return GradError(
        f"{name}: unsupported operation: more than one element of the written-to tensor refers to "
        f"a single memory location. Please clone() the tensor before performing the operation."
    )


def assign(x: Tensor, value: Tensor, name: str) -> Tensor:
    """Write ``value`` (any history) into ``x``, move its version, and carry on its history."""
    recording = grad_mode.enabled and (
        value._edge is not None
        or x._edge is not None
        or (x._base is not None and x._base._edge is not None)
    )
    if recording:
        check_in_place(x, name)
        check_followed(x, name)
        if x._base is not None and not x._flat and meet(*region_of(x)[:2]):
            raise several_in_one(name)
    check_distinct(x, name)
    machine.launch(copy_kernel, x._array, value._array)
    x._bump_version()
    if recording:
        _rebase(x, value)
    return x


def check_followed(x: Tensor, name: str) -> None:
    """Raise if the tape cannot follow a change of ``x``: views read their region of a base as
    memory without gaps, and of one dtype."""
    base = x._base
    if base is None:
        if _fills(x) or all(view() is None for view in x._views or ()):
            return
        base = x
    elif _fills(base) and base._dtype is x._dtype:
        return
    raise GradError(
        f"{name}: in-place: the base of {'this view' if base is not x else 'living views'}, "
        f"{list(base.shape)} of {base._dtype}, cannot be followed by the tape. Clone it first."
    )


def _fills(x: Tensor) -> bool:
    """Whether the elements of ``x`` fill its memory without gaps, in whichever order."""
    return x._flat or is_dense(x._array)


def _rebase(x: Tensor, value: Tensor) -> None:
    told = getattr(type(machine.recorder.current), "rebasing", None) if machine.recording else None
    if told is not None:  # who runs a function for a batch has to take it back
        told(machine.recorder.current, x)
    edge = value._edge
    base = x._base
    retaining = _retaining(x)
    if edge is not None and value._dtype is not x._dtype:
        edge = value.to(x._dtype)._edge
    if base is None:
        x._edge = edge
        _refresh_views(x)
        _retain_again(retaining)
        machine.moved()
        return
    region = region_of(x)
    carrier = value.to(x._dtype) if value._dtype is not x._dtype else value
    if carrier._array.shape != x._array.shape:
        carrier = carrier.expand(x._array.shape)
    order = order_of(base._array.shape, [base._array])
    _connect(PlaceRegion, base, (base._edge, carrier._edge), (*region, order))
    _refresh_views(base)
    _retain_again(retaining)
    machine.moved()


def following(tensors: tuple[Tensor, ...], name: str, change: Callable[[], None]) -> None:
    """Call ``change``, which gives ``tensors`` other histories, and let their views, and those that
    they are views of, have them."""
    viewed = [t for t in tensors if any([view() is not None for view in t._views or ()])]
    views = [t for t in tensors if t._base is not None]
    for tensor in (*viewed, *views):
        check_followed(tensor, name)
    for view in views:
        if not view._flat and meet(*region_of(view)[:2]):
            raise several_in_one(name)
    retaining = [pair for tensor in tensors for pair in _retaining(tensor)]
    before = [view._edge for view in views]
    change()
    for view, edge in zip(views, before, strict=True):
        value = view._bare_alias()
        value._edge, view._edge = view._edge, edge
        _rebase(view, value)
    for tensor in viewed:
        _refresh_views(tensor)
    _retain_again(retaining)


def _retaining(x: Tensor) -> list[tuple[Tensor, Any]]:
    """The tensors on the memory of ``x`` that keep their gradients, with their edges."""
    base = base_of(x)
    found = [base, *[view for reference in base._views or () if (view := reference()) is not None]]
    return [(t, t._edge) for t in found if t._retain]


def _retain_again(tensors: list[tuple[Tensor, Any]]) -> None:
    """Let tensors that kept the gradients at these edges keep those of what they are now."""
    for tensor, edge in tensors:
        if tensor._edge is edge:
            continue
        node, index = split_edge(edge)
        node._made_hooks().retained.pop(index, None)
        del tensor._retain
        if tensor._edge is not None:
            tensor.retain_grad()


def _connect(op: type[Op], output: Tensor, edges: tuple, region: tuple) -> None:
    """Make ``output`` the result of ``op`` without computing it: its memory is right already."""
    node: Any = object.__new__(op._node_type)
    node.region = region
    node._needs = tuple([e is not None for e in edges])
    node._attach([output], edges)


def _copy_of(x: Tensor) -> Tensor:
    """The elements that ``x`` has now, with its history."""
    original = new_empty(x._array.shape, x._dtype, x._device)
    machine.launch(copy_kernel, original._array, x._array)
    original._edge = x._edge
    return original


def _save_original(x: Tensor, edge: Any, start: int) -> None:
    """Where nodes made since ``start`` have saved ``x``, which is about to change, let them keep a
    copy; edge: that of the last of them."""
    original, nodes = None, [split_edge(edge)[0]]
    for node in nodes:  # it grows on the way
        if node._sequence < start:
            continue
        nodes += [n for e in node._edges if e is not None and (n := split_edge(e)[0]) not in nodes]
        saved = getattr(node, "_saved", None)
        if not saved or not any([value is x for value in saved]):
            continue
        original = _copy_of(x) if original is None else original
        node._saved = tuple([original if value is x else value for value in saved])
        rare = node._rare
        if rare is not None and rare.versions is not None:
            pairs = zip(saved, rare.versions, strict=True)
            rare.versions = tuple([0 if value is x else version for value, version in pairs])


def _refresh_views(base: Tensor) -> None:
    """Give every living view of ``base`` a history that reads from ``base`` as it is now."""
    order = None if base._flat else order_of(base._array.shape, [base._array])
    for reference in list(base._views or ()):
        view = reference()
        if view is None or view._base is not base:
            continue
        if base._edge is None:
            view._edge = None
            continue
        region = region_of(view)
        if meet(*region[:2]):
            view._edge = as_strided(base, *region)._edge
            continue
        _connect(ViewRegion, view, (base._edge,), (*region, order))
        view._edge.base_shape = base._array.shape


WRITERS = frozenset(
    """
    index_add_ index_copy_ index_fill_ index_put_ index_reduce_ put_ scatter_ scatter_add_
    scatter_reduce_
    """.split()
)
"""In-place forms whose op writes its target itself, where nothing has a history: they change a few
elements, and a copy would be of all."""


def _is_all_of(out: Tensor, x: Tensor) -> bool:
    """Whether ``out``, of as many elements, is ``x`` itself or a view of it."""
    return out._array is x._array or (out._base is not None and base_of(out) is base_of(x))


def _untaped(x: Tensor, args: tuple, kwargs: dict) -> bool:
    """Whether nothing among these tensors has a history that counts now."""
    if not grad_mode.enabled:
        return True
    if has_history(x):
        return False
    return all([getattr(a, "_edge", None) is None for a in (*args, *kwargs.values())])


def in_place(name: str, function: Callable, op: Any = None) -> Callable:
    """The in-place form of ``function``: ``x.name(...)`` writes ``function(x, ...)`` into x.

    op: the elementwise op that ``function`` is, where it is one; or a function that gives it, and
    its further operands, for the arguments.
    """
    op = op or getattr(function, "op", None)
    function = plainly(function)
    binary = isinstance(op, PointwiseOp) and len(op.inputs) == 2
    sign = SCALED.get(name)

    @functools.wraps(function)
    def method(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        try:
            if binary and len(args) == 1 and not kwargs:
                if written(op, x, args[0]):
                    return x
            elif sign is not None:
                if scaled(sign, x, *args, **kwargs):
                    return x
            elif op is not None and all_written(op, x, args, kwargs):
                return x
            if grad_mode.enabled:
                check_in_place(x, name)
            if name in WRITERS and _untaped(x, args, kwargs):
                overwriting.target, overwriting.done = x, False
                try:
                    out = function(x, *args, **kwargs)
                finally:
                    overwriting.target = None
                if not overwriting.done or not _is_all_of(out, x):
                    return assign(x, out, name)
                (x._counter or x._version_counter()).bump()
                return x
            packed, start = grad_mode.saving is not None and grad_mode.enabled, next_sequence()
            # What a hook packs must not change with x.
            out = function(_copy_of(x) if packed else x, *args, **kwargs)
            if out._array.shape != x._array.shape:
                raise ShapeError(
                    f"{name}: output with shape {list(x.shape)} doesn't match the broadcast shape "
                    f"{list(out.shape)}. An in-place op cannot grow its tensor; use the op "
                    f"without _."
                )
            if out._dtype is not x._dtype and out._dtype.category > x._dtype.category:
                raise DTypeError(
                    f"{name}: result type {out._dtype} can't be cast to the desired output type "
                    f"{x._dtype}. Use the op without _, or convert x first."
                )
            if out._edge is not None:
                _save_original(x, out._edge, start)
            return assign(x, out, name)
        except AttributeError as error:
            check_operands(name, error, (x, *args))
            raise

    method.__name__ = name
    method.__doc__ = f"In-place form of ``{function.__name__}``."
    return method


def view_in_place(name: str, function: Callable) -> Callable:
    """The in-place form of ``function``, which gives a view: x takes its shape and strides."""

    @functools.wraps(function)
    def method(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        check_in_place(as_operand(name, x), name)
        edge = x._edge
        # Under no_grad too, the way back from what x is now leads through its old shape.
        with enable_grad() if edge is not None and not x.is_leaf else nullcontext():
            out = function(x, *args, **kwargs)
        if machine.is_recording():
            machine.recorder.current.set_sizes(name, x)
        x._share(out)
        if edge is not None and not x.is_leaf:
            x._edge = out._edge
        x._bump_version()
        x._moved()
        return x

    method.__name__ = name
    method.__doc__ = f"In-place form of ``{function.__name__}``: other sizes, the same memory."
    return method
