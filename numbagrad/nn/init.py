"""Filling parameters in place: PyTorch's ``torch.nn.init``. Each function returns its tensor.

Nothing here is recorded; numbers come from the global generator, or from ``generator``.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ..autograd.modes import no_grad
from ..dtypes import float64
from ..errors import ShapeError
from ..ops.base import new_empty
from ..ops.random import randperm
from ..tensor import Tensor, wrap_any

__all__ = [
    "calculate_gain",
    "constant",
    "constant_",
    "dirac",
    "dirac_",
    "eye",
    "eye_",
    "kaiming_normal",
    "kaiming_normal_",
    "kaiming_uniform",
    "kaiming_uniform_",
    "normal",
    "normal_",
    "ones_",
    "orthogonal",
    "orthogonal_",
    "sparse",
    "sparse_",
    "trunc_normal_",
    "uniform",
    "uniform_",
    "xavier_normal",
    "xavier_normal_",
    "xavier_uniform",
    "xavier_uniform_",
    "zeros_",
]

_GAINS = {"tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 3.0 / 4}
_LINEAR = """
    linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d sigmoid
""".split()


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor that keeps the variance through ``nonlinearity``; param: leaky_relu's slope.

    >>> calculate_gain("leaky_relu", 0.0) == calculate_gain("relu")
    True
    """
    if nonlinearity in _LINEAR:
        return 1.0
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else float(param)
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity not in _GAINS:
        raise ValueError(f"calculate_gain: Unsupported nonlinearity {nonlinearity!r}.")
    return _GAINS[nonlinearity]


@no_grad()
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform numbers from a to b."""
    return tensor.uniform_(a, b, generator=generator)


@no_grad()
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Normal numbers."""
    return tensor.normal_(mean, std, generator=generator)


@no_grad()
def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Any = None,
) -> Tensor:
    """Normal numbers conditioned on [a, b], drawn by inverting the distribution function."""
    if not a < b:
        raise ValueError(f"trunc_normal_: expected a < b, got {a} and {b}.")

    from scipy import special  # here: importing numbagrad must not import it

    low, high = special.ndtr((a - mean) / std), special.ndtr((b - mean) / std)
    chance = new_empty(tensor.shape, float64).uniform_(low, high, generator=generator)
    drawn = np.clip(special.ndtri(chance.numpy()) * std + mean, a, b)
    return _write(tensor, drawn)


@no_grad()
def constant_(tensor: Tensor, val: float) -> Tensor:
    """``val`` everywhere."""
    return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """Ones."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Zeros."""
    return constant_(tensor, 0.0)


@no_grad()
def eye_(tensor: Tensor) -> Tensor:
    """Ones on the diagonal of a matrix, zeros elsewhere."""
    if tensor.dim() != 2:
        raise ShapeError(f"eye_: Only tensors with 2 dimensions are supported, got {tensor.shape}.")
    return _write(tensor, np.eye(*tensor.shape))


@no_grad()
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Kernels (out, in, ...) of convolutions that hand channels on: 1 in the middle, else 0.

    Each of groups, of ``out / groups`` kernels, keeps as many of its channels as there are.
    """
    if tensor.dim() not in (3, 4, 5):
        raise ShapeError(
            f"dirac_: Only tensors with 3, 4, or 5 dimensions are supported, got {tensor.shape}."
        )
    rows, columns, *sizes = tensor.shape
    if rows % groups:
        raise ShapeError(f"dirac_: dim 0 must be divisible by groups, got {rows} and {groups}.")
    values = np.zeros(tuple(tensor.shape))
    middle = tuple(size // 2 for size in sizes)
    each = rows // groups
    for group in range(groups):
        for d in range(min(each, columns)):
            values[(group * each + d, d, *middle)] = 1
    return _write(tensor, values)


@no_grad()
def orthogonal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Orthonormal rows (or columns, if there are fewer), all but the first dimension flattened.

    The Q of a normal matrix, with the signs of R's diagonal (Saxe et al., 2013).
    """
    if tensor.dim() < 2:
        raise ShapeError(
            f"orthogonal_: Only tensors with 2 or more dimensions are supported, got "
            f"{tensor.shape}."
        )
    if tensor.numel() == 0:
        return tensor
    rows = tensor.size(0)
    columns = tensor.numel() // rows
    drawn = new_empty((rows, columns), float64).normal_(0.0, 1.0, generator=generator)
    matrix = drawn.numpy()
    q, r = np.linalg.qr(matrix.T if rows < columns else matrix)
    q = q * np.sign(np.diag(r))
    q = q.T if rows < columns else q
    return _write(tensor, gain * q.reshape(tensor.shape))


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """Inputs and outputs of one unit of a weight (out, in, *kernel).

    By PyTorch's name, because layers of one's own call it to draw their bias.
    """
    if tensor.dim() < 2:
        raise ShapeError(
            f"Fan in and fan out can not be computed for tensor with fewer than 2 dimensions, got "
            f"{tensor.shape}."
        )
    field = math.prod(tensor.shape[2:])
    return tensor.size(1) * field, tensor.size(0) * field


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform with variance ``gain**2 * 2 / (fan_in + fan_out)`` (Glorot and Bengio, 2010)."""
    bound = gain * math.sqrt(6.0 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Normal with variance ``gain**2 * 2 / (fan_in + fan_out)``."""
    return normal_(
        tensor, 0.0, gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor))), generator
    )


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    """One of the two, as ``mode`` says; by PyTorch's name too."""
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"kaiming: Mode {mode!r} not supported, please use 'fan_in' or 'fan_out'.")
    return _calculate_fan_in_and_fan_out(tensor)[mode == "fan_out"]


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    fan = _calculate_correct_fan(tensor, mode)
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Uniform with variance ``gain**2 / fan`` (He et al., 2015); a: slope of leaky_relu."""
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=2)
        return tensor
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Normal with variance ``gain**2 / fan`` (He et al., 2015); a: slope of leaky_relu."""
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=2)
        return tensor
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Normal of deviation ``std``, with a part ``sparsity`` of each column zero (Martens, 2010)."""
    if tensor.dim() != 2:
        raise ShapeError(
            f"sparse_: Only tensors with 2 dimensions are supported, got {list(tensor.shape)}."
        )
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    normal_(tensor, 0.0, std, generator)
    kept = np.ones((rows, columns), bool)
    for column in range(columns):
        kept[randperm(rows, generator=generator).numpy()[:zeros], column] = False
    with no_grad():
        return tensor.mul_(wrap_any(kept).to(tensor.device))


def _write(tensor: Tensor, values: np.ndarray) -> Tensor:
    """Copy computed values into ``tensor``; these fills are far from any hot path."""
    return tensor.copy_(wrap_any(np.ascontiguousarray(values)))


def _older(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """``function`` by its name without the underscore, with a warning."""
    name, old = function.__name__, function.__name__.rstrip("_")

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Tensor:
        warnings.warn(
            f"nn.init.{old} is deprecated: call nn.init.{name}, which is the same function.",
            FutureWarning,
            stacklevel=2,
        )
        return function(*args, **kwargs)

    called.__name__ = called.__qualname__ = old
    called.__doc__ = f"``{name}`` by its old name; warns."
    return called


constant = _older(constant_)
dirac = _older(dirac_)
eye = _older(eye_)
kaiming_normal = _older(kaiming_normal_)
kaiming_uniform = _older(kaiming_uniform_)
normal = _older(normal_)
orthogonal = _older(orthogonal_)
sparse = _older(sparse_)
uniform = _older(uniform_)
xavier_normal = _older(xavier_normal_)
xavier_uniform = _older(xavier_uniform_)

# What initialisations of users' own import: none of these is recorded anyway.
_no_grad_fill_ = constant_
_no_grad_normal_ = normal_
_no_grad_trunc_normal_ = trunc_normal_
_no_grad_uniform_ = uniform_
_no_grad_zero_ = zeros_
