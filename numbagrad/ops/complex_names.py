"""What PyTorch's programs ask of complex numbers: every number here is real.

Conjugates and real parts are the tensor itself, an angle is 0 or pi.
"""

from __future__ import annotations

import math
from typing import Any, NoReturn

from .. import dtypes
from ..errors import DTypeError, ShapeError
from ..tensor import Tensor
from .base import as_operand, full
from .from_formula import Elementwise
from .transpose import t, transpose

__all__ = ["angle", "conj", "conj_physical", "is_conj", "is_neg", "isreal", "real"]
__all__ += ["resolve_conj", "resolve_neg"]


class Angle(Elementwise):
    """The angle of a number in the plane: pi where it is negative, else 0; NaN stays NaN.

    Gradient: zero.

    >>> angle(tensor([2.0, -2.0])).tolist()
    [0.0, 3.1415927410125732]
    """

    result = "float"

    def formula(x):
        return x if math.isnan(x) else (math.pi if x < 0 else 0)

    def grad_x(g):
        return 0


angle = Angle.function


def isreal(x: Tensor) -> Tensor:
    """Whether each number is real: True.

    >>> isreal(tensor([1.0, -2.0])).tolist()
    [True, True]
    """
    x = as_operand("isreal", x)
    return full(x._array.shape, True, dtypes.bool_, x._device)


def real(x: Tensor) -> Tensor:
    """The real part: ``x`` itself.

    >>> x = tensor([1.0])
    >>> real(x) is x and x.real is x
    True
    """
    return as_operand("real", x)


def conj(x: Tensor) -> Tensor:
    """The conjugate: ``x`` itself.

    >>> conj(tensor([1.0])).tolist()
    [1.0]
    """
    return as_operand("conj", x)


def conj_physical(x: Tensor) -> Tensor:
    """The same as ``conj``.

    >>> conj_physical(tensor([1.0])).tolist()
    [1.0]
    """
    return as_operand("conj_physical", x)


def resolve_conj(x: Tensor) -> Tensor:
    """``x`` itself, which is no conjugate that waits.

    >>> resolve_conj(tensor([1.0])).tolist()
    [1.0]
    """
    return as_operand("resolve_conj", x)


def resolve_neg(x: Tensor) -> Tensor:
    """``x`` itself, which is no negative that waits.

    >>> resolve_neg(tensor([1.0])).tolist()
    [1.0]
    """
    return as_operand("resolve_neg", x)


def is_conj(x: Tensor) -> bool:
    """False: there are no complex numbers.

    >>> is_conj(tensor([1.0]))
    False
    """
    as_operand("is_conj", x)
    return False


def is_neg(x: Tensor) -> bool:
    """False: negatives are computed at once.

    >>> is_neg(tensor([1.0]))
    False
    """
    as_operand("is_neg", x)
    return False


def _imaginary(x: Tensor) -> NoReturn:
    """There is none: raises DTypeError."""
    raise DTypeError(
        f"imag: imag is not implemented for tensors with non-complex dtypes; this one is "
        f"{x._dtype}. Use ng.zeros_like(x)."
    )


def _adjoint(x: Tensor) -> Tensor:
    """The last two dimensions exchanged."""
    if x._array.ndim < 2:
        raise ShapeError(
            f"mH: tensor.mH is only supported on matrices or batches of matrices. Got "
            f"{x._array.ndim}-D tensor."
        )
    return transpose(x, -2, -1)


def _matrix_adjoint(x: Tensor) -> Tensor:
    """A matrix transposed; tensors of fewer dimensions as they are."""
    if x._array.ndim in (0, 2):
        return t(x)
    raise ShapeError(
        f"H: tensor.H is only supported on matrices (2-D tensors). Got {x._array.ndim}-D tensor. "
        f"Use tensor.mH for batches of matrices."
    )


METHODS: dict[str, Any] = {
    "H": property(_matrix_adjoint),
    "angle": angle,
    "conj": conj,
    "conj_physical": conj_physical,
    "imag": property(_imaginary),
    "is_conj": is_conj,
    "is_neg": is_neg,
    "isreal": isreal,
    "mH": property(_adjoint),
    "real": property(real),
    "resolve_conj": resolve_conj,
    "resolve_neg": resolve_neg,
}
