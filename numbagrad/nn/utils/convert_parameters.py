"""All parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import ShapeError
from ...ops.join import cat
from ...tensor import Tensor

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """The elements of all parameters, one after the other, as a 1-d tensor; differentiable."""
    return cat([parameter.reshape(-1) for parameter in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Let the parameters take their elements from ``vec``, whose memory they then share."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected Tensor, but got: {type(vec).__name__}")
    parameters = list(parameters)
    total = sum(parameter.numel() for parameter in parameters)
    if total > vec.numel():
        raise ShapeError(
            f"vector_to_parameters: the parameters have {total} elements, vec {vec.numel()}."
        )
    start = 0
    for parameter in parameters:
        stop = start + parameter.numel()
        parameter.data = vec[start:stop].view(parameter.shape).data
        start = stop
