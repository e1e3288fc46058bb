"""Methods of rows that a mask selects while a step is recorded, and ``x[mask] = y`` of them.

See ``selected.py``. Start reading at ``pick`` and ``write``.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import ShapeError
from ..tensor import Tensor
from . import selected_losses as selected_losses  # their rules
from . import selected_ranks as selected_ranks
from . import selected_samples as selected_samples
from .elementwise import cast, where
from .inplace import assign
from .methods import IN_PLACE_OPERATORS
from .selected import Selected, Unsized
from .selected_parts import chosen
from .selected_rules import as_whole, beside_rows, gated
from .view import expand, reshape

__all__: list[str] = []  # nothing that users call

ALL = builtins.slice(None)


def _reshaped(self: Selected, *shape: Any) -> Selected:
    """All elements as a vector; or each row in another form, the first size -1."""
    sizes = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
    whole = self.whole
    if sizes == (-1,):
        return _vector(self)
    if sizes[:1] != (-1,) or -1 in sizes[1:]:
        raise Unsized(self, "reshape")
    rest = math.prod(whole._array.shape[1:])
    if math.prod(sizes[1:]) != rest:
        raise Unsized(self, f"reshape to {list(sizes)}")
    return self.view_of(reshape(whole, (whole._array.shape[0], *sizes[1:])))


def _vector(self: Selected) -> Selected:
    """The elements of all rows, one after the other."""
    shape = self.whole._array.shape
    if len(shape) == 1:
        return self
    wide = reshape(expand(beside_rows(self.mask, self.whole), shape), (math.prod(shape),))
    mask, version, times = self.key
    key = (mask, version, times * math.prod(shape[1:]))
    found = Selected.of(reshape(self.whole, (math.prod(shape),)), wide, key)
    self.shared = found.shared = True
    return found


def _flatten(self: Selected, start_dim: int = 0, end_dim: int = -1) -> Selected:
    first, last = start_dim % self.rank, end_dim % self.rank
    if first == 0 and last == self.rank - 1:
        return _vector(self)
    if first == 0:
        raise Unsized(self, "flatten of the first dimension")
    return self.view_of(self.whole.flatten(first, last))


def _item_of_rows(self: Selected, key: Any) -> Any:
    """The same part of each row, or of some of them."""
    key = key if isinstance(key, tuple) else (key,)
    if key and isinstance(key[0], np.integer):
        key = (int(key[0]), *key[1:])
    if key and _chooses(key[0]):
        if isinstance(key[0], Tensor) and not builtins.all(map(_is_basic, key[1:])):
            raise Unsized(self, "such an index")
        found = chosen(self, key[0])
        rest = key[1:] if type(key[0]) is int else (ALL, *key[1:])
        return found[rest] if len(key) > 1 else found
    if not key or isinstance(key[0], Tensor) or key[0] not in (ALL, ...):
        raise Unsized(self, "an index of rows")
    used = builtins.sum([k is not None and k is not ... for k in key])
    if (
        not builtins.all(map(_is_basic, key))
        or (key[0] is ... and used >= self.rank)
        or used > self.rank
    ):
        raise Unsized(self, "such an index")
    return self.view_of(self.whole[key])


def _is_basic(key: Any) -> bool:
    return key is None or key is ... or isinstance(key, (int, builtins.slice))


def _chooses(key: Any) -> bool:
    """Whether the first of a key's parts is a row, an index or mask of rows, or a range of them."""
    if isinstance(key, Tensor):
        return key.ndim == 1 and key._dtype in (dtypes.bool_, dtypes.int64)
    return type(key) is int or (isinstance(key, builtins.slice) and key != ALL)


def _same_place(name: str) -> Callable[..., Any]:
    """A method that gives for each element something of it."""
    plain = getattr(Tensor, name)

    def method(self: Selected, *args: Any, **kwargs: Any) -> Selected:
        args = tuple([a.whole if type(a) is Selected else a for a in args])
        found = plain(self.whole, *args, **kwargs)
        same = name != "clone" and found._dtype is self._dtype
        return self.view_of(found) if same else self.beside(found)

    return method


def _along_row(name: str) -> Callable[..., Any]:
    """A method that moves dims that are not the first."""
    plain = getattr(Tensor, name)

    def method(self: Selected, *dims: int) -> Selected:
        more = name == "unsqueeze"
        if not dims or builtins.any([d % (self.rank + more) == 0 for d in dims]):
            raise Unsized(self, name)
        return self.view_of(plain(self.whole, *dims))

    return method


def _written(name: str) -> Callable[..., Any]:
    """The in-place form of a method: the rows are a copy, which nobody else may see."""
    plain = name[:-1]

    def method(self: Selected, *args: Any, **kwargs: Any) -> Selected:
        if self.shared:
            raise Unsized(self, f"{name} beside a view of it")
        found = getattr(self, plain)(*args, **kwargs)
        if type(found) is not Selected or found._dtype is not self._dtype:
            raise Unsized(self, name)
        self.become(found.whole)
        return self

    method.__name__ = name
    return method


def pick(x: Tensor, mask: Tensor) -> Selected:
    """``x[mask]``, the mask of the first dimensions of ``x``."""
    shape, rest = mask._array.shape, x._array.shape[mask._array.ndim :]
    n = math.prod(shape)
    flat = reshape(mask.detach().clone(), (n,))  # which may be written afterwards
    whole = gated(reshape(x, (n, *rest)), flat)
    return Selected.of(whole, flat, (mask, mask._version, 1))


def write(x: Tensor, mask: Tensor, value: Tensor) -> None:
    """``x[mask] = value`` of selected rows, or of a tensor that fits them."""
    shape, rest = x._array.shape, x._array.shape[mask._array.ndim :]
    n = math.prod(mask._array.shape)
    rows = Selected.of(reshape(x, (n, *rest)), reshape(mask, (n,)), (mask, mask._version, 1))
    value = cast_rows(value, x)
    if type(value) is not Selected:
        have = value._array.shape
        while len(have) > rows.rank and have[0] == 1:
            value, have = reshape(value, have[1:]), have[1:]
        alone = have[1:] if len(have) == rows.rank else have
        pairs = zip(reversed(alone), reversed(rest), strict=False)
        if len(have) > rows.rank or not builtins.all([a in (1, b) for a, b in pairs]):
            raise ShapeError(
                f"setitem: shape mismatch: value tensor of shape {list(have)} cannot be broadcast "
                f"to indexing result of rows of shape {list(rest)}."
            )
    if type(value) is Selected and value.rank < rows.rank:
        raise ShapeError(
            f"setitem: what a mask selects has {value.rank} dimensions, {rows.rank} are written. "
            f"Use unsqueeze(1) for one number for each row."
        )
    found = where(beside_rows(rows.mask, rows.whole), as_whole("setitem", rows, value), rows.whole)
    if found._array.shape != rows.whole._array.shape:
        raise ShapeError(
            f"setitem: shape mismatch: rows of shape {list(found.shape[1:])} that a mask selects "
            f"cannot be broadcast to indexing result of rows of shape {list(rest)}."
        )
    assign(x, reshape(found, shape), "setitem")


def cast_rows(value: Tensor, x: Tensor) -> Tensor:
    """``value`` in the dtype of ``x``."""
    if type(value) is Selected:
        return value.beside(cast(value.whole, x._dtype))
    return cast(value, x._dtype)


def _install() -> None:
    """Give ``Selected`` its methods; when a mask first selects, ``Tensor`` has all of its own."""
    places = "float double half bfloat16 long int short char byte bool to type_as clone detach"
    for name in [*places.split(), "contiguous"]:
        setattr(Selected, name, _same_place(name))
    for name in ("unsqueeze", "squeeze"):
        setattr(Selected, name, _along_row(name))
    for name in [n for n in dir(Tensor) if n.endswith("_") and not n.startswith("_")]:
        if hasattr(Tensor, name[:-1]) and name not in vars(Selected):
            setattr(Selected, name, _written(name))
    for name, method in IN_PLACE_OPERATORS.items():
        setattr(Selected, f"__i{name}__", _written(method))
    for name, rule in (("reshape", _reshaped), ("view", _reshaped), ("flatten", _flatten)):
        setattr(Selected, name, rule)
    Selected.__getitem__ = _item_of_rows


_install()
