"""``Parameter``: a tensor that a module lists as its own."""

from __future__ import annotations

from typing import Any

from ..dtypes import get_default_dtype
from ..ops.base import new_empty
from ..tensor import Tensor

__all__ = ["Parameter"]


class Parameter(Tensor):
    """A tensor that a module registers when it is assigned to an attribute.

    data: shares its memory, not its history; None: an empty tensor. requires_grad: True unless
    told, so ``data`` must be floating then.

    >>> Parameter(Tensor([1.0, 2.0]))
    Parameter containing:
    tensor([1., 2.], requires_grad=True)
    """

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Parameter:
        return object.__new__(cls)

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True):
        if data is None:
            data = new_empty((0,), get_default_dtype())
        if not isinstance(data, Tensor):
            raise TypeError(
                f"Parameter: data must be a Tensor, got {type(data).__name__}. Convert it with "
                f"ng.tensor(...)."
            )
        self._share(data)
        self._counter = data._version_counter()
        self.requires_grad_(requires_grad)

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()
