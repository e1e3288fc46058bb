"""What every built-in op stands on: ``Op``, allocation, views, dimension checks.

``Op`` is ``Function`` without the checks that only foreign code needs.
"""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import devices, dtypes
from ..autograd.recorded import Recorded
from ..dtypes import DType
from ..errors import DimError, ShapeError
from ..kernels import blocks, machine
from ..kernels.expr import symbol
from ..kernels.formula import Formula
from ..kernels.halves import encoded
from ..kernels.loops import ElementwiseKernel
from ..kernels.strides import Order, empty_in
from ..kernels.widened import copy_kernel
from ..tape import IN_PLACE, NUMBERS, ONE_OUTPUT, SavedOutput, grad_mode
from ..tensor import Tensor, wrap
from .op_memory import OpMemory
from .operand import no_operand
from .remembered import remembering

_new = object.__new__

_fills: dict[DType, Any] = {}

SHORT = 4096
"""From so many elements on the time of Python matters little."""

fill_kernel = ElementwiseKernel(Formula("fill", ("value",), symbol("value")))


class OpNode(Recorded):
    """The node and ctx of an ``Op``."""

    _op: type[Op]
    _to_save: tuple[Any, ...] = ()

    def save(self, *tensors: Any) -> None:
        """Keep inputs, outputs or None for backward; call it once."""
        self._to_save = tensors

    @property
    def saved_tensors(self) -> list[Any]:
        """What ``save`` kept, in order."""
        return self._unpack()

    def _made_again(self, at: int, values: list[Any]) -> Any:
        """A result that has been changed, where the op tells how it is made again."""
        again = getattr(self._op, "again", None)
        if again is None or grad_mode.enabled or type(values[at]) is not SavedOutput:
            return None
        return again(self, *values[:at])

    def _run(self, grads: list[Any]) -> Sequence[Any]:
        """The op's backward on gradients of all outputs."""
        result = self._op.backward(self, *self._materialised(grads))
        return result if type(result) is tuple else (result,)

    def _run_one(self, grad: Any) -> Sequence[Any]:
        """The same; the gradient of the only output, or a list of those of several."""
        if self._outputs > 1:
            return self._run(grad)
        result = self._op.backward(self, grad)
        return result if type(result) is tuple else (result,)


_NEEDS_NOTHING = (False,) * 64


class Op:
    """A built-in differentiable operation: static ``forward(ctx, *args)`` and ``backward``.

    forward gets Tensors with grad mode off and returns a fresh Tensor or a tuple of them; backward
    gets a gradient for each floating output and returns one per argument, trailing Nones left out.
    It is made of differentiable functions, so every order exists. An op whose backward reads its
    result may have ``again(ctx, *saved)``: the result, from what was saved before it, where it has
    been changed.

    shown: of several results so many are the op's; those after them are there to be saved. zeros:
    whether backward gets zeros, not None, for results that nothing used.

    ``class Take(Op, remembers=True)``: one whose forward remembers what it launched. plain_notes:
    what it notes is the same for all calls of a kind, as it is then: functions remember its node.
    """

    _node_type: type[OpNode]
    _memory: OpMemory | None = None
    _plain_notes = False
    shown: int | None = None
    zeros = True

    def __init_subclass__(cls, remembers: bool = False, plain_notes: bool | None = None) -> None:
        if remembers or plain_notes is not None or "forward" in cls.__dict__:
            cls._plain_notes = remembers or bool(plain_notes)
        if "forward" in cls.__dict__:
            cls._memory = OpMemory(cls.forward) if remembers and remembering() else None
        kind = {"_op": cls, "_zeros": cls.zeros}
        cls._node_type = type(f"{cls.__name__}Backward", (OpNode,), kind)
        ONE_OUTPUT.add(cls._node_type)
        if hasattr(cls, "add_into") or hasattr(cls, "take"):
            IN_PLACE.add(cls._node_type)

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        """Compute; override it."""
        raise NotImplementedError

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Differentiate; override it."""
        raise NotImplementedError

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Run forward; record it when a Tensor among ``args`` needs a gradient."""
        ctx = _new(cls._node_type)
        memory = cls._memory
        if not grad_mode.enabled:
            ctx._needs = _NEEDS_NOTHING[: len(args)]
            return cls.forward(ctx, *args) if memory is None else memory.forward(ctx, args)
        edges = tuple([a._edge if isinstance(a, Tensor) else None for a in args])
        if edges.count(None) < len(edges):
            ctx._needs = tuple([e is not None for e in edges])
            grad_mode.enabled = False
            try:
                result = cls.forward(ctx, *args) if memory is None else memory.forward(ctx, args)
            finally:
                grad_mode.enabled = True
            outputs = (result,) if isinstance(result, Tensor) else result[: cls.shown]
            ctx._attach(outputs, edges)
            kept = ctx._to_save
            if kept:
                values = []
                for value in kept:
                    for index, output in enumerate(outputs):
                        if value is output:
                            value = SavedOutput(output, index if output._edge is not None else -1)
                            break
                    values.append(value)
                Recorded._save(ctx, tuple(values))
                ctx._to_save = ()
            return result
        ctx._needs = _NEEDS_NOTHING[: len(args)]
        return cls.forward(ctx, *args) if memory is None else memory.forward(ctx, args)


# -- allocation and launches -----------------------------------------------------------------------


def new_empty(
    shape: Sequence[int], dtype: DType, device: Any = devices.cpu, order: Order | None = None
) -> Tensor:
    """An uninitialised tensor without gaps. order: of its dims in memory, where not row-major."""
    if order is not None:
        out = wrap(empty_in(order, tuple(shape), dtype.numpy, device), dtype)
        out._flat = False
        return out
    if machine.recording and (machine.closed or device is not devices.cpu):
        return wrap(machine.empty(tuple(shape), dtype.numpy, device), dtype)
    nbytes = dtype.itemsize
    for n in shape:
        nbytes *= n
    if nbytes < blocks.LARGE:
        return wrap(np.empty(shape, dtype.numpy), dtype)
    return wrap(blocks.empty(tuple(shape), dtype.numpy, nbytes), dtype)


def short_copy(x: Tensor, dtype: DType) -> Tensor | None:
    """The few elements of a contiguous ``x`` in ``dtype``, without a history; None where there are
    more, or where somebody stands behind the verbs."""
    if not x._flat or (machine.recording and not machine.on_host(x)):
        return None
    array = x._array
    entry = copy_kernel.entry((dtype.numpy, array.dtype))
    out = np.empty(array.shape, dtype.numpy) if array.size < SHORT else None
    return wrap(out, dtype) if out is not None and entry(out, array) else None


def full(shape: Sequence[int], value: Any, dtype: DType, device: Any = devices.cpu) -> Tensor:
    """A tensor filled with ``value``."""
    alone = not machine.recording or machine.recorder.current is None
    if alone and value == 0 and math.copysign(1, value) > 0 and device is devices.cpu:
        return wrap(blocks.zeros(tuple(shape), dtype.numpy), dtype)
    if isinstance(value, np.generic):
        value = value.item()
    out = new_empty(shape, dtype, device)
    here = not machine.recording or machine.on_host(out)
    if here and type(value) in NUMBERS:
        entry = fill_kernel.entry((dtype.numpy, type(value)))
        if entry(out._array, value):
            return out
    machine.launch(fill_kernel, out._array, value)
    return out


def constant(values: Any, dtype: DType, beside: Any = None) -> Tensor:
    """Numbers that are the same in all calls of a kind, on the device of the tensor ``beside``;
    nobody writes into them."""
    array = encoded(np.ascontiguousarray(values), dtype.numpy)
    if beside is None or beside._device is devices.cpu:
        return wrap(machine.table(array, None), dtype)
    return wrap(array, dtype).to(beside._device)


def zeros_like(x: Tensor) -> Tensor:
    """Zeros of the shape, dtype and device of ``x``."""
    return _filled_like(x, 0)


def ones_like(x: Tensor) -> Tensor:
    """Ones of the shape, dtype and device of ``x``."""
    return _filled_like(x, 1)


def _filled_like(x: Tensor, value: int) -> Tensor:
    if x._device is devices.cpu and not machine.closed:  # where every backward starts
        out = wrap(np.empty(x._array.shape, x._dtype.numpy), x._dtype)
        if fill_entry(x._dtype)(out._array, value):
            return out
    value = bool(value) if x._dtype is dtypes.bool_ else value
    return full(x._array.shape, value, x._dtype, x._device)


def fill_entry(dtype: DType) -> Any:
    """What fills contiguous arrays of the host with an int; it gives False for long ones."""
    entry = _fills.get(dtype)
    if entry is None:
        entry = _fills[dtype] = fill_kernel.entry((dtype.numpy, int))
    return entry


def launch(kernel: Any, *args: Any) -> None:
    """Run ``kernel`` on Tensors, arrays and numbers: outputs first, then inputs, then scalars.

    kernel: ``ng.kernel``, or any function on arrays, such as your own ``@njit``. Allocate the
    outputs first, ``ng.empty_like(x)`` say.
    """
    machine.launch(kernel, *[a._array if isinstance(a, Tensor) else a for a in args])


def contiguous(x: Tensor) -> Tensor:
    """The elements of ``x`` in row-major order without gaps; ``x`` itself if they are so."""
    if x._flat or x._array.flags.c_contiguous:
        return x
    out = new_empty(x._array.shape, x._dtype, x._device)
    machine.launch(copy_kernel, out._array, x._array)
    return out


def reshaped(x: Tensor, shape: Sequence[int]) -> Tensor:
    """A contiguous ``x`` seen with another shape of as many elements; no history."""
    return wrap(x._array.reshape(shape), x._dtype)


def base_of(x: Tensor) -> Tensor:
    """The tensor that ``x`` is a view of; ``x`` itself if it is none."""
    return x if x._base is None else x._base


def meets(x: Tensor, y: Tensor) -> bool:
    """Whether writing ``x`` may change elements of ``y`` at other places than its own."""
    a, b = x._array, y._array
    if a is b:
        return False
    if base_of(x) is base_of(y):
        return True
    return type(a) is np.ndarray and type(b) is np.ndarray and np.may_share_memory(a, b)


def make_view(x: Tensor, shape: Sequence[int], strides: Sequence[int], offset: int) -> Tensor:
    """A tensor on the memory of ``x``; strides and offset in elements, from its first element.

    It shares the version of ``x`` and follows it when its base is changed in place.
    """
    array = machine.view(x._array, tuple(shape), tuple(strides), offset)
    out = _new(Tensor)
    out._array = array
    out._dtype = x._dtype
    out._flat = array.flags.c_contiguous
    if x._device is not devices.cpu:
        out._device = x._device
    counter = x._counter
    out._counter = x._version_counter() if counter is None else counter
    out._base = base = base_of(x)
    if base._edge is None or not base.is_leaf:
        _remember_view(base, out)
    return out


def _remember_view(base: Tensor, out: Tensor) -> None:
    """Let ``base`` find its living views, whose history changes with its own."""
    views = base._views
    if views is None:
        base._views = views = []
    elif len(views) >= 16 and len(views) & (len(views) - 1) == 0:
        views[:] = [v for v in views if v() is not None]
    views.append(weakref.ref(out))


# -- dimensions ------------------------------------------------------------------------------------


def normalize_dim(name: str, dim: int, ndim: int) -> int:
    """``dim`` counted from the front; a 0-d tensor takes 0 and -1."""
    rank = ndim or 1
    if not isinstance(dim, int):
        try:
            dim = dim.__index__()
        except AttributeError:
            raise TypeError(
                f"{name}: dim must be an int, got {type(dim).__name__} {dim!r}."
            ) from None
    if not -rank <= dim < rank:
        raise DimError(
            f"{name}: Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], "
            f"but got {dim})."
        )
    return dim + rank if dim < 0 else dim


def normalize_dims(name: str, dims: Any, ndim: int) -> tuple[int, ...]:
    """Several dims (an int, a sequence, or None for all), sorted, each once."""
    if dims is None:
        return tuple(range(ndim))
    if isinstance(dims, int):
        dims = (dims,)
    found = [normalize_dim(name, d, ndim) for d in dims]
    if len(set(found)) != len(found):
        raise ShapeError(f"{name}: dim appears multiple times in the list of dims {tuple(dims)}.")
    return tuple(sorted(found))


def broadcast_shape(name: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that all broadcast to."""
    if shapes.count(shapes[0]) == len(shapes):
        return tuple(shapes[0])
    rank = max(map(len, shapes))
    result = [1] * rank
    for shape in shapes:
        for i in range(1, len(shape) + 1):
            n, held = shape[-i], result[-i]
            if n != held and n != 1:
                if held != 1:
                    raise ShapeError(
                        f"{name}: The size of tensor a ({held}) must match the size of tensor b "
                        f"({n}) at non-singleton dimension {rank - i}. Received shapes "
                        f"{' and '.join(str(list(s)) for s in shapes)}; reshape one so that they "
                        f"broadcast."
                    )
                result[-i] = n
    return tuple(result)


@functools.cache
def _sum() -> Any:
    from .reduce import sum as found  # a higher family; an import statement costs 1 us each time

    return found


def sum_to_shape(x: Tensor, shape: Sequence[int]) -> Tensor:
    """Sum the dimensions of ``x`` along which ``shape`` was broadcast; differentiable."""
    got = x._array.shape
    shape = tuple(shape)
    if got == shape:
        return x
    extra = len(got) - len(shape)
    dims = list(range(extra))
    dims += [extra + i for i, n in enumerate(shape) if n == 1 and got[extra + i] != 1]
    if dims:
        x = _sum()(x, tuple(dims), keepdim=True)
    return x if x._array.shape == shape else x.reshape(shape)


def same_device(name: str, tensors: Sequence[Tensor]) -> Any:
    """The device of all ``tensors``; an error if they stand on several."""
    device = tensors[0]._device
    for tensor in tensors:
        if tensor._device is not device and tensor._device != device:
            raise devices.mixed(name, device, tensor._device)
    return device


def beside_others(name: str, args: tuple) -> tuple[tuple, Any]:
    """``args`` with 0-d tensors of the CPU copied to the device of the others; that device.

    An error if the others stand on several devices.
    """
    tensors = [a for a in args if isinstance(a, Tensor)]
    fixed = [t for t in tensors if t._array.ndim or t._device is not devices.cpu]
    device = same_device(name, fixed or tensors)
    return tuple([a.to(device) if isinstance(a, Tensor) else a for a in args]), device


def as_operand(name: str, value: Any, position: int = 0) -> Tensor:
    """``value`` if it is a Tensor; an error otherwise."""
    if not isinstance(value, Tensor):
        raise no_operand(name, value, position)
    return value
