"""How a GPU multiplies, by its other name: ``matmul.allow_tf32``."""

from __future__ import annotations

from ..kernels.precision import get_float32_matmul_precision, set_float32_matmul_precision

__all__ = ["is_built", "matmul"]


def is_built() -> bool:
    """True: whether there is a GPU says ``ng.cuda.is_available()``."""
    return True


class Matmul:
    """``allow_tf32``: whether products of float32 may round their factors to tf32."""

    @property
    def allow_tf32(self) -> bool:
        """Whether ``set_float32_matmul_precision`` was told "high" or "medium"."""
        return get_float32_matmul_precision() != "highest"

    @allow_tf32.setter
    def allow_tf32(self, allowed: bool) -> None:
        set_float32_matmul_precision("high" if allowed else "highest")


matmul = Matmul()
"""Products of matrices on a GPU."""
