"""Tools around training: ``checkpoint``, and ``data`` and ``dlpack`` by PyTorch's names."""

from typing import TYPE_CHECKING

from ..later import asked_for
from . import _pytree as _pytree
from . import checkpoint

if TYPE_CHECKING:
    from . import data, dlpack

__all__ = ["checkpoint", "data", "dlpack"]

__getattr__ = asked_for(__name__, {"data": "data", "dlpack": "dlpack"})


def __dir__() -> list[str]:
    return [*globals(), *__all__]
