"""How layers make their parameters."""

from __future__ import annotations

from typing import Any

from ...devices import cpu, place_of
from ...dtypes import float32, float64, get_default_dtype, to_dtype
from ...kernels.product import expect_products
from ...ops.base import new_empty
from ...ops.create import shape_of
from ..parameter import Parameter


def new_parameter(*shape: int, device: Any = None, dtype: Any = None) -> Parameter:
    """An uninitialised parameter; by default on the default device and of the default dtype."""
    if not all(hasattr(n, "__index__") for n in shape):
        raise TypeError(f"sizes of a layer must be ints, got {list(shape)} for a parameter.")
    kind = get_default_dtype() if dtype is None else to_dtype(dtype)
    place = place_of(device)
    if len(shape) > 1 and place is cpu and kind in (float32, float64):
        expect_products(kind.numpy)
    return Parameter(new_empty(shape_of("nn.Parameter", shape), kind, place))
