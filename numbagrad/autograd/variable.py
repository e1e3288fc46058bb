"""``Variable``: the name that tensors with a history had before they were one class."""

from __future__ import annotations

from typing import Any

from ..tensor import Tensor

__all__ = ["Variable"]


class _EveryTensor(type):
    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, Tensor)


class Variable(metaclass=_EveryTensor):
    """``Variable(data)`` is a Tensor on the memory of ``data`` without its history.

    Every Tensor is an instance. In new code use the tensor itself.

    >>> import numbagrad as ng
    >>> Variable(ng.ones(2), requires_grad=True)
    tensor([1., 1.], requires_grad=True)
    """

    def __new__(cls, data: Tensor, requires_grad: bool = False) -> Any:
        """Raises TypeError if ``data`` is no Tensor."""
        if not isinstance(data, Tensor):
            raise TypeError(f"Variable: data has to be a tensor, but got {type(data).__name__}.")
        return data.detach().requires_grad_(requires_grad)
