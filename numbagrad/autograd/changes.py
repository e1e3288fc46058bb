"""Which tensors may be changed in place, as far as the tape is concerned."""

from __future__ import annotations

from ..errors import GradError
from ..kernels import machine
from ..tape import grad_mode, split_edge
from ..tensor import Tensor


def check_in_place(tensor: Tensor, name: str) -> None:
    """Raise if ``tensor`` may not be changed in place now."""
    if not grad_mode.enabled:
        return
    if tensor._edge is not None and tensor.is_leaf:
        raise GradError(
            f"{name}: a leaf Variable that requires grad is being used in an in-place operation. "
            f"Do it under ng.no_grad(), on x.data, or on a clone.{_of_arguments()}"
        )
    _check_alias(tensor, name)
    base = tensor._base
    if base is None or (base._edge is None and tensor._edge is None):
        return
    # A leaf may be a view itself: its views have its history, and its base has none.
    if base._edge is None or base.is_leaf:
        raise GradError(
            f"{name}: a view of a leaf Variable that requires grad is being used in an in-place "
            f"operation. Do it under ng.no_grad(), or on a clone.{_of_arguments()}"
        )
    _check_alias(base, name)
    if tensor._edge is None and tensor._dtype is base._dtype:
        raise GradError(
            f"{name}: A view was created in no_grad mode and is being modified inplace with grad "
            f"mode enabled: whether its base should have the gradient of what it was is not known. "
            f"Make the view with grad mode on, or write it under ng.no_grad()."
        )


def _check_alias(tensor: Tensor, name: str) -> None:
    """Raise if ``tensor`` is an argument of a Function on the tape, handed back or seen as another:
    of a change the tape would not tell the argument."""
    edge = tensor._edge
    if edge is None:
        return
    node, index = split_edge(edge)
    if index in getattr(node, "_aliases", ()):
        raise GradError(
            f"{name}: Output {index} of {node.name()} is a view and is being modified inplace. "
            f"This view was created inside a custom Function, or its input was returned as it is. "
            f"Return a clone() from forward, or use {name.rstrip('_')} without _."
        )


def _of_arguments() -> str:
    """What there is to say of leaves while a step is recorded."""
    if not machine.is_compiling():
        return ""
    return " Inside a compiled function an argument that requires grad is a leaf."
