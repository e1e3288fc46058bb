"""What distributions of users' own import: broadcasting, and probabilities to logits and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...autograd.modes import enable_grad
from ...ops.create import tril_indices
from ...ops.elementwise import log, sigmoid
from ...ops.norm import softmax
from ...tensor import Tensor
from ..distribution import broadcast_all
from ..location_scale import EULER as euler_constant
from ..probability import clamp_probs, logit_of

__all__ = [
    "broadcast_all",
    "clamp_probs",
    "euler_constant",
    "lazy_property",
    "logits_to_probs",
    "probs_to_logits",
    "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Probabilities of logits: of classes along the last dimension, or each by itself.

    >>> logits_to_probs(zeros(2)).tolist(), logits_to_probs(zeros(1), is_binary=True).item()
    ([0.5, 0.5], 0.5)
    """
    return sigmoid(logits) if is_binary else softmax(logits, -1)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Logarithms of probabilities; of each by itself those of the odds. All are finite.

    >>> probs_to_logits(tensor([0.5]), is_binary=True).item()
    0.0
    """
    return logit_of(probs) if is_binary else log(clamp_probs(probs))


class lazy_property:
    """A property that is computed when first asked for, and kept; it may be set before.

    >>> class Square:
    ...     @lazy_property
    ...     def area(self):
    ...         return print("computed") or 4
    >>> square = Square()
    >>> square.area + square.area
    computed
    8
    """

    def __init__(self, wrapped: Callable[[Any], Any]):
        self.wrapped = wrapped
        self.__doc__ = wrapped.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        with enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.name, value)
        return value


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """Lower triangles (..., n, n) of vectors, row by row; diag: the last diagonal that is filled.

    >>> vec_to_tril_matrix(tensor([1.0, 2.0, 3.0])).tolist()
    [[1.0, 0.0], [2.0, 3.0]]
    """
    n = 0
    while sum([min(max(i + 1 + diag, 0), n) for i in range(n)]) < vec.shape[-1]:
        n += 1
    out = vec.new_zeros((*vec.shape[:-1], n, n))
    rows, columns = tril_indices(n, n, diag, device=vec.device)
    out[..., rows, columns] = vec
    return out


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The lower triangles of matrices (..., n, n) as vectors, row by row.

    >>> tril_matrix_to_vec(tensor([[1.0, 0.0], [2.0, 3.0]])).tolist()
    [1.0, 2.0, 3.0]
    """
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    rows, columns = tril_indices(n, n, diag, device=mat.device)
    return mat[..., rows, columns]
