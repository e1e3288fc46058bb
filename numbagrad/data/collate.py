"""``default_collate``: a list of samples to one batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..dtypes import float64
from ..ops.from_data import from_numpy, tensor
from ..ops.join import stack
from ..tensor import Tensor

__all__ = ["default_collate", "default_convert"]


def default_collate(batch: Sequence[Any]) -> Any:
    """Stack the tensors, arrays and numbers of the samples along a new first dimension.

    Tuples, named tuples, lists and dicts are collated member by member; strings stay lists. Python
    floats become float64, as in PyTorch.

    >>> default_collate([(1, "a"), (2, "b")])
    [tensor([1, 2]), ('a', 'b')]
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return stack(list(batch), 0)
    if isinstance(first, np.ndarray):
        return from_numpy(np.stack(batch))
    if isinstance(first, np.generic):
        return from_numpy(np.array(batch))
    if isinstance(first, (bool, int, float)):
        return tensor(list(batch), dtype=float64 if isinstance(first, float) else None)
    if isinstance(first, (str, bytes)):
        return list(batch)
    if isinstance(first, Mapping):
        return {key: default_collate([sample[key] for sample in batch]) for key in first}
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        members = list(zip(*batch, strict=True))
        if hasattr(first, "_fields"):
            return type(first)(*[default_collate(member) for member in members])
        return [
            member if isinstance(member[0], (str, bytes)) else default_collate(member)
            for member in members
        ]
    raise TypeError(
        f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
        f"found {type(first).__name__}. Pass collate_fn."
    )


def default_convert(data: Any) -> Any:
    """``data`` with its NumPy arrays and numbers as tensors, also within lists, tuples and dicts.

    Everything else is left as it is. For samples that are not collated.

    >>> default_convert([np.array([1, 2]), "a"])
    [tensor([1, 2]), 'a']
    """
    if isinstance(data, np.generic):
        return tensor(data)
    if isinstance(data, np.ndarray):
        return from_numpy(data) if data.dtype.kind in "fiub" else data
    if isinstance(data, Mapping):
        return {key: default_convert(value) for key, value in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*[default_convert(member) for member in data])
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return [default_convert(member) for member in data]
    return data
