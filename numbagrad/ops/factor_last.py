"""Operations whose factor may stand where PyTorch once had it."""

from __future__ import annotations

import functools
from collections.abc import Callable

from ..tape import NUMBERS
from ..tensor import Tensor
from .pointwise import PointwiseOp
from .short_way import make_mixed
from .warned import warn_user


class FactorLast(PointwiseOp):
    """An op of tensors whose last operand is a factor, which PyTorch once took as the second."""

    @functools.cached_property
    def mixed(self) -> Callable[[tuple], Tensor]:
        """The op of its operands in this order or the old one."""
        mixed = make_mixed(self)
        return lambda args: mixed(self.in_order(args))

    def in_order(self, args: tuple) -> tuple:
        """``args`` with the factor at the end."""
        if len(args) != 4 or type(args[1]) not in NUMBERS or not isinstance(args[3], Tensor):
            return args
        x, factor, y, z = args
        warn_user(
            f"{self.name}: a factor before the tensors is deprecated. Use "
            f"{self.name}(y, z, value={factor})."
        )
        return x, y, z, factor
