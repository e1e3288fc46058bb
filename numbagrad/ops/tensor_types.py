"""``FloatTensor`` and its kin: PyTorch's older names of a tensor of a dtype on the CPU."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..dtypes import DType
from ..shaped import Size
from ..tensor import Tensor
from .create import empty
from .from_data import tensor

__all__ = [
    "BoolTensor",
    "ByteTensor",
    "CharTensor",
    "DoubleTensor",
    "FloatTensor",
    "IntTensor",
    "LongTensor",
    "ShortTensor",
    "set_default_tensor_type",
]


class TensorType:
    """Makes tensors of one dtype: of data, or uninitialised of sizes; ``x.type`` takes it too.

    >>> import numbagrad as ng
    >>> ng.LongTensor([1, 2]).dtype
    ng.int64
    >>> isinstance(ng.zeros(2), ng.FloatTensor)
    True
    """

    def __init__(self, name: str, dtype: DType):
        self.__name__, self.tensor_dtype = name, dtype

    def __call__(self, *data: Any) -> Tensor:
        if len(data) == 1 and not isinstance(data[0], (int, Size)):
            return tensor(data[0], dtype=self.tensor_dtype)
        return empty(*(data or (0,)), dtype=self.tensor_dtype)

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, Tensor) and value.dtype is self.tensor_dtype

    def __repr__(self) -> str:
        return f"ng.{self.__name__}"


BoolTensor = TensorType("BoolTensor", dtypes.bool_)
ByteTensor = TensorType("ByteTensor", dtypes.uint8)
CharTensor = TensorType("CharTensor", dtypes.int8)
DoubleTensor = TensorType("DoubleTensor", dtypes.float64)
FloatTensor = TensorType("FloatTensor", dtypes.float32)
IntTensor = TensorType("IntTensor", dtypes.int32)
LongTensor = TensorType("LongTensor", dtypes.int64)
ShortTensor = TensorType("ShortTensor", dtypes.int16)


def set_default_tensor_type(kind: TensorType | str) -> None:
    """``set_default_dtype`` by its older name: ``DoubleTensor``, or "torch.DoubleTensor"."""
    named = globals().get(kind.rpartition(".")[2]) if isinstance(kind, str) else kind
    if not isinstance(named, TensorType):
        raise TypeError(
            f"set_default_tensor_type: expected ng.FloatTensor, ng.DoubleTensor or such a name, "
            f"got {kind!r}."
        )
    dtypes.set_default_dtype(named.tensor_dtype)
