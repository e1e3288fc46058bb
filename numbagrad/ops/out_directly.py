"""Results that are written where the user wants them, rather than copied there.

Start at ``at_once``, for the usual case, and ``direct``, after all that may be wrong is ruled out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .. import devices, dtypes
from ..kernels import blocks, machine
from ..kernels.cpu import matmul as products
from ..tape import NUMBERS
from ..tensor import Tensor
from . import formulas
from .base import base_of, broadcast_shape

__all__: list[str] = []

ELEMENTWISE = {
    "add": formulas.Add.op,
    "div": formulas.Div.op,
    "neg": formulas.Neg.op,
    "round": formulas.Round.op,
    "square": formulas.Square.op,
    "sub": formulas.Sub.op,
}
"""What functions that look at their options first apply to floats where these are the usual."""


def at_once(name: str, op: Any, out: Tensor, args: tuple) -> bool:
    """Run an elementwise op where nothing is broadcast, shared or followed; whether it was so.

    The usual case: all that could be wrong takes 12 us to rule out.
    """
    if machine.recording or machine.autocasting or not out._flat or out._device is not devices.cpu:
        return False
    if op is None:
        op = ELEMENTWISE.get(name) if out._dtype.is_floating_point else None
    if op is None or len(args) != len(op.inputs) or out._edge is not None or out._base is not None:
        return False
    array = out._array
    first, arrays = machine.address_of(array), [array]
    last = first + array.nbytes
    for each in args:
        if type(each) is not Tensor:
            if type(each) not in NUMBERS:
                return False
            arrays.append(each)
            continue
        other = each._array
        if each is not out:
            followed = each._edge is not None or each._base is not None
            if followed or not each._flat or each._device is not devices.cpu:
                return False
            begin = machine.address_of(other)
            if other.shape != array.shape or (begin < last and first < begin + other.nbytes):
                return False
        arrays.append(other)
    found = op.prepared(args)
    return found is not None and found[1] is out._dtype and bool(found[0](*arrays))


def direct(name: str, op: Any, out: Tensor, args: tuple) -> bool:
    """Let the kernel write ``out`` itself; whether that could be."""
    if any([isinstance(a, np.ndarray) for a in args]):
        return False  # which may be the memory of ``out``
    tensors = tensors_in(args)
    if machine.autocasting or any([t._device is not out._device for t in tensors]):
        return False
    if any([overlap(out, each) == "unknown" for each in tensors]):
        return False
    if op is None and out._dtype.is_floating_point:
        op = ELEMENTWISE.get(name)
    if op is not None:
        return _elementwise(op, out, args)
    if name in ("mm", "bmm", "matmul") and len(tensors) == len(args) == 2:
        return _product(name, out, *tensors)
    return False


FIRST_MADE = frozenset(
    """add amax amin cat clamp clamp_max clamp_min clip concat concatenate cumprod cumsum dstack
    full hstack log_softmax logcumsumexp mean nan_to_num nansum outer pow prod row_stack softmax
    stack sub subtract sum threshold tril triu vstack where xlogy""".split()
)
"""Functions whose first array of the shape and dtype of the result is the result, and is made when
all arguments have been looked at: if no tensor has to be converted or copied for them."""


def result_of(name: str, out: Tensor, function: Callable, args: tuple, options: dict) -> Any:
    """``function(*args, **options)``, whose result may lie in the memory of ``out`` already: one of
    the shape and dtype of ``out`` and, where copies would take long, large.
    """
    array = out._array
    if (
        name not in FIRST_MADE
        or machine.recording
        or "dtype" in options
        or not (out._flat and out._device is devices.cpu and array.nbytes >= blocks.LARGE)
        or not _is_read_alone(out, (*args, *options.values()))
    ):
        return function(*args, **options)
    with blocks.promised(array):
        value = function(*args, **options)
    if value._array is not array and overlap(out, value) != "none":
        return value.clone()  # a view of what was made there
    return value


def _is_read_alone(out: Tensor, values: tuple[Any, ...]) -> bool:
    """Whether arguments are tensors as kernels take them, apart from ``out``, and numbers."""
    for value in values:
        if isinstance(value, (tuple, list)):
            if not _is_read_alone(out, tuple(value)):
                return False
        elif isinstance(value, Tensor):
            alike = value._dtype is out._dtype or value._dtype is dtypes.bool_
            if not (value._flat and alike and overlap(out, value) == "none"):
                return False
        elif value is not None and type(value) not in NUMBERS:
            return False
    return True


def _elementwise(op: Any, out: Tensor, args: tuple) -> bool:
    if len(args) != len(op.inputs):
        return False
    args = tuple([op._checked(i, a) for i, a in enumerate(args)])
    tensors = [a for a in args if isinstance(a, Tensor)]
    if not tensors or op.result_dtype(args) is not out._dtype:
        return False
    if broadcast_shape(op.name, *[t._array.shape for t in tensors]) != out._array.shape:
        return False
    arrays = [a._array if isinstance(a, Tensor) else a for a in args]
    machine.launch(op.kernel, out._array, *arrays)
    return True


def _product(name: str, out: Tensor, x: Tensor, y: Tensor) -> bool:
    a, b, c = x._array, y._array, out._array
    rank = 3 if name == "bmm" else 2
    if not a.ndim == b.ndim == rank or a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        return False
    if c.shape != (*a.shape[:-1], b.shape[-1]) or not c.flags.c_contiguous:
        return False
    alike = x._dtype is y._dtype is out._dtype and out._dtype.is_floating_point
    if not alike or any([overlap(out, each) != "none" for each in (x, y)]):
        return False
    if rank == 2:
        machine.launch(products.mm, c, a, b, 0, 0, 0)
    else:
        machine.launch(products.bmm, c, a, b, 0, 0)
    return True


# -- whose memory meets ---


def tensors_in(values: Iterable[Any]) -> list[Tensor]:
    """The tensors among arguments, and those in sequences."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (tuple, list)):
            found += [each for each in value if isinstance(each, Tensor)]
    return found


def overlap(x: Tensor, y: Tensor) -> str:
    """How the memory of two tensors meets: "none", "same" (element by element), "part", or
    "unknown", where both have gaps that the other may lie in."""
    a, b = x._array, y._array
    if a is b:
        return "same"
    if not a.size or not b.size or x._device is not y._device:
        return "none"
    if base_of(x) is not base_of(y) and (machine.is_traced(a) or machine.is_traced(b)):
        return "none"
    first, second = machine.address_of(a), machine.address_of(b)
    spans = _span(a), _span(b)
    if first >= second + spans[1] or second >= first + spans[0]:
        return "none"
    if first == second and a.shape == b.shape and a.strides == b.strides and a.dtype == b.dtype:
        return "same"
    dense = spans == (a.size * a.itemsize, b.size * b.itemsize)
    return "part" if dense else "unknown"


def _span(array: Any) -> int:
    """Bytes from the first element of ``array`` to the end of its last."""
    pairs = zip(array.shape, array.strides, strict=True)
    return sum([(n - 1) * step for n, step in pairs]) + array.itemsize
