"""Conversions of a module that ``to`` does not make: ``type``, integers too, and ``to_empty``."""

from __future__ import annotations

from typing import Any

from ...devices import to_device
from ...errors import DTypeError
from ...ops.create import empty_like
from ...tensor import Tensor
from .convert import Convertible

__all__ = ["Recast"]


class Recast(Convertible):
    """The part of ``Module`` that replaces every dtype, or memory without its values."""

    def type(self, dst_type: Any) -> Any:
        """Convert all parameters and buffers, integers too, to a dtype. In place.

        dst_type: a dtype or its name, such as ``ng.float64`` or "ng.DoubleTensor". Raises
        DTypeError for one without gradients where a parameter requires them.
        """
        module: Any = self
        made = Tensor([0.0]).type(dst_type)
        if not isinstance(made, Tensor):
            raise TypeError(f"type: expected a dtype or its name, got {dst_type!r}.")
        if not made.is_floating_point() and any(p.requires_grad for p in module.parameters()):
            raise DTypeError(
                f"type: {made.dtype} has no gradients, but parameters require them: only floating "
                f"point dtypes do. Call requires_grad_(False) first."
            )
        return self._apply(lambda x: x.type(dst_type))

    def to_empty(self, *, device: Any, recurse: bool = True) -> Any:
        """Give parameters and buffers new memory on ``device``, its elements not set. In place.

        device: None for the device of each. recurse: False leaves the modules below alone.
        """
        place = None if device is None else to_device(device)

        def emptied(x: Tensor) -> Tensor:
            return empty_like(x, device=place)

        return self._apply(emptied) if recurse else self._apply(emptied, recurse=False)
