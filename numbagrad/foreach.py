"""``_foreach_add_`` and its kin: a method of each tensor of a list, by PyTorch's private names.

Optimisers of users' own call them. Here a call is a loop: an optimiser of ``ng.optim`` is one
kernel over all tensors, and ``ng.compile`` joins such a loop. Start reading at ``_over``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .errors import ShapeError
from .tensor import Tensor

__all__: list[str] = []

UNARY = """
    abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg
    reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc
""".split()
BINARY = "add clamp_max clamp_min div maximum minimum mul pow sub".split()

Lists = Sequence[Tensor]


def _tensors(name: str, tensors: Any) -> Lists:
    """``tensors``, if they are a list of at least one."""
    if not isinstance(tensors, (list, tuple)) or not all([isinstance(t, Tensor) for t in tensors]):
        raise TypeError(f"{name}: expected a list or tuple of Tensors, got {tensors!r:.80}.")
    if not tensors:
        raise ShapeError(f"{name}: Tensor list must have at least one tensor.")
    return tensors


def _column(name: str, value: Any, count: int) -> Sequence[Any]:
    """What each of ``count`` tensors meets: a member of a list, or one value for all."""
    if not isinstance(value, (list, tuple)):
        if isinstance(value, Tensor) and value.dim():
            raise ShapeError(
                f"{name}: scalar tensor expected to be 0 dim but it has {value.dim()} dimensions "
                f"and {value.numel()} elements. Use a list of tensors."
            )
        return [value] * count
    if len(value) != count:
        raise ShapeError(
            f"{name}: Tensor lists must have the same number of tensors, got {count} and "
            f"{len(value)}; a list of numbers as many."
        )
    return value


def _over(name: str, self: Lists, columns: Sequence[Any], call: Callable, **options: Any) -> Any:
    """``call`` of each tensor and what it meets: a tuple, or ``self`` where it writes into it."""
    rows = zip(_tensors(name, self), *[_column(name, c, len(self)) for c in columns], strict=True)
    out = tuple([call(*row, **options) for row in rows])
    return self if name.endswith("_") else out


def _method(name: str) -> Callable:
    """The method that ``_foreach_<name>`` calls."""
    found: Any = getattr(Tensor, name, None)
    if found is not None:
        return found
    function: Any = getattr(Tensor, name[:-1])
    return lambda x, y: x.copy_(function(x, y))


def _unary(base: str) -> Callable:
    name, call = f"_foreach_{base}", _method(base)

    def function(self: Lists) -> Any:
        return _over(name, self, (), call)

    return function


def _binary(base: str) -> Callable:
    name, call = f"_foreach_{base}", _method(base)

    def function(self: Any, other: Any) -> Any:
        if base == "pow" and not isinstance(self, (list, tuple)):  # a number to many powers
            return _over(name, other, (self,), lambda y, x: x**y)
        return _over(name, self, (other,), call)

    return function


def _scaled(base: str) -> Callable:
    name, call = f"_foreach_{base}", _method(base)

    def function(self: Lists, other: Any, *, alpha: Any = 1) -> Any:
        return _over(name, self, (other,), call, alpha=alpha)

    return function


def _product(base: str) -> Callable:
    name, call = f"_foreach_{base}", _method(base)

    def function(self: Lists, tensor1: Lists, tensor2: Lists, value: Any = 1) -> Any:
        if isinstance(value, Tensor) and value.dim() == 1:
            value = value.unbind()
        factors = _tensors(name, tensor1), _tensors(name, tensor2)
        return _over(name, self, (*factors, value), lambda x, y, z, v: call(x, y, z, value=v))

    return function


def _lerp(base: str) -> Callable:
    name, call = f"_foreach_{base}", _method(base)

    def function(self: Lists, tensors1: Lists, weight: Any) -> Any:
        return _over(name, self, (_tensors(name, tensors1), weight), call)

    return function


def _norm(self: Lists, ord: Any = 2, dtype: Any = None) -> Any:
    return _over("_foreach_norm", self, (), lambda x: _as(x, dtype).norm(ord))


def _powsum(self: Lists, ord: Any = 2, dtype: Any = None) -> Any:
    return _over("_foreach_powsum", self, (), lambda x: _as(x, dtype).abs().pow(ord).sum())


def _as(x: Tensor, dtype: Any) -> Tensor:
    return x if dtype is None else x.to(dtype)


def _copy_(self: Lists, src: Lists, non_blocking: bool = False) -> Any:
    return _over("_foreach_copy_", self, (_tensors("_foreach_copy_", src),), _method("copy_"))


def _clone(self: Lists, *, memory_format: Any = None) -> Any:
    return _over("_foreach_clone", self, (), _method("clone"), memory_format=memory_format)


def _max(self: Lists) -> Any:
    return _over("_foreach_max", self, (), _method("max"))


def _mm(self: Lists, mat2: Lists) -> Any:
    return _over("_foreach_mm", self, (_tensors("_foreach_mm", mat2),), _method("mm"))


def _made() -> dict[str, Callable]:
    """All functions by name."""
    found: dict[str, Callable] = {"zero_": _unary("zero_"), "copy_": _copy_, "clone": _clone}
    found |= {"max": _max, "mm": _mm, "norm": _norm, "powsum": _powsum}
    makers = dict.fromkeys(UNARY, _unary) | dict.fromkeys(BINARY, _binary)
    makers |= dict.fromkeys(("add", "sub"), _scaled)
    makers |= {"addcdiv": _product, "addcmul": _product, "lerp": _lerp}
    for base, make in makers.items():
        found |= {base: make(base), f"{base}_": make(f"{base}_")}
    for base, function in found.items():
        function.__name__ = function.__qualname__ = f"_foreach_{base}"
        function.__doc__ = f"``{base}`` of each tensor of a list."
    return {function.__name__: function for function in found.values()}


FUNCTIONS = _made()
