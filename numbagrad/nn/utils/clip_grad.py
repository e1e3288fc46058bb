"""Clipping gradients in place: all of a dtype in one launch."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from ...autograd.modes import no_grad
from ...dtypes import get_default_dtype, promote_types
from ...kernels.cpu import optim as kernels
from ...kernels.machine import check, empty, is_compiling, launch, view
from ...ops.base import contiguous, new_empty, reshaped, same_device
from ...ops.comparison import isfinite
from ...ops.create import zeros
from ...ops.elementwise import where
from ...ops.join import cat
from ...ops.lapack import vector_norm
from ...tensor import Tensor

__all__ = [
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "get_total_norm",
]


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients so that their norm, as of one long vector, is at most ``max_norm``.

    norm_type: the p of the norm; ``math.inf`` for the largest absolute value. One that is not
    positive gives, as in PyTorch, the norm of the tensors' norms. The factor is
    ``min(1, max_norm / (norm + 1e-6))``. Returns the norm before clipping. Sums are accumulated in
    float64. foreach: accepted for PyTorch's sake; the gradients are always one list.

    >>> import numbagrad as ng
    >>> x = ng.tensor([3.0, 4.0], requires_grad=True)
    >>> x.grad = ng.tensor([3.0, 4.0])
    >>> clip_grad_norm_([x], 1.0)
    tensor(5.)
    """
    grads = _gradients(parameters)
    norm = _total_norm("clip_grad_norm_", grads, norm_type, error_if_nonfinite)
    largest = float(max_norm)
    _change(grads, kernels.clip_norm, [norm._array], lambda: (largest,))
    return reshaped(norm, ())


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    total_norm: Tensor,
    foreach: bool | None = None,
) -> None:
    """Scale all gradients by ``min(1, max_norm / (total_norm + 1e-6))``.

    total_norm: one element, as ``get_total_norm`` gives it. The other half of ``clip_grad_norm_``.

    >>> import numbagrad as ng
    >>> x = ng.tensor([3.0, 4.0], requires_grad=True)
    >>> x.grad = ng.tensor([3.0, 4.0])
    >>> clip_grads_with_norm_(x, 2.5, get_total_norm([x.grad]))
    >>> [round(g, 5) for g in x.grad.tolist()]
    [1.5, 2.0]
    """
    if not isinstance(total_norm, Tensor) or total_norm._array.size != 1:
        raise TypeError(
            f"clip_grads_with_norm_: total_norm must be a Tensor of one element, got "
            f"{total_norm!r}. get_total_norm makes it."
        )
    grads, largest = _gradients(parameters), float(max_norm)
    if grads:
        same_device("clip_grads_with_norm_", [total_norm, *grads])
    norm = reshaped(contiguous(total_norm.detach()), (1,))
    _change(grads, kernels.clip_norm, [norm._array], lambda: (largest,))


def clip_grad_norm(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """``clip_grad_norm_`` by its old name; warns."""
    warnings.warn(
        "nn.utils.clip_grad_norm is deprecated: call clip_grad_norm_, which is the same function.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def get_total_norm(
    tensors: Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of all ``tensors`` as of one long vector; see ``clip_grad_norm_``.

    foreach is accepted for PyTorch's sake.

    >>> import numbagrad as ng
    >>> get_total_norm([ng.tensor([3.0]), ng.tensor([4.0])])
    tensor(5.)
    """
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    return reshaped(_total_norm("get_total_norm", tensors, norm_type, error_if_nonfinite), ())


def _total_norm(
    name: str, tensors: list[Tensor], norm_type: float, error_if_nonfinite: bool
) -> Tensor:
    """The norm, as one element in one dimension."""
    power = float(norm_type)
    if math.isnan(power):
        raise ValueError(
            f"{name}: norm_type must be a number, got {norm_type}. The usual one is 2."
        )
    norm = _long_norm(tensors, power) if power > 0 else _norm_of_norms(tensors, power)

    def fail(_: int) -> None:
        raise RuntimeError(
            f"{name}: The total norm of order {norm_type} for gradients from `parameters` is "
            f"non-finite, so it cannot be clipped. Pass error_if_nonfinite=False to scale by it "
            f"anyway."
        )

    if error_if_nonfinite and is_compiling():  # each call looks
        check(where(isfinite(norm), -1, 0)._array, fail)
    elif error_if_nonfinite and not math.isfinite(norm.item()):
        fail(0)
    return norm


def _norm_of_norms(tensors: list[Tensor], power: float) -> Tensor:
    """Of an order that is not positive: of 0 the number of tensors that are not all zeros."""
    with no_grad():
        norms = [vector_norm(tensor, power).reshape(1) for tensor in tensors]
        return vector_norm(cat(norms), power).reshape(1) if norms else zeros(1)


def _long_norm(tensors: list[Tensor], power: float) -> Tensor:
    """Of a positive order, accumulated in float64."""
    dtype = get_default_dtype()
    for i, tensor in enumerate(tensors):
        dtype = tensor.dtype if i == 0 else promote_types(dtype, tensor.dtype)
    groups = list(_by_dtype(tensors).values())
    device = tensors[0].device if tensors else None
    sums = empty((len(groups),), np.dtype(np.float64), device)
    for k, group in enumerate(groups):
        arrays = [contiguous(tensor)._array for tensor in group]
        launch(kernels.power_sums, view(sums, (1,), (1,), k), arrays, lambda: (power,))
    norm = new_empty((1,), dtype, device)
    launch(kernels.norm_of_sums, norm._array, sums, power)
    return norm


def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None
) -> None:
    """Move every element of the gradients into ``-clip_value .. clip_value``; NaN stays NaN."""
    largest = float(clip_value)
    _change(_gradients(parameters), kernels.clip_value, [], lambda: (largest,))


def _gradients(parameters: Any) -> list[Tensor]:
    parameters = [parameters] if isinstance(parameters, Tensor) else parameters
    return [p._grad for p in parameters if p._grad is not None]


def _by_dtype(tensors: Iterable[Tensor]) -> dict[Any, list[Tensor]]:
    groups: dict[Any, list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor._dtype, []).append(tensor)
    return groups


def _change(grads: list[Tensor], kernel: Any, arrays: list[Any], scalars: Any) -> None:
    """Run ``kernel`` on the gradients of each dtype and note the change."""
    for group in _by_dtype(grads).values():
        dense = [contiguous(grad) for grad in group]
        launch(kernel, [grad._array for grad in dense], *arrays, scalars)
        with no_grad():
            for grad, changed in zip(group, dense, strict=True):
                if grad is changed:
                    grad._bump_version()
                else:
                    grad.copy_(changed)
