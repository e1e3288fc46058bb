"""What is said of an argument that should be a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..tensor import Tensor
from .selected import Selected

__all__: list[str] = []  # nothing that users call


def no_operand(name: str, value: Any, position: int = 0) -> TypeError:
    """The error for ``value``, which came to the function ``name`` where it takes a tensor."""
    if type(value) is Selected:
        value.refuse(name)
    return TypeError(
        f"{name}(): argument {position + 1} must be Tensor, not {type(value).__name__}. "
        f"Convert it with ng.tensor(...)."
    )


def check_operands(name: str, error: AttributeError, args: Sequence[Any]) -> None:
    """Raise that an argument must be a Tensor, where ``error`` says that it lacks what one has.

    Many functions take the attributes of a tensor and do not look whether it is one: to do so
    would cost each call time, and to catch what they raise costs none.
    """
    for position, value in enumerate(args):
        if value is error.obj and not isinstance(value, Tensor) and _has(error.name):
            raise no_operand(name, value, position) from None


def _has(attribute: str | None) -> bool:
    return attribute is not None and (
        hasattr(Tensor, attribute) or attribute in Tensor.__annotations__
    )
